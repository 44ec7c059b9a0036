"""Which engines exist. A new one is a module with a class like these and a line here."""

from __future__ import annotations

from launcher.engines.base import Engine
from launcher.engines.echo import Echo
from launcher.engines.mocker import Mocker
from launcher.engines.trtllm import Trtllm
from launcher.engines.vllm import Vllm
from launcher.target.schema import Target

ENGINES: dict[str, Engine] = {engine.kind: engine for engine in (Vllm(), Trtllm(), Mocker(), Echo())}


def worker_engine(target: Target) -> Engine:
    """The engine that the target's workers run."""
    return ENGINES[target.engine.kind]
