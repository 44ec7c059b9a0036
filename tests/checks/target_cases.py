"""Changes that make a target wrong, and what a rule has to say about each: one or more for every code."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.findings import Severity

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
AGG, DISAGG, SMALL = "h200-agg", "h200-disagg", "h200-1gpu-disagg"
TRT_AGG, TRT = "gb200-trtllm-agg", "gb200-trtllm-disagg"


@dataclass(frozen=True)
class Case:
    """A change that makes a target wrong, and what is said about it."""

    code: str
    target: str
    sets: tuple[str, ...]
    says: str
    fix: str = ""
    severity: Severity = ERROR

    @property
    def label(self) -> str:
        return f"{self.code}: {' '.join(self.sets)[:60]}"


def case(code: str, target: str, *sets: str, says: str, fix: str = "", severity: Severity = ERROR) -> Case:
    return Case(code, target, sets, says, fix, severity)


CASES = [
    # Topology.
    case("workers-none", AGG, "workers.aggregated.count=0", says="no worker"),
    case("workers-mixed", DISAGG, "workers.aggregated.count=1", says="beside decode and prefill"),
    case("workers-half", DISAGG, "workers.decode.count=0", says="prefill workers without decode", fix="workers.decode"),
    case("workers-half", DISAGG, "workers.prefill.count=0", says="decode workers without prefill"),
    case("min-ready", AGG, "workers.aggregated.min_ready=9", says="9 of 8", fix="at most 8"),
    case("min-ready-zero", AGG, "workers.aggregated.min_ready=0", says="is 0", fix="1 to 8", severity=WARNING),
    case("gpus-stated", DISAGG, "workers.prefill.count=6", says="take 10 GPUs", fix="hardware.gpus=10"),
    case("gpus-stated", DISAGG, "workers.prefill.count=2", says="take 6", severity=WARNING),
    case("node-small", TRT, says="takes 5 GPUs", fix="8-GPU node", severity=WARNING),
    case(
        "tp-node", TRT_AGG, "workers.aggregated.tensor_parallel=16", says="tensor_parallel is 16", fix="at most 8"
    ),
    case("tp-heads", DISAGG, "workers.decode.tensor_parallel=3", says="does not divide", fix="2 (one of"),
    # Routing.
    case("kv-events-off", AGG, "kv.events=false", says="--kv-events-config", fix="router.approximate"),
    case("kv-events-off", "sim", "kv.events=false", says="no worker publishes"),
    case("block-size", DISAGG, "workers.prefill.args.block-size=16", says="is 16, kv.block_size is 64"),
    case("block-size", DISAGG, "frontend.args.kv-cache-block-size=32", says="is 32", fix="kv.block_size=32"),
    case("block-size", "sim", "simulation.args.block-size=16", says="simulation.args.block-size is 16"),
    case("block-size", TRT, "engine.config.kv_cache_config.tokens_per_block=64", says="tokens_per_block is 64"),
    case(
        "router-unused", AGG, "router.approximate=true", "router.mode=random", says="no effect", severity=WARNING
    ),
    case("hash-seed", AGG, "engine.env.PYTHONHASHSEED=null", says="not set", fix="'42'", severity=WARNING),
    case("hash-seed", AGG, "engine.env.PYTHONHASHSEED=random", says="is random", severity=WARNING),
    case("migration-off", AGG, "frontend.migration_limit=0", says="is 0", severity=WARNING),
    # Flags and variables.
    case("flag-owned", AGG, "engine.args.kv-cache-dtype=auto", says="repeats kv.dtype", fix="set kv.dtype"),
    case("flag-owned", AGG, "engine.args.kv_cache_dtype=auto", says="kv_cache_dtype repeats"),
    case("flag-owned", DISAGG, "workers.prefill.args.is-prefill-worker=true", says="role comes from workers"),
    case("flag-owned", AGG, "frontend.args.router-mode=random", says="repeats router.mode"),
    case("flag-owned", AGG, "frontend.args.no-router-kv-events=true", says="repeats router.approximate"),
    case("flag-owned", TRT, "engine.args.override-engine-args={}", says="repeats engine.config"),
    case("flag-owned", TRT, "workers.decode.args.disaggregation-mode=prefill_and_decode", says="repeats workers"),
    case("flag-owned", "sim", "simulation.args.endpoint=x", says="simulation.args.endpoint"),
    case("env-owned", AGG, "engine.env.DYN_SYSTEM_PORT=9091", says="DYN_SYSTEM_PORT", fix="--base-port"),
    case("env-owned", DISAGG, "workers.decode.env.VLLM_NIXL_SIDE_CHANNEL_PORT=5600", says="SIDE_CHANNEL"),
    case("env-owned", AGG, "engine.env.CUDA_VISIBLE_DEVICES=0", says="CUDA_VISIBLE_DEVICES"),
    case("secret-in-target", AGG, "engine.env.HF_TOKEN=hf_x", says="looks like a secret", severity=WARNING),
    case("config-unused", AGG, "engine.config.max_seq_len=1", says="no such file", severity=WARNING),
    # KV.
    case("kv-transfer-missing", DISAGG, "kv.transfer=null", says="no kv.transfer", fix="nixl"),
    case("kv-transfer-missing", TRT, "kv.transfer=null", says="no kv.transfer", fix="ucx"),
    case("kv-transfer-engine", DISAGG, "kv.transfer.connector=ucx", says="is ucx, the engine is vllm", fix="nixl"),
    case(
        "kv-transfer-unused",
        AGG,
        "kv.offload=null",
        "kv.transfer={connector: nixl}",
        says="aggregated",
        severity=WARNING,
    ),
    case("kv-transfer-unused", DISAGG, "kv.transfer.max_tokens_in_buffer=1", says="to vllm", severity=WARNING),
    case("kv-transfer-unused", TRT, "kv.transfer.buffer_device=cuda", says="to trtllm", severity=WARNING),
    case("kv-transfer-role", DISAGG, "kv.transfer.role=kv_producer", says="kv_producer", fix="by-role"),
    case(
        "offload-transfer",
        DISAGG,
        "kv.offload={connector: SimpleCPUOffloadConnector, bytes_per_rank: 1}",
        says="together with kv.transfer (nixl)",
        fix="kv.offload=null",
    ),
    case("offload-engine", TRT_AGG, "kv.offload={connector: X, bytes_per_rank: 1}", says="with TensorRT-LLM"),
    case("offload-broken", AGG, "kv.offload.connector=LMCacheConnectorV1", says="LMCacheConnectorV1", fix="SimpleCPU"),
    case("offload-broken", AGG, "kv.offload.connector=MultiConnector", says="MultiConnector"),
    case("offload-unknown", AGG, "kv.offload.connector=SimpleCPUOfload", says="'SimpleCPUOfload'", fix="SimpleCPUOff"),
    case("offload-unknown", AGG, "kv.offload.connector=MyConnector", says="'MyConnector'", severity=WARNING),
    case(
        "hybrid-kv-off",
        DISAGG,
        "engine.args.disable-hybrid-kv-cache-manager=null",
        says="in silence",
        severity=WARNING,
    ),
    case(
        "hybrid-kv-off",
        DISAGG,
        "engine.args.disable-hybrid-kv-cache-manager=true",
        says="without the hybrid",
        severity=WARNING,
    ),
    case("roles-differ", DISAGG, "workers.decode.args.quantization=fp8", says="mxfp4 on prefill and fp8 on decode"),
    # Speculation.
    case("draft-missing", AGG, "model.draft=null", says="names no draft", fix="Eagle3-v3"),
    case("draft-unused", AGG, "speculative=null", says="no speculative decoding", severity=INFO),
    case("draft-other", AGG, "model.id=openai/gpt-oss-20b", says="the model is openai/gpt-oss-20b"),
    case("speculative-extra", AGG, "speculative.extra.method=ngram", says="repeats speculative.method"),
    case("speculative-engine", TRT_AGG, "speculative={method: eagle3, num_tokens: 3}", says="is TensorRT-LLM"),
    case("structured-output", AGG, says="may be invalid JSON", fix="tool calling", severity=WARNING),
    # Context.
    case("context-model", AGG, "engine.args.max-model-len=200000", says="200000", fix="max-model-len=131072"),
    case("context-model", AGG, "engine.args.max-model-len=256K", says="262144"),
    case("context-roles", DISAGG, "workers.decode.args.max-model-len=65536", says="131072 on prefill and 65536"),
    case("context-workload", AGG, "engine.args.max-model-len=32768", says="hold 32768", severity=WARNING),
    case("prefill-budget", AGG, "engine.args.enable-chunked-prefill=false", says="chunked prefill is off"),
    case("slots-few", AGG, "engine.args.max-num-seqs=16", says="16 each = 128", fix="=32", severity=WARNING),
    case("quantization", AGG, "engine.args.quantization=fp8", says="is fp8", fix="mxfp4"),
    # Memory.
    case("gpu-share", SMALL, "engine.args.gpu-memory-utilization=0.9", says="ask for 1.80", fix="0.47 each"),
    case("gpu-share", AGG, "engine.args.gpu-memory-utilization=90", says="is 90", fix="at most 1"),
    case("gpu-weights", SMALL, "model.id=openai/gpt-oss-120b", says="2 workers share one GPU", fix="gpt-oss-20b"),
    case("gpu-weights", AGG, "hardware.gpu_memory_gib=48", says="on 1 GPU of 48 GiB"),
    # Parsers, network.
    case("parser-missing", AGG, "parsers.tool_call=null", says="not set", fix="harmony", severity=WARNING),
    case("parser-other", AGG, "parsers.reasoning=qwen3", says="is qwen3", fix="gpt_oss"),
    case("port-clash", AGG, "network.admin_port=8000", says="both have port 8000", fix="--admin-port 9000"),
    case("port-clash", AGG, "network.http_port=20010", says="block of internal ports"),
    case("admin-open", AGG, "network.admin_host=0.0.0.0", says="0.0.0.0", severity=INFO),
    # TensorRT-LLM.
    case("trt-key", TRT, "engine.config.max_num_token=1", says="max_num_token is no key", fix="'max_num_tokens'"),
    case("trt-key", TRT, "engine.config.kv_cache_config.enable_block_resue=1", says="resue", fix="enable_block_reuse"),
    case("trt-key", TRT, "engine.config.free_gpu_memory_fraction=0.9", says="is no key", fix="kv_cache_config"),
    case("trt-key", TRT, "engine.config.zzzzzz=1", says="zzzzzz", fix="remove it"),
    case("trt-value", TRT, "engine.config.stream_interval=0", says="at least 1", fix="1 or more"),
    case("trt-value", TRT, "workers.decode.config.kv_cache_config.free_gpu_memory_fraction=1.5", says="at most 1"),
    case("trt-value", TRT, "engine.config.moe_config.backend=CUTLAS", says="none of its values", fix="'CUTLASS'"),
    case("trt-value", TRT, "engine.config.moe_config.backend=trtllm", says="none of its", fix="'TRTLLM'"),
    case("trt-value", TRT, "engine.config.print_iter_log=1", says="true or false"),
    case("trt-value", TRT, 'engine.config.max_num_tokens="20000"', says="whole number", fix="without quotes"),
    case("trt-value", TRT, "engine.config.kv_cache_config=8", says="a group of keys"),
    case("trt-twice", TRT_AGG, "engine.config.max_batch_size=64", says="--max-batch-size 800", severity=WARNING),
    case("trt-graphs", TRT_AGG, "engine.config.cuda_graph_config.batch_sizes=[1, 2]", says="batch_sizes 2", fix="2"),
    case("trt-no-effect", TRT, says="enable_balance of decode workers", severity=WARNING),
    case(
        "trt-no-effect",
        TRT,
        "workers.decode.config.attention_dp_config=null",
        "workers.decode.config.cuda_graph_config.max_batch_size=2048",
        says="cuda_graph_config.max_batch_size",
        fix="at most 1280",
        severity=WARNING,
    ),
    case("trt-parallel", TRT_AGG, "engine.args.tensor-parallel-size=2", says="2 x 1 = 2 ranks (TP x PP) on 4 GPU"),
    case("trt-parallel", TRT, "engine.config.pipeline_parallel_size=2", says="ranks"),
    case("trt-experts", TRT_AGG, "engine.args.expert-parallel-size=3", says="expert parallel 3", fix="=2"),
    case("trt-experts", TRT, "workers.decode.config.moe_tensor_parallel_size=2", says="1 x MoE tensor parallel 2"),
    case("trt-seq-len", TRT, "workers.prefill.config.max_seq_len=8192", says="needs 8193", fix="=8200"),
    case("trt-seq-len", TRT, "workers.decode.config.max_seq_len=9000", says="needs 9344", fix="=9344"),
    case("trt-num-tokens", TRT, "engine.config.max_num_tokens=8000", says="is 8000", fix="=9216"),
    case("trt-slots", TRT, says="1 x 1280 = 1280", fix="=1280", severity=WARNING),
    case("trt-slots", TRT_AGG, says="x 4 ranks = 3200", severity=WARNING),
    case("workload-gpus", TRT, says="counts 6 GPUs, 5 are used", fix="256 x 5 = 1280", severity=INFO),
    case("trt-transceiver", TRT, "workers.decode.config.cache_transceiver_config.backend=NIXL", says="UCX on prefill"),
    case(
        "trt-transceiver",
        TRT,
        "workers.prefill.config.cache_transceiver_config.backend=null",
        "workers.decode.config.cache_transceiver_config={backend: MPI}",
        says="MPI on decode",
    ),
    case("trt-buffer", TRT, "kv.transfer.max_tokens_in_buffer=9210", says="no multiple of", fix="=9216"),
    case("trt-buffer", TRT, "kv.transfer.max_tokens_in_buffer=8192", says="longest input, 8999", fix="=9024"),
    case("trt-buffer", TRT, "kv.transfer.max_tokens_in_buffer=8001", says="and less than", fix="=9024"),
    case("trt-kv-layout", TRT, "workers.decode.config.kv_cache_config.dtype=auto", says="fp8 on prefill and auto"),
    case(
        "trt-kv-layout",
        TRT,
        "workers.decode.config.kv_cache_config.tokens_per_block=64",
        says="32 on prefill",
        fix="=32",
    ),
    case("trt-kv-routing", TRT, "router.mode=kv", "kv.events=true", says="enable_block_reuse false"),
    case(
        "trt-kv-routing",
        TRT,
        "router.mode=kv",
        "kv.events=true",
        "engine.config.kv_cache_config.enable_block_reuse=true",
        "kv.block_size=64",
        says="tokens_per_block 32",
        fix="tokens_per_block=64",
    ),
    case("trt-attention", TRT, "engine.config.attn_backend=FLASHINFER", says="FLASHINFER", fix="TRTLLM"),
    case("trt-prompt-gap", TRT, says="9000 on prefill and 11000", fix="=11008", severity=WARNING),
    case("trt-quant-value", TRT, "engine.env.OVERRIDE_QUANT_ALGO=W4A8_MXFP4_MXFP", says="MXFP'", fix="MXFP8'"),
    case("trt-quant-value", TRT, "engine.env.OVERRIDE_QUANT_ALGO=fp8", says="'fp8'", fix="one of"),
    case("trt-quant-model", TRT, "model.id=nvidia/other", says="with nvidia/other"),
    case("trt-quant-gpu", TRT, "hardware.gpu=[H200]", says="a target for H200", fix="W4A16_MXFP4"),
    case("trt-transport", TRT, "engine.env.TRTLLM_USE_NIXL_KVCACHE=1", says="backend is UCX", severity=WARNING),
    case("trt-ucx-tls", TRT, "engine.env.UCX_TLS=tcp,sm", says="neither cuda_copy", fix="tcp,sm,cuda_copy"),
    case("trt-switch", TRT, 'engine.env.TRTLLM_ENABLE_PDL="true"', says="'true'", fix="1 or 0", severity=WARNING),
    case("trt-gb200-crash", TRT_AGG, says="without TRTLLM_FORCE", fix="ALLGATHER", severity=WARNING),
]  # fmt: skip
