"""Versions of the installed distributions that matter, read from metadata: nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping

NAMES = (
    "ai-dynamo",
    "ai-dynamo-runtime",
    "vllm",
    "tensorrt-llm",
    "nixl",
    "nixl-cu12",
    "nixl-cu13",
    "torch",
    "triton",
    "transformers",
    "flashinfer-python",
    "lmcache",
    "openai-harmony",
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu12",
    "nvidia-ml-py",
    "mpi4py",
    "aiperf",
)


def versions() -> dict[str, str]:
    """Distribution to version, of those in `NAMES` that this interpreter would import."""
    # Here, not above: it loads the email parser, which a dry run for another machine never needs.
    from importlib import metadata

    found = {}
    for name in NAMES:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if version:  # a folder with torn metadata gives None
            found[name] = version
    return found


def cuda_runtime(packages: Mapping[str, str], environ: Mapping[str, str]) -> tuple[int, int] | None:
    """The CUDA that the installed code was built for, None where nothing says.

    Asked in this order: torch's `+cu130`, the CUDA runtime wheel, the image's CUDA_VERSION.
    """
    local = re.search(r"\+cu(\d+)(\d)\b", packages.get("torch", ""))
    if local:
        return int(local.group(1)), int(local.group(2))
    for text in (
        packages.get("nvidia-cuda-runtime", ""),
        packages.get("nvidia-cuda-runtime-cu12", ""),
        environ.get("CUDA_VERSION", ""),
    ):
        dotted = re.match(r"(\d+)\.(\d+)", text)
        if dotted:
            return int(dotted.group(1)), int(dotted.group(2))
    return None
