"""Rules over a target alone: what contradicts itself is said before anything is planned.

To add one: a function `(resolved) -> Iterable[Finding]` in the file of its subject, whose docstring is the background
that `launcher explain` prints, and a line with its codes below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from launcher.checks.base import Check, Group, run_checks
from launcher.checks.target import (
    context,
    flags,
    kv,
    memory,
    network,
    parsers,
    routing,
    speculation,
    topology,
    trtllm,
)
from launcher.findings import Exit, Finding
from launcher.target.resolve import Resolved

CHECKS: tuple[Check, ...] = (
    Check(topology.engine_known, ("engine-unknown",), ignorable=False),
    Check(topology.roles, ("workers-none", "workers-mixed", "workers-half"), ignorable=False),
    Check(topology.min_ready, ("min-ready", "min-ready-zero")),
    Check(topology.gpu_count, ("gpus-stated",)),
    Check(topology.node_size, ("node-small", "tp-node")),
    Check(topology.tensor_parallel, ("tp-heads",)),
    Check(routing.kv_events, ("kv-events-off",)),
    Check(routing.block_size, ("block-size",)),
    Check(routing.approximate, ("router-unused",)),
    Check(routing.hash_seed, ("hash-seed",)),
    Check(routing.migration, ("migration-off",)),
    Check(flags.stated_once, ("flag-owned",)),
    Check(flags.own_variables, ("env-owned",)),
    Check(flags.secrets, ("secret-in-target",)),
    Check(flags.unused_config, ("config-unused",)),
    Check(kv.transfer_missing, ("kv-transfer-missing",)),
    Check(kv.transfer_fits, ("kv-transfer-engine", "kv-transfer-unused", "kv-transfer-role")),
    Check(kv.offload_with_transfer, ("offload-transfer",)),
    Check(kv.offload_connector, ("offload-engine", "offload-broken", "offload-unknown")),
    Check(kv.hybrid_manager, ("hybrid-kv-off",)),
    Check(kv.roles_equal, ("roles-differ",)),
    Check(speculation.draft, ("draft-missing", "draft-unused")),
    Check(speculation.draft_of_another, ("draft-other",)),
    Check(speculation.extra_keys, ("speculative-extra",)),
    Check(speculation.engine_has_it, ("speculative-engine",)),
    Check(speculation.structured_output, ("structured-output",)),
    Check(context.model_limit, ("context-model",)),
    Check(context.roles_agree, ("context-roles",)),
    Check(context.workload_fits, ("context-workload",)),
    Check(context.prefill_budget, ("prefill-budget",)),
    Check(context.slots, ("slots-few",)),
    Check(context.quantization, ("quantization",)),
    Check(memory.shares, ("gpu-share",)),
    Check(memory.weights, ("gpu-weights",)),
    Check(parsers.harmony, ("parser-missing", "parser-other")),
    Check(network.ports, ("port-clash",)),
    Check(network.admin_open, ("admin-open",)),
    *trtllm.CHECKS,
)

GROUP = Group("target", CHECKS, Exit.USAGE)


def check(resolved: Resolved, checks: Iterable[Check] = CHECKS) -> Iterator[Finding]:
    """Every rule's findings; see `run_checks`."""
    return run_checks(checks, resolved)
