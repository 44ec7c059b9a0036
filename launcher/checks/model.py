"""The model, its draft head and the harmony vocabulary, as the plan's processes will look for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from launcher.checks import reach
from launcher.checks.base import Check, Group
from launcher.checks.inherited import child_env
from launcher.findings import Exit, Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan, Process, Role
from launcher.target.resolve import Resolved

HARMONY_PARSERS = ("gpt_oss", "harmony")
VOCABULARY_HOST = "openaipublic.blob.core.windows.net"


def _reader(plan: Plan) -> Process:
    """The process whose environment decides where the model is looked for."""
    return next((process for process in plan.processes if process.role is Role.FRONTEND), plan.processes[0])


def _download(resolved: Resolved) -> str:
    return f"launcher download --target {resolved.target.name}"


def snapshot(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Model and draft head must be whole in the cache, in the pinned revision, before anything starts.

    A torn download, a Git LFS pointer in place of a file or a missing shard fails after minutes, in every worker. A
    model that is not there would be downloaded by each worker and the frontend for itself, at the same time.
    """
    from launcher.download import cache, snapshot, verdict

    target = resolved.target
    if plan.simulated:
        return
    env = child_env(_reader(plan), environ, plan.scrub)
    offline = cache.offline(env)
    fix = _download(resolved) + (f" (without {offline}, which forbids the network)" if offline else "")
    if target.model.path is not None:
        state = snapshot.inspect_folder(target.model.id, Path(target.model.path).absolute())
        where = resolved.origin("model", "path")
    else:
        state = snapshot.inspect(
            target.model.id, target.model.revision, cache.hub(env), exclude=target.model.exclude
        )
        where = cache.hub_origin(env)
    yield from verdict.findings(state, where=where, fix=fix)
    draft = target.model.draft
    if draft is not None and target.speculative is not None:
        head = snapshot.inspect(draft.id, draft.revision, cache.hub(env), tokenizer=False)
        yield from verdict.findings(head, where=cache.hub_origin(env), fix=fix)


def pinned(resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]) -> Iterator[Finding]:
    """A branch such as `main` moves: frontend, workers and the next pod may each get another commit of the model."""
    from launcher.download import cache, snapshot

    target = resolved.target
    if plan.simulated or target.model.path is not None:
        return
    env = child_env(_reader(plan), environ, plan.scrub)
    asked: list[tuple[tuple[str, ...], str, str]] = [
        (("model", "revision"), target.model.id, target.model.revision)
    ]
    if target.model.draft is not None and target.speculative is not None:
        asked.append((("model", "draft", "revision"), target.model.draft.id, target.model.draft.revision))
    for path, model, revision in asked:
        if cache.COMMIT.fullmatch(revision):
            continue
        commit = snapshot.resolve(cache.repo(cache.hub(env), model), revision)
        yield Finding(
            code="model-unpinned",
            what=f"{'.'.join(path)} of {model} is {revision!r}, which moves"
            + (f" (here: {commit[:12]})" if commit else ""),
            severity=Severity.INFO if commit else Severity.WARNING,
            where=resolved.origin(*path),
            why="the next download may bring another model under the same name",
            fix=f"--set {'.'.join(path)}={commit or 'COMMIT'}",
            link="dynamo#11178",
        )


def online(resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]) -> Iterator[Finding]:
    """A token that is wrong, or missing where a download is due, and whether the hub is asked at every start.

    The hub answers 401 to a malformed token even for a public model. With the model complete and HF_HUB_OFFLINE=1
    nothing is asked at all: no 429 when many pods start at once.
    """
    from launcher.download import cache, credentials, snapshot

    target = resolved.target
    if plan.simulated or target.model.path is not None:
        return
    env = child_env(_reader(plan), environ, plan.scrub)
    complete = snapshot.inspect(
        target.model.id, target.model.revision, cache.hub(env), exclude=target.model.exclude
    ).complete
    if cache.offline(env):
        return
    token = credentials.find(env)
    if token.finding is not None:
        severity = Severity.WARNING if complete else Severity.ERROR
        yield dataclasses.replace(token.finding, severity=severity)
    elif token.token is None and not complete:
        yield Finding(
            code="token-missing",
            what="no Hugging Face token, and the model is still to be downloaded",
            severity=Severity.WARNING,
            where=", ".join(token.searched),
            why="a gated repository answers 401; a public one is slowed down to 429",
            fix=f"HF_TOKEN (a token of type Read from {credentials.TOKENS_URL})",
            link="dynamo#5028",
        )
    elif complete:
        yield Finding(
            code="model-online",
            what="the model is complete here, and every process still asks the hub for it at its start",
            severity=Severity.INFO,
            where="HF_HUB_OFFLINE",
            why="pods that start together get 429 answers, and a hub that is down stops a start",
            fix="HF_HUB_OFFLINE=1",
            link="dynamo#5028, dynamo#2759",
        )


def harmony(
    resolved: Resolved, plan: Plan, machine: Machine, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """The harmony vocabulary must be there, and the right file, before anything starts.

    Dynamo's parser loads it at the first request. Where it is wrong the API still answers 200, with empty content and
    no tool calls; and with TIKTOKEN_ENCODINGS_BASE set Dynamo downloads nothing.
    """
    from launcher.download import cache
    from launcher.download import harmony as vocabulary

    parsers = resolved.target.parsers
    if resolved.target.engine.kind == "mocker" or not {parsers.reasoning, parsers.tool_call} & set(
        HARMONY_PARSERS
    ):
        return  # the simulator's answers are plain text
    env = child_env(_reader(plan), environ, plan.scrub)
    finding = vocabulary.find(env, fix=_download(resolved)).finding
    if finding is None:
        return
    if finding.code == "harmony-missing":
        offline = cache.offline(env)
        error = f"{offline} forbids the network" if offline else reach.tcp_error(VOCABULARY_HOST, 443, env)
        if error is None:
            yield dataclasses.replace(
                finding,
                severity=Severity.WARNING,
                why="Dynamo downloads it at the first request, which then takes long or fails",
            )
            return
        finding = dataclasses.replace(finding, what=f"{finding.what}; {VOCABULARY_HOST}: {error}")
    yield finding


CHECKS: tuple[Check, ...] = (
    Check(
        snapshot,
        ("model-missing", "model-revision", "model-incomplete", "model-lfs-pointer", "model-leftovers"),
    ),
    Check(pinned, ("model-unpinned",)),
    Check(online, ("token-malformed", "token-missing", "model-online")),
    Check(harmony, ("harmony-missing", "harmony-folder", "harmony-hash", "harmony-unreadable")),
)

GROUP = Group("model", CHECKS, Exit.CHECK_FAILED)
