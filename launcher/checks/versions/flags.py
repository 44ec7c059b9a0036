"""Every command line of a plan against the flags that its releases know."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.places import Place, flag_name, within, worker_places
from launcher.checks.versions import dynamo_flags, releases, vllm_flags
from launcher.checks.versions.releases import VLLM_OF_DYNAMO, Releases
from launcher.checks.versions.vllm_flags import Problem
from launcher.findings import Finding, Severity
from launcher.machine import Machine
from launcher.plan.model import Plan, Process
from launcher.target.resolve import Resolved


def flags(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """Every flag must be known to the installed release, with a value that it takes.

    Dynamo and vLLM drop and rename flags from release to release, and find out after minutes of imports, in every
    worker for itself. Their flags are on record here for the releases 1.3.1, 1.4.2 and 1.6.1 of Dynamo with the vLLM
    that each pins (0.23.0, 0.26.0, 0.31.0); another release is compared with the closest of them, and then a
    difference is a warning. Where nothing is installed the release counts that the target was validated with.
    """
    found = releases.of(resolved.target, machine.packages)
    said: set[str] = set()
    for process in _one_of_each(plan):
        for finding in _of_process(resolved, process, found):
            key = finding.what.partition(" (")[0]
            if key not in said:
                said.add(key)
                yield finding


def _one_of_each(plan: Plan) -> Iterator[Process]:
    """Workers of a role have equal flags but for their ports: the first stands for them."""
    seen: set[str] = set()
    for process in plan.processes:
        if len(process.argv) > 2 and process.argv[2] in dynamo_flags.OWN and process.role.value not in seen:
            seen.add(process.role.value)
            yield process


def _of_process(resolved: Resolved, process: Process, found: Releases) -> Iterator[Finding]:
    module = process.argv[2]
    release, exact = releases.closest(found.dynamo, dynamo_flags.recorded())
    parsed = dynamo_flags.parse(module, process.argv[3:], release)
    name = f"Dynamo {found.dynamo}"
    for problem in parsed.problems:
        others = dynamo_flags.releases_with(module, problem.flag)
        yield _finding(resolved, process, problem, name, exact, [f"Dynamo {each}" for each in others])
    if module != "dynamo.vllm":
        return
    vllm = found.engine or VLLM_OF_DYNAMO[release]
    record, exact = releases.closest(vllm, vllm_flags.recorded())
    for problem in vllm_flags.problems(parsed.left_over, record):
        if problem.unknown and dynamo_flags.releases_with(module, problem.flag):
            others = [f"Dynamo {each}" for each in dynamo_flags.releases_with(module, problem.flag)]
            yield _finding(resolved, process, problem, name, exact, others)
            continue
        newer = vllm_flags.releases_with(problem.flag.replace("_", "-"), vllm_flags.recorded())
        of = {pinned: dynamo for dynamo, pinned in VLLM_OF_DYNAMO.items()}
        others = [f"vLLM {each} (Dynamo {of[each]})" for each in newer if each in of]
        yield _finding(resolved, process, problem, f"vLLM {vllm}", exact, others)


def _finding(
    resolved: Resolved, process: Process, problem: Problem, release: str, exact: bool, others: list[str]
) -> Finding:
    severity = Severity.ERROR if exact else Severity.WARNING
    unsure = "" if exact else "; this release is not on record, so judged by the closest"
    where = _where(resolved, process, problem.flag, problem.keys)
    if problem.unknown and others:
        return Finding(
            code="flag-version",
            what=f"{release} has no {problem.flag} ({process.role})",
            severity=severity,
            where=where,
            why=f"the process exits on it{unsure}",
            fix=f"remove it, or run {' or '.join(others)}",
            link="dynamo#12089, dynamo#12581",
        )
    if problem.unknown:
        return Finding(
            code="flag-unknown",
            what=f"{release} has no {problem.flag} ({process.role})",
            severity=severity,
            where=where,
            why=f"the process exits on it{unsure}",
            fix=f"did you mean {problem.near}?" if problem.near else "remove it",
        )
    return Finding(
        code="flag-value",
        what=f"{problem.what} ({process.role}, {release})",
        severity=severity,
        where=where,
        why=f"the process exits on it{unsure}",
        fix=f"did you mean {problem.near}?" if problem.near else "see the flag's help",
    )


def _where(resolved: Resolved, process: Process, flag: str, keys: tuple[str, ...] = ()) -> str:
    """Where the target says so; empty for a flag that the launcher made."""
    places: list[Place] = [
        ("workers", process.role.value, "args"),
        *worker_places(resolved.target, "args"),
        ("simulation", "args"),
    ]
    if process.role.value == "frontend":
        places = [("frontend", "args")]
    name = flag_name(flag.removeprefix("--"))
    for place in places:
        for spelling in within(resolved, place):
            if flag_name(spelling) == name:
                return _deepest(resolved, (*place, spelling), keys)
    if name == "speculative-config":
        fields = {"method": ("method",), "num_speculative_tokens": ("num_tokens",)}
        return _deepest(resolved, ("speculative",), fields.get(keys[0], ("extra", *keys)) if keys else ())
    typed = {
        "kv-cache-dtype": ("kv", "dtype"),
        "kv-transfer-config": ("kv", "offload") if resolved.target.kv.offload else ("kv", "transfer"),
        "dyn-reasoning-parser": ("parsers", "reasoning"),
        "dyn-tool-call-parser": ("parsers", "tool_call"),
        "block-size": ("kv", "block_size"),
    }.get(name)
    return resolved.origin(*typed) if typed else ""


def _deepest(resolved: Resolved, place: Place, keys: tuple[str, ...]) -> str:
    """Where the innermost of the keys was set that the document has."""
    for length in range(len(keys), 0, -1):
        where = resolved.origin(*place, *keys[:length])
        if where != "default":
            return where
    return resolved.origin(*place)


def deprecated(resolved: Resolved, plan: Plan, machine: Machine) -> Iterator[Finding]:
    """A flag that the installed release still takes and a later one will not: time to move."""
    found = releases.of(resolved.target, machine.packages)
    release, _ = releases.closest(found.dynamo, dynamo_flags.recorded())
    said: set[str] = set()
    for process in _one_of_each(plan):
        used = dynamo_flags.parse(process.argv[2], process.argv[3:], release).used
        for flag, entry in used.items():
            if "deprecated" in entry and flag not in said:
                said.add(flag)
                yield Finding(
                    code="flag-deprecated",
                    what=f"Dynamo {found.dynamo} calls {flag} deprecated ({process.role})",
                    severity=Severity.WARNING,
                    where=_where(resolved, process, flag),
                    why=str(entry["deprecated"]),
                    fix="what it names instead, or remove it",
                )
