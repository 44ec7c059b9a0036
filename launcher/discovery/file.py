"""The keeper of Dynamo's file discovery: a folder in which every process has its entries.

Dynamo expires an entry that nobody touched for 10 s; its owner touches it every 3.3 s, unless a race at registration
made it forget the file (1.3.1: 11 of 48 starts lost one), or it was starved or stopped for too long, and then nothing
brings the entry back. And a dead process's entries stay in routing until they expire. The launcher owns the folder,
so it does three things: it keeps the entries of living processes fresh, writes back those that expired although
their process lives, and removes a dead process's entries the moment it dies.

Layout (1.3.1, 1.4.2, 1.6.1): `v1/BUCKET/KEY`, buckets `instances`, `mdc` (models), `event_channels`, `event_sources`;
each file a JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.discovery.cards import Card, cards
from launcher.discovery.nodes import Remote
from launcher.supervise.events import ProcessState
from launcher.supervise.logs import Log

TTL_S = 10.0
"""Age in seconds at which Dynamo expires an entry."""
TOUCH_S = 1.0
"""How often the keeper looks; well inside the time to live, and 60 entries cost about a millisecond."""
REMOVED_S = 3.0
"""How long an entry that was removed while it was fresh stays away. Its owner removes it when it ends by itself (a
SIGTERM from elsewhere), and its health page goes with it; somebody else's mistake is mended after this time."""


@dataclass(slots=True)
class Entry:
    """One file of the folder."""

    path: Path
    text: bytes
    owner: str | None
    """The process that it belongs to; None until that is known."""
    instance: int | None
    port: int | None
    touched: float
    """Monotonic seconds of when it was last made fresh."""
    removed: float | None = None
    """Monotonic seconds of when it was found removed although it was fresh."""


