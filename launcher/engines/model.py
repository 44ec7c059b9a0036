"""Where frontend and workers find the model, and where compiled code is kept: one place for all of them."""

from __future__ import annotations

from launcher import simmodel
from launcher.engines.base import Context


def model_env(context: Context) -> dict[str, str]:
    """The model cache of every process. A simulated run reads the built-in folder and downloads nothing.

    The frontend's harmony parser wants its vocabulary named; where it is not, it downloads one at the first request.
    """
    env = {"TIKTOKEN_ENCODINGS_BASE": context.vocabulary} if context.vocabulary else {}
    if context.simulated:
        env |= {"HF_HUB_CACHE": str(simmodel.HUB_CACHE), "HF_HUB_OFFLINE": "1"}
    return env


def served_by_worker(context: Context) -> dict[str, str]:
    """Workers hand tokenizer and config to the frontend over their system port where it could not find them itself.

    Dynamo 1.3.1 looks a model up by its served name in the Hugging Face cache, and answers 404 for ever where that is
    another name than the repository's; later releases always do it this way.
    """
    model = context.target.model
    if context.simulated or model.path is not None or model.name != model.id:
        return {"DYN_SELF_HOST_METADATA": "1"}
    return {}


def cache_env(context: Context) -> dict[str, str]:
    """Compile caches under one folder keyed by versions, model and GPU, so that an upgrade never reads stale code."""
    root = f"{context.cache_dir}/{context.cache_key}"
    return {
        "VLLM_CACHE_ROOT": f"{root}/vllm",
        "TRITON_CACHE_DIR": f"{root}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{root}/inductor",
        "FLASHINFER_WORKSPACE_BASE": f"{root}/flashinfer",
        "HF_MODULES_CACHE": f"{root}/hf-modules",
    }
