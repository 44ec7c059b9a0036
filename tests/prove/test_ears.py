"""What is read from the children's logs."""

from __future__ import annotations

import pytest

from launcher.prove.ears import Ears, lane

# As UCX writes it, with the time and process that a log line begins with.
P = "[1796117526.401483] [node:4242:0]   "
TABLE = """
+------------------------+------------------------------------------------------------------------------+
| ucp_context_0 intra-node cfg#3 | remote memory read by ucp_get*(multi) into cuda/GPU0 from cuda/dev[0]  |
+------------------------+-----------------------+------------------------------------------------------+
|                 0..inf | {how:<21} | {by:<52} |
+------------------------+-----------------------+------------------------------------------------------+
"""
ACTIVE_MESSAGE = """
+------------------------+------------------------------------------------------------------------------+
| ucp_context_0 intra-node cfg#3 | active message by ucp_am_send*(egr) from host memory                   |
+------------------------+-----------------------+------------------------------------------------------+
|                0..8184 | short                 | tcp/lo                                               |
|                 8185.. | copy-in               | tcp/lo                                               |
+------------------------+-----------------------+------------------------------------------------------+
"""


def heard(*texts: str, batch: int = 1000) -> Ears:
    ears = Ears()
    lines = [P + line for text in texts for line in text.strip("\n").split("\n")]
    for start in range(0, len(lines), batch):
        ears.hear("decode-0", lines[start : start + batch])
    return ears


@pytest.mark.parametrize("batch", [1, 2, 1000])
@pytest.mark.parametrize(
    ("how", "by", "kind"),
    [
        ("zero-copy", "cuda_ipc/cuda", "cuda_ipc"),
        ("software emulation", "tcp/lo", "tcp"),
        ("zero-copy", "50% on rc_mlx5/mlx5_0:1 and 50% on rc_mlx5/mlx5_1:1", "rdma"),
        ("zero-copy", "cma/memory", "shm"),
    ],
)
def test_the_lane_of_a_table(how: str, by: str, kind: str, batch: int) -> None:
    # However the log is cut into batches, and whatever host messages go by.
    ears = heard(ACTIVE_MESSAGE, TABLE.format(how=how, by=by), ACTIVE_MESSAGE, batch=batch)
    assert ears.lanes("decode-0") == (kind,)
    assert ears.lanes("decode-1") == ()


def test_a_table_on_one_line() -> None:
    line = "ucp_get*(multi) into cuda/GPU0 from cuda/dev[0] | 0..inf | zero-copy | cuda_ipc/cuda"
    assert heard("remote memory read by " + line).lanes("decode-0") == ("cuda_ipc",)


def test_the_row_of_large_messages_counts() -> None:
    rows = """
+---------------------------------+--------------------------------------------------------------------+
| ucp_context_0 inter-node cfg#6  | remote memory read by ucp_get*(multi) into cuda/GPU1 from cuda/dev[0] |
+---------------------------------+--------------------+-----------------------------------------------+
|                               0 | copy-out           | tcp/eth0                                      |
|                           1..64 | software emulation | tcp/eth0                                      |
|                          65..2K | short              | tcp/eth0                                      |
|                       2049..inf | zero-copy          | rc_mlx5/ibp1:1 50% on path0 and 50% on path1  |
+---------------------------------+--------------------+-----------------------------------------------+
"""
    assert heard(rows).lanes("decode-0") == ("rdma",)


def test_host_memory_counts_only_where_no_gpu_memory_moves() -> None:
    host = """
| ucp_context_0 intra-node cfg#1 | remote memory read by ucp_get*(multi) into host memory from host memory |
|                         0..inf | zero-copy | cma/memory |
"""
    assert heard(host).lanes("decode-0") == ("shm",)
    assert heard(host, TABLE.format(how="zero-copy", by="cuda_ipc/cuda")).lanes("decode-0") == ("cuda_ipc",)


def test_the_lines_of_two_ranks_come_mixed() -> None:
    ears = Ears()
    ears.hear(
        "decode-0",
        [
            "[1.0] [node:100:0] | cfg#2 | remote memory read by ucp_get* into cuda/GPU0 from cuda/dev[0] |",
            "[1.0] [node:101:0] | cfg#2 | active message by ucp_am_send*(egr) from host memory |",
            "[1.0] [node:100:0] | 0..inf | zero-copy | cuda_ipc/cuda |",
            "[1.0] [node:101:0] | 0..inf | copy-in | tcp/lo |",
        ],
    )
    assert ears.lanes("decode-0") == ("cuda_ipc",)


def test_two_lanes_are_both_kept() -> None:
    ears = heard(
        TABLE.format(how="zero-copy", by="cuda_ipc/cuda"),
        TABLE.format(how="software emulation", by="tcp/eth0"),
    )
    assert ears.lanes("decode-0") == ("cuda_ipc", "tcp")


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("INFO 12-01 [kv_cache_utils.py:1711] GPU KV cache size: 2,657,749 tokens", 2657749),
        ("[TRT-LLM] [I] Allocated 57.10 GiB for max tokens in paged KV cache (1662976).", 1662976),
    ],
)
def test_room_for_kv(line: str, tokens: int) -> None:
    ears = Ears()
    ears.hear("prefill-0", ["something else", line])
    assert ears.kv_tokens == {"prefill-0": tokens}
    ears.forget("prefill-0")
    assert ears.kv_tokens == {}


@pytest.mark.parametrize(
    ("transport", "kind"),
    [
        ("cuda_ipc", "cuda_ipc"),
        ("rc_verbs", "rdma"),
        ("dc_mlx5", "rdma"),
        ("tcp", "tcp"),
        ("new_thing", "new_thing"),
    ],
)
def test_kinds_of_lanes(transport: str, kind: str) -> None:
    assert lane(transport) == kind


def test_what_nixl_tries_on_itself_is_no_lane_of_kv() -> None:
    # As an H200 with vLLM 0.23.0 and NIXL 1.1.0 printed it, less blanks: the second table is the KV, the first a
    # write from host memory to the worker's own GPU at registration.
    lines = [
        "[1.0] [vm:2315 :0] | cfg#1 | remote memory write by ucp_put* from host memory to cuda/dev[0] |",
        "[1.0] [vm:2315 :0] +--------+--------------------+--------+",
        "[1.0] [vm:2315 :0] | 0..inf | software emulation | tcp/lo |",
        "[1.0] [vm:2315 :0] +--------+--------------------+--------+",
        "[2.0] [vm:2315 :0] | cfg#2 | remote memory read by ucp_get*(multi) into cuda/GPU0 from cuda/dev[0] |",
        "[2.0] [vm:2315 :0] +--------+-----------+---------------+",
        "[2.0] [vm:2315 :0] | 0..inf | zero-copy | cuda_ipc/cuda |",
    ]
    ears = Ears()
    ears.hear("decode-0", lines)
    assert ears.lanes("decode-0") == ("cuda_ipc",)
