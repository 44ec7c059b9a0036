"""How the model's harmony output is parsed."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.places import is_gpt_oss, is_real
from launcher.findings import Finding, Severity
from launcher.target.resolve import Resolved

GPT_OSS = {"reasoning": "gpt_oss", "tool_call": "harmony"}
_LOST = {
    "reasoning": "the model's analysis ends up in the answer's text",
    "tool_call": "tool calls come back as text, with finish_reason stop",
}


def harmony(resolved: Resolved) -> Iterator[Finding]:
    """gpt-oss answers in harmony: channels for analysis, tool calls and the final text, told apart by special tokens.

    Dynamo parses it with the reasoning parser gpt_oss and the tool-call parser harmony, which each worker has to name.
    Without them all answers are 200, with the wrong content.
    """
    target = resolved.target
    if not is_gpt_oss(target) or not is_real(target):
        return
    for name, right in GPT_OSS.items():
        value = getattr(target.parsers, name)
        if value == right:
            continue
        yield Finding(
            code="parser-missing" if value is None else "parser-other",
            what=f"parsers.{name} is {value or 'not set'}, {target.model.id} needs {right}",
            severity=Severity.ERROR if value is not None else Severity.WARNING,
            where=resolved.origin("parsers", name),
            why=_LOST[name],
            fix=f"parsers.{name}: {right}",
            link="dynamo#15155, dynamo#10366",
        )
