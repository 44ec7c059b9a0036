"""The plan: the exact processes that a target becomes on this machine, as pure values.

Engines produce these values, `supervise` consumes them, and neither knows the other. The JSON form
(`Plan.to_json`) is a contract that people script against; see `docs` in the README.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.plan.join import ALONE, Join


class Role(enum.StrEnum):
    """What a process does in a deployment."""

    FRONTEND = "frontend"
    PREFILL = "prefill"
    DECODE = "decode"
    AGGREGATED = "aggregated"
    HELPER = "helper"
    """Not of the model: something the deployment's own plumbing needs, such as an event broker."""


WORKER_ROLES = (Role.PREFILL, Role.DECODE, Role.AGGREGATED)


@dataclass(frozen=True, slots=True)
class Http:
    """A health probe: GET `http://host:port/path` answers 2xx when the process is healthy."""

    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}{self.path}"


@dataclass(frozen=True, slots=True)
class Stop:
    """How a process is asked to end. Times are seconds, each counted from the step before.

    SIGTERM goes to the leader once; after `leader_s` SIGTERM goes to what is left of its process group, where
    `group` says so (dynamo.vllm joins an engine process that nobody told to stop); after `group_s`
    the whole tree is killed.
    """

    leader_s: float
    group: bool = False
    group_s: float = 0.0

    @property
    def total_s(self) -> float:
        """Longest time from SIGTERM to SIGKILL, in seconds."""
        return self.leader_s + (self.group_s if self.group else 0.0)


UNREADY = Stop(leader_s=3.0, group=True, group_s=2.0)
"""For a process that has not been ready: it has nothing in hand, and an engine hears no SIGTERM until it has loaded."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A step of loading that a line of the process's log announces."""

    name: str
    pattern: str
    """Regular expression, searched in each log line."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Descendants that must exist while the process is healthy, such as the MPI ranks of TensorRT-LLM."""

    pattern: str
    """Regular expression, searched in each descendant's command line."""
    count: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process to start: everything that supervision needs, with no knowledge of the engine."""

    name: str
    """`frontend`, `prefill-0`, `decode-3`, ...: unique in the plan, stable over restarts."""
    role: Role
    argv: tuple[str, ...]
    env: Mapping[str, str]
    """What the launcher sets, over the inherited environment less `Plan.scrub`."""
    gpus: tuple[str, ...] = ()
    """The GPUs that the process computes on (indices or UUIDs, as CUDA names them)."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Purpose (`http`, `system`, `rpc`, `nixl`, `kv-events`, ...) to TCP port number."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute path to text, written (mode 0600) before the process starts."""
    health: Http | None = None
    stop: Stop = Stop(leader_s=10.0)
    stop_stage: int = 0
    """Processes stop in rising stages, those of one stage together."""
    fatal: tuple[str, ...] = ()
    """Regular expressions; a log line that matches means the process is dead although it may still run."""
    phases: tuple[Phase, ...] = ()
    ranks: Ranks | None = None
    warm_key: str = ""
    """Processes of one key share a compile cache: while it is cold, the first goes ahead of the rest."""
    incarnation: int = 0
    """How many times this process has been planned before; each gets fresh ports and identity."""

    def to_json(self, *, masked: bool = True) -> dict[str, Any]:
        """The process as the scripted contract has it; secrets are masked unless asked for."""
        return {
            "name": self.name,
            "role": self.role.value,
            "argv": list(self.argv),
            "env": mask_env(self.env) if masked else dict(self.env),
            "gpus": list(self.gpus),
            "ports": dict(self.ports),
            "files": dict(self.files),
            "health": self.health.url if self.health else None,
            "stop": {"stage": self.stop_stage, **dataclasses.asdict(self.stop)},
        }


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Nested deadlines, all in seconds; `grace_s` is what the pod grants between SIGTERM and SIGKILL."""

    start_s: float
    """From start to ready; past it the run has failed."""
    pause_s: float
    """From SIGTERM to the first drain step: load balancers take the pod out meanwhile."""
    drain_s: Mapping[str, float]
    """Role to the longest time that its stage of the drain may take."""
    grace_s: float

    @property
    def total_s(self) -> float:
        """The longest stop that this schedule allows, in seconds."""
        return self.pause_s + sum(self.drain_s.values())


