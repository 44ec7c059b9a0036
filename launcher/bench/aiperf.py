"""AIPerf, NVIDIA's load generator: where it is, how it is called, what it says while it runs."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from launcher.findings import Exit, Finding, LauncherError

EXPORT = "profile_export.jsonl"
LOG = "aiperf.log"
TIMEOUT_S = 1200
"""Longest that one request may take, as in the public recipe."""
CONFIGURE_S = 3600
"""Making the prompts of a long trace takes AIPerf minutes; its own limit is shorter."""
STALL_S = 300.0
"""Without a finished request for so long, the run says so; it is not ended, TIMEOUT_S does that."""
TELL_S = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """What to send. Lengths are tokens."""

    url: str
    model: str
    tokenizer: str
    concurrency: int
    requests: int
    seed: int
    trace: Path | None = None
    block: int | None = None
    isl: int | None = None
    osl: int | None = None
    processes: int | None = None
    """Client processes; AIPerf's own choice if None."""

    def argv(self, program: str, folder: Path) -> list[str]:
        """The command line."""
        words = [program, "profile", "-m", self.model, "--tokenizer", self.tokenizer, "--url", self.url]
        words += ["--endpoint-type", "chat", "--streaming", "--use-server-token-count"]
        words += ["--extra-inputs", "ignore_eos:true"]
        if self.trace is not None:
            words += ["--input-file", str(self.trace), "--custom-dataset-type", "mooncake_trace"]
            words += ["--prompt-input-tokens-block-size", str(self.block)]
            words += ["--dataset-sampling-strategy", "sequential"]
        else:
            words += ["--isl", str(self.isl), "--osl", str(self.osl)]
            # Its default is fewer: prompts would repeat and hit the prefix cache.
            words += ["--num-dataset-entries", str(self.requests)]
        words += ["--concurrency", str(self.concurrency), "--request-count", str(self.requests)]
        words += ["--random-seed", str(self.seed), "--request-timeout-seconds", str(TIMEOUT_S)]
        words += ["--ui", "none", "--no-gpu-telemetry", "--no-server-metrics", "--artifact-dir", str(folder)]
        if self.processes is not None:
            count = str(min(self.processes, self.concurrency))
            words += ["--workers-max", count, "--record-processor-service-count", str(self.processes)]
        return words


def find(asked: str | None) -> str:
    """The program: as asked, beside this interpreter, or on PATH. Raises LauncherError."""
    if asked is not None:
        found = shutil.which(asked)
    else:
        beside = Path(sys.executable).with_name("aiperf")
        found = str(beside) if beside.is_file() else shutil.which("aiperf")
    if found is None:
        raise LauncherError(
            Finding(
                code="aiperf-missing",
                what=f"{asked} is no program that can be run" if asked else "AIPerf is not installed",
                where="--aiperf" if asked else "this environment",
                why="it sends the load (about 820 MB with its dependencies, hence an extra)",
                fix="uv pip install 'gpt-oss-launcher[bench]', or --aiperf PATH of one in an environment of its own",
            )
        )
    return found


def version(program: str) -> str:
    """`AIPerf 0.13.0`, from its installed metadata: asking the program itself takes seconds."""
    for entry in sorted(
        Path(program).resolve().parent.parent.glob("lib/python3*/site-packages/aiperf-*.dist-info")
    ):
        return "AIPerf " + entry.name.removeprefix("aiperf-").removesuffix(".dist-info")
    return "AIPerf"


def run(
    program: str,
    load: Load,
    folder: Path,
    tell: Callable[[str], None],
    *,
    offline: bool,
    hub: Path | None = None,
) -> Path:
    """Send the load and wait; returns the export of its requests. Raises LauncherError where AIPerf fails.

    `offline`: the tokenizer is in the cache and nothing is asked of the Hugging Face hub; `hub`: that cache.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environ = os.environ | {
        "AIPERF_SERVICE_PROFILE_CONFIGURE_TIMEOUT": str(CONFIGURE_S),
        "AIPERF_DATASET_CONFIGURATION_TIMEOUT": str(CONFIGURE_S),
        "AIPERF_HTTP_CONNECTION_LIMIT": str(max(2500, 2 * load.concurrency)),
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    if offline:
        environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if hub is not None:
        environ["HF_HUB_CACHE"] = str(hub)
    argv = load.argv(program, folder)
    with (folder / LOG).open("wb") as log:
        child = subprocess.Popen(
            argv, stdout=log, stderr=subprocess.STDOUT, env=environ, cwd=folder, preexec_fn=_more_files
        )
        try:
            _follow(child, folder / EXPORT, load.requests, tell)
        finally:
            _end(child)
    if child.returncode or not (folder / EXPORT).is_file():
        raise LauncherError(
            Finding(
                code="aiperf-failed",
                what=f"AIPerf ended with code {child.returncode}: {_last(folder / LOG)}",
                where=str(folder / LOG),
            ),
            Exit.PROCESS_FAILED,
        )
    return folder / EXPORT


def _follow(child: subprocess.Popen[bytes], export: Path, total: int, tell: Callable[[str], None]) -> None:
    """Say how far it is every few seconds, from the records that it writes."""
    began = told = moved = time.monotonic()
    first: float | None = None
    done = place = 0
    while child.poll() is None:
        time.sleep(0.5)
        now = time.monotonic()
        if export.is_file():
            with export.open("rb") as records:
                records.seek(place)
                fresh = records.read()
            place += len(fresh)
            count = fresh.count(b"\n")
            if count:
                moved = now
                first = first or now
            done += count
        if now - told < TELL_S:
            continue
        told = now
        if not done or first is None:
            tell(f"AIPerf is preparing, {now - began:.0f} s")
        elif done >= total:
            tell(f"AIPerf is writing its results, {now - moved:.0f} s")
        else:
            rate = done / max(now - first, 1e-9)
            left = f", about {(total - done) / rate:.0f} s left" if rate else ""
            still = f", none for {now - moved:.0f} s" if now - moved > STALL_S else ""
            tell(f"{done} of {total} requests, {rate:.1f}/s{left}{still}")


def _end(child: subprocess.Popen[bytes]) -> None:
    """Interrupted: AIPerf ends its own processes when it is asked to."""
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _more_files() -> None:
    """In the child, before AIPerf: each connection is a file, and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _last(log: Path) -> str:
    """What the log says went wrong."""
    lines = [line.strip(" │•\n") for line in log.read_text(errors="replace").splitlines()]
    reasons = [line for line in lines if line.startswith(("Reason:", "Error:"))]
    wrong = [line for line in lines if "ERROR" in line or "Error" in line]
    return (
        " ".join(dict.fromkeys(reasons[:4]))
        or (wrong[-1] if wrong else lines[-1] if lines else "no output")[:500]
    )
