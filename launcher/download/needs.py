"""What a target needs on disk, and what the checks before a start have to say about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from launcher.download import cache, credentials, harmony, snapshot, verdict
from launcher.download.orders import Order
from launcher.engines import registry
from launcher.findings import Finding, Severity
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
    """Whether a parser of the target needs the harmony vocabulary."""
    return target.parsers.reasoning == "gpt_oss" or target.parsers.tool_call == "harmony"


def findings(resolved: Resolved, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Model, draft head, vocabulary and token as they are now. No network; some 10 ms."""
    target = resolved.target
    fix = f"launcher download --target {target.name}"
    if vocabulary(target):
        found = harmony.find(environ, fix=fix)
        if found.finding is not None:
            yield found.finding
    hub_cache, blocked = cache.hub(environ), cache.offline(environ)
    absent = False
    for order in orders(resolved):
        state = snapshot.inspect(
            order.model, order.revision, hub_cache, exclude=order.exclude, tokenizer=order.tokenizer
        )
        absent = absent or not state.complete
        for finding in verdict.findings(state, where=order.where, fix=fix):
            yield _weighed(finding, blocked)
    if target.model.path is not None and not simulated(target):
        folder = snapshot.inspect_folder(target.model.id, Path(target.model.path))
        yield from verdict.findings(
            folder, where=resolved.origin("model", "path"), fix="copy the model's files there"
        )
    if absent and blocked is None:
        credential = credentials.find(environ)
        if credential.finding is not None:
            yield credential.finding


def _weighed(finding: Finding, blocked: str | None) -> Finding:
    """With a network the engines fetch what is missing, slowly and each by itself: then it is a warning."""
    if finding.code not in ("model-missing", "model-incomplete", "model-revision"):
        return finding
    if blocked is None:
        return replace(finding, severity=Severity.WARNING)
    return replace(finding, why=f"{finding.why}; {blocked} is set, so nothing will be fetched")
