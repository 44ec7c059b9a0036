"""Puts an echo worker on Dynamo's runtime, as dynamo.vllm puts its own: publish, register, serve, drain.

Works with ai-dynamo 1.3 to 1.6. Not on ``dynamo.common.backend``, which ends a stream at the first
choice's ``finish_reason`` and so cannot serve ``n`` > 1. Discovery and planes come from Dynamo's environment variables.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

from dynamo.common.utils.graceful_shutdown import install_signal_handlers
from dynamo.common.utils.namespace import get_worker_namespace
from dynamo.common.utils.runtime import create_runtime
from dynamo.llm import KvEventPublisher, ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model
from dynamo.llm.exceptions import InvalidArgument
from dynamo.runtime import Context
from dynamo.runtime.logging import configure_dynamo_logging

from launcher.engines.echo_worker.args import Options
from launcher.engines.echo_worker.worker import PROBE_KEY, EchoWorker, RequestError
from launcher.simmodel import vocabulary as v

__all__ = ["serve"]

logger = logging.getLogger(__name__)

PROBE: dict[str, Any] = {
    "token_ids": [v.START_OF_TEXT],
    "stop_conditions": {"max_tokens": 1},
    PROBE_KEY: True,
}
"""The request by which Dynamo tests an idle worker; from 1.6 on it is also what turns ``/health`` to 200."""


async def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT: then leave discovery, let requests finish, and return."""
    configure_dynamo_logging()
    runtime, loop = create_runtime(
        os.environ.get("DYN_DISCOVERY_BACKEND", "etcd"),
        os.environ.get("DYN_REQUEST_PLANE", "tcp"),
        os.environ.get("DYN_EVENT_PLANE"),
    )
    endpoint = runtime.endpoint(f"{get_worker_namespace()}.{options.component}.{options.endpoint}")
    install_signal_handlers(loop, runtime, [endpoint])
    publisher = None
    if options.kv_events:
        publisher = KvEventPublisher(endpoint, kv_block_size=options.block_size, enable_local_indexer=True)
    worker = EchoWorker(options, publisher)

    async def generate(request: dict[str, Any], context: Context) -> AsyncIterator[dict[str, Any]]:
        try:
            async for chunk in worker.generate(request, context):
                yield chunk
        except RequestError as error:
            raise InvalidArgument(str(error)) from error

    role, kind, needs = _role(options)
    await register_model(
        ModelInput.Tokens,
        kind,
        endpoint,
        options.model_path,
        options.model_name,
        worker_type=role,
        needs=needs,
        kv_cache_block_size=options.block_size,
        runtime_config=_runtime_config(options),
    )
    logger.info("echo worker, a simulation without a model: %s of %s", options.mode, options.model_name)
    labels = [("model", options.model_name)]
    try:
        await endpoint.serve_endpoint(
            generate, graceful_shutdown=True, metrics_labels=labels, health_check_payload=PROBE
        )
    finally:
        if publisher is not None:
            publisher.shutdown()
    # The signal handler's task ends right after this one; without it the loop would report it as destroyed.
    await asyncio.sleep(0)


def _role(options: Options) -> tuple[WorkerType, ModelType, list[list[WorkerType]]]:
    """Return the worker's role, its OpenAI surface, and the roles it cannot serve without."""
    surface = ModelType.Chat | ModelType.Completions
    match options.mode:
        case "prefill":
            return WorkerType.Prefill, ModelType.Prefill, [[WorkerType.Decode]]
        case "decode":
            return WorkerType.Decode, surface, [[WorkerType.Prefill]]
    return WorkerType.Aggregated, surface, []


def _runtime_config(options: Options) -> ModelRuntimeConfig:
    config = ModelRuntimeConfig()
    config.context_length = options.context_length
    config.total_kv_blocks = options.kv_blocks
    config.max_num_seqs = 256
    config.max_num_batched_tokens = 8192
    config.enable_local_indexer = options.kv_events
    if hasattr(config, "kv_event_publishing_enabled"):  # from 1.4 on: the frontend warns where it is off
        config.kv_event_publishing_enabled = options.kv_events
    if options.mode != "prefill":
        config.reasoning_parser = "gpt_oss"
        config.tool_call_parser = "harmony"
    config.exclude_tools_when_tool_choice_none = True
    return config
