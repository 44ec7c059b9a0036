"""KV-aware routing: events, one block size, equal hashes."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.target.places import Place, env_of, value_at, worker_places
from launcher.findings import Finding, Severity
from launcher.plan.model import Role
from launcher.target.resolve import Resolved


def kv_events(resolved: Resolved) -> Iterator[Finding]:
    """KV-aware routing needs somebody to publish what is cached.

    In kv mode the router keeps an index of which worker holds which blocks, filled by the workers' KV events. No
    worker publishes unless told to, and without events the index stays empty: requests are spread as if at random, and
    no log says so. The public recipes have exactly this fault.
    """
    target = resolved.target
    if target.router.mode == "kv" and not target.kv.events and not target.router.approximate:
        flag = {"vllm": "--kv-events-config", "trtllm": "--publish-kv-events"}.get(
            target.engine.kind, "kv events"
        )
        yield Finding(
            code="kv-events-off",
            what=f"router.mode is kv and no worker publishes KV events ({flag} is not passed)",
            where=resolved.origin("kv", "events"),
            why="the router would route on an empty index, and nothing would say so",
            fix="kv.events: true, or router.approximate: true to predict what is cached (--no-router-kv-events)",
            link="dynamo#4249, dynamo#7591",
        )


def block_size(resolved: Resolved) -> Iterator[Finding]:
    """One block size for frontend and workers; nobody states another.

    The router hashes a prompt in blocks of its own size and looks the hashes up among those that workers publish. With
    different sizes nothing ever matches, and no process says so.
    """
    target = resolved.target
    places: list[Place] = [("frontend", "args", "kv-cache-block-size"), ("simulation", "args", "block-size")]
    places += [(*place, "kv-block-size") for place in worker_places(target, "args")]
    places += [(*place, "block-size") for place in worker_places(target, "args")]
    if target.engine.kind == "trtllm":
        places += [
            (*place, "kv_cache_config", "tokens_per_block") for place in worker_places(target, "config")
        ]
    for place in places:
        here = value_at(resolved, place)
        if here is not None and here != target.kv.block_size:
            yield Finding(
                code="block-size",
                what=f"{'.'.join(place)} is {here}, kv.block_size is {target.kv.block_size}",
                where=resolved.origin(*place),
                why="block hashes would differ, and KV-aware routing would match nothing",
                fix=f"remove it; kv.block_size={here} changes it for all",
                link="dynamo#1233",
            )


def approximate(resolved: Resolved) -> Iterator[Finding]:
    """`router.approximate` predicts what workers have cached; only the kv mode looks at it."""
    router = resolved.target.router
    if router.approximate and router.mode != "kv":
        yield Finding(
            code="router-unused",
            what=f"router.approximate has no effect with router.mode {router.mode}",
            severity=Severity.WARNING,
            where=resolved.origin("router", "approximate"),
            why="requests are not routed by what is cached",
            fix="router.mode: kv, or remove router.approximate",
        )


def hash_seed(resolved: Resolved) -> Iterator[Finding]:
    """vLLM's block hashes start from a random number in each process unless PYTHONHASHSEED is set.

    Then equal prompts have other hashes on other workers and after a restart, and what one worker published says
    nothing about another.
    """
    target = resolved.target
    if target.engine.kind != "vllm" or target.router.mode != "kv" or target.router.approximate:
        return
    seeds: dict[str, Role] = {}
    for role, workers in target.workers.items():
        if role is Role.DECODE:
            continue  # publishes nothing
        seed = env_of(target, workers).get("PYTHONHASHSEED", "")
        seeds[seed] = role
        if not (seed.isdecimal() and int(seed) < 2**32):
            yield Finding(
                code="hash-seed",
                what=f"PYTHONHASHSEED of {role} workers is {seed or 'not set'}",
                severity=Severity.WARNING,
                where=resolved.origin("engine", "env", "PYTHONHASHSEED"),
                why="block hashes differ from process to process, so the router's index means nothing",
                fix="engine.env.PYTHONHASHSEED: '42' (any number from 0 to 4294967295)",
                link="vllm#51875",
            )
            return


def migration(resolved: Resolved) -> Iterator[Finding]:
    """With a migration limit a request goes on at another worker when its own dies; with 0 it fails.

    Measured with Dynamo 1.3.1 and 32 streams: one killed decode worker failed some 300 to 440 requests without, none
    with a limit of 3 and the worker's registration withdrawn at once, as the launcher does.
    """
    if resolved.target.frontend.migration_limit == 0:
        yield Finding(
            code="migration-off",
            what="frontend.migration_limit is 0",
            severity=Severity.WARNING,
            where=resolved.origin("frontend", "migration_limit"),
            why="every request of a worker that dies fails, though others could finish it",
            fix="frontend.migration_limit: 3",
        )
