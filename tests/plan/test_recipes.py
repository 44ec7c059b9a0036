"""Every flag, variable and engine-YAML key of the public recipes, with the named fixes.

The expected values are written out from the recipes (release 1.3.1 and main of August 2026), not read from our targets.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from launcher.plan.model import Plan, Process, Role
from tests.support.plans import flags, plan, subset

VLLM = ("b200-agg", "h200-agg", "b200-disagg", "h200-disagg")
DISAGG = ("b200-disagg", "h200-disagg")
AGG = ("b200-agg", "h200-agg")
COMMON = {
    "--model": "openai/gpt-oss-120b",
    "--served-model-name": "openai/gpt-oss-120b",
    "--trust-remote-code": "",
    "--quantization": "mxfp4",
    "--kv-cache-dtype": "fp8",
    "--max-model-len": "131072",
    "--gpu-memory-utilization": "0.9",
    "--tensor-parallel-size": "1",
    "--max-num-batched-tokens": "32768",
    "--enable-chunked-prefill": "",
    "--enable-prefix-caching": "",
    "--async-scheduling": "",
    "--enable-flashinfer-autotune": "",
    "--dyn-reasoning-parser": "gpt_oss",
    "--dyn-tool-call-parser": "harmony",
    # Fix: stated once, for the aggregated targets too.
    "--block-size": "64",
}
EAGLE3 = {"method": "eagle3", "model": "nvidia/gpt-oss-120b-Eagle3-v3", "num_speculative_tokens": 3}


def workers(found: Plan, role: Role | None = None) -> list[Process]:
    return [process for process in found.workers if role is None or process.role is role]


@pytest.mark.parametrize("target", VLLM)
def test_flags_common_to_all_vllm_workers(target: str) -> None:
    for worker in workers(plan(target)):
        assert subset(COMMON, flags(worker)) == COMMON
        assert json.loads(flags(worker)["--speculative-config"]) == EAGLE3


@pytest.mark.parametrize(
    ("target", "prefill", "decode", "aggregated"),
    [
        ("b200-agg", 0, 0, 8),
        ("h200-agg", 0, 0, 8),
        ("b200-disagg", 2, 6, 0),
        ("h200-disagg", 4, 4, 0),
        ("gb200-trtllm-agg", 0, 0, 1),
        ("gb200-trtllm-disagg", 1, 1, 0),
        ("h200-1gpu-agg", 0, 0, 1),
        ("h200-1gpu-disagg", 1, 1, 0),
    ],
)
def test_topology(target: str, prefill: int, decode: int, aggregated: int) -> None:
    found = plan(target)
    counts = [len(workers(found, role)) for role in (Role.PREFILL, Role.DECODE, Role.AGGREGATED)]
    assert counts == [prefill, decode, aggregated]


@pytest.mark.parametrize("target", ["h200-agg", "h200-disagg"])
def test_h200_uses_cutlass(target: str) -> None:
    for worker in workers(plan(target)):
        assert flags(worker)["--moe-backend"] == "flashinfer_cutlass"
        assert worker.env["TORCH_CUDA_ARCH_LIST"] == "9.0"
        assert "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8" not in worker.env


@pytest.mark.parametrize("target", ["b200-agg", "b200-disagg"])
def test_b200_leaves_the_backend_to_the_engine(target: str) -> None:
    for worker in workers(plan(target)):
        assert "--moe-backend" not in flags(worker)
        expected = {"TORCH_CUDA_ARCH_LIST": "10.0", "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": "1"}
        assert subset(expected, worker.env) == expected


@pytest.mark.parametrize("target", AGG)
def test_aggregated(target: str) -> None:
    for worker in workers(plan(target)):
        found = flags(worker)
        assert found["--max-num-seqs"] == "256"
        assert json.loads(found["--compilation-config"]) == {
            "pass_config": {"fuse_allreduce_rms": True, "eliminate_noops": True},
            "max_cudagraph_capture_size": 1024,
        }
        assert worker.env["PYTHONHASHSEED"] == "42"
        assert "--disaggregation-mode" not in found
        assert "--no-disable-hybrid-kv-cache-manager" not in found


def test_only_h200_agg_offloads() -> None:
    for worker in workers(plan("h200-agg")):
        assert json.loads(flags(worker)["--kv-transfer-config"]) == {
            "kv_connector": "SimpleCPUOffloadConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"cpu_bytes_to_use_per_rank": 107374182400},
        }
    for worker in workers(plan("b200-agg")):
        assert "--kv-transfer-config" not in flags(worker)


@pytest.mark.parametrize("target", DISAGG)
def test_disaggregated(target: str) -> None:
    found = plan(target)
    expected = {
        "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "NCCL_IB_DISABLE": "1",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_P2P_LEVEL": "NVL",
    }
    for worker in workers(found):
        line = flags(worker)
        assert line["--disaggregation-mode"] == worker.role.value
        assert json.loads(line["--kv-transfer-config"]) == {
            "kv_connector": "NixlConnector",
            "kv_role": "kv_both",
            "kv_buffer_device": "cuda",
        }
        assert "--no-disable-hybrid-kv-cache-manager" in line
        assert "--max-num-seqs" not in line
        assert "--compilation-config" not in line
        assert subset(expected, worker.env) == expected
        assert worker.env["DYN_COMPONENT"] == ("prefill" if worker.role is Role.PREFILL else "backend")
        assert worker.env["DYN_SYSTEM_PORT"] == str(worker.ports["system"])
        assert worker.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] == str(worker.ports["nixl"])


@pytest.mark.parametrize("target", DISAGG)
def test_nixl_workers_see_their_own_gpu_first_and_all_others(target: str) -> None:
    found = plan(target)
    for index, worker in enumerate(workers(found)):
        others = [str(gpu) for gpu in range(8) if gpu != index]
        assert worker.gpus == (str(index),)
        assert worker.env["CUDA_VISIBLE_DEVICES"].split(",") == [str(index), *others]


@pytest.mark.parametrize("target", AGG)
def test_aggregated_workers_see_only_their_own_gpu(target: str) -> None:
    assert [worker.env["CUDA_VISIBLE_DEVICES"] for worker in workers(plan(target))] == list("01234567")


@pytest.mark.parametrize("target", VLLM)
def test_fix_every_publishing_worker_has_kv_events_at_an_address_of_its_own(target: str) -> None:
    found = plan(target)
    endpoints = []
    for worker in workers(found):
        line = flags(worker)
        if worker.role is Role.DECODE:
            assert "--kv-events-config" not in line
            continue
        events = json.loads(line["--kv-events-config"])
        assert subset({"enable_kv_cache_events": 1, "publisher": 1, "topic": 1}, events) == {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "topic": "kv-events",
        }
        # vLLM binds a `*` or a unix socket and connects to anything else: a plain address would publish into nothing.
        assert events["endpoint"] == f"ipc://{found.run_dir}/kv.{worker.name}"
        endpoints.append(events["endpoint"])
    assert len(set(endpoints)) == len(endpoints) > 0


@pytest.mark.parametrize("target", VLLM)
def test_frontend(target: str) -> None:
    found = plan(target)
    expected = {
        "--router-mode": "kv",
        "--router-kv-events": "",
        "--kv-cache-block-size": "64",
        "--http-host": "0.0.0.0",
        "--http-port": "8000",
        "--trust-remote-code": "",
    }
    assert subset(expected, flags(found.process("frontend"))) == expected


@pytest.mark.parametrize("target", [*VLLM, "sim", "h200-1gpu-agg", "h200-1gpu-disagg"])
@pytest.mark.parametrize("size", [16, 128])
def test_fix_one_block_size_for_frontend_and_workers(target: str, size: int) -> None:
    found = plan(target, f"kv.block_size={size}")
    assert flags(found.process("frontend"))["--kv-cache-block-size"] == str(size)
    assert {flags(worker)["--block-size"] for worker in workers(found)} == {str(size)}


TRTLLM_AGG: dict[str, Any] = {
    "enable_attention_dp": True,
    "cuda_graph_config": {"max_batch_size": 800, "enable_padding": True},
    "kv_cache_config": {"enable_block_reuse": False},
    "stream_interval": 20,
    "moe_config": {"backend": "CUTLASS"},
}
TRTLLM_BOTH: dict[str, Any] = {
    "cache_transceiver_config": {"backend": "UCX", "max_tokens_in_buffer": 9216},
    "enable_attention_dp": False,
    "max_num_tokens": 20000,
    "moe_config": {"backend": "TRTLLM"},
    "moe_expert_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "print_iter_log": True,
    "stream_interval": 20,
    "trust_remote_code": True,
    "num_postprocess_workers": 4,
}
TRTLLM_PREFILL: dict[str, Any] = TRTLLM_BOTH | {
    "tensor_parallel_size": 1,
    "disable_overlap_scheduler": True,
    "kv_cache_config": {"dtype": "fp8", "enable_block_reuse": False, "free_gpu_memory_fraction": 0.8},
    "max_batch_size": 64,
    "cuda_graph_config": {"max_batch_size": 30, "enable_padding": True},
    "max_seq_len": 9000,
}
TRTLLM_DECODE: dict[str, Any] = TRTLLM_BOTH | {
    "tensor_parallel_size": 4,
    "disable_overlap_scheduler": False,
    "kv_cache_config": {"dtype": "fp8", "enable_block_reuse": False, "free_gpu_memory_fraction": 0.85},
    "max_batch_size": 1280,
    "cuda_graph_config": {"max_batch_size": 1280, "enable_padding": True},
    "max_seq_len": 11000,
    "allreduce_strategy": "AUTO",
    "attention_dp_config": {"enable_balance": True},
}


def engine_file(worker: Process) -> dict[str, Any]:
    path = flags(worker)["--extra-engine-args"]
    loaded = yaml.safe_load(worker.files[path])
    assert isinstance(loaded, dict)
    return loaded


def test_trtllm_aggregated() -> None:
    found = plan("gb200-trtllm-agg")
    (worker,) = workers(found)
    line = flags(worker)
    assert line.pop("--extra-engine-args") in worker.files
    assert line == {
        "--model-path": "openai/gpt-oss-120b",
        "--served-model-name": "openai/gpt-oss-120b",
        "--tensor-parallel-size": "4",
        "--expert-parallel-size": "4",
        "--max-batch-size": "800",
        "--free-gpu-memory-fraction": "0.9",
        # Fix: the recipe wires no parsers to TensorRT-LLM.
        "--dyn-reasoning-parser": "gpt_oss",
        "--dyn-tool-call-parser": "harmony",
    }
    assert engine_file(worker) == TRTLLM_AGG
    assert worker.gpus == ("0", "1", "2", "3")
    assert worker.ranks is not None
    assert worker.ranks.count == 4


def test_trtllm_disaggregated() -> None:
    found = plan("gb200-trtllm-disagg")
    prefill, decode = workers(found)
    assert engine_file(prefill) == TRTLLM_PREFILL
    assert engine_file(decode) == TRTLLM_DECODE
    for worker in (prefill, decode):
        line = flags(worker)
        assert line["--disaggregation-mode"] == worker.role.value
        assert line["--dyn-reasoning-parser"] == "gpt_oss"
        assert line["--dyn-tool-call-parser"] == "harmony"
        expected = {
            "OVERRIDE_QUANT_ALGO": "W4A8_MXFP4_MXFP8",
            "NCCL_GRAPH_REGISTER": "0",
            "OMPI_MCA_coll_ucc_enable": "0",
        }
        assert subset(expected, worker.env) == expected
    assert prefill.gpus == ("0",)
    assert decode.gpus == ("1", "2", "3", "4")


@pytest.mark.parametrize("target", ["gb200-trtllm-agg", "gb200-trtllm-disagg"])
def test_trtllm_common(target: str) -> None:
    found = plan(target)
    expected = {"TRTLLM_ENABLE_PDL": "1", "TRT_LLM_DISABLE_LOAD_WEIGHTS_IN_PARALLEL": "True"}
    for worker in workers(found):
        assert subset(expected, worker.env) == expected
    frontend = flags(found.process("frontend"))
    assert frontend["--router-mode"] == "round-robin"
    assert frontend["--http-port"] == "8000"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("b200-agg", (512, 2896, 58, 4.4)),
        ("h200-agg", (256, 1256, 47.5, 1.4)),
        ("b200-disagg", (256, 2069, 99, 5.6)),
        ("h200-disagg", (256, 1046, 43, 4.4)),
    ],
)
def test_published_figures_and_workload(target: str, expected: tuple[float, ...]) -> None:
    from launcher.target.resolve import resolve

    found = resolve(target).target
    assert found.published is not None
    assert found.workload is not None
    figures = found.published
    assert (figures.concurrency, figures.tok_s_gpu, figures.tok_s_user, figures.ttft_avg_s) == expected
    assert "15 %" in figures.conditions
    assert found.workload.concurrency == expected[0]
    assert (found.workload.osl, found.workload.trace_block, found.workload.warmup_requests) == (400, 512, 5)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("gb200-trtllm-agg", (128, 1000, 3600, 36000, 4)),
        ("gb200-trtllm-disagg", (8192, 1024, 1536, 15360, 6)),
    ],
)
def test_trtllm_workload(target: str, expected: tuple[int, ...]) -> None:
    from launcher.target.resolve import resolve

    work = resolve(target).target.workload
    assert work is not None
    assert (work.isl, work.osl, work.concurrency, work.requests, work.concurrency_gpus) == expected


@pytest.mark.parametrize(
    ("target", "shm", "capabilities", "arch", "memory"),
    [
        ("b200-agg", 64, ["SYS_PTRACE", "IPC_LOCK"], None, 1600),
        ("h200-agg", 64, ["SYS_PTRACE", "IPC_LOCK"], None, 1600),
        ("b200-disagg", 64, ["SYS_PTRACE", "IPC_LOCK"], None, 1200),
        ("h200-disagg", 64, ["SYS_PTRACE", "IPC_LOCK"], None, 1200),
        ("gb200-trtllm-agg", 80, [], "arm64", 0),
        ("gb200-trtllm-disagg", 80, [], None, 0),
    ],
)
def test_pod_facts(target: str, shm: int, capabilities: list[str], arch: str | None, memory: int) -> None:
    from launcher.target.resolve import resolve

    hardware = resolve(target).target.hardware
    assert (hardware.shm_gib, list(hardware.capabilities), hardware.arch) == (shm, capabilities, arch)
    assert hardware.memory_gib == memory
    assert hardware.host_ipc == (target in DISAGG)
