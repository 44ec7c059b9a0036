"""Build FlashInfer's kernels for gpt-oss on Hopper beside other work, the small part that is used.

    nice -n 19 python -m tests.gpu.prebuild LOG

FlashInfer compiles on first use: its sampler (70 to 85 s on 16 cores) and `fused_moe_90`, the MoE backend
`flashinfer_cutlass` of the recipe: 154 generated files and some 30 others, for many types. gpt-oss uses one pair of
types, bf16 activations with fp4 weights, which ten of the files hold. Only these are built, the rest stays unresolved
and unused (lazy binding), and the libraries go where FlashInfer looks for ready ones. For measuring only.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

PAIR = ("bfloat16", "fp4")
UNUSED = (
    "fp8_uint4",
    "fp8_fp8",
    "fp8_fp4",
    "fp4_fp4",
    "fp32_fp32",
    "fp16_",
    "bf16_uint",
    "bf16_fp8",
    "bf16_bf16",
)
JOBS = "10"


def wanted(source: Path) -> bool:
    """Whether a source file takes part in bf16 x fp4."""
    if source.name.endswith(".generated.cu"):
        text = source.read_text().lower()
        return all(word in text for word in PAIR) and "fp8_e4m3" not in text
    return not (source.name.startswith("moe_gemm_kernels_") and any(each in source.name for each in UNUSED))


def build(spec: Any, log: Any) -> None:
    """Build one module and put it where FlashInfer takes ready libraries from."""
    began = time.monotonic()
    total = len(spec.sources)
    print(f"{spec.name}: {total} files", file=log, flush=True)
    spec.build(verbose=False)
    place = spec.aot_path
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_suffix(".part")
    shutil.copy(spec.jit_library_path, part)
    part.rename(place)
    print(f"{spec.name}: built in {time.monotonic() - began:.0f} s", file=log, flush=True)


def main() -> None:
    os.environ.setdefault("MAX_JOBS", JOBS)
    with Path(sys.argv[1]).open("a") as log:
        for name, module in (
            ("sampling", "flashinfer.jit.sampling"),
            ("fused_moe_90", "flashinfer.jit.fused_moe"),
        ):
            try:
                jit = importlib.import_module(module)
                if name == "sampling":
                    spec = jit.gen_sampling_module()
                else:
                    spec = jit.gen_cutlass_fused_moe_sm90_module()
                    sources = [source for source in spec.sources if wanted(Path(source))]
                    flags = [*(spec.extra_ldflags or []), "-Wl,-z,lazy"]
                    spec = dataclasses.replace(spec, sources=sources, extra_ldflags=flags)
                if not spec.is_aot:
                    build(spec, log)
            except Exception as error:  # the measurement that wants it is then left out
                print(f"{name}: {type(error).__name__}: {str(error)[-3000:]}", file=log, flush=True)


if __name__ == "__main__":
    main()
