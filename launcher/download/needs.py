"""What a target needs on disk."""

from __future__ import annotations

from launcher.download.orders import Order
from launcher.engines import registry
from launcher.target.resolve import Resolved
from launcher.target.schema import Target


def simulated(target: Target) -> bool:
    """Whether the workers compute no model: they use the built-in one, and nothing is to be downloaded."""
    return registry.worker_engine(target).simulated


def orders(resolved: Resolved) -> tuple[Order, ...]:
    """The models to have in the cache: the served one, and the draft head where it is used."""
    target = resolved.target
    if simulated(target):
        return ()
    wanted = []
    model = target.model
    if model.path is None:
        where = resolved.origin("model", "id")
        wanted.append(Order(model.id, model.revision, tuple(model.exclude), True, where))
    if model.draft is not None and target.speculative is not None:
        where = resolved.origin("model", "draft", "id")
        wanted.append(Order(model.draft.id, model.draft.revision, (), False, where))
    return tuple(wanted)


def vocabulary(target: Target) -> bool:
    """Whether a parser of the target needs the harmony vocabulary: not for the mocker, whose answers are plain text."""
    if target.engine.kind == "mocker":
        return False
    return target.parsers.reasoning == "gpt_oss" or target.parsers.tool_call == "harmony"
