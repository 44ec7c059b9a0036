"""Versions of the installed distributions that matter, read from metadata: nothing is imported."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

NAMES = (
    "ai-dynamo",
    "ai-dynamo-runtime",
    "vllm",
    "tensorrt-llm",
    "nixl",
    "nixl-cu12",
    "nixl-cu13",
    "torch",
    "triton",
    "transformers",
    "flashinfer-python",
    "lmcache",
    "openai-harmony",
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu12",
    "nvidia-ml-py",
    "mpi4py",
    "aiperf",
)


def versions(python: str | None = None) -> dict[str, str]:
    """Distribution to version, of those in `NAMES` that an interpreter would import: this one, or `python`.

    Nothing is run: the folders of `python` are derived from where it lies.
    """
    # Here, not above: it loads the email parser, which a dry run for another machine never needs.
    from importlib.metadata import Distribution

    folders = sys.path if python is None or python == sys.executable else search_path(python)
    found = {}
    for name in NAMES:
        for distribution in Distribution.discover(name=name, path=folders):
            version = distribution.metadata["Version"]
            if version:  # a folder with torn metadata gives None
                found[name] = version
            break
    return found


def search_path(python: str) -> list[str]:
    """Folders of installed distributions of another interpreter, first the ones that it searches first."""
    prefix = Path(python).absolute().parent.parent
    prefixes = [prefix]
    try:
        settings = dict(
            line.split(" = ", 1) for line in (prefix / "pyvenv.cfg").read_text().splitlines() if " = " in line
        )
    except OSError:
        # No virtual environment: what pip adds to a distribution's own Python lies under /usr/local.
        prefixes.insert(0, prefix / "local")
    else:
        if settings.get("include-system-site-packages", "").strip() == "true":
            home = Path(settings.get("home", "/usr/bin").strip()).parent
            prefixes += [home / "local", home]
    patterns = ("lib/python3*/site-packages", "lib/python3*/dist-packages")
    return [str(folder) for each in prefixes for pattern in patterns for folder in sorted(each.glob(pattern))]


def cuda_runtime(packages: Mapping[str, str], environ: Mapping[str, str]) -> tuple[int, int] | None:
    """The CUDA that the installed code was built for, None where nothing says.

    Asked in this order: torch's `+cu130`, the CUDA runtime wheel, the image's CUDA_VERSION.
    """
    local = re.search(r"\+cu(\d+)(\d)\b", packages.get("torch", ""))
    if local:
        return int(local.group(1)), int(local.group(2))
    for text in (
        packages.get("nvidia-cuda-runtime", ""),
        packages.get("nvidia-cuda-runtime-cu12", ""),
        environ.get("CUDA_VERSION", ""),
    ):
        dotted = re.match(r"(\d+)\.(\d+)", text)
        if dotted:
            return int(dotted.group(1)), int(dotted.group(2))
    return None
