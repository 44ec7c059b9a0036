"""Which compile caches are warm: after a first start that became ready, a mark lies beside the cache.

Of workers that share a cold cache one goes first; the others would compile the same at the same time, and some engines
clobber each other's files doing so.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from launcher.plan.model import Plan, Process

ROOTS = ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE")


class Warmth:
    """The caches of one plan's processes, by their `warm_key`."""

    def __init__(self, plan: Plan) -> None:
        self._roots = {
            process.warm_key: [Path(process.env[name]) for name in ROOTS if name in process.env]
            for process in plan.processes
            if process.warm_key
        }

    def is_cold(self, key: str) -> bool:
        """No worker of that key has become ready with this cache yet, or somebody emptied it since."""
        roots = self._roots.get(key)
        if not roots:
            return False
        return not _mark(roots[0], key).exists() or not any(_filled(root) for root in roots)

    def became_ready(self, process: Process) -> None:
        """What it compiled is in the cache now."""
        roots = self._roots.get(process.warm_key)
        if roots:
            with contextlib.suppress(OSError):  # a cache that cannot be written stays cold
                mark = _mark(roots[0], process.warm_key)
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()


def _mark(root: Path, key: str) -> Path:
    return root.parent / f".warm-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _filled(root: Path) -> bool:
    try:
        return any(root.iterdir())
    except OSError:
        return False
