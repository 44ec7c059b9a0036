"""Memory, control groups, capabilities, port ranges, versions: from made-up files and from real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.machine import Cgroup, detect, limits, network
from launcher.machine.local import Local
from launcher.machine.packages import cuda_runtime, versions

MEMINFO = "MemTotal:       1000 kB\nMemFree:  300 kB\nMemAvailable:    600 kB\n"


def test_memory_without_a_group(make_root: Any) -> None:
    assert limits.memory(make_root({"proc/meminfo": MEMINFO})) == (1000 * 1024, 600 * 1024)
    assert limits.memory(Path("/nonexistent")) == (0, 0)


def test_version_2_takes_the_tightest_parent(make_root: Any) -> None:
    root = make_root(
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "sys/fs/cgroup/pod/memory.max": "409600\n",
            "sys/fs/cgroup/pod/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/box/memory.max": "max\n",
            "sys/fs/cgroup/pod/box/memory.current": "204800\n",
            "sys/fs/cgroup/pod/box/memory.stat": "anon 100\ninactive_file 102400\n",
            "sys/fs/cgroup/pod/box/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pod/box/pids.max": "4096\n",
        }
    )
    group = limits.cgroup(root)
    assert group == Cgroup(version=2, memory_limit=409600, cpu_quota=1.5, pids_max=4096)
    assert limits.memory(root, group) == (409600, 409600 - 102400)
    assert limits.cpus(group) == min(2, len(os.sched_getaffinity(0)))


def test_version_2_in_its_own_namespace(make_root: Any) -> None:
    """In a container the path is `/`, or one of the host's that is not mounted here."""
    for path in ("/", "/kubepods/pod1/box", "/../../other"):
        root = make_root(
            {
                "proc/self/cgroup": f"0::{path}\n",
                "sys/fs/cgroup/cgroup.controllers": "memory\n",
                "sys/fs/cgroup/memory.max": "2048\n",
            }
        )
        assert limits.cgroup(root).memory_limit == 2048


def test_version_1(make_root: Any) -> None:
    root = make_root(
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n2:pids:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "512000\n",
            "sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes": "112000\n",
            "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/pids/pids.max": "max\n",
        }
    )
    group = limits.cgroup(root)
    assert group == Cgroup(version=1, memory_limit=512000)
    assert limits.memory(root, group) == (512000, 400000)


def test_a_limit_above_the_machine_says_nothing(make_root: Any) -> None:
    root = make_root({"proc/meminfo": MEMINFO})
    assert limits.memory(root, Cgroup(2, memory_limit=1 << 50)) == (1000 * 1024, 600 * 1024)


def test_cpus_are_never_less_than_one() -> None:
    assert limits.cpus(Cgroup(cpu_quota=0.1)) == 1
    assert limits.cpus(Cgroup()) == len(os.sched_getaffinity(0))


def test_capabilities(make_root: Any) -> None:
    # The set that Docker gives by default.
    root = make_root({"proc/self/status": "Name:\tx\nCapEff:\t00000000a80425fb\n"})
    found = limits.capabilities(root)
    assert {"NET_BIND_SERVICE", "KILL", "MKNOD", "SETFCAP"} <= found
    assert found.isdisjoint({"SYS_PTRACE", "IPC_LOCK", "SYS_ADMIN"})
    assert limits.capabilities(Path("/nonexistent")) == frozenset()


def test_ports(make_root: Any) -> None:
    folder = "proc/sys/net/ipv4/"
    root = make_root(
        {
            folder + "ip_local_port_range": "1024\t65535\n",
            folder + "ip_local_reserved_ports": "8000,20000-20003\n",
            folder + "ip_unprivileged_port_start": "0\n",
        }
    )
    assert network.ephemeral_range(root) == (1024, 65535)
    assert network.reserved_ports(root) == {8000, 20000, 20001, 20002, 20003}
    assert network.unprivileged_port_start(root) == 0
    nowhere = Path("/nonexistent")
    assert network.ephemeral_range(nowhere) == (32768, 60999)
    assert network.reserved_ports(nowhere) == frozenset()
    assert network.unprivileged_port_start(nowhere) == 1024


