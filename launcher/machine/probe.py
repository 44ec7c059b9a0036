"""Questions to a machine that need an argument, behind one small interface so that checks stay testable."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from launcher.machine import sockets

T = TypeVar("T")


class Probe(Protocol):
    """Asks the machine at the moment of the call; None means that it cannot be told."""

    def disk_free(self, path: str) -> int | None:
        """Bytes that this user may still write where `path` is, or would be made."""

    def file_system(self, path: str) -> str | None:
        """The kind of file system there: `ext4`, `overlay`, `nfs4`, ..."""

    def writable(self, path: str) -> bool | None:
        """Whether this user may write there, or make it."""

    def port_error(self, host: str, port: int) -> str | None:
        """Why a TCP listener could not be opened on that address now; None where it could."""

    def port_holder(self, host: str, port: int) -> sockets.Holder | None:
        """Who listens there."""

    def now(self) -> float | None:
        """Seconds since the epoch, by this machine's clock."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The probe of a machine that is not here: it knows nothing and has nothing against anything."""

    def disk_free(self, path: str) -> int | None:
        return None

    def file_system(self, path: str) -> str | None:
        return None

    def writable(self, path: str) -> bool | None:
        return None

    def port_error(self, host: str, port: int) -> str | None:
        return None

    def port_holder(self, host: str, port: int) -> sockets.Holder | None:
        return None

    def now(self) -> float | None:
        return None


@dataclass(frozen=True, slots=True)
class Scripted:
    """A probe with given answers, for tests. Paths answer for everything below them."""

    disks: Mapping[str, int] = field(default_factory=dict)
    file_systems: Mapping[str, str] = field(default_factory=dict)
    read_only: tuple[str, ...] = ()
    ports: Mapping[int, sockets.Holder | str] = field(default_factory=dict)
    """Port to who holds it, or to the error of a bind."""
    clock: float = field(default_factory=time.time)

    def disk_free(self, path: str) -> int | None:
        return _below(self.disks, path)

    def file_system(self, path: str) -> str | None:
        return _below(self.file_systems, path)

    def writable(self, path: str) -> bool | None:
        return _below(dict.fromkeys(self.read_only, False), path) is None

    def port_error(self, host: str, port: int) -> str | None:
        answer = self.ports.get(port)
        if answer is None:
            return None
        return answer if isinstance(answer, str) else "Address already in use"

    def port_holder(self, host: str, port: int) -> sockets.Holder | None:
        answer = self.ports.get(port)
        return answer if isinstance(answer, sockets.Holder) else None

    def now(self) -> float | None:
        return self.clock


def _below(answers: Mapping[str, T], path: str) -> T | None:
    """The answer of the longest folder that `path` is in."""
    inside = [folder for folder in answers if path == folder or path.startswith(folder.rstrip("/") + "/")]
    return answers[max(inside, key=len)] if inside else None
