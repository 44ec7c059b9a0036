"""One fault on one process of a deployment under load, and what it cost."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from tests.chaos.load import Load, Request, bad, short
from tests.support.runs import get


@dataclass(frozen=True, slots=True)
class Side:
    """A deployment to strike, however it was started."""

    url: str
    model: str
    pid: Callable[[str], int]
    """Process name to its pid now."""
    port: Callable[[str], int]
    """Process name to the port at which it takes requests now."""


@dataclass(slots=True)
class Cost:
    """What a fault cost. Times in seconds after the fault; None where it did not happen within the watch."""

    requests: list[Request] = field(default_factory=list)
    asked: int = 0
    out_s: float | None = None
    """Until the frontend no longer lists the struck worker."""
    full_s: float | None = None
    """Until as many workers of each role are routed to as before."""
    at: float = 0.0
    """Monotonic seconds of the fault."""

    @property
    def failed(self) -> int:
        """Requests that got an error instead of a stream."""
        return sum(1 for each in self.requests if each.outcome.startswith(("http", "refused")))

    @property
    def cut(self) -> int:
        """Streams that began and did not end as they should."""
        lost = sum(1 for each in self.requests if each.outcome in ("cut", "error", "stalled"))
        return lost + short(self.requests, self.asked)

    @property
    def lost_until_s(self) -> float:
        """When the last request that was lost ended, in seconds after the fault; 0 where none was."""
        return max((each.ended - self.at for each in bad(self.requests)), default=0.0)

    @property
    def gap_s(self) -> float:
        """The longest silence of any stream that ended well."""
        return max((each.gap_s for each in self.requests if each.ok), default=0.0)

    def told(self) -> str:
        """For an assertion that fails."""
        lost = bad(self.requests)
        return (
            f"{self.failed} failed, {self.cut} cut of {len(self.requests)}; "
            f"{sorted({(each.outcome, each.detail[:200]) for each in lost})[:5]}; "
            f"{[round(each.ended - self.at, 2) for each in lost][:10]} s after the fault"
        )


def routed(side: Side, timeout_s: float = 10.0) -> dict[str, int]:
    """Workers per role that requests go to; empty where the model is not served."""
    code, body = get(f"{side.url}/v1/models/{quote(side.model, safe='')}/ready", timeout_s)
    if code != 200:
        return {}
    spaces = json.loads(body)["namespaces"].values()
    return {name: kind["workers"] for space in spaces for name, kind in space["worker_types"].items()}


def listed(side: Side) -> set[int]:
    """Request ports of the workers that the frontend lists."""
    code, body = get(f"{side.url}/health")
    found = set()
    for entry in (json.loads(body).get("instances") or []) if code == 200 else []:
        if entry.get("endpoint") == "generate":
            transport = entry["transport"]
            address = transport["tcp"] if isinstance(transport, dict) else transport
            found.add(int(address.removeprefix("tcp://").partition("/")[0].rpartition(":")[2]))
    return found


def strike(
    side: Side,
    name: str,
    number: signal.Signals,
    *,
    streams: int,
    tokens: int = 64,
    words: int = 60,
    before_s: float = 2.0,
    watch_s: float = 60.0,
    least_s: float = 4.0,
    stall_s: float = 30.0,
    healed: bool = True,
) -> Cost:
    """Signal the process under load; go on until all is as before, at least `least_s`, at most `watch_s` seconds.

    `healed`: somebody brings the worker back; where nobody does, its being out of routing is the end.
    """
    whole, count = routed(side), len(listed(side))
    cost = Cost(asked=tokens)
    with Load(side.url, side.model, streams=streams, tokens=tokens, words=words, stall_s=stall_s) as load:
        time.sleep(before_s)
        port, pid = side.port(name), side.pid(name)
        cost.at = time.monotonic()
        os.kill(pid, number)
        while (spent := time.monotonic() - cost.at) < watch_s:
            if cost.out_s is None:
                if port not in listed(side):
                    cost.out_s = time.monotonic() - cost.at
                time.sleep(0.02 if spent < 2 else 0.1)
                continue
            if cost.full_s is None and routed(side) == whole and _replaced(side, port, count):
                cost.full_s = time.monotonic() - cost.at
            if (cost.full_s is not None or not healed) and spent > least_s:
                break
            time.sleep(0.2)
        time.sleep(0.5)
        cost.requests = load.finish()
    return cost


def _replaced(side: Side, port: int, count: int) -> bool:
    """Whether as many workers are listed as before, and the struck one is not among them."""
    found = listed(side)
    return len(found) >= count and port not in found
