"""What the children's logs say that no metric does: room for KV, and the lanes that UCX chose for it.

Patterns seen with vLLM 0.23.0, NIXL 1.1.0 and UCX with UCX_PROTO_INFO=y on an H200; TensorRT-LLM's from its source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_KV_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens|for max tokens in paged KV cache \((\d+)\)")
_PID = re.compile(r"\[[^\]\s:]+:(\d+)\s*:\d+\]")
# `| ucp_context_0 inter-node cfg#2 | remote memory read by ucp_get*(multi) into cuda/GPU0 from cuda/dev[0] |`, and
# below it one row for each range of sizes: `| 0..64 | copy-out | rc_mlx5/mlx5_0:1 |`, `| 65..inf | zero-copy | ... |`.
_OPERATION = re.compile(
    r"(?:remote memory (?:read|write) by ucp_(?:get|put)|(?:tagged|active) message by ucp_\w+_send)[^|]*"
)
_ROW = re.compile(
    r"(?:^|\s)\d+[KMGT]?(?:\.\.(\d+[KMGT]?|inf))?\s*\|\s*[^|]*[a-z][^|]*\|\s*([^|]+?)\s*(?:\||$)"
)
_TRANSPORT = re.compile(r"\b([a-z]\w*)/[\w:.\-]+")
_KINDS = {
    "cuda_ipc": "cuda_ipc",
    "rc": "rdma", "dc": "rdma", "ud": "rdma", "gdr": "rdma", "srd": "rdma",
    "tcp": "tcp",
    "posix": "shm", "sysv": "shm", "cma": "shm", "knem": "shm", "xpmem": "shm",
    "cuda_copy": "copy", "self": "self",
}  # fmt: skip
FAST = frozenset(("cuda_ipc", "rdma"))


def lane(transport: str) -> str:
    """The kind of a UCX transport such as `cuda_ipc`, `rc_mlx5`, `tcp`; its own name where it is unknown."""
    return _KINDS.get(transport) or _KINDS.get(transport.partition("_")[0]) or transport


@dataclass(slots=True)
class _Heard:
    """Of one process."""

    device: dict[str, None] = field(default_factory=dict)
    """Lanes of operations on GPU memory, in the order in which they were chosen."""
    host: dict[str, None] = field(default_factory=dict)
    """Lanes of remote reads and writes of host memory."""
    open: dict[str, str] = field(default_factory=dict)
    """The operation whose table each of its ranks (process ids) is writing; their lines come mixed."""


class Ears:
    """Hears every line of every child. `hear` runs in the log's thread and must be quick."""

    def __init__(self) -> None:
        self.kv_tokens: dict[str, int] = {}
        """Process to the tokens of KV that it has room for, as it said last."""
        self._heard: dict[str, _Heard] = {}

    def hear(self, process: str, lines: Sequence[str]) -> None:
        """Take a batch of lines."""
        heard = self._heard.get(process)
        text = "\n".join(lines)
        if " by ucp_" not in text and "KV cache" not in text and not (heard is not None and heard.open):
            return
        heard = heard or self._heard.setdefault(process, _Heard())
        for line in lines:
            found = _KV_TOKENS.search(line)
            if found is not None:
                self.kv_tokens[process] = int((found[1] or found[2]).replace(",", ""))
            _table(heard, line)

    def lanes(self, process: str) -> tuple[str, ...]:
        """The lanes by which the process moves others' KV: `cuda_ipc`, `rdma`, `tcp`, `shm`, ...

        Host memory counts where no GPU memory is moved, as with `kv.transfer.buffer_device: cpu`.
        """
        heard = self._heard.get(process, _Heard())
        # A copy: the log's thread may add to it meanwhile.
        kinds = list(heard.device or heard.host)
        return tuple(kind for kind in kinds if kind not in ("copy", "self"))

    def forget(self, process: str) -> None:
        """The process starts anew."""
        self.kv_tokens.pop(process, None)
        self._heard.pop(process, None)


def _table(heard: _Heard, line: str) -> None:
    """Follow one line of a rank: the head of a table, one of its rows, its frame, or something else."""
    found = _PID.search(line)
    rank = found[1] if found is not None else ""
    operation = _OPERATION.search(line)
    if operation is not None:
        heard.open[rank] = operation[0]
        line = line[operation.end() :]
    open_table = heard.open.get(rank)
    if open_table is None:
        return
    rows = list(_ROW.finditer(line))
    for row in rows:
        # KV is large: the row of the largest messages is its.
        if row[1] != "inf":
            continue
        device = "cuda" in open_table or "rocm" in open_table
        if device and "host memory" in open_table:
            continue  # Between a GPU and host memory, as NIXL tries on itself at registration: no KV goes there.
        if not device and "remote memory" not in open_table:
            continue
        kinds = heard.device if device else heard.host
        kinds.update(dict.fromkeys(lane(name) for name in _TRANSPORT.findall(row[2])))
    if not rows and operation is None and "+--" not in line:
        del heard.open[rank]
