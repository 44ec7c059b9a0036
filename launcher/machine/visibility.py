"""Which GPUs CUDA would use under an inherited environment, and what is wrong with the values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from launcher.machine.model import Gpu

CUDA = "CUDA_VISIBLE_DEVICES"
CONTAINER = "NVIDIA_VISIBLE_DEVICES"

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}(?![0-9])")


class Visible(NamedTuple):
    """The GPUs in the order that CUDA numbers them."""

    gpus: tuple[Gpu, ...]
    by: str = ""
    """The variable and value that decided, empty where none did."""
    problems: tuple[str, ...] = ()


def visible(gpus: Sequence[Gpu], mig_devices: Sequence[Gpu], environ: Mapping[str, str]) -> Visible:
    """The GPUs that a CUDA process with this environment would see.

    The container's list is applied first, then CUDA's. CUDA's rules hold: an entry that names no GPU hides
    itself and all after it, an entry named twice hides everything, `-1` and an empty value mean none.
    """
    container = environ.get(CONTAINER)
    cuda = environ.get(CUDA)
    seen, by, problems = _by_container(container, gpus, mig_devices)
    if cuda is None:
        return Visible(seen, by, problems)
    chosen, more = _by_cuda(cuda, gpus, mig_devices)
    allowed = {gpu.uuid for gpu in seen} | {gpu.uuid for gpu in mig_devices}
    return Visible(tuple(gpu for gpu in chosen if gpu.uuid in allowed), f"{CUDA}={cuda}", (*problems, *more))


def _by_container(
    value: str | None, gpus: Sequence[Gpu], mig_devices: Sequence[Gpu]
) -> tuple[tuple[Gpu, ...], str, tuple[str, ...]]:
    """What NVIDIA_VISIBLE_DEVICES leaves of the GPUs that NVML shows.

    It is the container runtime's variable, which CUDA itself does not read. Inside a container it has been
    applied already and the GPUs are numbered anew, so that its indices mean nothing; on a bare machine, or in
    a privileged pod that sees every GPU, it says which ones were meant.
    """
    everything = tuple(gpus)
    # `void` and empty: this runtime did not act (CDI, which injects the devices itself, sets `void`).
    if value is None or value.strip() in ("", "all", "void"):
        return everything, "", ()
    by = f"{CONTAINER}={value}"
    if value.strip() == "none":
        return (), by, ()
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    found = [_find(entry, gpus, mig_devices) for entry in entries]
    chosen = tuple(dict.fromkeys(gpu for gpu in found if gpu is not None))
    unknown = [entry for entry, gpu in zip(entries, found, strict=True) if gpu is None]
    if all(entry.isdecimal() for entry in entries) and (unknown or len(entries) >= len(everything)):
        return everything, "", ()
    problems = tuple(f"{by}: no GPU {entry!r} here" for entry in unknown)
    return chosen, by, problems


def _by_cuda(
    value: str, gpus: Sequence[Gpu], mig_devices: Sequence[Gpu]
) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    chosen: list[Gpu] = []
    entries = [entry.strip() for entry in value.split(",")]
    if entries in ([""], ["-1"], ["NoDevFiles"]):
        return (), ()
    # The first entry decides whether the list is of numbers or of identifiers; the other kind is invalid.
    kind = _kind(entries[0])
    for place, entry in enumerate(entries):
        gpu = _find(entry, gpus, mig_devices) if _kind(entry) == kind else None
        if gpu is None:
            hidden = entries[place + 1 :]
            also = f"; CUDA hides it and all after it ({', '.join(hidden)})" if hidden else ""
            # `0,1,-1` ends the list on purpose; anything else that names no GPU is a mistake.
            problem = () if entry == "-1" else (f"{CUDA}={value}: {entry!r} names no GPU here{also}",)
            return tuple(chosen), problem
        if gpu in chosen:
            return (), (f"{CUDA}={value}: {entry!r} is named twice, and CUDA then shows no GPU at all",)
        chosen.append(gpu)
    return tuple(chosen), ()


def _kind(entry: str) -> str:
    return entry[:4] if entry.startswith(("GPU-", "MIG-")) else ""


def _find(entry: str, gpus: Sequence[Gpu], mig_devices: Sequence[Gpu]) -> Gpu | None:
    """The one GPU that an entry names: an index, or the beginning of a UUID that no other has."""
    if _kind(entry):
        found = [gpu for gpu in (*gpus, *mig_devices) if gpu.uuid.startswith(entry)]
        return found[0] if len(found) == 1 else None
    # CUDA reads numbers as strtoul does: what follows the digits is ignored.
    number = _NUMBER.match(entry)
    index = int(number.group()) if number else -1
    return next((gpu for gpu in gpus if gpu.index == index), None)
