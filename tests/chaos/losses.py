"""Why a request of a soak was lost: a rule that says it had to be, or none, and then it is a defect of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.load import Request

FRONTEND = "frontend killed"
"""Its connections end with the process; a client sees a cut, or a refusal where it was just connecting."""
NO_CAPACITY = "no worker of the role left"
"""The fault struck the only worker of its role that requests could go to, or none was there when the request came."""
AFTER_S = 2.0
"""How long after a cause a stream may still end because of it: what was sent is read, the other side is told."""
DYING_S = 0.1
"""From the signal to the end of the process, where the fault does not say."""
DEADLY = ("KILL", "TERM", "STOP")


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done, when (monotonic seconds), to whom."""

    at: float
    kind: str
    name: str = ""
    role: str = ""
    gone_s: float = DYING_S
    """Seconds until the process was gone. Until then it may take connections and requests, and they go with it."""


@dataclass(frozen=True, slots=True)
class Look:
    """What launcher and frontend said at a moment."""

    at: float
    healthy: Mapping[str, str] = field(default_factory=dict)
    """Name to role of the workers that the launcher calls healthy."""
    routed: Mapping[str, int] = field(default_factory=dict)
    """Workers per role that the frontend routes to; empty where it did not answer."""


def explain(
    request: Request,
    faults: Sequence[Fault],
    looks: Sequence[Look],
    roles: Sequence[str],
    charged: set[tuple[float, int]],
) -> str:
    """The rule by which the request had to be lost; empty where none says so.

    `charged` is kept from call to call: each frontend that is killed may cost each client one request.
    """
    for fault in faults:
        # A connection that the dead process had not accepted yet is passed on, one that it had is lost.
        if (
            fault.kind == "frontend"
            and request.began <= fault.at + fault.gone_s
            and request.ended >= fault.at
        ):
            charge = (fault.at, request.client)
            known = charge in charged or request.ended > fault.at + fault.gone_s + AFTER_S
            charged.add(charge)
            return "" if known else FRONTEND
    for start, end in outages(faults, looks, roles):
        if request.began <= end and start <= request.ended and request.ended <= end + AFTER_S:
            return NO_CAPACITY
    return ""


def outages(
    faults: Sequence[Fault], looks: Sequence[Look], roles: Sequence[str]
) -> list[tuple[float, float]]:
    """The times in which some role had no worker to send a request to: (from, until), monotonic seconds."""
    found: list[tuple[float, float]] = []
    for role in roles:
        found += [
            (fault.at, _back(role, fault.at, looks))
            for fault in faults
            if fault.kind in DEADLY and fault.role == role and not _others(fault, faults, looks)
        ]
    return found


def _others(fault: Fault, faults: Sequence[Fault], looks: Sequence[Look]) -> bool:
    """Whether requests could go to another worker of the role at the moment of the fault."""
    before = [look for look in looks if look.at <= fault.at]
    if not before:
        return True
    struck = {
        each.name for each in faults if each.kind in DEADLY and before[-1].at <= each.at <= fault.at
    } | {fault.name}
    last = before[-1]
    if not any(role == fault.role and name not in struck for name, role in last.healthy.items()):
        return False
    # Healthy is not routed to: the frontend takes some seconds to follow. It counts the struck one too.
    counted = [look.routed[fault.role] for look in before[-4:] if fault.role in look.routed]
    return not counted or counted[-1] > 1


def _back(role: str, since: float, looks: Sequence[Look]) -> float:
    """When the role was routed to again after `since`, by a look that also saw a healthy worker of it."""
    gone = False
    for look in looks:
        if look.at <= since or not look.routed:
            continue
        if look.routed.get(role, 0) == 0:
            gone = True
        elif gone or look.at > since + AFTER_S:
            return look.at
    return float("inf")
