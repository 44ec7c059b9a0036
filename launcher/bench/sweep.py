"""Several points, each from empty caches, resumable: what is measured already is not measured again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher import outputs
from launcher.findings import Finding, LauncherError

from . import point as point_module
from . import run
from .point import Point
from .run import POINT, Plan
from .service import Service

STATE = "sweep.json"


@dataclass(frozen=True, slots=True)
class Step:
    """One point to be measured."""

    concurrency: int
    variant: str = ""
    """Values of the target to change, such as `workers.prefill.count=2,workers.decode.count=6`."""

    @property
    def folder(self) -> str:
        """Name of its folder: readable, and unique by the digest of the variant."""
        if not self.variant:
            return f"c{self.concurrency}"
        digest = hashlib.sha256(self.variant.encode()).hexdigest()[:6]
        readable = re.sub(r"[^A-Za-z0-9=.-]+", "_", self.variant)[:60]
        return f"{readable}-{digest}-c{self.concurrency}"


@dataclass(frozen=True, slots=True)
class Setup:
    """A variant of the target, ready to be measured."""

    plan: Plan
    start: Callable[[], Service]
    """Gives the deployment, cleared or not; called at the variant's first point."""


def claim(root: Path, identity: dict[str, object], where: str = "--out") -> None:
    """Take the folder for a sweep, or go on with the same one; `where` is what named it.

    Raises LauncherError where it cannot be written, or another sweep is in it.
    """
    outputs.folder(root, where)
    state = root / STATE
    text = json.dumps(identity, indent=1, sort_keys=True) + "\n"
    try:
        if not state.exists():
            state.write_text(text, encoding="utf-8")
            return
        before = state.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise outputs.cannot_write(state, error, where) from None
    if before == text:
        return
    try:
        old = json.loads(before)
    except ValueError:
        old = {}
    names = sorted({*old, *identity}) if isinstance(old, dict) else []
    changed = [name for name in names if old.get(name) != identity.get(name)]
    raise LauncherError(
        Finding(
            code="bench-other-sweep",
            what=f"{root} holds points of another benchmark: {', '.join(changed) or 'unreadable'} differ",
            where=where,
            why="points of one report must be measured under the same conditions",
            fix="give another --out, or the same options as before",
        )
    )


def measure(
    root: Path, steps: Sequence[Step], setup: Callable[[str], Setup], tell: Callable[[str], None]
) -> list[Point]:
    """Every point, in order, measured or read back. Deployments are stopped before this returns or raises."""
    found: list[Point] = []
    service: Service | None = None
    running: str | None = None
    used = False
    try:
        for step in steps:
            folder = root / step.folder
            done = _done(folder / POINT)
            if done is not None:
                tell(f"{step.folder}: measured before")
                found.append(done)
                continue
            ready = setup(step.variant)
            if running != step.variant or service is None:
                if service is not None:
                    service.close()
                service, running = ready.start(), step.variant
                # Of a deployment of somebody else nobody knows what it has served.
                used = bool(service.how) and not service.fresh
            if used:
                service.clear()
            fresh = run.point(ready.plan, service, step.concurrency, folder, tell, variant=step.variant)
            if fresh.clean is False and service.how:
                tell(f"{step.folder}: {dirty(fresh)}; clearing and measuring once more")
                service.clear()
                fresh = run.point(ready.plan, service, step.concurrency, folder, tell, variant=step.variant)
            used = True
            if fresh.clean is not True:
                tell(f"{step.folder}: {dirty(fresh)}")
            found.append(fresh)
    finally:
        if service is not None:
            service.close()
    return found


def dirty(point: Point) -> str:
    """Why a point cannot be trusted to have begun with empty caches."""
    if point.first_hit is None or point.first_ideal is None:
        return "whether it began with empty caches cannot be told: the engine reports no cached tokens"
    return (
        f"its first requests hit {point.first_hit:.1%} of their tokens, and with empty caches at most "
        f"{point.first_ideal:.1%} are possible: KV state was left over"
    )


def _done(path: Path) -> Point | None:
    try:
        return point_module.load(path)
    except OSError:
        return None
    except (ValueError, TypeError, KeyError):
        # Of an older launcher, or torn: measured again.
        return None
