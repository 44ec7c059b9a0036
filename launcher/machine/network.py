"""Interfaces and the ports that the kernel hands out, from /proc and two socket ioctls."""

from __future__ import annotations

import fcntl
import socket
import struct
from pathlib import Path

from launcher.machine.model import Interface

_SIOCGIFFLAGS, _SIOCGIFADDR = 0x8913, 0x8915
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8
_DEFAULT_RANGE = (32768, 60999)
"""Linux's own default of ip_local_port_range."""


def interfaces() -> tuple[Interface, ...]:
    """Every network interface of this namespace with its first IPv4 address."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                flags = struct.unpack_from("H", fcntl.ioctl(sock, _SIOCGIFFLAGS, request), 16)[0]
            except OSError:  # gone since it was listed
                continue
            try:
                address = socket.inet_ntoa(fcntl.ioctl(sock, _SIOCGIFADDR, request)[20:24])
            except OSError:  # it has none
                address = ""
            found.append(Interface(name, address, bool(flags & _IFF_LOOPBACK), bool(flags & _IFF_UP)))
    return tuple(found)


def ephemeral_range(root: Path = Path("/")) -> tuple[int, int]:
    """First and last port of outgoing connections; Linux's default where /proc does not say."""
    words = _text(root, "ip_local_port_range").split()
    if len(words) == 2 and all(word.isdecimal() for word in words):
        return int(words[0]), int(words[1])
    return _DEFAULT_RANGE


def reserved_ports(root: Path = Path("/")) -> frozenset[int]:
    """Ports that the kernel does not hand out although they are in the range."""
    found: set[int] = set()
    for part in _text(root, "ip_local_reserved_ports").strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found.update(range(int(first), int(last if last.isdecimal() else first) + 1))
    return frozenset(found)


def unprivileged_port_start(root: Path = Path("/")) -> int:
    """The first port that needs no CAP_NET_BIND_SERVICE."""
    word = _text(root, "ip_unprivileged_port_start").strip()
    return int(word) if word.isdecimal() else 1024


def _text(root: Path, name: str) -> str:
    try:
        return (root / "proc/sys/net/ipv4" / name).read_text()
    except OSError:
        return ""
