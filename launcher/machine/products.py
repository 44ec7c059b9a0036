"""What the GPU products are called and have: to name what NVML shows, and to plan for other machines."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Arch = Literal["amd64", "arm64"]


class Product(NamedTuple):
    """A GPU product as a machine without one needs to imagine it."""

    name: str
    memory_mib: int
    """What NVML reports as total, in MiB (H200: read on one; the others: public nvidia-smi listings)."""
    compute_capability: tuple[int, int]
    """https://developer.nvidia.com/cuda-gpus"""
    arch: Arch = "amd64"
    """The CPU that the product is soldered to, or usually sits beside."""
    node_gpus: int = 8
    """GPUs in one ordinary node: a GB200 tray has 4, an HGX board 8."""


PRODUCTS: dict[str, Product] = {
    product.name: product
    for product in (
        Product("GB300", 284208, (10, 3), "arm64", 4),
        Product("GB200", 189471, (10, 0), "arm64", 4),
        Product("GH200", 97871, (9, 0), "arm64", 1),
        Product("B300", 275040, (10, 3)),
        Product("B200", 183359, (10, 0)),
        Product("H200", 143771, (9, 0)),
        Product("H100", 81559, (9, 0)),
        Product("H20", 97871, (9, 0)),
        Product("A100", 81920, (8, 0)),
        Product("L40S", 46068, (8, 9)),
    )
}

_KNOWN = re.compile(
    r"\b(GB300|GB200|GH200|B300|B200|B100|H200|H100|H800|H20|A100|A800|L40S|L40|L4|A10G|A10|V100|T4)\b"
)
_VENDOR = re.compile(r"^(NVIDIA|TESLA)\s+", re.IGNORECASE)


def product_name(name: str) -> str:
    """The short product name in what NVML or a node label says.

    `NVIDIA H200` and `NVIDIA-H200` become `H200`, `NVIDIA H100 80GB HBM3` becomes `H100`, `A100-SXM4-80GB`
    `A100`; of a product that is not known the name stays, without the vendor.
    """
    spaced = name.replace("-", " ").replace("_", " ").strip()
    known = _KNOWN.search(spaced.upper())
    if known:
        return known.group(1)
    return _VENDOR.sub("", spaced) or name
