"""What a snapshot's state means to the person who wants to serve it: findings, shared by doctor and download."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.download.snapshot import Fault, Problem, SnapshotState
from launcher.findings import Finding, Severity

SHOWN = 4
"""File names that a finding lists before it says how many more there are."""


def findings(state: SnapshotState, *, where: str, fix: str, running: bool = False) -> Iterator[Finding]:
    """What is wrong with a model on disk; nothing where it is whole.

    `where` is the setting that names the model, `fix` the command that repairs it; `running` says that a download is
    at work now, so that its partial files are no leftovers.
    """
    if state.folder is None:
        yield _absent(state, where, fix)
    pointers = [problem for problem in state.problems if problem.fault is Fault.POINTER]
    others = [problem for problem in state.problems if problem.fault is not Fault.POINTER]
    if pointers:
        yield Finding(
            code="model-lfs-pointer",
            what=f"{state.model}: {_names(pointers)} hold Git LFS pointers instead of their content",
            where=str(state.folder),
            why="the folder was cloned without Git LFS; an engine fails on it after minutes",
            fix=f"`git lfs pull` in that folder, or {fix}",
        )
    if others:
        torn = f", and {len(state.torn)} partial downloads" if state.torn else ""
        yield Finding(
            code="model-incomplete",
            what=f"{state.model}: {len(others)} files are not whole: {_names(others)}{torn}",
            where=str(state.folder),
            why="an engine fails on it after minutes of loading, or starts a download of its own",
            fix=fix,
        )
    if state.complete and state.torn and not running:
        size = sum(size for _, size in state.torn)
        yield Finding(
            code="model-leftovers",
            what=f"{state.model}: {len(state.torn)} partial downloads take {human(size)}",
            severity=Severity.INFO,
            where=str(state.repo / "blobs"),
            fix="delete the *.incomplete files there if no download is running",
        )


def _absent(state: SnapshotState, where: str, fix: str) -> Finding:
    if not state.commits:
        torn = f" ({len(state.torn)} partial downloads are)" if state.torn else ""
        return Finding(
            code="model-missing",
            what=f"{state.model} is not in {state.repo.parent}{torn}"
            if state.revision
            else f"no folder {state.repo}",
            where=where,
            why="each worker and the frontend would download it by itself, or fail where they cannot",
            fix=fix,
        )
    have = ", ".join(commit[:12] for commit in state.commits)
    asked = f"revision {state.revision!r}"
    if state.commit is not None and state.commit != state.revision:
        asked += f" ({state.commit[:12]})"
    return Finding(
        code="model-revision",
        what=f"{state.model}: {asked} is not in the cache, which has {have}",
        where=where,
        why="frontend and workers must read one and the same revision",
        fix=f"{fix}, or pin one of those with --set model.revision=COMMIT",
    )


def _names(problems: list[Problem]) -> str:
    shown = ", ".join(problem.text() for problem in problems[:SHOWN])
    more = len(problems) - SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def human(size: float) -> str:
    """Bytes for a person: GB as the hub and disks count them (10**9)."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size:.0f} B"
