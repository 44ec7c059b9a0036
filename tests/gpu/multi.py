"""Prefill and decode workers over any number of GPUs: lanes, ready times, throughput of each split, a kill of each.

    python -m tests.gpu.multi --gpus 8 --out DIR --deadline 560                 # 4+4, then 2+6 and 6+2
    python -m tests.gpu.multi --gpus 8 --splits 4+4,3+5 --shape full
    python -m tests.gpu.multi --gpus 1                                          # 1 + 1 on one GPU, in turns
    python -m tests.gpu.multi --gpus 4 --dry                                    # on the simulator

Target h200-disagg with dummy weights. The first split starts twice, with cold and with warm caches. NVLink multicast
stays off where the machine turned it off: its variables are inherited.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import psutil

from tests.gpu import faults, watch
from tests.gpu.load import Shape
from tests.gpu.session import ROOT_FOLDER, Deployment, Session
from tests.gpu.small import COMMON, NO_DRAFT, SYNTHETIC, burst, lanes, proofs, sets, show
from tests.gpu.watch import MemoryWatch

MULTICAST = ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")
SETTLE_S = 2.0


def splits(gpus: int) -> list[tuple[int, int]]:
    """Prefill and decode workers of each split that is tried for so many GPUs, the even one first."""
    if gpus == 1:
        return [(1, 1)]
    half = gpus // 2
    quarter = max(1, gpus // 4)
    found = [(half, gpus - half), (quarter, gpus - quarter), (gpus - quarter, quarter)]
    return list(dict.fromkeys(found))


def parse(text: str) -> list[tuple[int, int]]:
    """`4+4,3+5`."""
    found = []
    for each in text.split(","):
        prefill, plus, decode = each.partition("+")
        if not plus or not prefill.isdecimal() or not decode.isdecimal() or 0 in (int(prefill), int(decode)):
            raise SystemExit(f"--splits: {each!r} is no PREFILL+DECODE")
        found.append((int(prefill), int(decode)))
    return found


def options(gpus: int, split: tuple[int, int], shape: str, *, speculate: bool, eager: bool) -> list[str]:
    """What is set on top of h200-disagg."""
    prefill, decode = split
    given = [
        f"workers.prefill.count={prefill}",
        f"workers.decode.count={decode}",
        f"hardware.gpus={gpus}",
        "engine.env.UCX_PROTO_INFO=y",
        *(COMMON if shape == "small" else COMMON[:2]),
        "deadlines.pause_s=0.5",
        *([f"speculative.extra={SYNTHETIC}"] if speculate else NO_DRAFT),
    ]
    if shape == "small":
        given.append("engine.args.kv-cache-memory-bytes=8G")
    if gpus == 1:
        # Two workers on one GPU: both copies must fit, and UCX sees no NVLink.
        given += [
            "hardware.shared_gpu=true",
            "engine.args.gpu-memory-utilization=0.3",
            'engine.env.UCX_CUDA_IPC_ENABLE_GET_ZCOPY="on"',
        ]
    if eager:
        given.append("engine.args.enforce-eager=true")
    return sets(*given)


def visible(deployment: Deployment) -> list[list[Any]]:
    """Each worker's own GPUs and what it really has in its environment: its own must come first."""
    page = deployment.status()
    planned = {each["name"]: each["gpus"] for each in (page.get("plan") or {}).get("processes", ())}
    rows = []
    for each in page.get("processes", ()):
        if each["role"] in ("prefill", "decode") and each["pid"]:
            try:
                seen = psutil.Process(each["pid"]).environ().get("CUDA_VISIBLE_DEVICES", "")
            except psutil.Error:
                seen = "?"
            own = planned.get(each["name"], [])
            first = seen.split(",")[: len(own)] == list(own)
            rows.append([each["name"], ",".join(own), seen, "yes" if first else "NO"])
    return rows


