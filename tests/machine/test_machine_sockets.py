"""Who holds a port, on real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.machine.local import Local
from launcher.machine.sockets import Holder, can_bind, listener, listening


@contextmanager
def open_listener(host: str, family: int = socket.AF_INET) -> Iterator[int]:
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        sock.listen()
        yield sock.getsockname()[1]


def test_names_who_listens() -> None:
    with open_listener("127.0.0.1") as port:
        holder = listener(port)
        assert holder is not None
        assert (holder.pid, holder.address) == (os.getpid(), "127.0.0.1")
        assert holder.name
        assert f"pid {os.getpid()} (" in str(holder)
    assert listener(port) is None


def test_only_a_listener_in_the_way_counts() -> None:
    with open_listener("127.0.0.1") as port:
        assert listener(port, "127.0.0.1") is not None
        assert listener(port, "localhost") is not None
        assert listener(port, "0.0.0.0") is not None
        assert listener(port, "127.0.0.2") is None
    with open_listener("0.0.0.0") as port:
        assert listener(port, "127.0.0.2") is not None


def test_ipv6() -> None:
    try:
        with open_listener("::1", socket.AF_INET6) as port:
            holder = listener(port)
            assert holder is not None
            assert (holder.pid, holder.address) == (os.getpid(), "::1")
            assert can_bind("::1", port) is not None
    except OSError:
        pytest.skip("no IPv6 here")


def test_can_bind() -> None:
    with open_listener("127.0.0.1") as port:
        error = can_bind("127.0.0.1", port)
        assert error is not None
        assert "in use" in str(error)
        assert can_bind("0.0.0.0", port) is not None
        assert can_bind("127.0.0.2", port) is None
        assert "in use" in (Local().port_error("127.0.0.1", port) or "")
        assert Local().port_holder("127.0.0.1", port) == listener(port)
    assert can_bind("127.0.0.1", port) is None
    assert Local().port_error("127.0.0.1", port) is None


def test_a_connection_in_time_wait_does_not_stop_a_bind() -> None:
    with open_listener("127.0.0.1") as port, socket.create_connection(("127.0.0.1", port)):
        pass
    assert can_bind("127.0.0.1", port) is None


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", 99999),
        ("127.0.0.1", -1),
        ("203.0.113.7", 20000),
        ("no such host", 20000),
        ("a" * 300, 1),
        ("\0", 1),
    ],
)
def test_bad_addresses_are_errors_not_exceptions(host: str, port: int) -> None:
    assert isinstance(can_bind(host, port), OSError)


def test_lists_the_listeners_of_processes() -> None:
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        with open_listener("0.0.0.0") as own:
            found = listening([child.pid, os.getpid(), 1 << 30])
            assert (child.pid, "127.0.0.1", port) in found
            assert (os.getpid(), "0.0.0.0", own) in found
            assert found == sorted(found)
        holder = listener(port)
        assert holder is not None
        assert holder.pid == child.pid
        child.communicate()
    assert listening([child.pid]) == []


def test_a_holder_that_cannot_be_seen(make_root: Any) -> None:
    """The socket is in the table, yet no readable /proc/PID/fd has it: another user's or container's."""
    header = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    )
    four = "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 4242 1\n"
    six = "   0: 00000000000000000000000000000000:1F41 0:0 0A 0:0 00:0 0  1000 0 4243 1\n"
    mapped = "   1: 0000000000000000FFFF00000100007F:1F42 0:0 0A 0:0 00:0 0  1000 0 4244 1\n"
    established = (
        "   1: 0100007F:1F43 00000000:0000 01 00000000:00000000 00:00000000 00000000  1000 0 4245 1\n"
    )
    root = make_root(
        {"proc/net/tcp": header + four + established, "proc/net/tcp6": header + six + mapped + "torn\n"}
    )
    proc = root / "proc"
    if sys.byteorder == "little":
        assert listener(8000, proc=proc) == Holder(None, "", "127.0.0.1")
        assert listener(8002, proc=proc) == Holder(None, "", "127.0.0.1")
    assert "cannot see" in str(listener(8000, proc=proc))
    assert listener(8001, "10.1.1.1", proc=proc) == Holder(None, "", "::")
    assert listener(8003, proc=proc) is None
    assert listener(8000, proc=Path("/nonexistent")) is None


@pytest.mark.parametrize(
    ("argv", "environ"),
    [
        ("python\0-m\0launcher\0--target\0sim\0", ""),
        ("/opt/bin/python\0/opt/bin/launcher\0serve\0--target=sim\0", ""),
        ("/opt/bin/launcher\0serve\0", "LAUNCHER_TARGET=sim\0"),
    ],
)
def test_a_child_of_a_launcher(tmp_path: Path, argv: str, environ: str) -> None:
    inode = 4711
    files = {
        "net/tcp": f"head\n 0: 00000000:1F40 00000000:0000 0A 0:0 0:0 0 0 0 {inode} 1\n",
        "30/cmdline": "python\0-m\0dynamo.frontend\0",
        "30/environ": "LAUNCHER_PROCESS=ab/frontend/0\0",
        "30/stat": "30 (a (b) c) S 20 30 30",
        "20/cmdline": argv,
        "20/environ": environ,
        "20/stat": "20 (python) S 1 20 20",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "30/fd").mkdir()
    (tmp_path / "30/fd/3").symlink_to(f"socket:[{inode}]")
    found = listener(8000, proc=tmp_path)
    assert found is not None
    assert (found.pid, found.launcher, found.target) == (30, 20, "sim")
    assert str(found) == "another launcher (target sim, pid 20) on 0.0.0.0"
    (tmp_path / "20/cmdline").write_text("bash\0")
    found = listener(8000, proc=tmp_path)
    assert found is not None
    assert str(found) == "another launcher (pid 30) on 0.0.0.0"
