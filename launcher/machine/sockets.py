"""Who listens on a TCP port, and whether this process could: from /proc and from a real bind."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_LISTEN = "0A"
_SOCKET = "socket:["


class Holder(NamedTuple):
    """A process that listens on a port."""

    pid: int | None
    """None where /proc does not show whose it is: another user's process, or another container's."""
    name: str
    """Its command line, shortened; empty where unknown."""
    address: str
    """What it is bound to: `127.0.0.1`, `0.0.0.0`, `::`."""
    launcher: int | None = None
    """Process of the launcher that it is, or is a child of."""
    target: str = ""
    """What that launcher serves; empty where it cannot be told."""

    def __str__(self) -> str:
        if self.launcher is not None:
            target = f"target {self.target}, " if self.target else ""
            return f"another launcher ({target}pid {self.launcher}) on {self.address}"
        if self.pid is None:
            return f"a process that this user cannot see, on {self.address}"
        return f"pid {self.pid} ({self.name or 'unknown'}) on {self.address}"


class _Listening(NamedTuple):
    address: str
    port: int
    inode: str


def listener(port: int, host: str | None = None, *, proc: Path = PROC) -> Holder | None:
    """Who listens on `port` in this network namespace, or None.

    With `host`, only a listener that would stop another one on that address counts: the same address, or
    either of the two being a wildcard.
    """
    wanted = _numeric(host) if host else None
    for sock in _listening(proc / "net"):
        if sock.port == port and (wanted is None or _clash(wanted, sock.address)):
            pid = _owner(sock.inode, proc)
            if pid is None:
                return Holder(None, "", sock.address)
            return Holder(pid, command(pid, proc=proc), sock.address, *_launcher(pid, proc))
    return None


def _launcher(pid: int, proc: Path) -> tuple[int | None, str]:
    """The launcher that a process is or descends from, and its target."""
    child = any(word.startswith("LAUNCHER_PROCESS=") for word in _words(proc / str(pid) / "environ"))
    here = pid
    while here > 1:
        words = _words(proc / str(here) / "cmdline")
        if words[1:3] == ["-m", "launcher"] or "launcher" in (os.path.basename(word) for word in words[:2]):
            return here, _target(words, _words(proc / str(here) / "environ"))
        try:
            # After the name, which may hold spaces and brackets: state, then the parent.
            here = int((proc / str(here) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return (pid if child else None), ""


def _target(words: Sequence[str], environ: Sequence[str]) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--target":
            return following
        if word.startswith("--target="):
            return word.partition("=")[2]
    return next((word.partition("=")[2] for word in environ if word.startswith("LAUNCHER_TARGET=")), "")


def _words(path: Path) -> list[str]:
    try:
        return [os.fsdecode(word) for word in path.read_bytes().split(b"\0") if word]
    except OSError:
        return []


def can_bind(host: str, port: int) -> OSError | None:
    """None where a TCP listener could be opened on `host`:`port` now, else the error that a server would get.

    SO_REUSEADDR is set, as every server of the deployment sets it: connections that linger in TIME_WAIT
    do not stop a bind, a listener does. A port that is no port number gives an OSError too.
    """
    if not 0 <= port <= 65535:  # getaddrinfo would take it modulo 65536
        return OSError(f"{port} is no port number")
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind(address)
                # Two sockets with SO_REUSEADDR may both bind as long as neither listens.
                sock.listen(1)
    except OSError as error:
        return error
    except (UnicodeError, ValueError) as error:
        return OSError(str(error))
    return None


def listening(pids: Iterable[int], *, proc: Path = PROC) -> list[tuple[int, str, int]]:
    """Every listening TCP socket of the processes `pids` as (pid, address, port), sorted.

    Processes that are gone or belong to another user are passed over. Each is looked up in its own
    network namespace. A socket that several processes inherited is listed for each.
    """
    found: set[tuple[int, str, int]] = set()
    tables: dict[str, list[_Listening]] = {}
    for pid in pids:
        home = proc / str(pid)
        inodes = set(_sockets_of(home))
        if not inodes:
            continue
        try:
            namespace = os.readlink(home / "ns/net")
        except OSError:
            namespace = str(pid)
        if namespace not in tables:
            tables[namespace] = list(_listening(home / "net"))
        found.update((pid, sock.address, sock.port) for sock in tables[namespace] if sock.inode in inodes)
    return sorted(found)


def command(pid: int, *, proc: Path = PROC, width: int = 60) -> str:
    """A process's command line in at most `width` characters, or its name; empty if it is gone."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
        line = " ".join(word.decode(errors="replace") for word in words if word)
        line = line or (proc / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""
    return line if len(line) <= width else line[: width - 3] + "..."


def _listening(net: Path) -> Iterator[_Listening]:
    """Listening TCP sockets in a /proc/.../net folder, IPv4 before IPv6."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (net / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN:
                address, _, port = fields[1].partition(":")
                yield _Listening(_address(address), int(port, 16), fields[9])


def _address(text: str) -> str:
    """An address as /proc/net/tcp prints it: 32-bit words in hexadecimal, each in the CPU's byte order."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _numeric(host: str) -> str:
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        try:
            return socket.gethostbyname(host)
        except (OSError, UnicodeError):
            return host


def _clash(a: str, b: str) -> bool:
    wildcards = ("0.0.0.0", "::")
    return a == b or a in wildcards or b in wildcards


def _owner(inode: str, proc: Path) -> int | None:
    for entry in proc.iterdir():
        if entry.name.isdecimal() and inode in _sockets_of(entry):
            return int(entry.name)
    return None


def _sockets_of(home: Path) -> Iterator[str]:
    """Inodes of the sockets that a process has open."""
    try:
        descriptors = os.listdir(home / "fd")
    except OSError:
        return
    for descriptor in descriptors:
        try:
            link = os.readlink(home / "fd" / descriptor)
        except OSError:
            continue
        if link.startswith(_SOCKET):
            yield link[len(_SOCKET) : -1]


def reachable(host: str) -> str:
    """An address at which a client here reaches a server that listens on `host`."""
    if host in ("0.0.0.0", ""):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host
