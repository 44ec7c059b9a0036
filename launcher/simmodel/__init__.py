"""The built-in model folder of simulated runs: tokenizer, config and chat template, no weights, no download.

The folder is laid out as a Hugging Face cache (``hub/models--ORG--NAME/{refs,snapshots}``) because Dynamo's
frontend looks the model up by its served name there. It is made by ``scripts/make_simmodel.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["HUB_CACHE", "MODEL_NAME", "MODEL_PATH", "REVISION", "cache_folder"]

MODEL_NAME: Final = "openai/gpt-oss-120b"
"""The served name under which the packaged cache answers."""

REVISION: Final = "0000000000000000000000000000000000000001"
"""The snapshot's name: 40 hexadecimal digits as a commit has, and visibly not one."""


def cache_folder(name: str) -> str:
    """Return the folder of a model inside a Hugging Face cache, e.g. ``models--openai--gpt-oss-120b``."""
    return "models--" + name.replace("/", "--")


HUB_CACHE: Final = Path(__file__).resolve().parent / "hub"
"""Value for ``HF_HUB_CACHE``; only read, so the package may be installed read-only."""

MODEL_PATH: Final = HUB_CACHE / cache_folder(MODEL_NAME) / "snapshots" / REVISION
"""Value for a worker's ``--model-path``."""
