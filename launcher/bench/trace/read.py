"""Reading a trace of anyone's making: every row is checked, and what is wrong is said with its line number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.findings import Finding, LauncherError, Severity

from .model import DEFAULT_BLOCK, Row

LFS_POINTER = b"version https://git-lfs"
"""First bytes of the few lines that Git leaves in place of a large file."""
SHOWN = 5
"""Faults of one kind that are listed one by one."""
KNOWN = {"session_id", "timestamp", "delay", "input_length", "output_length", "hash_ids", "type", "extra"}


@dataclass(frozen=True, slots=True)
class Trace:
    """A checked trace."""

    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    """What a reader of results should know; nothing here makes the trace unusable."""
    block: int


def read(
    path: Path, given_by: str = "--trace", *, block: int | None = None, limit: int | None = None
) -> Trace:
    """The rows of a trace, or LauncherError with one finding for each fault.

    `given_by`: what named the file. `block`: tokens of a hash block; worked out from the rows where None.
    `limit`: context length, tokens.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LauncherError(
            Finding(
                code="trace-missing",
                what=f"{path}: {error.strerror or error}",
                where=given_by,
                fix="make one: launcher trace make --target NAME --out FILE",
            )
        ) from None
    if content.startswith(LFS_POINTER):
        raise LauncherError(_pointer(path, content))
    rows: list[Row] = []
    faults: list[Finding] = []
    for number, line, whole in _lines(content):
        try:
            rows.append(_row(line))
        except _Fault as fault:
            faults.append(_line_finding(path, number, str(fault), torn=not whole and fault.syntax))
    if faults:
        hidden = len(faults) - SHOWN
        shown = faults[:SHOWN]
        if hidden > 0:
            shown.append(
                Finding(code="trace-row", what=f"{hidden} more lines of {path} are wrong", where=str(path))
            )
        raise LauncherError(shown)
    if not rows:
        raise LauncherError(Finding(code="trace-empty", what=f"{path} has no row", where=str(path)))
    fits = fitting_block(rows)
    used = block if block is not None else _natural(fits)
    return Trace(tuple(rows), tuple(_notes(path, rows, used, fits, limit)), used)


def fitting_block(rows: list[Row]) -> tuple[int, int] | None:
    """Smallest and largest block size with which every row has one hash id for each (partial) block; None: no size."""
    low, high = 1, 1 << 30
    for row in rows:
        count = len(row.hash_ids)
        if count == 0:
            continue
        # ceil(length / block) == count
        low = max(low, -(-row.input_length // count))
        if count > 1:
            high = min(high, (row.input_length - 1) // (count - 1))
    return (low, high) if low <= high else None


def _natural(fits: tuple[int, int] | None) -> int:
    return DEFAULT_BLOCK if fits is None or fits[0] <= DEFAULT_BLOCK <= fits[1] else fits[0]


def _pointer(path: Path, content: bytes) -> Finding:
    size = next(
        (
            line.partition(b" ")[2].decode(errors="replace")
            for line in content.splitlines()
            if line.startswith(b"size ")
        ),
        "?",
    )
    return Finding(
        code="trace-lfs-pointer",
        what=f"{path} is a Git LFS pointer of {len(content)} bytes to a file of {size} bytes, not the trace",
        where=str(path),
        why="AIPerf would read it as a prompt or fail after its start-up",
        fix="git lfs pull --include PATH in its repository, or make a trace: launcher trace make --target NAME",
    )


def _lines(content: bytes) -> Iterator[tuple[int, bytes, bool]]:
    """Line number, line, and whether it ended in a newline; blank lines left out."""
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        if line.strip():
            yield number, line, line.endswith(b"\n")


class _Fault(Exception):
    def __init__(self, text: str, *, syntax: bool = False) -> None:
        super().__init__(text)
        self.syntax = syntax


def _row(line: bytes) -> Row:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise _Fault(f"no JSON object ({error})", syntax=True) from None
    if not isinstance(fields, dict):
        raise _Fault(f"no JSON object but {type(fields).__name__}")
    names = fields.get("hash_ids", [])
    if not isinstance(names, list) or not all(
        isinstance(name, int) and not isinstance(name, bool) for name in names
    ):
        raise _Fault("hash_ids is no list of whole numbers")
    stamp = fields.get("timestamp")
    if stamp is not None and (not isinstance(stamp, int | float) or isinstance(stamp, bool) or stamp < 0):
        raise _Fault(f"timestamp {stamp!r} is no number of milliseconds")
    session = fields.get("session_id")
    if session is not None and not isinstance(session, str):
        raise _Fault(f"session_id {session!r} is no text")
    return Row(
        input_length=_length(fields, "input_length"),
        output_length=_length(fields, "output_length"),
        hash_ids=tuple(names),
        session_id=session or "",
        timestamp=stamp,
    )


def _length(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _Fault(f"{name} is missing" if value is None else f"{name} {value!r} is no number of tokens")
    return value


def _line_finding(path: Path, number: int, text: str, *, torn: bool) -> Finding:
    if torn:
        return Finding(
            code="trace-torn",
            what=f"line {number}, the last of {path}, breaks off in the middle: {text}",
            where=str(path),
            why="a copy of the file was cut short, so other requests may be missing too",
            fix="copy it again",
        )
    return Finding(code="trace-row", what=f"line {number} of {path}: {text}", where=str(path))


def _notes(
    path: Path, rows: list[Row], block: int, fits: tuple[int, int] | None, limit: int | None
) -> Iterator[Finding]:
    without = sum(1 for row in rows if not row.hash_ids)
    if without:
        yield Finding(
            code="trace-no-hashes",
            severity=Severity.WARNING,
            what=f"{without} of {len(rows)} rows have no hash_ids",
            where=str(path),
            why="their prompts share nothing, so no prefix cache and no KV-aware router helps them",
        )
    if without < len(rows) and (fits is None or not fits[0] <= block <= fits[1]):
        near = f"--block {_natural(fits)}" if fits else "no single size fits all rows"
        yield Finding(
            code="trace-block",
            severity=Severity.WARNING,
            what=f"the number of hash ids does not fit blocks of {block} tokens",
            where=str(path),
            why="prompts get other lengths and other common prefixes than the trace says",
            fix=near,
        )
    if limit is not None:
        above = [row for row in rows if row.input_length > limit]
        if above:
            yield Finding(
                code="trace-over-limit",
                severity=Severity.WARNING,
                what=f"{len(above)} of {len(rows)} requests ({len(above) / len(rows):.1%}) have more than {limit:,} "
                f"input tokens, the longest {max(row.input_length for row in above):,}",
                where=str(path),
                why="they are refused; the results count them apart from errors",
            )
        barely = sum(1 for row in rows if row.input_length <= limit < row.input_length + row.output_length)
        if barely:
            yield Finding(
                code="trace-over-limit",
                severity=Severity.WARNING,
                what=f"{barely} more requests fit only without their whole output ({limit:,} tokens)",
                where=str(path),
                why="the engine refuses them or cuts the answer short",
            )