class FileDiscovery:
    """Keeps one folder. Not thread-safe; every method is quick and blocking."""

    def __init__(
        self,
        root: Path,
        listeners: Callable[[], Mapping[int, str]],
        log: Log,
        well: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """`listeners` says which process listens on which TCP port now; it is asked only about unknown ports. `well`
        says of a process whether its health page answers."""
        self._folder, self._root = root, root / "v1"
        self._listeners = listeners
        self._log = log
        self._well = well
        self._entries: dict[Path, Entry] = {}
        self._ports: dict[int, str] = {}
        self._instances: dict[int, str] = {}
        self._living: set[str] = set()
        self._leaving: set[str] = set()
        self._aside: set[str] = set()
        self.blinded: Callable[[str, bool], None] = lambda why, whole: None
        """Called where the folder had to be made anew: who followed the old one hears of nothing any more. `whole`: the
        run's folder too, with the sockets that were in it."""
        self._trouble = ""
        """Why no entry could be written, the last time it was tried."""
        self.restored = 0
        """Entries written back since the start."""
        self.withdrawn = 0
        """Entries of dead processes removed since the start."""

    def joined(self, name: str, ports: Iterable[int]) -> None:
        """A process has started and listens on these ports for requests."""
        self._living.add(name)
        self._leaving.discard(name)
        self._aside.discard(name)
        for port in ports:
            self._ports[port] = name

    def leaving(self, name: str) -> None:
        """A process was told to stop: what it removes now stays removed."""
        self._leaving.add(name)

    def withdraw(self, name: str) -> None:
        """A process is dead: remove its entries now."""
        began = time.monotonic()
        count = self._withdraw(name)
        if count:
            spent = (time.monotonic() - began) * 1000
            self._log(f"withdrew {count} registrations of {name} in {spent:.1f} ms")

    def _withdraw(self, name: str) -> int:
        self._living.discard(name)
        self._leaving.discard(name)
        self._aside.discard(name)
        self._scan(resolve=False)
        gone = 0
        for path in [path for path, entry in self._entries.items() if entry.owner == name]:
            del self._entries[path]
            gone += _remove(path)
        self.withdrawn += gone
        self._ports = {port: owner for port, owner in self._ports.items() if owner != name}
        self._instances = {number: owner for number, owner in self._instances.items() if owner != name}
        return gone

    def stand_aside(self, name: str) -> bool:
        """A process stands still: remove its entries, but remember them for `stand_back`."""
        self._scan(resolve=False)
        self._aside.add(name)
        gone = sum(_remove(entry.path) for entry in self._entries.values() if entry.owner == name)
        if gone:
            self._log(f"withdrew {gone} registrations of {name} until it goes on")
        return True

    def stand_back(self, name: str) -> None:
        """A process goes on: write its entries again."""
        if name in self._aside:
            self._aside.discard(name)
            self._log(f"brought back {self.restore(name)} registrations of {name}")

    async def run(self) -> None:
        """Keep until cancelled."""
        while True:
            self.keep()
            await asyncio.sleep(TOUCH_S)

    async def reachable(self) -> None:
        """A folder is always there."""

    def cards(self) -> dict[int, Card]:
        """What each registered worker told the router, by its id there."""
        return cards(self._folder)

    def remote(self) -> Mapping[tuple[str, int], Remote]:
        """The workers of other nodes: there are none."""
        return {}

    def unregistered(self, states: Sequence[ProcessState]) -> list[str]:
        """Nobody: the frontend is on this machine, and says itself whom it sees."""
        return []

    def page(self) -> dict[str, Any]:
        """What `/status` shows of it."""
        return {"backend": "file", "restored": self.restored, "withdrawn": self.withdrawn}

    def keep(self) -> None:
        """One round: touch what belongs to the living, write back what they lost, leave the rest to expire."""
        self._make_anew()
        present = self._scan(resolve=True)
        now = time.time()
        for path, entry in list(self._entries.items()):
            alive = entry.owner is None or entry.owner in self._living
            if path in present:
                entry.removed = None
                if alive and entry.owner not in self._leaving:
                    _touch(path, now)
                    entry.touched = time.monotonic()
            elif entry.owner in self._aside:
                continue
            elif entry.owner in self._living and entry.owner not in self._leaving:
                if not self._meant(entry):
                    self._restore(entry)
            else:
                del self._entries[path]

    def _make_anew(self) -> None:
        """Where somebody removed the folder, as cleaners of /tmp do: the entries of the living, written again."""
        gone = {
            bucket
            for bucket in {entry.path.parent for entry in self._entries.values()}
            if not bucket.is_dir()
        }
        if not gone:
            return
        run = self._folder.parent
        whole = not run.is_dir()
        if whole:
            run.mkdir(mode=0o700, parents=True)
            gone = {run}
        elif not self._root.is_dir():
            gone = {self._folder if not self._folder.is_dir() else self._root}
        written = [self._write(entry) for entry in self._entries.values() if entry.owner in self._living]
        if not any(written):
            return
        why = f"{', '.join(map(str, sorted(gone)))} was removed while it was in use"
        self._log(f"{why}: made it anew with {sum(written)} registrations", "error")
        self.blinded(why, whole)

    def _meant(self, entry: Entry) -> bool:
        """Whether a missing entry may have been removed on purpose, rather than have expired."""
        now = time.monotonic()
        if entry.removed is None and now - entry.touched < TTL_S / 2:
            entry.removed = now
        if entry.removed is None:
            return False
        return now - entry.removed < REMOVED_S or not self._well(entry.owner or "")

    def restore(self, name: str) -> int:
        """Write the process's entries anew, as if it registered now. Returns how many."""
        mine = [entry for entry in self._entries.values() if entry.owner == name]
        return sum(self._write(entry) for entry in mine)

    def owners(self) -> dict[int, str]:
        """The processes by the ids that they registered with."""
        return dict(self._instances)

    def instances(self, name: str) -> int:
        """How many `generate` endpoints the process has registered."""
        return sum(
            1
            for entry in self._entries.values()
            if entry.owner == name and entry.path.parent.name == "instances" and "generate" in entry.path.name
        )

    def _scan(self, *, resolve: bool) -> set[Path]:
        present: set[Path] = set()
        unknown: list[Entry] = []
        for bucket in _listing(self._root):
            for path in _listing(bucket):
                present.add(path)
                entry = self._entries.get(path)
                if entry is None:
                    entry = self._read(path)
                    if entry is None:
                        continue
                    self._entries[path] = entry
                if entry.owner is None:
                    unknown.append(entry)
        # Instances first: the other buckets name an instance.
        for entry in sorted(unknown, key=lambda entry: entry.path.parent.name != "instances"):
            self._own(entry)
        if resolve and any(entry.owner is None for entry in unknown):
            self._ports.update(self._listeners())
            for entry in unknown:
                self._own(entry)
        return present

    def _own(self, entry: Entry) -> None:
        if entry.owner is None and entry.instance is not None:
            entry.owner = self._instances.get(entry.instance)
        if entry.owner is None and entry.port is not None:
            entry.owner = self._ports.get(entry.port)
        if entry.owner is not None and entry.instance is not None:
            self._instances.setdefault(entry.instance, entry.owner)

    def _read(self, path: Path) -> Entry | None:
        try:
            text = path.read_bytes()
            body = json.loads(text)
        except (OSError, ValueError):
            return None  # Being written, or just removed: the next round sees it.
        return Entry(path, text, None, _instance(body), _port(body), time.monotonic())

    def _restore(self, entry: Entry) -> None:
        if self._write(entry):
            what = "had expired" if entry.removed is None else "somebody had removed"
            entry.removed = None
            self._log(
                f"restored a registration of {entry.owner} that {what}: "
                f"{entry.path.parent.name}/{entry.path.name}"
            )

    def _write(self, entry: Entry) -> bool:
        # Beside it first: a reader must never see half an entry.
        temporary = self._folder / f".{os.getpid()}.restore"
        try:
            # Also where somebody has removed the folder, as cleaners of /tmp do.
            entry.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(entry.text)
            # Gone first, so that a watcher sees it come; and not before it can be written again.
            _remove(entry.path)
            temporary.rename(entry.path)
        except OSError as error:
            _remove(temporary)
            if self._trouble != (trouble := error.strerror or str(error)):
                self._log(f"cannot write registrations into {self._folder}: {trouble}", "error")
            self._trouble = trouble
            return False
        if self._trouble:
            self._log(f"registrations can be written into {self._folder} again")
        self._trouble = ""
        self.restored += 1
        return True


def _listing(folder: Path) -> list[Path]:
    try:
        return [Path(item.path) for item in os.scandir(folder) if not item.name.startswith(".")]
    except OSError:
        return []


def _touch(path: Path, now: float) -> None:
    try:
        os.utime(path, (now, now))
    except OSError:
        return  # Removed by its owner since the scan.


def _remove(path: Path) -> int:
    try:
        path.unlink()
    except OSError:
        return 0
    return 1


def _instance(body: Any) -> int | None:
    """The instance that an entry belongs to. An event channel's own number is of its publisher, not of an instance."""
    if not isinstance(body, dict):
        return None
    if body.get("type") == "EventChannel":
        return None
    found = body.get("instance_id")
    if found is None:
        metadata = body.get("metadata")
        worker = metadata.get("worker") if isinstance(metadata, dict) else None
        found = worker.get("worker_id") if isinstance(worker, dict) else None
    return found if isinstance(found, int) else None


def _port(body: Any) -> int | None:
    """The TCP port in an entry's transport: `127.0.0.1:24002/...` or `tcp://127.0.0.1:42047`."""
    transport = body.get("transport") if isinstance(body, dict) else None
    if not isinstance(transport, dict):
        return None
    config = transport.get("config")
    address = transport.get("tcp") or (config.get("endpoint") if isinstance(config, dict) else None)
    if not isinstance(address, str):
        return None
    digits = address.removeprefix("tcp://").partition("/")[0].rpartition(":")[2]
    return int(digits) if digits.isdecimal() else None