def measure(
    session: Session, result: dict[str, Any], deployment: Deployment, shape: Shape, *, kill: bool
) -> None:
    """Everything that is asked of one split once it is ready."""
    result["ignored"] = deployment.ignore_errors()
    with MemoryWatch() as memory, deployment:
        result["ready_s"] = deployment.ready(420)
        show(session, f"{deployment.name}: ready after {result['ready_s']} s", deployment, result)
        result["visible"] = visible(deployment)
        session.table("GPUs", [["worker", "own", "CUDA_VISIBLE_DEVICES", "own first"], *result["visible"]])
        result["lanes"] = lanes(result["status"])
        session.table(
            "KV transfer", [["prefill", "decode", "lanes", "GB/s", "bytes", "fault"], *result["lanes"]]
        )
        result["sockets"] = faults.listening(deployment)
        seconds = 4.0 if session.dry else 20.0
        result["load"] = burst(deployment, shape, seconds)
        result["gpu_mib"] = watch.gpu_used_mib()
        result["kills"] = []
        for name in ("decode-0", "prefill-0") if kill else ():
            if not session.dry and session.left < 110:
                result["kills_left_out"] = f"{name} and what follows: {session.left:.0f} s left"
                break
            session.say(f"   killing the parent of {name}")
            result["kills"].append(
                faults.strike_worker(session, deployment, memory, name, "parent", shape, 150.0)
            )
            session.save()
        if result["kills"]:
            session.table("killed under load", [faults.HEAD, *map(faults.row, result["kills"])])
            time.sleep(SETTLE_S)
            result["after_kills"] = proofs(deployment.brief())
        result["drain"] = faults.drain(deployment, output=64)


def run(session: Session, args: argparse.Namespace) -> None:
    """All splits, the first one cold and warm."""
    wanted = parse(args.splits) if args.splits else splits(args.gpus)
    cache = (session.out if session.dry else ROOT_FOLDER) / f"cache-multi-{args.shape}"
    rows: list[list[Any]] = []
    for number, split in enumerate(wanted):
        turns = ("cold", "warm") if number == 0 and not args.once else ("warm" if number else "cold",)
        for turn in turns:
            name = f"{split[0]}+{split[1]} {turn}"
            last = turn == turns[-1]

            def one(
                session: Session,
                result: dict[str, Any],
                split: tuple[int, int] = split,
                name: str = name,
                last: bool = last,
                first: bool = number == 0,
            ) -> None:
                session.need(150 if args.shape == "small" else 260, name)
                chosen = options(
                    args.gpus, split, args.shape, speculate=not args.no_speculation, eager=args.eager
                )
                # One after the other it would take minutes a worker: the load grows with the GPUs.
                shape = Shape(shared=2048, own=1024, groups=4, output=200, concurrency=16 * args.gpus)
                shape = Shape(own=256, output=32, concurrency=8) if session.dry else shape
                deployment = Deployment(
                    session, name, "h200-disagg", *chosen, "--cache-dir", str(cache), home=f"hf-{args.shape}"
                )
                measure(session, result, deployment, shape, kill=first and last and not args.no_kill)

            session.step(name, one)
            found = session.results[name]
            if "load" in found:
                load, pairs = found["load"], found["lanes"]
                speeds = sorted(pair[3] for pair in pairs if pair[3] is not None)
                rows.append(
                    [
                        name,
                        found["ready_s"],
                        load["output_tok_s"],
                        round(load["output_tok_s"] / args.gpus, 1),
                        load["ttft_avg_s"],
                        load["ttft_p99_s"],
                        f"{load['errors']}/{load['requests']}",
                        " ".join(sorted({pair[2] for pair in pairs})),
                        f"{speeds[0]} to {speeds[-1]}" if speeds else "",
                    ]
                )
    session.table(
        f"{args.gpus} GPUs, {args.shape} shape",
        [
            [
                "split",
                "ready s",
                "tok/s",
                "tok/s/GPU",
                "TTFT avg",
                "TTFT p99",
                "failed",
                "lanes",
                "GB/s a pair",
            ],
            *rows,
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.multi",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--splits", help="PREFILL+DECODE,...")
    parser.add_argument("--shape", choices=("small", "full"), default="small")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-out")))
    parser.add_argument("--deadline", type=float, default=560.0, help="seconds for everything")
    parser.add_argument("--dry", action="store_true", help="on the simulator")
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs: starts a minute sooner")
    parser.add_argument("--once", action="store_true", help="no second, warm start of the first split")
    parser.add_argument("--no-kill", action="store_true")
    parser.add_argument("--no-speculation", action="store_true", help="without the EAGLE3 head")
    args = parser.parse_args()
    if args.gpus < 1:
        raise SystemExit("--gpus: at least 1")
    session = Session(args.out, args.deadline, dry=args.dry)
    session.results["multicast"] = {name: os.environ.get(name) for name in MULTICAST}
    session.guard()
    run(session, args)
    print("\n" + "\n\n".join(session.tables), flush=True)


if __name__ == "__main__":
    main()
