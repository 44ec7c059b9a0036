"""Looks at the machine that this runs on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from launcher.machine import gpus as gpu_module
from launcher.machine import limits, network, packages
from launcher.machine.local import Local
from launcher.machine.model import Machine
from launcher.machine.nvml import Nvml
from launcher.machine.products import Arch
from launcher.machine.visibility import visible

_ARCHES: dict[str, Arch] = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def detect(
    environ: Mapping[str, str] | None = None,
    *,
    python: str | None = None,
    nvml: Nvml | None = None,
    root: Path = Path("/"),
) -> Machine:
    """What is on this machine, as this process may use it.

    Blocking: a few tens of ms without GPUs, up to a second with (NVML's start). Never raises for what is
    missing: `Machine.gpu_error` says why there are no GPUs. Nothing is started, no GPU memory taken.
    `python` is the interpreter whose packages count, by default this one. `nvml` and `root` (under which
    /proc, /sys and /dev are looked up) are for tests.
    """
    environ = os.environ if environ is None else environ
    host = os.uname()
    inventory = gpu_module.inventory(nvml, root=root)
    seen = visible(inventory.gpus, inventory.mig_devices, environ)
    group = limits.cgroup(root)
    memory, available = limits.memory(root, group)
    shm, shm_free = limits.shared_memory(root)
    nofile, nofile_hard = limits.open_files()
    installed = packages.versions(python)
    return Machine(
        hostname=host.nodename,
        arch=_ARCHES.get(host.machine.lower(), "amd64"),
        cpus=limits.cpus(group),
        memory_bytes=memory,
        memory_available_bytes=available,
        gpus=inventory.gpus,
        mig_devices=inventory.mig_devices,
        visible=seen.gpus,
        visible_by=seen.by,
        visible_problems=seen.problems,
        gpu_error=inventory.error,
        links=inventory.links,
        driver_version=inventory.driver_version,
        cuda_driver_version=inventory.cuda_driver_version,
        cuda_runtime_version=packages.cuda_runtime(installed, environ),
        shm_bytes=shm,
        shm_free_bytes=shm_free,
        memlock_bytes=limits.memlock(),
        nofile=nofile,
        nofile_hard=nofile_hard,
        capabilities=limits.capabilities(root),
        namespaces=limits.namespaces(root),
        ephemeral_range=network.ephemeral_range(root),
        reserved_ports=network.reserved_ports(root),
        unprivileged_port_start=network.unprivileged_port_start(root),
        interfaces=network.interfaces(),
        cgroup=group,
        packages=installed,
        python_version=".".join(str(part) for part in sys.version_info[:3]),
        probe=Local(root),
    )
