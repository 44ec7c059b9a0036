"""Every check of the machine, seen to speak and to stay silent, on plans that the real planner makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from launcher.checks.machine import CHECKS, Check, background, check
from launcher.checks.machine.base import flag, gib
from launcher.findings import Finding, Severity
from launcher.kubernetes.subject import PaperPorts
from launcher.machine import Cgroup, GpuHolder, GpuLink, Interface, Machine, Namespaces
from launcher.machine.simulated import Scripted
from launcher.machine.sockets import Holder
from launcher.plan.build import Planner, Request
from launcher.plan.model import Plan, Process, Role
from launcher.target.catalog import names
from launcher.target.resolve import resolve
from launcher.target.schema import Target

GIB = 1024**3
ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


def load(name: str, **changes: Any) -> Target:
    """A target of the catalog, with dotted fields changed: `hardware__shm_gib=1`."""
    target = resolve(name, ()).target
    for path, value in changes.items():
        target = changed(target, path.split("__"), value)
    return target


def changed(part: Any, path: list[str], value: Any) -> Any:
    here = value if len(path) == 1 else changed(getattr(part, path[0]), path[1:], value)
    return part.model_copy(update={path[0]: here})


def plan_for(target: Target, machine: Machine, native: str | None = None) -> Plan:
    request = Request(
        run_dir="/run/launcher/r1",
        cache_dir="/cache",
        python="/usr/bin/python3",
        dynamo=(1, 3, 1),
        native=native or target.engine.kind,
        json_logs=False,
        http_port=8000,
        admin_port=9000,
        inherited={},
    )
    table = PaperPorts(20000)
    try:
        return Planner(target, machine, request, table).plan()
    finally:
        table.close()


def good(product: str = "H200", count: int = 8, **changes: Any) -> Machine:
    """A node that is here and has nothing wrong, but for the changes."""
    return dataclasses.replace(
        Machine.like(product, count), **{"simulated": False, "probe": Scripted(), **changes}
    )


def gpus_with(machine: Machine, index: int, **changes: Any) -> dict[str, Any]:
    """The machine's GPUs with one of them changed, as fields of Machine."""
    gpus = tuple(dataclasses.replace(gpu, **changes) if gpu.index == index else gpu for gpu in machine.gpus)
    return {"gpus": gpus, "visible": gpus}


def links_with(a: int, b: int, *, p2p: bool, nvlink: bool) -> tuple[GpuLink, ...]:
    return tuple(
        GpuLink(a, b, p2p=p2p, nvlink=nvlink, reason="" if p2p else "not supported")
        if (link.a, link.b) == (a, b)
        else link
        for link in good().links
    )


def with_env(plan: Plan, name: str, variables: dict[str, str | None]) -> Plan:
    """The plan with variables of the processes of that name (or all) set, or removed where None."""

    def one(process: Process) -> Process:
        if name not in (process.name, process.role.value, "*"):
            return process
        env = {key: value for key, value in process.env.items() if key not in variables}
        env |= {key: value for key, value in variables.items() if value is not None}
        return dataclasses.replace(process, env=env)

    return dataclasses.replace(plan, processes=tuple(one(process) for process in plan.processes))


def only(plan: Plan, *roles: Role) -> Plan:
    kept = tuple(process for process in plan.processes if process.role in (*roles, Role.FRONTEND))
    return dataclasses.replace(plan, processes=kept)


def found(target: Target, machine: Machine, plan: Plan | None = None) -> dict[str, Finding]:
    findings = list(check(target, plan or plan_for(target, machine), machine))
    assert "check-failed" not in {finding.code for finding in findings}, findings
    return {finding.code: finding for finding in findings}


@dataclass(frozen=True)
class Case:
    """One thing that is wrong, and what is said about it."""

    code: str
    says: str
    severity: Severity = ERROR
    target: str = "h200-disagg"
    product: str = "H200"
    count: int = 8
    machine: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    plan: Callable[[Plan], Plan] = lambda plan: plan

    @property
    def label(self) -> str:
        return f"{self.code}: {self.says}"


