"""The 120b's own shape with dummy weights on one GPU: time to ready, cold and warm, and throughput of each variant.

The load is the recipe's in shape: 65,536 tokens in of which nine tenths are a prefix that others share, 400 out, 32 at
once for one GPU (the published figures: 256 for eight), drafts accepted by chance at the published mean length of 2.72.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from tests.gpu import faults, watch
from tests.gpu.load import Generator, Shape
from tests.gpu.session import ROOT_FOLDER, Deployment, Session
from tests.gpu.small import NO_DRAFT, SYNTHETIC, sets, show

AGENTIC = Shape(shared=58944, own=6592, groups=8, output=400, concurrency=32)
SIMULATED = Shape(shared=640, own=64, groups=4, output=32, concurrency=8)
DONE = "full.json"
"""What was measured in earlier calls, in the folder that outlasts them."""
FEW_GRAPHS = [
    1,
    2,
    4,
    8,
    16,
    24,
    32,
    48,
    64,
    80,
    96,
    112,
    128,
    144,
    160,
    192,
    224,
    256,
    320,
    384,
    512,
    768,
    1024,
]
RECIPE_PASSES = {"fuse_allreduce_rms": True, "eliminate_noops": True}
BASE = ("engine.args.load-format=dummy", "deadlines.pause_s=0.5")
OFFLOAD = 16 << 30
COLD_S = 110.0
"""What a first start on a machine takes on top."""
AROUND_S = 60.0
"""Seconds around the load: its shared beginnings, its last replies, the stop."""


def compilation(sizes: list[int] | None) -> str:
    """`compilation-config` with these graph sizes; None: the recipe's."""
    value: dict[str, Any] = {"pass_config": RECIPE_PASSES, "max_cudagraph_capture_size": 1024}
    if sizes is not None:
        value["cudagraph_capture_sizes"] = sizes
    return "engine.args.compilation-config=" + json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True)
class Variant:
    """What differs from the target."""

    name: str
    settings: tuple[str, ...]
    note: str
    start_s: float = 120.0
    """Until ready, where the caches are warm but the graph is compiled anew."""
    needs: str = ""
    """A FlashInfer library that must have been built."""
    load: Shape = field(default=AGENTIC)


OURS = (compilation(FEW_GRAPHS), "kv.offload=null", "engine.env.VLLM_USE_FLASHINFER_SAMPLER=0")
VARIANTS = (
    Variant(
        "recipe",
        (f"kv.offload.bytes_per_rank={4 * OFFLOAD}",),
        "the recipe but for 64 GiB of offload in place of 100: the lent machine has 128 GiB",
        start_s=210.0,
        needs="fused_moe_90",
    ),
    Variant(
        "recipe-triton",
        ("engine.args.moe-backend=triton", f"kv.offload.bytes_per_rank={OFFLOAD}"),
        "the recipe but for the MoE backend and 16 GiB of offload in place of 100",
        start_s=170.0,
    ),
    Variant(
        "ours-triton",
        ("engine.args.moe-backend=triton", *OURS),
        "23 graph sizes in place of 83, no offload, vLLM's own sampler",
    ),
    Variant(
        "ours-triton-warm",
        ("engine.args.moe-backend=triton", *OURS),
        "the same again, with every cache that the first start left",
        start_s=75.0,
    ),
    Variant(
        "ours-cutlass",
        ("engine.args.moe-backend=flashinfer_cutlass", *OURS),
        "the recipe's MoE backend",
        needs="fused_moe_90",
    ),
    Variant(
        "ours-chunk-8k",
        ("engine.args.moe-backend=triton", *OURS, "engine.args.max-num-batched-tokens=8192"),
        "prefill in chunks of 8,192",
    ),
    Variant("ours-marlin", ("engine.args.moe-backend=marlin", *OURS), "MoE backend marlin"),
    Variant(
        "ours-block-128",
        ("engine.args.moe-backend=triton", *OURS, "kv.block_size=128"),
        "KV blocks of 128 tokens",
    ),
    Variant("no-speculation", ("engine.args.moe-backend=triton", *OURS, *NO_DRAFT), "without EAGLE3"),
)
HEAD = (
    "variant", "ready s", "KV tokens", "tok/s/GPU", "tok/s/user", "TTFT avg s", "TTFT p99 s", "cached",
    "requests", "GPU MiB",
)  # fmt: skip


