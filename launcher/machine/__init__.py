"""What is on this machine: GPUs, memory, limits, network, installed versions; as pure values.

`detect()` looks; `Machine.like("H200", gpus=8)` imagines. Nothing here imports torch, Dynamo or an engine.
"""

from launcher.machine.detect import detect
from launcher.machine.model import Cgroup, Gpu, GpuHolder, GpuLink, Interface, Machine, Namespaces
from launcher.machine.products import PRODUCTS, Product, product_name

__all__ = [
    "PRODUCTS",
    "Cgroup",
    "Gpu",
    "GpuHolder",
    "GpuLink",
    "Interface",
    "Machine",
    "Namespaces",
    "Product",
    "detect",
    "product_name",
]