@dataclass(frozen=True, slots=True)
class Canary:
    """How a worker is found that answers its health page and does no work. Times in seconds."""

    interval_s: float
    """Between looks at the workers' counters; one that stood still meanwhile gets a tiny completion."""
    timeout_s: float
    """With requests in hand and no progress for so long a worker is dead."""
    failures: int
    """Tiny completions in a row that are answered with an error, and mean the same."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What the deployment claims about itself, for `prove` to try."""

    policy: Mapping[str, str] = field(default_factory=dict)
    """Proof to `require`, `warn` or `skip`; see `launcher.target.proofs`."""
    harmony: bool = False
    """Answers are harmony text, so that reasoning and tool calls can be proven."""
    disaggregated: bool = False
    """A prompt and its answer are computed by different workers, which may be on different nodes."""
    block_size: int = 0
    """Tokens of one KV block."""
    longest: int = 131072
    """Tokens of prompt and answer together that every worker takes."""
    kv_events: bool = False
    """The router goes by the KV events of prefill (or aggregated) workers, on whatever node they are."""
    publishers: tuple[str, ...] = ()
    """This node's processes that publish them."""
    transfer: str = ""
    """What moves KV from prefill to decode: `nixl`, `ucx`; empty where nothing real does."""
    kv_floor: Mapping[str, int] = field(default_factory=dict)
    """Role to the least tokens of KV that one worker should have room for, where that is known."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole deployment on this machine."""

    target: str
    engine: str
    simulated: bool
    """True where the engine computes no model: every result shown must say so."""
    model: str
    """The name that clients ask for."""
    run_dir: str
    """The run's private folder (0700): discovery, engine files, sockets. Removed at exit."""
    discovery_dir: str
    http_host: str
    http_port: int
    admin_host: str
    admin_port: int
    processes: tuple[Process, ...]
    deadlines: Deadlines
    scrub: tuple[str, ...] = ()
    """Patterns (`SLURM_*`) of inherited variables that no child gets."""
    min_ready: Mapping[str, int] = field(default_factory=dict)
    """Role to the number of healthy workers below which the deployment is not ready."""
    notes: tuple[str, ...] = ()
    """What a reader of the plan should know, such as what a simulated run replaces."""
    claims: Claims = Claims()
    join: Join = ALONE
    canary: Canary | None = None
    """None where workers are not asked."""

    def process(self, name: str) -> Process:
        """The process of that name; KeyError where the plan has none."""
        for process in self.processes:
            if process.name == name:
                return process
        raise KeyError(name)

    @property
    def workers(self) -> tuple[Process, ...]:
        return tuple(process for process in self.processes if process.role in WORKER_ROLES)

    def to_json(self, *, masked: bool = True) -> dict[str, Any]:
        """The plan as the scripted contract has it."""
        return {
            "target": self.target,
            "engine": self.engine,
            "simulated": self.simulated,
            "model": self.model,
            "run_dir": self.run_dir,
            "http": {"host": self.http_host, "port": self.http_port},
            "admin": {"host": self.admin_host, "port": self.admin_port},
            "processes": [process.to_json(masked=masked) for process in self.processes],
            "deadlines": {
                **dataclasses.asdict(self.deadlines),
                "drain_s": dict(self.deadlines.drain_s),
                "total_s": self.deadlines.total_s,
            },
            "min_ready": dict(self.min_ready),
            "scrub": list(self.scrub),
            "notes": list(self.notes),
            "claims": dataclasses.asdict(self.claims),
            "join": self.join.to_json(),
            "canary": dataclasses.asdict(self.canary) if self.canary is not None else None,
            "hash": self.hash(),
        }

    def hash(self) -> str:
        """Twelve hex digits over what would run (the run's folder left out): equal plans, equal hash."""
        body = json.dumps(
            [
                [process.name, process.argv, sorted(process.env.items()), sorted(process.files.items())]
                for process in self.processes
            ]
        ).replace(self.run_dir, "RUN_DIR")
        return hashlib.sha256(body.encode()).hexdigest()[:12]


SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "ACCESS_KEY", "CREDENTIAL", "PRIVATE_KEY")
MASK = "********"


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds something that must not be shown."""
    upper = name.upper()
    # TOKENS is a count or a limit (MAX_TOKENS), TOKENIZER a part of a model, TIKTOKEN a library: none is a secret.
    cleaned = upper.replace("TIKTOKEN", "").replace("TOKENIZER", "").replace("TOKENS", "")
    return any(word in cleaned for word in SECRET_WORDS)


def mask_env(env: Mapping[str, str]) -> dict[str, str]:
    """A copy with the values of secrets masked."""
    return {name: MASK if value and is_secret(name) else value for name, value in env.items()}
