"""Rules over a target alone: what contradicts itself is said before anything is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from launcher.engines import registry, vllm
from launcher.findings import Finding, did_you_mean
from launcher.plan.model import Role
from launcher.target.resolve import Resolved

Rule = Callable[[Resolved], Iterable[Finding]]


def check(resolved: Resolved) -> Iterator[Finding]:
    """Every rule's findings."""
    for rule in RULES:
        yield from rule(resolved)


def topology(resolved: Resolved) -> Iterator[Finding]:
    """Aggregated workers alone, or prefill and decode together."""
    workers = resolved.target.workers
    present = {role for role, _ in workers.items()}
    if not present:
        yield Finding(
            code="workers-none",
            what="the target has no worker",
            where=resolved.origin("workers"),
            fix="give workers.aggregated.count, or workers.prefill.count and workers.decode.count, at least 1",
        )
    elif Role.AGGREGATED in present and len(present) > 1:
        yield Finding(
            code="workers-mixed",
            what="aggregated workers beside " + " and ".join(sorted(present - {Role.AGGREGATED})),
            where=resolved.origin("workers", "aggregated", "count"),
            why="the router sends a request either to one aggregated worker or through prefill and decode",
            fix="set workers.aggregated.count=0, or the others to 0",
        )
    elif present in ({Role.PREFILL}, {Role.DECODE}):
        only = next(iter(present))
        other = Role.DECODE if only is Role.PREFILL else Role.PREFILL
        yield Finding(
            code="workers-half",
            what=f"{only} workers without {other} workers",
            where=resolved.origin("workers", other.value, "count"),
            why="no request could be finished",
            fix=f"workers.{other}.count of at least 1",
        )
    elif (
        Role.AGGREGATED not in present
        and resolved.target.engine.kind in ("vllm", "trtllm")
        and resolved.target.kv.transfer is None
    ):
        yield Finding(
            code="kv-transfer-missing",
            what="prefill and decode workers with no kv.transfer",
            where=resolved.origin("kv", "transfer"),
            why="the KV that prefill computes has no way to decode",
            fix="kv.transfer.connector: nixl for vllm, ucx for trtllm",
        )
    for role, group in workers.items():
        if group.min_ready is not None and group.min_ready > group.count:
            yield Finding(
                code="min-ready",
                what=f"workers.{role}.min_ready is {group.min_ready} of {group.count} workers",
                where=resolved.origin("workers", role.value, "min_ready"),
                fix=f"at most {group.count}",
            )


def kv_events(resolved: Resolved) -> Iterator[Finding]:
    """KV-aware routing needs somebody to publish what is cached."""
    target = resolved.target
    if target.router.mode == "kv" and not target.kv.events and not target.router.approximate:
        yield Finding(
            code="kv-events-off",
            what="router.mode is kv and no worker publishes KV events",
            where=resolved.origin("kv", "events"),
            why="the router would route on an empty index, and nothing would say so",
            fix="kv.events: true, or router.approximate: true to predict what is cached (--no-router-kv-events)",
            link="dynamo#4249, dynamo#7591",
        )


def stated_once(resolved: Resolved) -> Iterator[Finding]:
    """A flag that is made from a typed field is not given again as a raw one."""
    target = resolved.target
    if target.engine.kind != "vllm":
        return
    places = [("engine", "args")] + [("workers", role.value, "args") for role, _ in target.workers.items()]
    for place in places:
        args = resolved.document
        for part in place:
            args = args.get(part, {})
        for flag in args:
            plain = flag.removeprefix("no-")
            if plain in vllm.OWNED:
                yield Finding(
                    code="flag-owned",
                    what=f"{'.'.join(place)}.{flag} repeats {vllm.OWNED[plain]}",
                    where=resolved.origin(*place, flag),
                    why="frontend, router and workers must agree on it, so it is stated once",
                    fix=f"set {vllm.OWNED[plain]} instead",
                )


def block_size(resolved: Resolved) -> Iterator[Finding]:
    """One block size for frontend and workers; nobody states another."""
    target = resolved.target
    places: list[tuple[str, ...]] = [
        ("frontend", "args", "kv-cache-block-size"),
        ("simulation", "args", "block-size"),
    ]
    places += [("workers", role.value, "args", "kv-block-size") for role, _ in target.workers.items()]
    places.append(("engine", "args", "kv-block-size"))
    for place in places:
        here: object = resolved.document
        for part in place:
            here = here.get(part) if isinstance(here, dict) else None
        if here is not None and here != target.kv.block_size:
            yield Finding(
                code="block-size",
                what=f"{'.'.join(place)} is {here}, kv.block_size is {target.kv.block_size}",
                where=resolved.origin(*place),
                why="block hashes would differ, and KV-aware routing would match nothing",
                fix=f"remove it; kv.block_size={here} changes it for all",
                link="dynamo#1233",
            )


def engine_known(resolved: Resolved) -> Iterator[Finding]:
    """The engine exists in this launcher."""
    kind = resolved.target.engine.kind
    if kind not in registry.ENGINES:
        yield Finding(
            code="engine-unknown",
            what=f"there is no engine {kind!r}",
            where=resolved.origin("engine", "kind"),
            fix=did_you_mean(kind, registry.ENGINES),
        )


RULES: tuple[Rule, ...] = (engine_known, topology, kv_events, stated_once, block_size)
