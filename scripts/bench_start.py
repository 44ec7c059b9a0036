"""Time from start to first completion: the launcher against a plain parallel shell start of the same processes.

    uv run python scripts/bench_start.py [--target h200-disagg] [--repeats 5] [--json FILE]

Both sides run in turn in one go, on the simulator, and are watched by the same client: it asks for one completion
every 50 ms and stops the clock at the first that comes back with tokens; then it waits until the frontend lists every
worker. Beside it: the launcher's own memory and idle CPU, the memory of the whole simulated run, and the wall time of
a dry run.

Where processes outnumber CPUs the launcher starts one worker of each role first, so that it answers sooner than a
shell that starts all at once, and pays its own start (the plan, the checks) when the last worker is counted.

On a machine that is busy with other work the launcher wins by more than it deserves: it gives each child a session of
its own, and Linux shares the CPU by session (autogroup), while a shell's children share one. The ratio of an idle
machine, or of one with kernel.sched_autogroup_enabled=0, is the one that counts; the script says which it was.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
HTTP, ADMIN, BASE = 18400, 18401, 26000
GIVE_UP_S = 180.0
IDLE_S = 10.0


def common(target: str) -> list[str]:
    return ["--target", target, "--engine", "mocker", "--http-host", "127.0.0.1", "--http-port", str(HTTP),
            "--admin-port", str(ADMIN), "--base-port", str(BASE)]  # fmt: skip


def first_completion(model: str, process: subprocess.Popen[bytes]) -> float:
    """Seconds from now until a completion comes back."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    request = urllib.request.Request(
        f"http://127.0.0.1:{HTTP}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    began = time.monotonic()
    while time.monotonic() - began < GIVE_UP_S:
        if process.poll() is not None:
            raise SystemExit(f"ended with {process.returncode} before a completion came back")
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                if json.load(response)["usage"]["completion_tokens"] >= 1:
                    return time.monotonic() - began
        except (OSError, ValueError, KeyError):
            time.sleep(0.05)
    raise SystemExit(f"no completion in {GIVE_UP_S:g} s")


def every_worker(workers: int, began: float) -> float:
    """Seconds since `began` until the frontend lists all the workers."""
    while time.monotonic() - began < GIVE_UP_S:
        with contextlib.suppress(OSError, ValueError):
            with urllib.request.urlopen(f"http://127.0.0.1:{HTTP}/health", timeout=10) as response:
                instances = json.load(response).get("instances") or ()
            if sum(one.get("endpoint") == "generate" for one in instances) >= workers:
                return time.monotonic() - began
        time.sleep(0.05)
    raise SystemExit(f"not all of {workers} workers in {GIVE_UP_S:g} s")


def tree(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def pss(processes: list[psutil.Process]) -> int:
    """Bytes of memory, shared pages counted once between those that share them."""
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def run_launcher(target: str, model: str, workers: int) -> dict[str, float]:
    state = tempfile.mkdtemp(prefix="bs-")
    with (Path(state) / "log").open("wb") as log:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "launcher", *common(target), "--state-dir", state], cwd=ROOT,
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            seconds = first_completion(model, process)
            whole = every_worker(workers, began)
            time.sleep(2.0)
            everyone = tree(process.pid)
            ours = [everyone[0], everyone[0].children()[0]]
            cpu = sum(sum(one.cpu_times()[:2]) for one in ours)
            time.sleep(IDLE_S)
            cpu = sum(sum(one.cpu_times()[:2]) for one in ours) - cpu
            return {
                "first_completion_s": seconds,
                "every_worker_s": whole,
                "own_rss_mib": ours[1].memory_info().rss / 2**20,
                "init_rss_mib": ours[0].memory_info().rss / 2**20,
                "own_pss_mib": pss(ours) / 2**20,
                "own_idle_cpu_percent": 100 * cpu / IDLE_S,
                "all_pss_mib": pss(everyone) / 2**20,
            }
        finally:
            stop(process)


def run_shell(target: str, model: str, workers: int) -> dict[str, float]:
    plan = [sys.executable, "-m", "launcher", "plan", *common(target), "--output", "bash"]
    script = subprocess.run(plan, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(script)
        file.flush()
        began = time.monotonic()
        process = subprocess.Popen(["bash", file.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            seconds = first_completion(model, process)
            return {"first_completion_s": seconds, "every_worker_s": every_worker(workers, began)}
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(90)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def dry_run_s(repeats: int = 7) -> float:
    """Median wall seconds of a dry run."""
    times = []
    for _ in range(repeats):
        began = time.monotonic()
        argv = [sys.executable, "-m", "launcher", "--dry-run", "--target", "h200-disagg", "--output", "json"]
        subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        times.append(time.monotonic() - began)
    return statistics.median(times)


def ratio(ours: list[dict[str, float]], shell: list[dict[str, float]], name: str) -> float:
    """Of the medians."""
    return round(
        statistics.median(one[name] for one in ours) / statistics.median(one[name] for one in shell), 3
    )


def autogroup() -> bool | None:
    """Whether Linux shares the CPU by session; None where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
    except OSError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="h200-disagg")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    argv = [sys.executable, "-m", "launcher", "plan", *common(args.target), "--output", "json"]
    plan = json.loads(subprocess.run(argv, cwd=ROOT, check=True, capture_output=True).stdout)
    model = plan["model"]
    workers = sum(one["role"] in ("prefill", "decode", "aggregated") for one in plan["processes"])
    ours: list[dict[str, float]] = []
    shell: list[dict[str, float]] = []
    for repeat in range(args.repeats):
        sides = [(run_launcher, ours), (run_shell, shell)]
        # In turn who goes first: a machine that warms up or tires must not favour one side.
        for side, results in sides if repeat % 2 == 0 else reversed(sides):
            results.append(side(args.target, model, workers))
            print(
                f"{side.__name__:<13} {results[-1]['first_completion_s']:6.2f} s, "
                f"every worker {results[-1]['every_worker_s']:6.2f} s",
                flush=True,
            )
    pairs = [a["first_completion_s"] / b["first_completion_s"] for a, b in zip(ours, shell, strict=True)]
    result = {
        "target": args.target,
        "cpus": len(os.sched_getaffinity(0)),
        "autogroup": autogroup(),
        "load_average": os.getloadavg()[0],
        "launcher_s": [round(one["first_completion_s"], 3) for one in ours],
        "shell_s": [round(one["first_completion_s"], 3) for one in shell],
        "ratio_of_medians": ratio(ours, shell, "first_completion_s"),
        "launcher_every_worker_s": [round(one["every_worker_s"], 3) for one in ours],
        "shell_every_worker_s": [round(one["every_worker_s"], 3) for one in shell],
        "every_worker_ratio_of_medians": ratio(ours, shell, "every_worker_s"),
        "ratio_by_pair_median": round(statistics.median(pairs), 3),
        "dry_run_s": round(dry_run_s(), 3),
        **{
            name: round(statistics.median(one[name] for one in ours), 2)
            for name in ours[0]
            if name not in ("first_completion_s", "every_worker_s")
        },
    }
    print(json.dumps(result, indent=2))
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
