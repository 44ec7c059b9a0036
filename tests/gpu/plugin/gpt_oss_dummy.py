"""A vLLM plugin: `--load-format dummy` with weights under which the model behaves like one.

vLLM 0.23.0 leaves the packed MXFP4 weights zero and draws everything else from ±0.001, the routers' biases too. These
then decide alone: every token takes the same four experts of each layer, a decode step reads 4 of 128, and throughput
comes out far too high. Here norms are 1, matrices keep their input's scale, and each token finds experts of its own.
Works on GPT_OSS_DUMMY=spread only, and only in the engine's processes.

Each process of vLLM also takes SIGUSR2 as an order to hang: its main thread, which is the worker's event loop or the
engine's own loop, sleeps for good, while the process lives and its other threads go on.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
import time
from typing import Any


def register() -> None:
    """Replace vLLM's dummy initialisation in this process, and let it be told to hang."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR2, hang)
    if os.environ.get("GPT_OSS_DUMMY") != "spread" or multiprocessing.current_process().name == "MainProcess":
        return
    torch: Any = importlib.import_module("torch")
    loader: Any = importlib.import_module("vllm.model_executor.model_loader.dummy_loader")

    def load_weights(self: Any, model: Any, model_config: Any) -> None:
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                if tensor.device.type != "meta":
                    fill(name, tensor)

    loader.DummyModelLoader.load_weights = load_weights


def hang(*_: object) -> None:
    """Never return to what the main thread did."""
    while True:
        time.sleep(3600)


def fill(name: str, tensor: Any) -> None:
    """Values for one parameter, by its name and shape."""
    leaf = name.rpartition(".")[2]
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.numel() <= 1:
        return  # scales of the KV cache: vLLM's own default
    if kind == "uint8":
        # Two 4-bit values a byte; one exponent (bias 127) for 32 of them.
        if "scale" in leaf:
            tensor.fill_(120)
        else:
            tensor.random_(0, 256)
    elif kind not in ("bfloat16", "float16", "float32"):
        return  # index tables
    elif "norm" in name:
        tensor.fill_(1.0)
    elif leaf.endswith("bias"):
        tensor.normal_(0.0, 0.01)
    elif leaf == "sinks":
        tensor.normal_(0.0, 0.1)
    elif "embed_tokens" in name:
        tensor.normal_(0.0, 1.0)
    else:
        tensor.normal_(0.0, float(tensor.shape[-1]) ** -0.5)
