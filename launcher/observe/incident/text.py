"""An incident as a page to read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any


def render(incident: Mapping[str, Any]) -> str:
    """The whole incident, the most telling first."""
    return "\n".join(_lines(incident)) + "\n"


def headline(incident: Mapping[str, Any]) -> str:
    """What happened and why, in one or two lines."""
    cause = incident.get("first_cause") or {}
    parts = [str(incident["what"])]
    if cause.get("line"):
        parts.append(f"first error of {cause['process']}: {cause['line']}")
    elif cause.get("process") != incident.get("process") and cause.get("what"):
        parts.append(f"first: {cause['what']}")
    return "\n".join(parts)


def _lines(incident: Mapping[str, Any]) -> Iterator[str]:
    yield f"Incident {incident['id']}{' (simulated)' if incident.get('simulated') else ''}"
    yield ""
    yield headline(incident)
    if incident.get("follows"):
        yield f"follows incident {incident['follows']}"
    if incident.get("outcome"):
        yield f"then: {incident['outcome']}"
    yield ""
    plan, versions = incident["plan"], incident["versions"]
    yield f"plan      {plan['hash']}: {plan['target']}, {plan['model']} on {plan['engine']}"
    yield "versions  " + ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"host      {incident['host']}"
    for gpu in incident.get("gpus") or ():
        holders = ", ".join(f"pid {each['pid']} {each['used_mib']} MiB" for each in gpu["holders"])
        yield (
            f"GPU {gpu['index']:<5} {gpu['used_mib']} of {gpu['total_mib']} MiB in use"
            f"{f' ({holders})' if holders else ''}, {gpu['name']}"
        )
    yield ""
    yield "Processes at that time:"
    for state in incident["processes"]:
        detail = f": {state['detail']}" if state.get("detail") else ""
        yield f"  {state['name']:<12} {state['state']}, {state['restarts']} restarts{detail}"
    yield ""
    yield "Timeline (seconds from the failure):"
    for event in incident["timeline"]:
        yield f"  {event['time'] - incident['wall']:+9.3f}  {event['text']}"
    for name, lines in incident["last_lines"].items():
        yield ""
        yield f"Last lines of {name}:" if lines else f"{name} wrote nothing."
        for line in lines:
            yield f"  {_clock(line['time'])}  {line['line']}"


def _clock(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%H:%M:%S.%f")[:-3]