HELD = {"memory_free_mib": 3000, "holders": (GpuHolder(4242, "VLLM::EngineCore", 140000),)}
NOT_ROOT = frozenset[str]()
LO = Interface("lo", "127.0.0.1", loopback=True)
NO_NVLINK = tuple(GpuLink(link.a, link.b, p2p=True, nvlink=False) for link in good().links)

CASES = [
    Case("gpu-none", "none is here: no NVIDIA driver", count=0, machine={"gpu_error": "no NVIDIA driver"}),
    Case("gpu-none", "NVML shows none", count=0),
    Case("gpu-count", "needs 8 GPUs, 4 of 4 are here", count=4),
    Case(
        "gpu-count",
        "2 of 8 are visible (CUDA_VISIBLE_DEVICES=0,1)",
        machine={"visible": good().gpus[:2], "visible_by": "CUDA_VISIBLE_DEVICES=0,1"},
    ),
    Case("gpu-count", "needs 5 GPUs, 4 of 4", target="gb200-trtllm-disagg", product="GB200", count=4),
    Case(
        "gpu-visible",
        "'9' names no GPU",
        WARNING,
        machine={"visible_problems": ("CUDA_VISIBLE_DEVICES=0,9: '9' names no GPU here",)},
    ),
    Case("gpu-unreadable", "GPU 8: GPU is lost", WARNING, machine={"gpu_error": "GPU 8: GPU is lost"}),
    Case("gpu-kind", "B200; h200-disagg is for H200", product="B200"),
    Case("gpu-kind", "GPU 3: A100", machine=gpus_with(good(), 3, product="A100")),
    Case("gpu-mixed", "A100 and H200", WARNING, machine=gpus_with(good(), 3, product="A100")),
    Case("gpu-mig", "MIG is on for GPU 0", machine=gpus_with(good(), 0, mig=True)),
    Case("gpu-memory", "GPU 0 has 94 GiB", machine=gpus_with(good(), 0, memory_mib=96000)),
    Case("gpu-held", "held by pid 4242 (VLLM::EngineCore, 140000 MiB)", machine=gpus_with(good(), 1, **HELD)),
    Case(
        "gpu-held",
        "another container's",
        WARNING,
        machine=gpus_with(good(), 1, memory_free_mib=143771 - 4000),
    ),
    Case(
        "gpu-arch",
        "a H200 with 9.0",
        plan=lambda plan: with_env(plan, "decode-1", {"TORCH_CUDA_ARCH_LIST": "10.0a;8.0"}),
    ),
    Case(
        "gpu-format",
        "on H200 (compute capability 9.0)",
        changes={"engine__env": {"OVERRIDE_QUANT_ALGO": "w4a8_mxfp4_mxfp8"}},
    ),
    Case(
        "driver-old",
        "serves CUDA 12.8, the installed engine is built for 13.0",
        machine={"cuda_driver_version": (12, 8), "cuda_runtime_version": (13, 0)},
    ),
    Case("gpu-fabric", "fabric is in progress", machine=gpus_with(good(), 7, fabric="in progress")),
    Case("kv-no-p2p", "0 and 4: not supported", WARNING, machine={"links": links_with(0, 4, p2p=False, nvlink=False)}),
    Case("kv-no-nvlink", "GPU 0 and 4", WARNING, machine={"links": links_with(0, 4, p2p=True, nvlink=False)}),
    Case("kv-ipc-off", "no NVLink here", WARNING, machine={"links": NO_NVLINK}),
    Case(
        "kv-peers-hidden",
        "decode-0 has CUDA_VISIBLE_DEVICES=4 and does not see GPU 0, 1, 2, 3 and 3 more",
        plan=lambda plan: with_env(plan, "decode-0", {"CUDA_VISIBLE_DEVICES": "4"}),
    ),
    Case(
        "tp-no-nvlink",
        "decode-0 spans GPU 1 and 2",
        WARNING,
        target="gb200-trtllm-disagg",
        product="B200",
        machine={"links": links_with(1, 2, p2p=True, nvlink=False)},
    ),
    Case(
        "namespace-private",
        "only decode here, and the container has a private PID (hostPID) namespace",
        WARNING,
        plan=lambda plan: only(plan, Role.DECODE),
    ),
    Case("ipc-private", "of its own", INFO, machine={"namespaces": Namespaces(host_ipc=False)}),
    Case("cpu-arch", "is amd64, h200-disagg needs arm64", changes={"hardware__arch": "arm64"}),
    Case(
        "memory-small",
        "64 GiB of memory (control group's limit), the target's pod asks for 1200 GiB",
        WARNING,
        machine={"memory_bytes": 64 * GIB, "cgroup": Cgroup(2, memory_limit=64 * GIB)},
    ),
    Case(
        "offload-memory",
        "8 x 100 GiB = 800 GiB, of 512 GiB",
        target="h200-agg",
        machine={"memory_bytes": 512 * GIB},
    ),
    Case(
        "offload-memory",
        "300 GiB is available now",
        WARNING,
        target="h200-agg",
        machine={"memory_available_bytes": 300 * GIB},
    ),
    Case("shm-small", "has 0.062 GiB, the target wants 64 GiB", machine={"shm_bytes": 64 * 1024**2}),
    Case("shm-small", "has 16 GiB", WARNING, machine={"shm_bytes": 16 * GIB}),
    Case("shm-small", "there is no /dev/shm", machine={"shm_bytes": 0}),
    Case("shm-full", "2 GiB of 128 GiB", WARNING, machine={"shm_free_bytes": 2 * GIB}),
    Case(
        "memlock-low",
        "at most 8192 KiB",
        WARNING,
        machine={"memlock_bytes": 8 << 20, "capabilities": NOT_ROOT},
    ),
    Case("capability-missing", "no CAP_SYS_PTRACE", WARNING, machine={"capabilities": NOT_ROOT}),
    Case(
        "capability-missing",
        "read each other here all the same",
        INFO,
        machine={"capabilities": NOT_ROOT, "namespaces": Namespaces(ptrace_scope=0)},
    ),
    Case("nofile-low", "at most 1024 open files", WARNING, machine={"nofile": 1024}),
    Case("nofile-low", "hard limit 1024", WARNING, machine={"nofile": 1024, "nofile_hard": 1024}),
    Case("pids-low", "allows 1024", WARNING, machine={"cgroup": Cgroup(2, pids_max=1024)}),
    Case("cpus-few", "8 CPUs for 8 workers that want 24", WARNING, machine={"cpus": 8}),
    Case(
        "port-taken",
        "port 8000 of the API is held by pid 77 (nginx) on 0.0.0.0",
        machine={"probe": Scripted(ports={8000: Holder(77, "nginx", "0.0.0.0")})},
    ),
    Case(
        "port-taken",
        "of decode-1 rpc is held by a process that this user cannot see, on ::",
        machine={"probe": Scripted(ports={port: Holder(None, "", "::") for port in range(20000, 20100)})},
        target="sim",
    ),
    Case(
        "port-unusable",
        "Cannot assign requested address",
        machine={"probe": Scripted(ports={8000: "Cannot assign requested address"})},
    ),
    Case(
        "port-privileged",
        "port 8000 of the API is below 8080",
        machine={"unprivileged_port_start": 8080, "capabilities": NOT_ROOT},
    ),
    Case("port-ephemeral", "in the kernel's range 9000-60999", WARNING, machine={"ephemeral_range": (9000, 60999)}),
    Case("port-ephemeral", "range 1024-65535", WARNING, machine={"ephemeral_range": (1024, 65535)}),
    Case(
        "interface-unknown",
        "DYN_TCP_RESPONSE_STREAM_HOST=127.0.0.1 is no interface",
        plan=lambda plan: with_env(plan, "*", {"DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1"}),
    ),
    Case(
        "loopback-unset",
        "prefill-0 have no DYN_TCP_RESPONSE_STREAM_HOST",
        machine={"interfaces": (LO,)},
        plan=lambda plan: with_env(plan, "prefill-0", {"DYN_TCP_RESPONSE_STREAM_HOST": None}),
    ),
    Case("loopback-only", "listens on 0.0.0.0", INFO, machine={"interfaces": (LO, Interface("eth0", "", up=False))}),
    Case("cache-readonly", "cannot be written", machine={"probe": Scripted(read_only=("/cache",))}),
    Case("disk-low", "0.2 GiB free", machine={"probe": Scripted(disks={"/cache": GIB // 5})}),
    Case("disk-low", "2 GiB free", WARNING, machine={"probe": Scripted(disks={"/": 2 * GIB})}),
    Case("state-readonly", "/run/launcher/r1 cannot be made", machine={"probe": Scripted(read_only=("/run",))}),
    Case("state-disk-low", "1 MiB free", machine={"probe": Scripted(disks={"/run": 1 << 20})}),
    Case("state-network", "is on nfs4", WARNING, machine={"probe": Scripted(file_systems={"/": "nfs4"})}),
    Case("clock-wrong", "it is 1970-01-01", WARNING, machine={"probe": Scripted(clock=3600.0)}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_speaks(case: Case) -> None:
    target = load(case.target, **case.changes)
    machine = good(case.product, case.count, **case.machine)
    finding = found(target, machine, case.plan(plan_for(target, machine))).get(case.code)
    assert finding is not None
    assert case.says in finding.what
    assert finding.severity is case.severity
    assert finding.why
    if finding.severity is not INFO:
        assert finding.fix
    assert "None" not in finding.line()


def test_every_code_is_seen_and_known() -> None:
    declared = [code for each in CHECKS for code in each.codes]
    assert len(declared) == len(set(declared))
    assert {case.code for case in CASES} == set(declared)
    for code in declared:
        assert background(code)
    assert background("no-such-code") is None


NODES = {
    "b200-agg": ("B200", 8),
    "b200-disagg": ("B200", 8),
    "gb200-trtllm-agg": ("GB200", 4),
    "gb200-trtllm-disagg": ("B200", 8),
    "h200-1gpu-agg": ("H200", 1),
    "h200-1gpu-disagg": ("H200", 1),
    "h200-agg": ("H200", 8),
    "h200-disagg": ("H200", 8),
    "sim": ("H200", 0),
}


@pytest.mark.parametrize("name", sorted(NODES))
def test_nothing_is_said_about_the_right_machine(name: str) -> None:
    target = load(name)
    # The recipe asks for 1600 GiB in its pod of 8; an ordinary node of that kind has 2 TiB.
    assert found(target, good(*NODES[name])) == {}


def test_every_target_has_its_node_here() -> None:
    assert set(NODES) == set(names())


@pytest.mark.parametrize("name", sorted(NODES))
def test_a_simulated_run_needs_no_gpu(name: str, tmp_path: Path) -> None:
    target = load(name)
    simulated = changed(target, ["engine", "kind"], "mocker")
    poor = good(
        count=0,
        gpu_error="no NVIDIA driver",
        arch="amd64",
        shm_bytes=0,
        memory_bytes=4 * GIB,
        memory_available_bytes=2 * GIB,
        memlock_bytes=65536,
        capabilities=NOT_ROOT,
        cpus=2,
    )
    plan = plan_for(simulated, poor, native=target.engine.kind)
    assert plan.simulated
    assert found(simulated, poor, plan) == {}


def test_planning_for_another_machine_looks_at_nothing_here() -> None:
    machine = Machine.like("H200", 8)
    target = load("h200-disagg")
    assert found(target, machine) == {}


def test_a_check_that_fails_says_so_and_stops_no_other() -> None:
    def broken(target: Target, plan: Plan, machine: Machine) -> list[Finding]:
        raise ZeroDivisionError("oops")

    target, machine = load("h200-disagg"), good(count=0)
    findings = list(check(target, plan_for(target, machine), machine, (Check(broken, ("x-code",)), *CHECKS)))
    assert findings[0].code == "check-failed"
    assert findings[0].severity is ERROR
    assert "ZeroDivisionError: oops" in findings[0].what
    assert "x-code" in findings[0].why
    assert "gpu-none" in {finding.code for finding in findings}


def test_fixes_name_the_nearest_right_value() -> None:
    target = load("h200-agg")
    machine = good(memory_bytes=512 * GIB)
    assert found(target, machine)["offload-memory"].fix.startswith("at most 51 GiB per rank")
    machine = good(memory_bytes=4 * GIB)
    assert "turn offload off" in found(target, machine)["offload-memory"].fix
    five = load("gb200-trtllm-disagg")
    assert "two nodes" in found(five, good("GB200", 4))["gpu-count"].fix
    hidden = good(visible=good().gpus[:2], visible_by="CUDA_VISIBLE_DEVICES=0,1")
    assert "unset CUDA_VISIBLE_DEVICES" in found(load("h200-disagg"), hidden)["gpu-count"].fix


def test_what_is_not_wrong() -> None:
    """The near side of several limits."""
    target = load("h200-disagg")
    # Another tenant's small process leaves enough for 0.9 of the memory: a warning, no error.
    small = gpus_with(good(), 1, memory_free_mib=140000, holders=(GpuHolder(9, "dcgm", 300),))
    assert found(target, good(**small))["gpu-held"].severity is WARNING
    # IPC_LOCK lifts the limit of locked memory.
    assert "memlock-low" not in found(target, good(memlock_bytes=65536))
    # A driver of the same CUDA major serves a newer minor version.
    assert "driver-old" not in found(target, good(cuda_driver_version=(13, 0), cuda_runtime_version=(13, 2)))
    # Reserved ports are left alone by the kernel.
    every = frozenset(range(1024, 65536))
    assert found(target, good(ephemeral_range=(1024, 65535), reserved_ports=every)) == {}
    # Both roles in one container share its namespaces, whatever they are.
    private = found(target, good(namespaces=Namespaces(host_ipc=False, host_pid=False)))
    assert set(private) == {"ipc-private"}
    # Code for 9.0 with PTX runs on anything newer; several entries, one that fits.
    plan = plan_for(target, good())
    for value in ("8.0+PTX", "8.0;9.0a", "9.0 10.0", "", "Hopper"):
        assert "gpu-arch" not in found(target, good(), with_env(plan, "*", {"TORCH_CUDA_ARCH_LIST": value}))
    # With the order given, indices mean the same to all.
    mixed = good(**gpus_with(good(), 3, product="A100"))
    ordered = with_env(plan_for(target, mixed), "*", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert "gpu-mixed" not in found(target, mixed, ordered)
    # UCX told to read over CUDA IPC without NVLink.
    told = with_env(plan, "*", {"UCX_CUDA_IPC_ENABLE_GET_ZCOPY": "on"})
    assert "kv-ipc-off" not in found(target, good(links=NO_NVLINK), told)
    # A port that the API and the frontend both name is one port.
    held = good(probe=Scripted(ports={8000: Holder(1, "x", "0.0.0.0")}))
    findings = [each for each in check(target, plan_for(target, held), held) if each.code == "port-taken"]
    assert len(findings) == 1


@pytest.mark.parametrize(
    ("count", "text"),
    [(64 << 30, "64 GiB"), (1 << 26, "0.062 GiB"), (4 << 20, "4 MiB"), (1 << 16, "64 KiB"), (0, "0 KiB")],
)
def test_sizes_for_a_person(count: int, text: str) -> None:
    assert gib(count) == text


def test_taken_ports_of_another_launcher_move_together() -> None:
    target = load("h200-disagg")
    other = {port: Holder(5, "python -m dynamo", "0.0.0.0", 4, "sim") for port in (8000, 9000)}
    held = good(probe=Scripted(ports=other))
    findings = [each for each in check(target, plan_for(target, held), held) if each.code == "port-taken"]
    assert [each.what for each in findings] == [
        f"port {port} of {owner} is held by another launcher (target sim, pid 4) on 0.0.0.0"
        for port, owner in ((8000, "the API"), (9000, "the admin server"))
    ]
    assert {each.fix for each in findings} == {"--http-port 8001 --admin-port 9001, or end pid 4"}


def test_flags_in_both_forms() -> None:
    process = Process("x", Role.DECODE, ("p", "--a=1", "--b", "2", "--a", "3", "--c"), {})
    assert [flag(process, name) for name in ("--a", "--b", "--c", "--d")] == ["3", "2", "", None]
