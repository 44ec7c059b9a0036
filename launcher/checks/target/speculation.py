"""Speculative decoding: the draft, and what does not go together with it."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.places import is_real
from launcher.findings import Finding, Severity
from launcher.target.resolve import Resolved

NEED_DRAFT = ("eagle", "eagle3", "draft_model", "medusa", "mlp_speculator", "dflash")
"""Methods whose proposals come from weights of their own."""
SAME_ON_BOTH = ("method", "model", "num_speculative_tokens")


def draft(resolved: Resolved) -> Iterator[Finding]:
    """EAGLE3 proposes tokens with a small head that was trained for the model; its weights have to be named."""
    target = resolved.target
    speculative, head = target.speculative, target.model.draft
    if speculative is not None and head is None and speculative.method in NEED_DRAFT:
        if "model" in speculative.extra:
            return
        yield Finding(
            code="draft-missing",
            what=f"speculative.method is {speculative.method}, and model.draft names no draft",
            where=resolved.origin("speculative", "method"),
            why="the engine exits: the method needs weights of its own",
            fix="model.draft.id: nvidia/gpt-oss-120b-Eagle3-v3, or --set speculative=null",
            link="vllm#26328",
        )
    if speculative is None and head is not None and is_real(target):
        yield Finding(
            code="draft-unused",
            what=f"model.draft is {head.id}, and there is no speculative decoding",
            severity=Severity.INFO,
            where=resolved.origin("model", "draft"),
            why="it is downloaded for nothing",
            fix="--set model.draft=null, or give speculative.method and speculative.num_tokens",
        )


def draft_of_another(resolved: Resolved) -> Iterator[Finding]:
    """An EAGLE3 head reads the hidden states of the very model that it was trained for: 20b and 120b differ in size."""
    target = resolved.target
    head = target.model.draft
    if head is None or target.speculative is None:
        return
    sizes = [size for size in ("20b", "120b") if f"gpt-oss-{size}" in target.model.id.lower()]
    heads = [size for size in ("20b", "120b") if f"gpt-oss-{size}" in head.id.lower()]
    if sizes and heads and sizes != heads:
        yield Finding(
            code="draft-other",
            what=f"model.draft is {head.id}, the model is {target.model.id}",
            where=resolved.origin("model", "draft", "id"),
            why="the head was trained on another model's hidden states; its shapes do not fit",
            fix="a draft for this model, or --set speculative=null model.draft=null",
            link="vllm#26328",
        )


def extra_keys(resolved: Resolved) -> Iterator[Finding]:
    """`speculative.extra` adds keys to vLLM's --speculative-config; the typed ones are not among them."""
    speculative = resolved.target.speculative
    if speculative is None:
        return
    for name in SAME_ON_BOTH:
        if name in speculative.extra and not (name == "model" and resolved.target.model.draft is None):
            typed = {"method": "speculative.method", "model": "model.draft.id"}.get(
                name, "speculative.num_tokens"
            )
            yield Finding(
                code="speculative-extra",
                what=f"speculative.extra.{name} repeats {typed}",
                where=resolved.origin("speculative", "extra", name),
                why="both roles must have the same, or the draft layers' KV layout differs between them",
                fix=f"set {typed} instead",
            )


def engine_has_it(resolved: Resolved) -> Iterator[Finding]:
    """The launcher passes `speculative` to vLLM; TensorRT-LLM takes its own `speculative_config` in its YAML."""
    target = resolved.target
    if target.speculative is not None and target.engine.kind == "trtllm":
        yield Finding(
            code="speculative-engine",
            what="speculative decoding is set for vLLM, and the engine is TensorRT-LLM",
            where=resolved.origin("speculative"),
            why="nothing would be passed on",
            fix="engine.config.speculative_config (decoding_type, max_draft_len, ...), and --set speculative=null",
        )


def structured_output(resolved: Resolved) -> Iterator[Finding]:
    """Structured output may be invalid JSON while speculative decoding is on.

    Draft tokens are accepted before the grammar has seen them (the public recipe's own note; vLLM and SGLang have open
    issues). Tool calls are parsed from harmony and not affected.
    """
    target = resolved.target
    if target.speculative is not None and target.engine.kind == "vllm":
        yield Finding(
            code="structured-output",
            what=f"structured output with speculative decoding ({target.speculative.method}) may be invalid JSON",
            severity=Severity.WARNING,
            where=resolved.origin("speculative"),
            why="response_format json_object or json_schema is not reliable on this deployment",
            fix="clients use tool calling or validate; or turn it off: --set speculative=null",
            link="dynamo#9423, sglang#9187",
        )
