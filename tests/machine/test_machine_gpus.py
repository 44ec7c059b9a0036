"""GPUs through a stand-in for NVML: what is read, who holds them, and every way in which asking fails."""

from __future__ import annotations

import os
from typing import Any

import pytest

from launcher.machine import Machine, detect, product_name
from launcher.machine.gpus import free_mib, gpu_holders, inventory
from launcher.machine.nvml import NvmlUnavailable


def test_reads_each_gpu(fake_nvml: Any, device: Any) -> None:
    nvml = fake_nvml(
        [
            device("GPU-a", running=[(os.getpid(), 512)]),
            device("GPU-b", name="NVIDIA B200", capability=(10, 0)),
        ]
    )
    found = inventory(nvml)
    first, second = found.gpus
    assert (first.index, first.uuid, first.product, first.memory_mib) == (0, "GPU-a", "H200", 143771)
    assert first.memory_used_mib == 458
    assert first.compute_capability == (9, 0)
    assert first.fabric == "completed"
    assert first.holders[0].pid == os.getpid()
    assert first.holders[0].memory_mib == 512
    assert "python" in first.holders[0].name or "pytest" in first.holders[0].name
    assert (second.product, second.compute_capability, second.holders) == ("B200", (10, 0), ())
    assert (found.driver_version, found.cuda_driver_version, found.error) == ("580.159.04", (13, 0), "")
    assert (nvml.opened, nvml.closed) == (1, 1)


def test_reads_links(fake_nvml: Any) -> None:
    nvml = fake_nvml(3)
    a, b, c = (each.uuid for each in nvml.devices)
    nvml.peers = {(a, c): (0, 5), (b, c): (4, 5)}
    links = {(link.a, link.b): link for link in inventory(nvml).links}
    assert (links[0, 1].p2p, links[0, 1].nvlink) == (True, True)
    assert (links[0, 2].p2p, links[0, 2].nvlink) == (True, False)
    assert not links[1, 2].p2p
    assert "registry key" in links[1, 2].reason


def test_mig_devices(fake_nvml: Any, device: Any) -> None:
    slices = [device(f"MIG-{n}", name="NVIDIA H200 MIG 1g.18gb", total=16384, free=16300) for n in range(2)]
    found = inventory(fake_nvml([device("GPU-a", mig=slices)]))
    assert found.gpus[0].mig
    assert [(each.uuid, each.index, each.memory_mib) for each in found.mig_devices] == [
        ("MIG-0", 0, 16384),
        ("MIG-1", 0, 16384),
    ]
    # A slice does not tell its compute capability; its GPU does.
    assert found.mig_devices[0].compute_capability == (9, 0)
    assert found.mig_devices[0].product == "H200"
    assert found.mig_devices[0].cuda_name == "MIG-0"


def test_a_lost_gpu_does_not_hide_the_others(fake_nvml: Any, device: Any) -> None:
    found = inventory(fake_nvml([device("GPU-a"), device("GPU-b", lost=True), device("GPU-c")]))
    assert [gpu.index for gpu in found.gpus] == [0, 2]
    assert found.error == "GPU 1: GPU is lost"
    assert [(link.a, link.b) for link in found.links] == [(0, 2)]


def test_old_bindings(fake_nvml: Any, device: Any) -> None:
    """Bytes for texts, memory of processes unknown, no fabric: what older bindings and containers give."""
    nvml = fake_nvml([device("GPU-a", running=[(1 << 30, None)], total=0)], bytes_texts=True)
    nvml.c_nvmlGpuFabricInfo_t = None
    gpu = inventory(nvml).gpus[0]
    assert (gpu.uuid, gpu.name, gpu.fabric) == ("GPU-a", "NVIDIA H200", "")
    assert (gpu.memory_mib, gpu.memory_free_mib) == (0, 0)
    assert str(gpu.holders[0]) == f"pid {1 << 30} (unknown)"


@pytest.mark.parametrize(
    ("fabric", "shown"),
    [
        ((0, 0), ""),
        ((1, 0), "not started"),
        ((2, 0), "in progress"),
        ((3, 0), "completed"),
        ((3, 4), "completed with error 4"),
        ((9, 0), "state 9"),
    ],
)
def test_fabric_states(fake_nvml: Any, device: Any, fabric: tuple[int, int], shown: str) -> None:
    assert inventory(fake_nvml([device("GPU-a", fabric=fabric)])).gpus[0].fabric == shown


def test_nvml_that_does_not_start(fake_nvml: Any) -> None:
    nvml = fake_nvml(1, init_error="Driver/library version mismatch")
    assert inventory(nvml).error == "NVML did not start: Driver/library version mismatch"
    with pytest.raises(NvmlUnavailable, match="version mismatch"):
        free_mib("GPU-00-aaaa", nvml)


