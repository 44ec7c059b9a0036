"""The keys of TensorRT-LLM's engine YAML: names, types, values.

From the public source of TensorRT-LLM (`tensorrt_llm/llmapi/llm_args.py`, releases 1.3.0rc14 to rc29; all of its
models forbid unknown keys). Of the keys that a gpt-oss target uses, types and values are known here; of the others the
name, so that a slip of the pen is told from a key of another purpose.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Key(NamedTuple):
    """What a key takes."""

    kind: str
    """`bool`, `int`, `float`, `str`, `ints` or `any`."""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    nullable: bool = False


BOOL, ANY = Key("bool"), Key("any")
COUNT, COUNT_OR_NULL = Key("int", least=1), Key("int", least=1, nullable=True)
ZERO_UP = Key("int", least=0)

GROUPS: dict[str, dict[str, Key]] = {
    "cache_transceiver_config": {
        "backend": Key("str", ("DEFAULT", "UCX", "NIXL", "MOONCAKE", "MPI"), nullable=True),
        "max_tokens_in_buffer": COUNT_OR_NULL,
        "kv_transfer_timeout_ms": COUNT_OR_NULL,
        "kv_transfer_sender_future_timeout_ms": COUNT_OR_NULL,
        "transceiver_runtime": Key("str", ("CPP", "PYTHON"), nullable=True),
    },
    "kv_cache_config": {
        "dtype": Key("str"),
        "enable_block_reuse": BOOL,
        "free_gpu_memory_fraction": Key("float", least=0, most=1, nullable=True),
        "tokens_per_block": COUNT,
        "event_buffer_max_size": ZERO_UP,
        "max_tokens": COUNT_OR_NULL,
        "host_cache_size": Key("int", least=0, nullable=True),
        "max_attention_window": Key("ints", nullable=True),
        "enable_partial_reuse": BOOL,
        "copy_on_partial_reuse": BOOL,
        "onboard_blocks": BOOL,
        "use_uvm": BOOL,
        **dict.fromkeys(
            (
                "sink_token_length",
                "cross_kv_cache_fraction",
                "secondary_offload_min_priority",
                "attention_dp_events_gather_period_ms",
                "kv_cache_event_hash_algo",
                "max_gpu_total_bytes",
                "max_util_for_resume",
                "mamba_ssm_cache_dtype",
                "use_kv_cache_manager_v2",
            ),
            ANY,
        ),
    },
    "moe_config": {
        "backend": Key(
            "str",
            (
                "AUTO",
                "CUTLASS",
                "CUTEDSL",
                "WIDEEP",
                "TRTLLM",
                "DEEPGEMM",
                "VANILLA",
                "TRITON",
                "DENSEGEMM",
                "MARLIN",
                "MEGAMOE_DEEPGEMM",
            ),
        ),
        "max_num_tokens": COUNT_OR_NULL,
        "load_balancer": ANY,
        "disable_finalize_fusion": BOOL,
        "use_low_precision_moe_combine": BOOL,
    },
    "cuda_graph_config": {
        "max_batch_size": ZERO_UP,
        "enable_padding": BOOL,
        "batch_sizes": Key("ints", nullable=True),
        "mode": ANY,
    },
    "attention_dp_config": {
        "enable_balance": BOOL,
        "timeout_iters": ZERO_UP,
        "batching_wait_iters": ZERO_UP,
        "enable_kv_cache_aware_routing": BOOL,
    },
}
"""Keys inside the groups that are known as a whole."""

TOP: dict[str, Key] = {
    "tensor_parallel_size": COUNT,
    "pipeline_parallel_size": COUNT,
    "context_parallel_size": COUNT,
    "moe_expert_parallel_size": COUNT_OR_NULL,
    "moe_tensor_parallel_size": COUNT_OR_NULL,
    "moe_cluster_parallel_size": COUNT_OR_NULL,
    "gpus_per_node": COUNT_OR_NULL,
    "max_batch_size": COUNT_OR_NULL,
    "max_num_tokens": COUNT_OR_NULL,
    "max_seq_len": COUNT_OR_NULL,
    "max_input_len": COUNT_OR_NULL,
    "max_beam_width": COUNT_OR_NULL,
    "stream_interval": COUNT,
    "num_postprocess_workers": ZERO_UP,
    "enable_attention_dp": BOOL,
    "enable_chunked_prefill": BOOL,
    "disable_overlap_scheduler": BOOL,
    "print_iter_log": BOOL,
    "trust_remote_code": BOOL,
    "skip_tokenizer_init": BOOL,
    "enable_iter_perf_stats": BOOL,
    "enable_iter_req_stats": BOOL,
    "return_perf_metrics": BOOL,
    "enable_autotuner": BOOL,
    "allreduce_strategy": Key(
        "str",
        (
            "AUTO",
            "NCCL",
            "UB",
            "MINLATENCY",
            "ONESHOT",
            "TWOSHOT",
            "LOWPRECISION",
            "MNNVL",
            "NCCL_SYMMETRIC",
        ),
        nullable=True,
    ),
    "attn_backend": Key("str"),
    "guided_decoding_backend": Key("str", ("xgrammar", "llguidance"), nullable=True),
}

_OTHERS = """
attention_dp_config backend batch_wait_max_tokens_ratio batch_wait_timeout_iters batch_wait_timeout_ms
batched_logits_processor batching_type build_config cache_transceiver_config checkpoint_format
checkpoint_loader cp_config cuda_graph_config custom_tokenizer decoding_config disable_flashinfer_sampling
draft_len_schedule dtype dwdp_config enable_energy_metrics enable_early_first_token_response
enable_layerwise_nvtx_marker enable_lm_head_tp_in_adp enable_lora enable_min_latency enable_mixed_sampler
enable_sleep enable_trtllm_sampler encode_only env_overrides extra_resource_managers
force_dynamic_quantization garbage_collection_gen0_threshold gather_generation_logits gpu_type
iter_stats_max_iterations kv_cache_config kv_cache_dtype kv_connector_config layer_wise_benchmarks_config
load_format lora_config mamba_config max_stats_len mm_encoder_only mm_encoder_config model_kwargs
moe_config multimodal_config normalize_log_probs numa_aware_affinity nvfp4_gemm_config orchestrator_type
otlp_traces_endpoint peft_cache_config perf_metrics_max_requests post_processor_hook
postprocess_tokenizer_dir pp_partition prometheus_metrics_config quant_config ray_placement_config
ray_worker_extension_cls ray_worker_nsight_options reasoning_parser request_stats_max_iterations revision
sampler_force_async_worker sampler_type scheduler_config sleep_config sparse_attention_config
speculative_config telemetry_config tokenizer tokenizer_mode tokenizer_revision torch_compile_config
use_cute_dsl_blockscaling_bmm use_cute_dsl_blockscaling_mm video_pruning_rate
"""
OTHERS = _OTHERS.split()
"""Top-level keys that exist and are not checked further."""


def known_top() -> list[str]:
    """Every top-level key."""
    return [*TOP, *OTHERS, *GROUPS]


def fault(key: Key, value: Any) -> str:
    """What is wrong with a value, in a few words; empty where nothing is."""
    if value is None:
        return "" if key.nullable or key.kind == "any" else "must not be null"
    if key.kind == "any":
        return ""
    right = {
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "str": isinstance(value, str),
        "ints": isinstance(value, list)
        and bool(value)
        and all(isinstance(item, int) and not isinstance(item, bool) for item in value),
    }[key.kind]
    if not right:
        wanted = {"ints": "a list of whole numbers", "int": "a whole number", "float": "a number"}
        return f"must be {wanted.get(key.kind, 'true or false' if key.kind == 'bool' else 'text')}"
    if key.choices and value not in key.choices:
        return "is none of its values"
    if key.least is not None and value < key.least:
        return f"must be at least {key.least:g}"
    if key.most is not None and value > key.most:
        return f"must be at most {key.most:g}"
    return ""
