"""The small shape through the launcher on one GPU: one aggregated worker, then one prefill and one decode worker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.gpu import doctor, faults, watch
from tests.gpu.load import Shape
from tests.gpu.session import Deployment, Session
from tests.gpu.watch import MemoryWatch

COMMON = (
    "engine.args.load-format=dummy",
    "engine.args.moe-backend=triton",
    "engine.args.enable-flashinfer-autotune=false",
    "engine.args.max-model-len=16384",
    "engine.args.max-num-batched-tokens=4096",
    "engine.env.VLLM_USE_FLASHINFER_SAMPLER=0",
    "deadlines.pause_s=0.5",
)
NO_DRAFT = ("speculative=null", "model.draft=null")
SYNTHETIC = '{"rejection_sample_method":"synthetic","synthetic_acceptance_length":2.72}'
UNPROVABLE = ("--skip", "reasoning,tool-call,tool-call-streamed")
"""Random weights speak no harmony."""
KILLS = (("decode-0", "parent"), ("prefill-0", "core"), ("decode-0", "core"), ("prefill-0", "parent"))
KILL_S, TCP_S = 95.0, 90.0
"""What one kill, and the start without CUDA IPC reads, may take."""
WITHOUT_IPC = ('engine.env.UCX_CUDA_IPC_ENABLE_GET_ZCOPY="auto"', "kv.transfer.role=by-role")
SMALL_LOAD = Shape(own=1500, output=32, concurrency=8)


def sets(*assignments: str) -> list[str]:
    """`--set` for each."""
    return [word for assignment in assignments for word in ("--set", assignment)]


def phases(page: dict[str, Any]) -> list[list[Any]]:
    """Rows of the launch report: worker, when it reached each phase, room for KV."""
    report = page.get("report") or {}
    rows = []
    for each in report.get("processes", ()):
        if each["role"] in ("aggregated", "prefill", "decode"):
            steps = "  ".join(f"{name} {seconds:g}" for name, seconds in each["phases"].items())
            rows.append([each["name"], each["ready_s"], each.get("kv_tokens"), steps])
    return rows


def proofs(page: dict[str, Any]) -> list[list[Any]]:
    """Rows of what was proven."""
    return [[each["name"], each["outcome"], each["text"][:150]] for each in page.get("proofs") or ()]


def show(session: Session, title: str, deployment: Deployment, result: dict[str, Any]) -> None:
    """Keep and print the launch report."""
    page = deployment.brief()
    result["status"] = page
    session.table(title, [["worker", "ready s", "KV tokens", "phases, seconds from start"], *phases(page)])
    session.table(f"proven: {deployment.name}", [["proof", "outcome", "what"], *proofs(page)])


HANGS = (("core", signal.SIGUSR2), ("parent", signal.SIGUSR2), ("core", signal.SIGSTOP))
HANG_S = 100.0
"""What one hang may take: found after `CANARY`, and a restart."""
CANARY = ("canary.interval_s=3", "canary.timeout_s=12")


def agg_options(*, speculate: bool, eager: bool = False) -> list[str]:
    """One aggregated worker with few CUDA graphs, or none."""
    # vLLM refuses sizes that do not end at the recipe's max_cudagraph_capture_size.
    graphs = '{"cudagraph_capture_sizes":[1,2,4,8,16,32],"max_cudagraph_capture_size":32}'
    return sets(
        *COMMON,
        "engine.args.gpu-memory-utilization=0.3",
        "kv.offload=null",
        "engine.args.enforce-eager=true" if eager else f"engine.args.compilation-config={graphs}",
        *([f"speculative.extra={SYNTHETIC}"] if speculate else NO_DRAFT),
    )


def agg(session: Session, result: dict[str, Any]) -> None:
    """One aggregated worker with a draft head and synthetic acceptance; if that cannot start, without speculation."""
    tries = [("eagle3, synthetic acceptance", True), ("no speculation", False)]
    for kind, speculate in tries:
        session.need(120, "an aggregated start")
        deployment = Deployment(session, "agg", "h200-1gpu-agg", *agg_options(speculate=speculate))
        result["speculation"] = kind
        result["ignored"] = deployment.ignore_errors()
        provoking = doctor.Provoking(session) if "provoked" not in result else None
        try:
            with MemoryWatch() as memory, deployment:
                deployment.ready(200)
                agg_ready(session, deployment, result)
                if provoking is not None:
                    provoking.collect(result)
                doctor.held(session, result)
                result["drain"] = faults.drain(deployment)
                result["gpu_mib_peak"] = max((used.get(0, 0) for _, used in memory.samples), default=None)
            break
        except RuntimeError as error:
            result.setdefault("did_not_start", {})[kind] = str(error)[-3000:]
            session.say(f"   {kind}: {str(error)[-600:]}")
            if provoking is not None:
                provoking.collect(result)
    if "drain" in result:
        end = result["drain"]
        session.table(
            "aggregated: SIGTERM under two streams",
            [["exit", "seconds", "streams", "left", "GPU MiB"],
             [end["exit"], end["seconds"], end["streams"], end["left"], end["gpu_mib"]]],
        )  # fmt: skip


def hangs(session: Session, result: dict[str, Any]) -> None:
    """The engine's loop hangs, the worker's event loop hangs, the engine is stopped: each under load."""
    session.need(70 + HANG_S, "a start and a hang")
    options = [*agg_options(speculate=False, eager=True), *sets(*CANARY)]
    deployment = Deployment(session, "hangs", "h200-1gpu-agg", *options)
    result["ignored"] = deployment.ignore_errors()
    result["faults"] = []
    with MemoryWatch() as memory, deployment:
        deployment.ready(200)
        for what, number in HANGS:
            if not session.dry and session.left < HANG_S:
                result["faults_left_out"] = f"{what} {number.name}: {session.left:.0f} s left"
                break
            session.say(f"   {number.name} to the {what} of aggregated-0")
            result["faults"].append(
                faults.strike_worker(
                    session, deployment, memory, "aggregated-0", what, SMALL_LOAD, HANG_S, number
                )
            )
            session.save()
        session.table("hangs under load", [faults.HEAD, *map(faults.row, result["faults"])])
        session.table(
            "what the launcher said", [[line] for each in result["faults"] for line in each["said"]]
        )


def agg_ready(session: Session, deployment: Deployment, result: dict[str, Any]) -> None:
    """Everything that is asked of a ready aggregated deployment."""
    show(session, f"h200-1gpu-agg, small shape, {result['speculation']}", deployment, result)
    result["sockets"] = faults.listening(deployment)
    result["smoke"] = deployment.smoke(*UNPROVABLE)
    rows = [[each["name"], each["outcome"], each["text"][:120]] for each in result["smoke"].get("checks", ())]
    outside = result["sockets"]["outside"]
    rows.append(
        [
            "sockets",
            f"{result['sockets']['sockets']} listening",
            f"not on loopback, besides the API: {outside}",
        ]
    )
    session.table("aggregated: smoke and sockets", rows)
    status = subprocess.run(
        [sys.executable, "-m", "launcher", "status", "--url", deployment.admin_url],
        capture_output=True, text=True, env=deployment.env, timeout=30,
    )  # fmt: skip
    result["launcher_status"] = status.stdout


def disagg_options(*more: str) -> list[str]:
    """One prefill and one decode worker on one GPU, eager."""
    return sets(
        *COMMON,
        "engine.args.kv-cache-memory-bytes=8G",
        "engine.args.gpu-memory-utilization=0.3",
        "engine.args.enforce-eager=true",
        "engine.env.UCX_PROTO_INFO=y",
        *more,
    )


def lanes(page: dict[str, Any]) -> list[list[Any]]:
    """Rows of the transfer proof: pair, lane, GB/s."""
    pairs = [
        pair for proof in page.get("proofs") or () for pair in (proof.get("figures") or {}).get("pairs", ())
    ]
    keys = ("gb_s", "bytes", "fault")
    return [
        [pair["prefill"], pair["decode"], ",".join(pair.get("lanes", ())), *(pair.get(key) for key in keys)]
        for pair in pairs
    ]


def burst(deployment: Deployment, shape: Shape, seconds: float) -> dict[str, Any]:
    """Load for some seconds; its figures."""
    load = faults.Background(deployment, shape, seconds)
    time.sleep(seconds)
    return load.end().figures(seconds)


def disagg(session: Session, result: dict[str, Any], kills: Sequence[tuple[str, str]] = KILLS) -> None:
    """Transfer by CUDA IPC, then each side's parent and core killed under load, then the launcher itself."""
    session.need(130, "a disaggregated start")
    deployment = Deployment(session, "disagg", "h200-1gpu-disagg", *disagg_options())
    result["ignored"] = deployment.ignore_errors()
    with MemoryWatch() as memory, deployment:
        deployment.ready(200)
        show(session, "h200-1gpu-disagg, small shape, UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on", deployment, result)
        session.table(
            "KV transfer",
            [["prefill", "decode", "lanes", "GB/s", "bytes", "fault"], *lanes(result["status"])],
        )
        result["sockets"] = faults.listening(deployment)
        result["load"] = burst(deployment, SMALL_LOAD, 8.0)
        session.table(
            "disaggregated: 8 at once, 1,500 in / 32 out, and who listens",
            [
                list(result["load"]),
                list(result["load"].values()),
                ["outside loopback", result["sockets"]["outside"]],
            ],
        )
        result["faults"] = []
        for name, what in kills:
            # Each side and each kind once; more only where the next step still has its time.
            needed = KILL_S if len(result["faults"]) < 2 else KILL_S + TCP_S
            if not session.dry and session.left < needed:
                result["faults_left_out"] = f"{name} {what} and what follows: {session.left:.0f} s left"
                break
            session.say(f"   killing the {what} of {name}")
            result["faults"].append(
                faults.strike_worker(session, deployment, memory, name, what, SMALL_LOAD, 110.0)
            )
            session.save()
        if result["faults"]:
            session.table("faults under load", [faults.HEAD, *map(faults.row, result["faults"])])
        result["after_faults"] = deployment.brief()
        result["launcher_killed"] = faults.kill_launcher(deployment, inner=False)
        found = result["launcher_killed"]
        session.table("SIGKILL to the launcher", [list(found), list(found.values())])


