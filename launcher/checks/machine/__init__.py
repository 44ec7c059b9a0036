"""Checks of the machine against target and plan: small pure functions in `CHECKS`, run by `check`.

To add one: a function `(target, plan, machine) -> Iterable[Finding]` in the file of its subject, whose docstring
is the background that a person may ask for, and a line with its codes below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from launcher.checks.base import Check, Group, background_of, run_checks
from launcher.checks.machine import compute, gpus, limits, links, memory, network, storage
from launcher.findings import Exit, Finding
from launcher.machine import Machine
from launcher.plan.model import Plan
from launcher.target.schema import Target

__all__ = ["CHECKS", "Check", "background", "check"]

CHECKS: tuple[Check, ...] = (
    Check(gpus.count, ("gpu-none", "gpu-count")),
    Check(gpus.visible, ("gpu-visible",)),
    Check(gpus.unreadable, ("gpu-unreadable",)),
    Check(gpus.kind, ("gpu-kind",)),
    Check(gpus.mixed, ("gpu-mixed",)),
    Check(gpus.mig, ("gpu-mig",)),
    Check(gpus.memory_size, ("gpu-memory",)),
    Check(gpus.held, ("gpu-held",)),
    Check(compute.arch_list, ("gpu-arch",)),
    Check(compute.number_formats, ("gpu-format",)),
    Check(compute.driver, ("driver-old",)),
    Check(compute.fabric, ("gpu-fabric",)),
    Check(links.kv_link, ("kv-no-p2p", "kv-no-nvlink")),
    Check(links.reads_without_nvlink, ("kv-ipc-off",)),
    Check(links.mutual_visibility, ("kv-peers-hidden",)),
    Check(links.tensor_parallel, ("tp-no-nvlink",)),
    Check(links.namespaces, ("namespace-private", "ipc-private")),
    Check(memory.architecture, ("cpu-arch",)),
    Check(memory.ram, ("memory-small",)),
    Check(memory.offload, ("offload-memory",)),
    Check(memory.shared_memory, ("shm-small", "shm-full")),
    Check(memory.locked_memory, ("memlock-low",)),
    Check(limits.capabilities, ("capability-missing",)),
    Check(limits.open_files, ("nofile-low",)),
    Check(limits.processes, ("pids-low",)),
    Check(limits.cpus, ("cpus-few",)),
    Check(network.taken, ("port-taken", "port-unusable")),
    Check(network.privileged, ("port-privileged",)),
    Check(network.ephemeral, ("port-ephemeral",)),
    Check(network.interface_names, ("interface-unknown",)),
    Check(network.loopback_only, ("loopback-unset", "loopback-only")),
    Check(storage.caches, ("cache-readonly", "disk-low")),
    Check(storage.run_folder, ("state-readonly",), ignorable=False),
    Check(storage.run_disk, ("state-disk-low", "state-network")),
    Check(storage.clock, ("clock-wrong",)),
)

IMAGINED: tuple[Check, ...] = tuple(each for each in CHECKS if each.run in (gpus.count, gpus.kind))
"""What a plan for a machine that somebody named says of it: whether it has the GPUs that the target is for."""

GROUP = Group("machine", CHECKS, Exit.CHECK_FAILED)
LOGS_GROUP = Group(
    "logs", (Check(storage.log_folder, ("logs-readonly",), ignorable=False),), Exit.CHECK_FAILED
)
"""Of the folder that `--log-dir` names: no part of a plan."""


def check(
    target: Target, plan: Plan, machine: Machine, checks: Iterable[Check] = CHECKS
) -> Iterator[Finding]:
    """Every check's findings; see `run_checks`."""
    return run_checks(checks, target, plan, machine)


def background(code: str) -> str | None:
    """What lies behind a finding of this code, or None where no check of the machine has it."""
    return background_of(CHECKS, code)
