"""What an engine module is: it turns one slot of a plan into a process value, and knows nothing of supervision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from launcher.plan.join import Join
from launcher.plan.model import Process, Role, Stop
from launcher.target.schema import Target, Workers

Version = tuple[int, ...]
STOP_STAGE = {Role.AGGREGATED: 1, Role.DECODE: 1, Role.PREFILL: 2}
"""When a worker of a role is told to stop, whatever its engine: after the frontend (0), prefill last."""


@dataclass(frozen=True, slots=True)
class PortNeed:
    """A port that a process listens on, and how many numbers in a row it takes from there."""

    purpose: str
    span: int = 1


@dataclass(frozen=True, slots=True)
class Context:
    """What all processes of a deployment share."""

    target: Target
    dynamo: Version
    """Release of ai-dynamo that the children run, such as (1, 6, 1)."""
    python: str
    """The interpreter that has Dynamo and the engine."""
    run_dir: str
    discovery_dir: str
    join: Join
    """Where the planes listen, and how the other parts of the deployment are found."""
    disaggregated: bool
    """Prefill and decode are apart, on this node or over several."""
    cache_dir: str
    """Compile caches live below it, keyed by versions, model and GPU."""
    cache_key: str
    http_host: str
    http_port: int
    frontend_drain_s: float
    """How long the frontend may finish streams after SIGTERM."""
    json_logs: bool
    simulated: bool
    """The workers compute no model."""
    native: str
    """The engine that the target was written for, whichever runs."""
    vocabulary: str = ""
    """Folder of the harmony vocabulary that was found and verified here; empty where the environment names one."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """The launcher's own environment, as far as an engine honours a person's choice in it."""
    etcd_port: int = 0
    """On loopback, of the gate to etcd; 0 where there is none."""
    lost_home: str | None = None
    """The user's home folder where nothing can be written into it; None where it serves."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One process to be: its place in the deployment and the resources that the plan gave it."""

    name: str
    role: Role
    index: int
    workers: Workers | None
    """The role's part of the target; None for the frontend and helpers."""
    gpus: tuple[str, ...]
    """The GPUs that it computes on, as CUDA names them."""
    visible: tuple[str, ...]
    """What it may see: its own first, then those that it exchanges KV with."""
    ports: Mapping[str, int]
    incarnation: int = 0


class Engine(Protocol):
    """What a worker runs."""

    kind: str
    simulated: bool
    """True where it computes no model."""

    def port_needs(self, target: Target, role: Role, workers: Workers) -> tuple[PortNeed, ...]:
        """The ports that one worker of the role listens on."""
        ...

    def stop(self, target: Target, role: Role) -> Stop:
        """How a worker of the role is asked to end."""
        ...

    def build(self, context: Context, slot: Slot) -> Process:
        """The process of one worker."""
        ...


def helper(
    name: str, argv: Sequence[str], ports: Mapping[str, int], stop_stage: int, incarnation: int
) -> Process:
    """The process of a small program of ours that Dynamo's processes need."""
    return Process(
        name=name,
        role=Role.HELPER,
        argv=tuple(argv),
        env={},
        ports=ports,
        stop=Stop(leader_s=2.0),
        stop_stage=stop_stage,
        incarnation=incarnation,
    )
