"""The echo worker's command line, named as Dynamo's mocker names its own."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from launcher.simmodel import MODEL_NAME, MODEL_PATH

__all__ = ["Mode", "Options", "parse"]

Mode = Literal["agg", "prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Options:
    """What one echo worker was asked to be."""

    model_path: str
    model_name: str
    mode: Mode
    component: str
    endpoint: str
    block_size: int
    """Tokens per KV block; the router hashes prompts in blocks of this size."""
    kv_blocks: int
    """Blocks of the simulated KV cache; the least recently used are evicted beyond it."""
    context_length: int
    """Most tokens of prompt and answer together."""
    tokens_per_second: float
    """Pace of one choice of one request; 0 is as fast as possible."""
    kv_events: bool
    """Whether stored and removed blocks are published; a decode worker never publishes."""


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _rate(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of tokens per second, 0 or more, got {text}")
    return value


def parse(argv: Sequence[str] | None = None) -> Options:
    """Return the options of a command line (``sys.argv`` by default); wrong ones exit with code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m launcher.engines.echo_worker",
        description="Answers scripted harmony tokens behind a real Dynamo frontend; no model runs.",
    )
    parser.add_argument("--model-path", default=str(MODEL_PATH), help="folder with the byte tokenizer")
    parser.add_argument("--model-name", default=MODEL_NAME, help="name to serve")
    parser.add_argument("--disaggregation-mode", choices=("agg", "prefill", "decode"), default="agg")
    parser.add_argument(
        "--component", default=os.environ.get("DYN_COMPONENT"), help="default: prefill or backend"
    )
    parser.add_argument("--endpoint", default="generate", help="name of the endpoint inside the component")
    parser.add_argument("--block-size", type=_positive, default=64, help="tokens per KV block (default 64)")
    parser.add_argument("--kv-blocks", type=_positive, default=16384, help="blocks of simulated KV cache")
    parser.add_argument("--context-length", type=_positive, default=131072, help="tokens (default 131072)")
    parser.add_argument(
        "--tokens-per-second", type=_rate, default=400.0, help="per choice; 0 = unpaced (default 400)"
    )
    parser.add_argument("--no-kv-events", dest="kv_events", action="store_false", help="publish no KV events")
    given = parser.parse_args(argv)
    mode = cast(Mode, given.disaggregation_mode)
    return Options(
        model_path=given.model_path,
        model_name=given.model_name,
        mode=mode,
        # The names dynamo.mocker uses; the router goes by the registered role.
        component=given.component or ("prefill" if mode == "prefill" else "backend"),
        endpoint=given.endpoint,
        block_size=given.block_size,
        kv_blocks=given.kv_blocks,
        context_length=given.context_length,
        tokens_per_second=given.tokens_per_second,
        kv_events=given.kv_events and mode != "decode",
    )
