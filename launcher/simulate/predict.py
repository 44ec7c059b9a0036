"""Runs the cases: writes the trace, starts the simulator in the interpreter that has it, reads its answers."""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from launcher.bench.trace import write
from launcher.bench.trace.model import Row
from launcher.findings import Exit, Finding, LauncherError
from launcher.plan.model import Role

from .engines import SimEngine
from .splits import Split
from .timing import Grid

CHILD = Path(__file__).with_name("replay_child.py")
NICE = 10
"""Below whatever else the machine does: a simulation computes for minutes."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to simulate."""

    split: Split
    router: str
    """kv or round-robin."""
    concurrency: int

    @property
    def name(self) -> str:
        return f"{self.split.name}, {self.router}, {self.concurrency}"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the simulator says of a case. Times are simulated seconds, rates per simulated second."""

    case: Case
    gpus: int
    """GPUs that the throughput is divided by: all of the target's, idle ones too."""
    requests: int
    tok_s: float
    tok_s_gpu: float
    tok_s_user: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    itl_mean_ms: float
    hit: float
    requests_s: float
    latency_mean_s: float
    duration_s: float
    cpu_s: float
    """CPU time that the simulation itself took."""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.case.name, "split_name": self.case.split.name, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Job:
    """What all cases of a run share."""

    python: str
    traces: Mapping[int, Sequence[Row]]
    """Concurrency to the requests that are replayed at it."""
    block: int
    """Tokens of a hash block of the traces."""
    engines: dict[Role, SimEngine]
    grids: dict[str, Grid | Path]
    """Table name to the table, or to a profile in the simulator's own format."""
    gpus: int


def run(job: Job, cases: Sequence[Case], tell: Callable[[str], None]) -> Iterator[Prediction]:
    """Simulate each case, in order. Raises LauncherError where there is no simulator or a case fails."""
    with tempfile.TemporaryDirectory(prefix="launcher-simulate-") as folder:
        traces = {}
        for concurrency in {case.concurrency for case in cases}:
            traces[concurrency] = Path(folder) / f"trace-{concurrency}.jsonl"
            write.write(traces[concurrency], write.text(job.traces[concurrency]))
        paths = {
            name: str(table) if isinstance(table, Path) else str(Path(folder) / f"{name}.npz")
            for name, table in job.grids.items()
        }
        order = {
            "tables": {
                paths[name]: table for name, table in job.grids.items() if not isinstance(table, Path)
            },
            "cases": [_case(job, case, paths, traces[case.concurrency]) for case in cases],
        }
        yield from _ask(job, cases, order, tell, Path(folder))


def _case(job: Job, case: Case, paths: dict[str, str], trace: Path) -> dict[str, Any]:
    counts = {
        Role.AGGREGATED: case.split.aggregated,
        Role.PREFILL: case.split.prefill,
        Role.DECODE: case.split.decode,
    }
    return {
        "name": case.name,
        "trace": str(trace),
        "block": job.block,
        "concurrency": case.concurrency,
        "router": case.router,
        "engines": {
            role.value: job.engines[role].to_json(count, paths[job.engines[role].table])
            for role, count in counts.items()
            if count
        },
    }


def _ask(
    job: Job, cases: Sequence[Case], order: dict[str, Any], tell: Callable[[str], None], folder: Path
) -> Iterator[Prediction]:
    """Feed the child and read its lines; it is ended with us whatever happens."""
    with (folder / "stderr").open("w+", encoding="utf-8") as errors:
        child = subprocess.Popen(
            ["nice", "-n", str(NICE), job.python, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
        )
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            json.dump(order, child.stdin)
            child.stdin.close()
            waiting = {case.name: case for case in cases}
            for line in child.stdout:
                answer = json.loads(line)
                if "unusable" in answer:
                    raise _no_simulator(job.python, answer["unusable"])
                if "simulator" in answer:
                    if answer["simulator"] == "flat" and any(
                        engine.host_blocks for engine in job.engines.values()
                    ):
                        tell("this simulator (ai-dynamo before 1.6) leaves KV offload to host memory out")
                    continue
                case = waiting.pop(answer["case"])
                if "error" in answer:
                    raise _failed(case, answer["error"])
                yield _prediction(case, job.gpus, answer)
            if child.wait() or waiting:
                raise _failed(
                    next(iter(waiting.values()), cases[-1]), _tail(errors) or f"exit code {child.returncode}"
                )
        except BrokenPipeError:
            raise _failed(cases[0], _tail(errors) or "it ended at once") from None
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()


def _prediction(case: Case, gpus: int, answer: dict[str, Any]) -> Prediction:
    report = answer["report"]

    def value(name: str) -> float:
        found = report.get(name)
        return float(found) if isinstance(found, int | float) else math.nan

    throughput = value("output_throughput_tok_s")
    return Prediction(
        case=case,
        gpus=gpus,
        requests=int(value("completed_requests")),
        tok_s=throughput,
        tok_s_gpu=throughput / gpus,
        tok_s_user=value("mean_output_token_throughput_per_user"),
        ttft_mean_s=value("mean_ttft_ms") / 1e3,
        ttft_p50_s=value("median_ttft_ms") / 1e3,
        ttft_p99_s=value("p99_ttft_ms") / 1e3,
        itl_mean_ms=value("mean_itl_ms"),
        hit=value("prefix_cache_reused_ratio"),
        requests_s=value("request_throughput_rps"),
        latency_mean_s=value("mean_e2e_latency_ms") / 1e3,
        duration_s=value("duration_ms") / 1e3,
        cpu_s=float(answer["cpu_s"]),
    )


def _tail(errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-800:]


def _no_simulator(python: str, why: str) -> LauncherError:
    return LauncherError(
        Finding(
            code="simulator-missing",
            what=f"{python} has no offline simulator: {why}",
            where="--python",
            why="dynamo.replay comes with ai-dynamo (seen to work: 1.3.1, 1.4.2, 1.6.1) and needs numpy",
            fix="give an interpreter with --python, or: uv pip install ai-dynamo==1.6.1 numpy",
        )
    )


def _failed(case: Case, why: str) -> LauncherError:
    return LauncherError(
        Finding(
            code="simulate-failed",
            what=f"the simulator failed at {case.name}: {why}",
            where="launcher simulate",
        ),
        Exit.PROCESS_FAILED,
    )
