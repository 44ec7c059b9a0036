"""Before device time is spent: does every deployment of these scripts still plan, with the launcher as it is now?

    python -m tests.gpu.preflight

Asks the doctor about each on a machine that is not here. Exit code 1 where one would end before it starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.gpu import full, multi, small
from tests.support.runs import ROOT


def deployments() -> Iterator[tuple[str, str, int, list[str]]]:
    """Name, target, GPUs, options."""
    yield "agg", "h200-1gpu-agg", 1, small.agg_options(speculate=True)
    yield "agg, no speculation", "h200-1gpu-agg", 1, small.agg_options(speculate=False)
    yield "hangs", "h200-1gpu-agg", 1, [
        *small.agg_options(speculate=False, eager=True), *small.sets(*small.CANARY)
    ]  # fmt: skip
    yield "disagg", "h200-1gpu-disagg", 1, small.disagg_options()
    yield "disagg-tcp", "h200-1gpu-disagg", 1, small.disagg_options(*small.WITHOUT_IPC)
    for variant in full.VARIANTS:
        yield variant.name, "h200-1gpu-agg", 1, full.options(variant, speculate=True)
    for gpus, shape in ((1, "small"), (2, "small"), (8, "full")):
        split = multi.splits(gpus)[0]
        given = multi.options(gpus, split, shape, speculate=True, eager=False)
        yield f"multi {gpus} {shape}", "h200-disagg", gpus, given


def ask(each: tuple[str, str, int, list[str]]) -> tuple[bool, str]:
    """Whether it would start, errors that `--ignore` silences left aside; and a line about it."""
    name, target, gpus, given = each
    argv = [sys.executable, "-m", "launcher", "doctor", "--target", target, *given, "--json"]
    done = subprocess.run([*argv, "--machine", f"H200:{gpus}"], capture_output=True, text=True, cwd=ROOT)
    try:
        findings = json.loads(done.stdout)["findings"]
    except (ValueError, KeyError):
        return False, f"{name}: exit {done.returncode}: {done.stderr[-400:]}"
    errors = [each for each in findings if each["severity"] == "error"]
    if errors:
        ignores = [word for each in errors for word in ("--ignore", f"{each['code']}=gpu tests")]
        plan = [*argv[:3], "plan", *argv[4:-1], *ignores, "--machine", f"H200:{gpus}", "--output", "json"]
        again = subprocess.run(plan, capture_output=True, text=True, cwd=ROOT)
        told = "; ".join(f"{each['code']}: {each['what']}" for each in errors)
        return again.returncode == 0, f"{name}: exit {done.returncode}, plan {again.returncode}: {told[:300]}"
    return True, f"{name}: ok"


def main() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(ask, deployments()))
    for good, line in found:
        print("  " if good else "X ", line)
    sys.exit(not all(good for good, _ in found))


if __name__ == "__main__":
    main()
