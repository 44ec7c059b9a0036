"""Opens a case at the first sign of a failure, follows it to its outcome, and writes it each time more is known."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from launcher import __version__
from launcher.machine.gpus import Inventory, inventory
from launcher.machine.packages import versions
from launcher.observe.history import History
from launcher.observe.incident import oom
from launcher.observe.incident.case import LINES, Case, Record
from launcher.observe.incident.store import KEEP, Store, summary, tell_kubelet
from launcher.observe.incident.text import headline
from launcher.observe.secrets import Masker
from launcher.plan.model import Plan
from launcher.supervise.events import Event, Kind, ProcessState

CASCADE_S = 30.0
"""A failure this soon after another process's is taken for its consequence."""
NOT_YET = ", not ready yet"
LONGEST = 200
"""Characters of an error in the last line of a run."""
_GOES_ON = (Kind.EXITED, Kind.REAPED, Kind.SURVIVORS, Kind.RESTARTING, Kind.FAILED, Kind.HEALTHY)


class Incidents:
    """Give every event to `see`, after it went to the history. Use it in the event loop's thread."""

    def __init__(
        self,
        plan: Plan,
        history: History,
        store: Store,
        masker: Masker,
        *,
        snapshot: Callable[[], Sequence[ProcessState]],
        records: Callable[[str, int], Sequence[Record]],
        failure: Callable[[], str | None],
        log: Callable[[str, str], None],
        look_at_gpus: Callable[[], Inventory] = inventory,
    ) -> None:
        """`failure`: why the deployment as a whole failed, if it did. `records`: last lines of a process."""
        self.count = 0
        self._plan, self._history, self._store, self._masker = plan, history, store, masker
        self._snapshot, self._records, self._failure, self._log = snapshot, records, failure, log
        self._look_at_gpus = look_at_gpus
        self._open: dict[str, Case] = {}
        self._newest: Case | None = None
        self._ended_by: Case | None = None
        self._oom = oom.kills()
        self._known: dict[str, dict[str, Any]] = {}
        store.tidy()
        self.earlier = sum(each.get("target") == plan.target for each in store.summaries())
        """Incidents of the same target that earlier runs left in the folder."""
        self._waiting: dict[str, tuple[Case, dict[str, Any]]] = {}
        self._writer: asyncio.Task[None] | None = None
        self._told: set[str] = set()
        self._refused = ""
        """Why the last incident could not be written."""

    def newest(self, count: int) -> list[dict[str, Any]]:
        """What /status lists: this run's, the newest first."""
        return [self._known[id] for id in sorted(self._known, reverse=True)[:count]]

    @property
    def ended_by(self) -> str:
        """The file of what ended the run, once `close` has returned; empty where nothing did."""
        found = self._known.get(self._ended_by.id) if self._ended_by is not None else None
        return str(found["path"]) if found else ""

    @property
    def first_error(self) -> str:
        """The first error line of what ended the run, and whose; empty where no log has one."""
        if self._ended_by is None:
            return ""
        cause = self._document(self._ended_by)["first_cause"]
        if "line" not in cause:
            return ""
        return self._masker.text(f"first error of {cause['process']}: {cause['line'][:LONGEST]}")

    def see(self, event: Event) -> None:
        """Open, follow or close a case."""
        case = self._open.get(event.process)
        if event.kind is Kind.DRAINING and not event.process:
            if (reason := self._failure()) is not None:
                self._ended_by = self._begin("run", event, reason=reason)
            return
        if (
            case is not None
            and event.kind in (Kind.HUNG, Kind.EXITED)
            and event.incarnation > case.opened.incarnation
        ):
            case.outcome = "restarted, and failed again before it was ready"
            self._save(case)
            case = None
        if event.kind is Kind.HUNG:
            self._begin("hang", event)
        elif event.kind is Kind.EXITED and case is None and event in self._history.faults:
            self._begin("death", event)
        elif case is not None and event.kind in _GOES_ON:
            self._follow(case, event)

    async def close(self) -> None:
        """Write what waits; after a failed run, tell the kubelet why."""
        for case in self._open.values():
            if case.outcome.endswith(NOT_YET):
                case.outcome = case.outcome.removesuffix(NOT_YET) + ", and the run ended before it was ready"
            self._save(case)
        if self._writer is not None:
            await self._writer
        if self._ended_by is not None:
            text = headline(self._document(self._ended_by))
            await asyncio.to_thread(tell_kubelet, self._masker.text(text) + "\n")

    def _begin(self, kind: str, event: Event, *, reason: str = "") -> Case:
        states = self._snapshot()
        state = next((state for state in states if state.name == event.process), None)
        if kind == "death" and (state is None or state.ready_at is None):
            kind = "start"
        moment = datetime.fromtimestamp(event.wall, UTC).strftime("%Y%m%d-%H%M%S.%f")[:-3]
        name = f"{event.process}-{event.incarnation}" if event.process else "run"
        case = Case(f"{moment}-{name}", kind, event, state, states, reason, oom=self._oom_killed())
        if event.kind is Kind.EXITED:
            case.exit = event
        before = self._newest
        if before is not None and before.process != case.process:
            # From the first of them: where something fails every few seconds, what failed an hour ago is no cause, and
            # its lines are not kept.
            near = event.at - before.first.opened.at <= CASCADE_S
            # The run as a whole fails of what is still broken, however long ago it broke.
            case.follows = before if near or (kind == "run" and before.process in self._open) else None
        self._read(case)
        self._newest = case
        self._open[event.process] = case
        self.count += 1
        self._save(case)
        return case

    def _follow(self, case: Case, event: Event) -> None:
        if event.incarnation == case.opened.incarnation:
            self._read(case)
        if event.kind is Kind.EXITED:
            case.exit = event
        elif event.kind is Kind.RESTARTING:
            case.outcome = f"restarted after {event.seconds or 0:.1f} s{NOT_YET}"
        elif event.kind is Kind.FAILED:
            case.outcome = "not restarted; the run ends with exit code 4"
            self._ended_by = self._ended_by or case
        elif event.kind is Kind.HEALTHY:
            case.outcome = f"ready again {event.at - case.opened.at:.1f} s after the failure"
            del self._open[case.process]
        self._save(case)

    def _oom_killed(self) -> bool:
        before, self._oom = self._oom, oom.kills()
        return before is not None and self._oom is not None and self._oom > before

    # -- writing

    def _document(self, case: Case) -> dict[str, Any]:
        return case.document(self._plan, self._history.events)

    def _read(self, case: Case) -> None:
        for name in (
            [case.process] if case.process else [each.name for each in case.others if not each.healthy]
        ):
            case.read(name, self._records(name, LINES))

    def _save(self, case: Case) -> None:
        self._waiting[case.id] = (case, self._document(case))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_waiting(), name="incidents")

    async def _write_waiting(self) -> None:
        while self._waiting:
            id = next(iter(self._waiting))
            case, document = self._waiting.pop(id)
            try:
                entry = await asyncio.to_thread(self._write, case, document)
            except Exception as error:  # a full disk must not end a deployment
                why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
                if why != self._refused:
                    self._log(f"cannot write the incident {id}, nor others meanwhile: {why}", "error")
                self._refused = why
                continue
            self._refused = ""
            self._known[id] = entry
            if len(self._known) > KEEP:
                del self._known[min(self._known)]  # its file is gone too
            if id not in self._told:
                self._told = {each for each in self._told if each in self._known} | {id}
                self._log(f"incident: {entry['what']}; written to {entry['path']}", "warning")

    def _write(self, case: Case, document: dict[str, Any]) -> dict[str, Any]:
        """In a thread: NVML and the disk may take their time."""
        if not case.extra:
            found = self._look_at_gpus()
            case.extra = {
                "gpus": _gpus(found),
                "gpu_error": found.error,
                "versions": self._versions()
                | ({"driver": found.driver_version} if found.driver_version else {}),
                "host": socket.gethostname(),
                "launcher_pid": os.getpid(),
            }
        masked = self._masker.value(document | case.extra)
        return summary(masked, self._store.write(masked))

    def _versions(self) -> dict[str, str]:
        found = {"launcher": __version__}
        with contextlib.suppress(Exception):  # torn metadata of some package must not cost the incident
            found |= versions(self._plan.processes[0].argv[0])
        return found


def _gpus(found: Inventory) -> list[dict[str, Any]]:
    return [
        {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "name": gpu.name,
            "used_mib": gpu.memory_mib - gpu.memory_free_mib,
            "total_mib": gpu.memory_mib,
            "holders": [
                {"pid": each.pid, "command": each.name, "used_mib": each.memory_mib} for each in gpu.holders
            ],
        }
        for gpu in found.gpus
    ]