@pytest.mark.parametrize(
    ("packages", "environ", "expected"),
    [
        ({"torch": "2.11.0+cu130"}, {"CUDA_VERSION": "12.8.1"}, (13, 0)),
        ({"torch": "2.9.0+cu128"}, {}, (12, 8)),
        ({"torch": "2.11.0", "nvidia-cuda-runtime": "13.0.96"}, {}, (13, 0)),
        ({"nvidia-cuda-runtime-cu12": "12.8.90"}, {}, (12, 8)),
        ({"torch": "2.11.0+cpu"}, {"CUDA_VERSION": "12.8.1"}, (12, 8)),
        ({"torch": "2.11.0+cpu"}, {}, None),
        ({}, {"CUDA_VERSION": "unknown"}, None),
    ],
)
def test_cuda_runtime(packages: dict[str, str], environ: dict[str, str], expected: Any) -> None:
    assert cuda_runtime(packages, environ) == expected


def test_versions_of_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, metadata in (("vllm-0.23.0", "Name: vllm\nVersion: 0.23.0\n"), ("nixl-1.1.0", "")):
        info = tmp_path / f"{folder}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = versions()
    assert found["vllm"] == "0.23.0"
    assert "nixl" not in found  # torn metadata is no version


@pytest.mark.parametrize(
    ("python", "site", "config"),
    [
        ("venv/bin/python", "venv/lib/python3.12/site-packages", "home = /usr/bin\n"),
        ("usr/bin/python3", "usr/local/lib/python3.12/dist-packages", None),
        ("usr/local/bin/python3", "usr/local/lib/python3.12/site-packages", None),
        (
            "venv/bin/python",
            "opt/lib/python3.12/site-packages",
            "home = ROOT/opt/bin\ninclude-system-site-packages = true\n",
        ),
    ],
)
def test_versions_of_another_interpreter(make_root: Any, python: str, site: str, config: str | None) -> None:
    root = make_root({f"{site}/ai_dynamo-1.3.1.dist-info/METADATA": "Name: ai-dynamo\nVersion: 1.3.1\n"})
    if config is not None:
        make_root({"venv/pyvenv.cfg": config.replace("ROOT", str(root))})
    assert versions(str(root / python)) == {"ai-dynamo": "1.3.1"}
    assert versions("/nonexistent/bin/python") == {}


def test_this_machine() -> None:
    started = time.perf_counter()
    machine = detect({})
    assert time.perf_counter() - started < 0.5  # 10 ms here; generous for a loaded machine
    assert machine.hostname == os.uname().nodename
    assert machine.arch in ("amd64", "arm64")
    assert machine.cpus >= 1
    assert 0 < machine.memory_available_bytes <= machine.memory_bytes
    assert machine.nofile_hard >= machine.nofile > 0
    assert any(interface.loopback and interface.address == "127.0.0.1" for interface in machine.interfaces)
    assert machine.ephemeral_range[0] < machine.ephemeral_range[1]
    assert machine.namespaces.ipc.startswith("ipc:[")
    assert bool(machine.gpus) != bool(machine.gpu_error)
    assert not machine.simulated


def test_nothing_heavy_is_imported() -> None:
    heavy = "{'torch', 'vllm', 'dynamo', 'psutil', 'aiohttp', 'pynvml', 'asyncio', 'tensorrt_llm'}"
    code = f"import sys; from launcher.machine import detect; detect(); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if "nvidia" not in " ".join(os.listdir("/dev")):
        assert done.stdout.strip() == "set()"


def test_local_probe(tmp_path: Path, make_root: Any) -> None:
    probe = Local()
    free = probe.disk_free(str(tmp_path / "not/yet/made"))
    assert free is not None
    assert free > 0
    assert probe.file_system("/proc/self") == "proc"
    assert probe.writable(str(tmp_path / "new"))
    assert abs((probe.now() or 0) - time.time()) < 5
    mounts = f"none / overlay rw 0 0\nnas:/x {str(tmp_path).replace(' ', chr(92) + '040')} nfs4 rw 0 0\n"
    rooted = Local(make_root({"proc/self/mounts": mounts}))
    assert rooted.file_system(str(tmp_path / "sub")) == "nfs4"
    assert rooted.file_system("/usr") == "overlay"
    assert Local(Path("/nonexistent")).file_system("/usr") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert not Local().writable(str(tmp_path / "new"))