def test_nvml_that_breaks(fake_nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = fake_nvml(1)

    def broken() -> int:
        raise OSError("libnvidia-ml.so.1: wrong ELF class")

    monkeypatch.setattr(nvml, "nvmlDeviceGetCount", broken)
    assert inventory(nvml).error == "NVML failed: OSError: libnvidia-ml.so.1: wrong ELF class"
    assert nvml.closed == 1


def test_no_driver(make_root: Any) -> None:
    root = make_root({})
    assert inventory(root=root).error.startswith("no NVIDIA driver here")
    with pytest.raises(NvmlUnavailable):
        gpu_holders(["GPU-a"], root=root)


def test_a_driver_without_bindings_or_library(make_root: Any) -> None:
    """This machine has no libnvidia-ml: the real binding must fail with words, wherever it is installed."""
    error = inventory(root=make_root({"dev/nvidiactl": ""})).error
    assert "nvidia-ml-py" in error or "NVML did not start" in error or error == ""


def test_memory_helpers(fake_nvml: Any, device: Any) -> None:
    nvml = fake_nvml(
        [device("GPU-a", free=1000, running=[(1, 7)], mig=[device("MIG-a", free=5)]), device("GPU-b")]
    )
    assert free_mib("GPU-a", nvml) == 1000
    assert free_mib("MIG-a", nvml) == 5
    assert free_mib("GPU-unknown", nvml) is None
    held = gpu_holders(["GPU-a", "GPU-b", "GPU-unknown"], nvml)
    assert {uuid: [holder.pid for holder in holders] for uuid, holders in held.items()} == {
        "GPU-a": [1],
        "GPU-b": [],
    }
    assert nvml.opened == nvml.closed


def test_detect_with_gpus(fake_nvml: Any) -> None:
    machine = detect({"CUDA_VISIBLE_DEVICES": "3,1"}, nvml=fake_nvml(4))
    assert [gpu.index for gpu in machine.gpus] == [0, 1, 2, 3]
    assert [gpu.index for gpu in machine.visible] == [3, 1]
    assert machine.visible_by == "CUDA_VISIBLE_DEVICES=3,1"
    assert machine.gpu("2") is machine.gpus[2]
    assert machine.gpu("GPU-2") is machine.gpus[2]
    assert machine.gpu("GPU-") is machine.gpu("9") is machine.gpu("") is None
    link = machine.link(machine.gpus[3], machine.gpus[1])
    assert link is not None
    assert (link.a, link.b) == (1, 3)


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H200", "H200"), ("NVIDIA-H200", "H200"), ("NVIDIA H200 NVL", "H200"), ("H200", "H200"),
        ("NVIDIA B200", "B200"), ("NVIDIA GB200", "GB200"), ("NVIDIA GB300", "GB300"),
        ("NVIDIA GH200 480GB", "GH200"), ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA H20", "H20"),
        ("NVIDIA A100-SXM4-80GB", "A100"), ("Tesla V100-SXM2-16GB", "V100"), ("NVIDIA L40S", "L40S"),
        ("NVIDIA H200 MIG 1g.18gb", "H200"), ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"), ("", ""),
    ],
)  # fmt: skip
def test_product_names(name: str, product: str) -> None:
    assert product_name(name) == product


def test_like() -> None:
    machine = Machine.like("NVIDIA-H200", gpus=2, hostname="elsewhere")
    assert machine.simulated
    assert machine.hostname == "elsewhere"
    assert [gpu.product for gpu in machine.visible] == ["H200", "H200"]
    assert len({gpu.uuid for gpu in machine.gpus}) == 2
    assert len(machine.links) == 1
    assert machine.probe.port_error("127.0.0.1", 1) is None
    assert (Machine.like("gb200").arch, len(Machine.like("gb200").gpus)) == ("arm64", 4)
    assert Machine.like("H200", gpus=0).gpus == ()
    with pytest.raises(KeyError, match="did you mean 'H200'"):
        Machine.like("H2000")


def test_the_stand_in_asks_what_the_real_binding_has(fake_nvml: Any) -> None:
    """Names and numbers of pynvml, which imports without a driver."""
    pynvml = pytest.importorskip("pynvml")
    names = [name for name in dir(fake_nvml(1)) if name.startswith(("nvml", "c_nvml", "NVML"))]
    assert len(names) > 15
    assert [name for name in names if not hasattr(pynvml, name)] == []
    assert hasattr(pynvml, "nvmlDeviceGetNumaNodeId")
    assert (pynvml.NVML_P2P_CAPS_INDEX_WRITE, pynvml.NVML_P2P_CAPS_INDEX_NVLINK) == (1, 2)
    assert (pynvml.NVML_P2P_STATUS_OK, pynvml.NVML_P2P_STATUS_UNKNOWN) == (0, 6)
    assert pynvml.NVML_GPU_FABRIC_STATE_COMPLETED == 3
    assert {"state", "status"} <= {name for name, *_ in pynvml.c_nvmlGpuFabricInfo_t._fields_}
