"""Runs replay cases with Dynamo's simulator. A script for the interpreter that has Dynamo: it imports nothing of ours.

Reads one job (JSON) on standard input, writes one JSON line for each case to standard output as it is done: the
simulator's own report, or why there is none. Two generations of the simulator take different words for the same
things: 1.3 and 1.4 flat keys of `MockEngineArgs`, 1.6 a nested configuration.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def main() -> int:
    """Run every case of the job; 0 where the simulator could be loaded at all."""
    job = json.load(sys.stdin)
    # The simulator writes a line for each routed request.
    os.environ.setdefault("DYN_LOG", "error")
    # Its own output must not get between our lines.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        import numpy
        from dynamo.replay import run_trace_replay
    except ImportError as error:
        answers.write(json.dumps({"unusable": f"{type(error).__name__}: {error}"}) + "\n")
        return 3
    for name, table in job["tables"].items():
        arrays: dict[str, Any] = {key: numpy.asarray(value, dtype=float) for key, value in table.items()}
        numpy.savez(name, **arrays)
    flat = is_flat()
    answers.write(json.dumps({"simulator": "flat" if flat else "nested"}) + "\n")
    for case in job["cases"]:
        began, cpu = time.monotonic(), time.process_time()
        try:
            report = replay(run_trace_replay, case, flat)
        except Exception as error:
            answers.write(
                json.dumps({"case": case["name"], "error": f"{type(error).__name__}: {error}"[:2000]}) + "\n"
            )
            continue
        spent = {"wall_s": time.monotonic() - began, "cpu_s": time.process_time() - cpu}
        answers.write(json.dumps({"case": case["name"], "report": report, **spent}) + "\n")
    return 0


def is_flat() -> bool:
    """Whether this is a simulator of the first generation."""
    try:
        from dynamo.mocker import MockEngineArgs  # noqa: F401
    except ImportError:
        return False
    return True


def replay(run: Any, case: dict[str, Any], flat: bool) -> dict[str, Any]:
    """One case's report, as plain values."""
    make = flat_engine if flat else nested_engine
    roles: dict[str, dict[str, Any]] = case["engines"]
    options: dict[str, Any] = {
        "trace_block_size": case["block"],
        "replay_concurrency": case["concurrency"],
        "router_mode": "round_robin" if case["router"] == "round-robin" else "kv_router",
    }
    if "aggregated" in roles:
        options |= {
            "extra_engine_args": make(roles["aggregated"]),
            "num_workers": roles["aggregated"]["count"],
        }
    else:
        options |= {
            "prefill_engine_args": make(roles["prefill"]),
            "decode_engine_args": make(roles["decode"]),
            "num_prefill_workers": roles["prefill"]["count"],
            "num_decode_workers": roles["decode"]["count"],
        }
    found = run(case["trace"], **options)
    report: dict[str, Any] = dict(found if isinstance(found, dict) else found.summary)
    return report


def flat_engine(engine: dict[str, Any]) -> Any:
    """`MockEngineArgs` of 1.3 and 1.4."""
    from dynamo.mocker import MockEngineArgs

    values = {
        "engine_type": engine["backend"],
        "num_gpu_blocks": engine["blocks"],
        "block_size": engine["block"],
        "max_num_seqs": engine["max_num_seqs"],
        "max_num_batched_tokens": engine["max_num_batched_tokens"],
        "enable_prefix_caching": engine["prefix_caching"],
        "enable_chunked_prefill": engine["chunked_prefill"],
        "dp_size": engine["dp"],
        "is_prefill": engine["role"] == "prefill",
        "is_decode": engine["role"] == "decode",
        "kv_bytes_per_token": engine["kv_bytes"],
        "kv_transfer_bandwidth": engine["transfer_gb_s"],
        "planner_profile_data": engine["table"],
    }
    # Host offload is left out: `num_g2_blocks` alone changes no result there.
    return MockEngineArgs.from_json(json.dumps(values))


def nested_engine(engine: dict[str, Any]) -> dict[str, Any]:
    """The launch configuration of 1.6."""
    rank: dict[str, Any] = {
        "backend": engine["backend"],
        "worker_type": engine["role"],
        "num_gpu_blocks": engine["blocks"],
        "block_size": engine["block"],
        "max_num_seqs": engine["max_num_seqs"],
        "max_num_batched_tokens": engine["max_num_batched_tokens"],
        "enable_prefix_caching": engine["prefix_caching"],
        "enable_chunked_prefill": engine["chunked_prefill"],
        "kv_transfer_bytes_per_token": engine["kv_bytes"],
        "kv_transfer_bandwidth": engine["transfer_gb_s"],
        "timing_model": {
            "type": "external",
            "provider": "dynamo_profile",
            "config": {"path": engine["table"]},
        },
    }
    if engine["host_blocks"]:
        rank["native_host_offload"] = {"num_host_blocks": engine["host_blocks"]}
        rank["kv_cache_bytes_per_token"] = engine["kv_bytes"]
    return {"engine": rank, "dp_size": engine["dp"]}


if __name__ == "__main__":
    sys.exit(main())
