"""What the children's logs say that no metric does: room for KV, and the lanes that UCX chose for it.

Patterns seen with vLLM 0.23.0, NIXL 1.1.0 and UCX with UCX_PROTO_INFO=y on an H200; TensorRT-LLM's from its source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_KV_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens|for max tokens in paged KV cache \((\d+)\)")
# `| ucp_context_0 inter-node cfg#2 | remote memory read by ucp_get*(multi) into cuda/GPU0 from cuda/dev[0] |`, and
# below it one row for each range of sizes: `| 0..inf | zero-copy | cuda_ipc/cuda |`.
_OPERATION = re.compile(
    r"remote memory (?:read|write) by ucp_(?:get|put)\S*|(?:tag|am)_send\S* .*\bcuda\b|tagged message by .*\bcuda\b"
)
_ROW = re.compile(r"\b\d+(?:\.\.(?:\d+|inf))?\s*\|\s*([^|]*[a-z][^|]*?)\s*\|\s*([^|]+?)\s*(?:\||$)")
_TRANSPORT = re.compile(r"\b([a-z]\w*)/[\w:.\-]+")
_LANES = {
    "cuda_ipc": "cuda_ipc",
    "rc": "rdma", "dc": "rdma", "ud": "rdma", "gdr": "rdma", "srd": "rdma",
    "tcp": "tcp",
    "posix": "shm", "sysv": "shm", "cma": "shm", "knem": "shm", "xpmem": "shm",
    "cuda_copy": "copy", "self": "self",
}  # fmt: skip
FAST = frozenset(("cuda_ipc", "rdma"))


def lane(transport: str) -> str:
    """The kind of a UCX transport such as `cuda_ipc`, `rc_mlx5`, `tcp`; its own name where it is unknown."""
    return _LANES.get(transport) or _LANES.get(transport.partition("_")[0]) or transport


class Ears:
    """Hears every line of every child. `hear` runs in the log's thread and must be quick."""

    def __init__(self) -> None:
        self.kv_tokens: dict[str, int] = {}
        """Process to the tokens of KV that it has room for, as it said last."""
        self._lanes: dict[str, dict[str, None]] = {}
        self._open: dict[str, bool] = {}

    def hear(self, process: str, lines: Sequence[str]) -> None:
        """Take a batch of lines."""
        waiting = self._open.get(process, False)
        text = "\n".join(lines)
        if (
            not waiting
            and "KV cache" not in text
            and "_get" not in text
            and "_put" not in text
            and "_send" not in text
        ):
            return
        for line in lines:
            found = _KV_TOKENS.search(line)
            if found is not None:
                self.kv_tokens[process] = int((found[1] or found[2]).replace(",", ""))
            self._table(process, line)

    def _table(self, process: str, line: str) -> None:
        operation = _OPERATION.search(line)
        if operation is not None:
            self._open[process] = True
            line = line[operation.end() :]
        elif not self._open.get(process):
            return
        rows = _ROW.findall(line)
        if not rows:
            # A table's frame may stand between head and rows; any other line ends the table.
            if operation is None and "+--" not in line:
                self._open[process] = False
            return
        # The last row is for the largest messages, and KV is large.
        kinds = [lane(name) for name in _TRANSPORT.findall(rows[-1][1])]
        for kind in kinds:
            self._lanes.setdefault(process, {})[kind] = None

    def lanes(self, process: str) -> tuple[str, ...]:
        """The lanes by which the process reads or writes others' memory: `cuda_ipc`, `rdma`, `tcp`, `shm`, ..."""
        return tuple(kind for kind in self._lanes.get(process, {}) if kind not in ("copy", "self"))

    def forget(self, process: str) -> None:
        """The process starts anew."""
        self.kv_tokens.pop(process, None)
        self._lanes.pop(process, None)
        self._open.pop(process, None)
