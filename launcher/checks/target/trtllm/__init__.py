"""Rules over TensorRT-LLM targets."""
from launcher.checks.base import Check
CHECKS: tuple[Check, ...] = ()