def disagg_tcp(session: Session, result: dict[str, Any]) -> None:
    """The same without CUDA IPC reads, and with vLLM's kv_producer and kv_consumer: which lane is it now?"""
    session.need(TCP_S, "another disaggregated start")
    deployment = Deployment(session, "disagg-tcp", "h200-1gpu-disagg", *disagg_options(*WITHOUT_IPC))
    result["ignored"] = deployment.ignore_errors()
    with deployment:
        deployment.ready(110)
        show(
            session, "h200-1gpu-disagg, GET_ZCOPY at its default, kv_producer/kv_consumer", deployment, result
        )
        session.table(
            "KV transfer without it",
            [["prefill", "decode", "lanes", "GB/s", "bytes", "fault"], *lanes(result["status"])],
        )
        result["launcher_killed"] = faults.kill_launcher(deployment, inner=True)
        found = result["launcher_killed"]
        session.table("SIGKILL to the launcher's inner process", [list(found), list(found.values())])


def imports(session: Session, result: dict[str, Any]) -> None:
    """What is installed, and that it loads: a broken bundle should cost ten seconds, not a minute."""
    code = (
        "import time, json; t=time.time(); import torch; a=time.time()-t; import vllm, nixl, dynamo.vllm.args; "
        "import importlib.metadata as m; print('RESULT'+json.dumps({'seconds': [round(a,1), round(time.time()-t,1)],"
        "'gpus': torch.cuda.device_count(), 'versions': {n: m.version(n) for n in ['torch','triton','vllm','ai-dynamo',"
        "'nixl','transformers','flashinfer-python','pydantic','aiohttp','psutil','nvidia-ml-py']}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT")), "")
    result["imports"] = json.loads(line[6:]) if line else done.stderr[-2000:]
    result["gpu_mib"] = watch.gpu_used_mib()
    session.say(f"   {result['imports']}")
