"""Short names of evidence (`vllm#42024`) as addresses."""

from __future__ import annotations

import re

REPOSITORIES = {
    "dynamo": "ai-dynamo/dynamo",
    "nixl": "ai-dynamo/nixl",
    "aiconfigurator": "ai-dynamo/aiconfigurator",
    "vllm": "vllm-project/vllm",
    "sglang": "sgl-project/sglang",
    "TRT-LLM": "NVIDIA/TensorRT-LLM",
    "LMCache": "LMCache/LMCache",
    "ucx": "openucx/ucx",
    "harmony": "openai/harmony",
    "NeMo-RL": "NVIDIA-NeMo/RL",
    "verl": "volcengine/verl",
    "cloudai": "NVIDIA/cloudai",
    "srt-slurm": "ishandhanani/srt-slurm",
    "SkyRL": "NovaSky-AI/SkyRL",
}
_SHORT = re.compile(r"^([A-Za-z][\w-]*)#(\d+)$")


def addresses(link: str) -> list[str]:
    """`dynamo#4249, dynamo#7591` as addresses; what is no short name stays as it is."""
    found = []
    for part in filter(None, (part.strip() for part in link.split(","))):
        match = _SHORT.match(part)
        name = REPOSITORIES.get(match.group(1)) if match else None
        found.append(f"https://github.com/{name}/issues/{match.group(2)}" if match and name else part)
    return found
