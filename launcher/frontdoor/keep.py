"""Takes a duplicate of another process's listening socket."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path

SYS_PIDFD_GETFD = 438
"""The same on every architecture that came to Linux 5.6 or later with the common table (x86-64, arm64)."""
LISTEN = "0A"


def listening_socket(pid: int, port: int) -> socket.socket:
    """A duplicate of the socket with which the process listens on a TCP port. OSError where that cannot be had.

    Needs Linux 5.6 and the right to trace the process, which its parent has unless a seccomp profile forbids it.
    """
    inodes = _inodes(pid, port)
    folder = Path(f"/proc/{pid}/fd")
    for name in os.listdir(folder):
        try:
            target = os.readlink(folder / name)
        except OSError:
            continue  # closed meanwhile
        if target in inodes:
            return _duplicate(pid, int(name))
    raise FileNotFoundError(f"pid {pid} does not listen on port {port}")


def _inodes(pid: int, port: int) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue  # a kernel without IPv6
        for line in lines:
            fields = line.split()
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _duplicate(pid: int, fd: int) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        ours = libc.syscall(SYS_PIDFD_GETFD, pidfd, fd, 0)
        if ours < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(pidfd)
    sock = socket.socket(fileno=ours)
    # The flag belongs to the file, so to the frontend too; its server and ours both want it so.
    sock.setblocking(False)
    return sock
