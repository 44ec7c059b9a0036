"""Questions to a machine that need an argument, behind one small interface so that checks stay testable."""

from __future__ import annotations

from typing import Protocol

from launcher.machine import sockets


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
