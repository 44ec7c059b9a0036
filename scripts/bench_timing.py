"""Make the timing tables of `launcher simulate` from aiconfigurator-core's measured kernels.

    uv venv /opt/aic && uv pip install -p /opt/aic/bin/python aiconfigurator-core==0.12.0
    /opt/aic/bin/python scripts/bench_timing.py

Not part of the launcher: aiconfigurator-core weighs some 600 MB with its dependencies and takes seconds to load, the
tables that it makes are a few KB each. Latencies are its estimates for one forward pass, in milliseconds; it sums
kernels that NVIDIA measured on the GPU named, and knows neither scheduling nor the CPU.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parent.parent / "launcher" / "simulate" / "data"
MODEL = "openai/gpt-oss-120b"
NEW = [1, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
PREFIX = [0, 8192, 16384, 32768, 49152, 65536, 98304, 130048]
BATCH = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
CONTEXT = [128, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 98304, 131072]


@dataclass(frozen=True)
class Case:
    """One table: a GPU, an engine's kernels, a parallel layout."""

    name: str
    system: str
    backend: str
    version: str
    moe: str
    """MoE kernels, in aiconfigurator's words."""
    tp: int = 1
    ep: int = 1
    attention_dp: int = 1
    kv: str = "fp8"


CASES = [
    Case("h200-vllm-tp1", "h200_sxm", "vllm", "0.24.0", "w4a16_mxfp4"),
    Case("b200-vllm-tp1", "b200_sxm", "vllm", "0.24.0", "w4a16_mxfp4"),
    # What VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8 and flashinfer_trtllm run; under vLLM's name nobody has measured it.
    Case("b200-trtllm-w4a8-tp1", "b200_sxm", "trtllm", "1.3.0rc20", "w4a8_mxfp4_mxfp8"),
    Case("b200-trtllm-w4a8-tp4", "b200_sxm", "trtllm", "1.3.0rc20", "w4a8_mxfp4_mxfp8", tp=4, ep=4),
    Case("gb200-trtllm-w4a8-tp1", "gb200", "trtllm", "1.3.0rc20", "w4a8_mxfp4_mxfp8"),
    # The recipe has moe_expert_parallel_size 1; only expert parallel 4 has been measured at TP4.
    Case("gb200-trtllm-w4a8-tp4", "gb200", "trtllm", "1.3.0rc20", "w4a8_mxfp4_mxfp8", tp=4, ep=4),
    Case(
        "gb200-trtllm-adp4",
        "gb200",
        "trtllm",
        "1.3.0rc20",
        "w4a16_mxfp4",
        ep=4,
        attention_dp=4,
        kv="bfloat16",
    ),
]


def engine(case: Case) -> Any:
    """aiconfigurator's compiled estimator of a case."""
    from aiconfigurator_core.sdk import common, config
    from aiconfigurator_core.sdk.models import get_model
    from aiconfigurator_core.sdk.perf_database import get_database
    from aiconfigurator_core.sdk.rust_engine_step import _cached_engine_handle

    database = get_database(system=case.system, backend=case.backend, version=case.version)
    if database is None:
        raise SystemExit(f"aiconfigurator-core has no data for {case}")
    layout = config.ModelConfig(
        tp_size=case.tp,
        moe_tp_size=1,
        moe_ep_size=case.ep,
        attention_dp_size=case.attention_dp,
        moe_quant_mode=common.MoEQuantMode[case.moe],
        kvcache_quant_mode=common.KVCacheQuantMode[case.kv],
    )
    model = get_model(model_path=MODEL, model_config=layout, backend_name=case.backend)
    return _cached_engine_handle(model, database)


def table(case: Case) -> dict[str, Any]:
    """One pass of prefill for each (prefix, new tokens), one step of decode for each (batch, context)."""
    handle = engine(case)
    return {
        "model": MODEL,
        "tool": f"aiconfigurator-core {version('aiconfigurator-core')}",
        **asdict(case),
        "prefill": {
            "prefix": PREFIX,
            "new": NEW,
            "ms": [
                [round(handle.predict_prefill_latency(1, new + prefix, prefix), 3) for new in NEW]
                for prefix in PREFIX
            ],
        },
        "decode": {
            "batch": BATCH,
            "context": CONTEXT,
            "ms": [
                [round(handle.predict_decode_latency(batch, context, 2), 3) for context in CONTEXT]
                for batch in BATCH
            ],
        },
    }


def main(names: Iterable[str]) -> None:
    """Write the tables, or those named."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    wanted = set(names)
    OUT.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        if wanted and case.name not in wanted:
            continue
        made = table(case)
        path = OUT / f"{case.name}.json"
        path.write_text(json.dumps(made, separators=(",", ":")).replace('"prefill"', '\n"prefill"') + "\n")
        print(path, path.stat().st_size, "bytes", made["prefill"]["ms"][0][-3:], made["decode"]["ms"][5][-3:])


if __name__ == "__main__":
    main(sys.argv[1:])
