"""Where frontend and workers find the model, and where compiled code is kept: one place for all of them."""

from __future__ import annotations

from launcher import simmodel
from launcher.engines.base import Context
from launcher.plan.model import Link


def model_env(context: Context) -> dict[str, str]:
    """The model cache of every process. A simulated run reads the built-in folder and downloads nothing."""
    if context.simulated:
        return {"HF_HUB_CACHE": _simulated_cache(context), "HF_HUB_OFFLINE": "1"}
    return {}


def model_links(context: Context) -> tuple[Link, ...]:
    """The frontend looks a model up by its served name: one that is not the built-in one gets a cache of its own."""
    name = context.target.model.name
    if not context.simulated or name == simmodel.MODEL_NAME:
        return ()
    built_in = simmodel.HUB_CACHE / simmodel.cache_folder(simmodel.MODEL_NAME)
    return (Link(f"{_simulated_cache(context)}/{simmodel.cache_folder(name)}", str(built_in)),)


def _simulated_cache(context: Context) -> str:
    if context.target.model.name == simmodel.MODEL_NAME:
        return str(simmodel.HUB_CACHE)
    return f"{context.run_dir}/hub"


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