def step(names: list[str], *, speculate: bool = True, seconds: float = 45.0) -> Any:
    """A step that measures these variants, each once over all calls."""

    def run(session: Session, result: dict[str, Any]) -> None:
        done = _load()
        for name in names:
            variant = next(each for each in VARIANTS if each.name == name)
            if name in done and not session.dry:
                session.say(f"   {name} was measured before")
                continue
            if variant.needs and not built(variant.needs) and not session.dry:
                result[name] = {"left_out": f"{variant.needs} is not built: {build_log()}"}
                session.say(f"   {name}: {result[name]['left_out'][-300:]}")
                continue
            first = not done
            need = variant.start_s + (COLD_S if first else 0) + seconds + AROUND_S
            if not session.dry and session.left < need:
                result[name] = {"left_out": f"needs {need:.0f} s, {session.left:.0f} s are left"}
                session.say(f"   {name}: {result[name]['left_out']}")
                continue
            found: dict[str, Any] = {"cold": first}
            result[name] = found
            try:
                measure(session, variant, found, seconds, speculate=speculate)
                done[name] = found
                _keep(done)
            except RuntimeError as error:
                found["did_not_start"] = str(error)[-3000:]
                session.say(f"   {name}: {str(error)[-700:]}")
            finally:
                session.end_all()
            session.save()
        rows = [row(name, found) for name, found in {**done, **result}.items() if "load" in found]
        session.table("the 120b's shape, dummy weights, one GPU, 65,536 in (90 % shared) / 400 out, 32 at once",
                      [HEAD, *rows])  # fmt: skip

    return run


def options(variant: Variant, *, speculate: bool) -> list[str]:
    """What is set on top of h200-1gpu-agg."""
    if variant.name == "no-speculation":
        speculation: tuple[str, ...] = ()  # it says so itself
    else:
        speculation = (f"speculative.extra={SYNTHETIC}",) if speculate else NO_DRAFT
    return sets(*BASE, *variant.settings, *speculation)


def measure(
    session: Session, variant: Variant, found: dict[str, Any], seconds: float, *, speculate: bool
) -> None:
    """Start one variant, load it, stop it."""
    cache = ["--cache-dir", str((session.out if session.dry else ROOT_FOLDER) / "cache-full")]
    settings = [*options(variant, speculate=speculate), *cache]
    deployment = Deployment(session, variant.name, "h200-1gpu-agg", *settings, home="hf-full")
    found["note"], found["ignored"] = variant.note, deployment.ignore_errors()
    with deployment:
        found["ready_s"] = deployment.ready(420)
        show(session, f"{variant.name}: {variant.note}", deployment, found)
        found["gpu_mib"] = watch.gpu_used_mib()
        shape = SIMULATED if session.dry else variant.load
        code, body = deployment.complete(64, output=64)
        text = body["choices"][0]["text"] if code == 200 else str(body)
        found["words"] = {"of": 64, "different": len(set(text.split())), "text": text[:120]}
        before = _counters(deployment)
        generator = Generator(deployment.url, deployment.model, shape, seed=3, timeout_s=180.0)
        most = 4.0 if session.dry else min(seconds, session.left - 60)

        async def run() -> None:
            found["warm_s"] = round(await generator.warm(), 1)
            # Streams that begin together go on in waves, and a window is then a matter of how many it holds. So they
            # begin over a quarter of the time, and the window when all of them have.
            ramp = most / 4
            load = await generator.run(most, grace_s=15.0, over_s=ramp)
            found["load"] = load.figures(most - ramp, ramp)

        at = time.monotonic()
        asyncio.run(run())
        found["counters"] = {
            name: round(value - before.get(name, 0.0), 3) for name, value in _counters(deployment).items()
        }
        found["loaded_s"] = round(time.monotonic() - at, 1)
        found["drain"] = faults.drain(deployment, streams=1, output=32)


COUNTERS = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_queries_total",
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:num_preemptions_total",
)


def _counters(deployment: Deployment) -> dict[str, float]:
    found = {name: deployment.metric(name, "aggregated-0") for name in COUNTERS}
    return {name: value for name, value in found.items() if value is not None}


def row(name: str, found: dict[str, Any]) -> list[Any]:
    """One variant as a line of the table."""
    load = found["load"]
    processes = ((found.get("status") or {}).get("report") or {}).get("processes", ())
    tokens = next((each.get("kv_tokens") for each in processes if each.get("kv_tokens")), None)
    return [
        name + (" (cold)" if found.get("cold") else ""),
        found.get("ready_s"),
        tokens,
        load["output_tok_s"],
        load["tok_s_user_avg"],
        load["ttft_avg_s"],
        load["ttft_p99_s"],
        load["cached_share"],
        f"{load['requests']} ({load['errors']} failed)",
        (found.get("gpu_mib") or {}).get(0),
    ]


def built(name: str) -> bool:
    """Whether `prebuild` has left FlashInfer's library."""
    import importlib.util

    spec = importlib.util.find_spec("flashinfer")
    if spec is None or not spec.submodule_search_locations:
        return False
    from pathlib import Path

    folder = Path(next(iter(spec.submodule_search_locations))) / "data" / "aot" / name
    return (folder / f"{name}.so").exists()


def build_log() -> str:
    """What `prebuild` said last."""
    path = ROOT_FOLDER / "prebuild.log"
    return path.read_text()[-400:] if path.exists() else "no build was started"


def _load() -> dict[str, Any]:
    path = ROOT_FOLDER / DONE
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _keep(done: dict[str, Any]) -> None:
    if ROOT_FOLDER.is_dir():
        (ROOT_FOLDER / DONE).write_text(json.dumps(done, default=str))
