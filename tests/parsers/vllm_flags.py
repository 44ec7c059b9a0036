"""vLLM's half of a command line, checked as the launcher checks it (`launcher.checks.versions.vllm_flags`)."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.checks.versions.releases import VLLM_OF_DYNAMO
from launcher.checks.versions.vllm_flags import engine_args, problems

__all__ = ["VLLM_OF_DYNAMO", "check_vllm_flags", "engine_args"]


def check_vllm_flags(left_over: Sequence[str], version: str) -> list[str]:
    """What vLLM `version` would refuse in `left_over`, as text; an empty list when it accepts everything."""
    return [str(problem) for problem in problems(left_over, version)]
