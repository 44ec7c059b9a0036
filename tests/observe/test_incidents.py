"""One incident file per failure: first cause, timeline, last lines, outcome; bounded, masked, whole."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.machine.gpus import Inventory
from launcher.machine.simulated import like
from launcher.observe.history import History
from launcher.observe.incident.case import Case
from launcher.observe.incident.first_cause import first_error
from launcher.observe.incident.store import KEEP, Store, folder, tell_kubelet
from launcher.observe.incident.tracker import Incidents
from launcher.observe.secrets import Masker
from launcher.plan.model import MASK, Role
from launcher.supervise.events import Event, ExitInfo, Kind, ProcessState, State
from tests.observe.support import killed, plan, process, run, state

NOW = 1_800_000_000.0
"""Wall clock of the tests, at monotonic 110."""
TRACEBACK = "Traceback (most recent call last):"


class Scene:
    """A tracker with everything around it scripted."""

    def __init__(self, where: Path, **changes: Any) -> None:
        self.states: list[ProcessState] = [state("frontend"), state("decode-0"), state("decode-1")]
        self.lines: dict[str, list[str]] = {}
        self.failure: str | None = None
        self.said: list[str] = []
        self.history = History()
        self.store = Store(where, **changes)
        secret = Masker([{"HF_TOKEN": "open-sesame-42"}])
        self.incidents = Incidents(
            plan(process("frontend"), process("decode-0"), process("decode-1")), self.history, self.store, secret,
            snapshot=lambda: self.states, records=self._records, failure=lambda: self.failure,
            log=lambda text, level: self.said.append(text),
            look_at_gpus=lambda: Inventory(gpus=like("H200", 1).gpus, driver_version="580.1"),
        )  # fmt: skip

    def _records(self, name: str, count: int) -> list[tuple[float, str, str]]:
        return [(NOW, "stderr", line) for line in self.lines.get(name, ())][-count:]

    def see(self, kind: Kind, name: str = "decode-0", at: float = 110.0, **changes: Any) -> None:
        """An event, at monotonic seconds."""
        role = Role(name.partition("-")[0]) if name else None
        event = Event(kind, name, role, at=at, wall=NOW + at - 110.0, **changes)
        self.history.add(event)
        self.incidents.see(event)

    @property
    def files(self) -> list[dict[str, Any]]:
        """The incidents on disk, oldest first."""
        return [json.loads(path.read_text()) for path in sorted(self.store.folder.glob("*.json"))]


def play(where: Path, script: Callable[[Scene], None], **changes: Any) -> Scene:
    """Run a script in a loop, and close."""

    async def main() -> Scene:
        scene = Scene(where, **changes)
        script(scene)
        await scene.incidents.close()
        return scene

    return run(main())


def test_a_death_makes_one_file_with_all_that_is_lost_otherwise(tmp_path: Path) -> None:
    def script(scene: Scene) -> None:
        scene.lines["decode-0"] = ["INFO fine", "ERROR cuda out of open-sesame-42", "INFO consequence"]
        scene.see(Kind.STARTED, at=100.0)
        scene.see(Kind.EXITED, exit=killed())
        scene.lines["decode-0"].append("INFO last words")
        scene.see(Kind.REAPED, at=110.1)
        scene.see(Kind.RESTARTING, at=110.2, seconds=0.5)
        scene.lines["decode-0"] = ["INFO of the next incarnation"]
        scene.see(Kind.HEALTHY, at=117.0, incarnation=1, seconds=6.0)

    scene = play(tmp_path / "incidents", script)
    (incident,) = scene.files
    assert incident["kind"] == "death"
    assert incident["what"] == "decode-0 was killed by SIGKILL, 5.0 s after it was ready"
    assert incident["outcome"] == "ready again 7.0 s after the failure"
    assert incident["exit"]["signal"] == 9
    assert incident["first_cause"]["line"] == f"ERROR cuda out of {MASK}"
    assert [line["line"] for line in incident["last_lines"]["decode-0"]] == [
        "INFO fine", f"ERROR cuda out of {MASK}", "INFO consequence", "INFO last words",
    ]  # fmt: skip
    assert [event["kind"] for event in incident["timeline"]] == [
        "started", "exited", "reaped", "restarting", "healthy",
    ]  # fmt: skip
    assert (
        incident["plan"]["hash"] == plan(process("frontend"), process("decode-0"), process("decode-1")).hash()
    )
    assert incident["gpus"][0]["total_mib"] > 100_000
    assert incident["versions"]["driver"] == "580.1"
    assert "launcher" in incident["versions"]
    text = next(scene.store.folder.glob("*.txt")).read_text()
    assert "INFO last words" in text
    assert "open-sesame" not in text + json.dumps(incident)
    assert sum("incident:" in line for line in scene.said) == 1
    assert scene.incidents.newest(5)[0]["outcome"] == incident["outcome"]
    assert [path.stat().st_mode & 0o777 for path in scene.store.folder.iterdir()] == [0o600, 0o600]


def test_a_hang_is_one_incident_and_its_kill_no_second(tmp_path: Path) -> None:
    def script(scene: Scene) -> None:
        scene.see(Kind.STARTED, at=100.0)
        scene.see(Kind.UNHEALTHY, at=108.0, detail="no answer in 2 s")
        scene.see(Kind.HUNG, detail="3 health probes failed")
        scene.see(Kind.EXITED, at=110.1, exit=killed())
        scene.see(Kind.REAPED, at=110.2)

    (incident,) = play(tmp_path, script).files
    assert incident["kind"] == "hang"
    assert incident["what"].startswith("decode-0 hung: 3 health probes failed")
    assert incident["first_cause"]["what"] == "decode-0 unhealthy: no answer in 2 s"


def test_bad_health_that_went_away_is_not_the_cause(tmp_path: Path) -> None:
    def script(scene: Scene) -> None:
        scene.see(Kind.UNHEALTHY, at=101.0, detail="slow")
        scene.see(Kind.RECOVERED, at=102.0)
        scene.see(Kind.EXITED, exit=killed(11))

    (incident,) = play(tmp_path, script).files
    assert incident["first_cause"]["what"] == "decode-0 exited: killed by SIGSEGV"


def test_a_death_before_ready_says_where_the_loading_was(tmp_path: Path) -> None:
    def script(scene: Scene) -> None:
        scene.states[1] = state(
            "decode-0", ready_at=None, state=State.LOADING, phase="weights", healthy=False
        )
        scene.see(Kind.EXITED, exit=ExitInfo(1, None, 110.0))

    (incident,) = play(tmp_path, script).files
    assert incident["kind"] == "start"
    assert incident["what"].endswith("10.0 s after its start and before it was ready (weights)")


def test_a_second_death_before_ready_is_another_incident(tmp_path: Path) -> None:
    def script(scene: Scene) -> None:
        scene.see(Kind.EXITED, exit=killed())
        scene.see(Kind.RESTARTING, at=110.1, seconds=0.5)
        scene.see(Kind.STARTED, at=110.6, incarnation=1)
        scene.see(Kind.EXITED, at=111.0, exit=killed(), incarnation=1)
        scene.see(Kind.FAILED, at=111.1, incarnation=1, detail="the restart budget is spent")

    first, second = play(tmp_path, script).files
    assert first["outcome"] == "restarted, and failed again before it was ready"
    assert second["outcome"] == "not restarted; the run ends with exit code 4"
    assert second["follows"] is None


def test_what_follows_another_failure_names_the_first_cause(tmp_path: Path) -> None:
    def script(scene: Scene) -> None:
        scene.lines["decode-0"] = ["ERROR NCCL watchdog"]
        scene.see(Kind.EXITED, exit=killed())
        scene.see(Kind.EXITED, "decode-1", at=112.0, exit=ExitInfo(1, None, 112.0))

    first, second = play(tmp_path, script).files
    assert second["follows"] == first["id"]
    assert second["first_cause"] == {**first["first_cause"], "line": "ERROR NCCL watchdog"}
    assert second["first_cause"]["process"] == "decode-0"


def test_where_something_fails_again_and_again_only_the_near_ones_are_its_cause(tmp_path: Path) -> None:
    """And nothing of the others is kept in memory: it grew by 90 kB a failure."""

    def script(scene: Scene) -> None:
        for number in range(40):
            name, at = f"decode-{number % 2}", 110.0 + 10 * number
            scene.see(Kind.EXITED, name, at=at, exit=killed(), incarnation=number)
            scene.see(Kind.HEALTHY, name, at=at + 5, incarnation=number + 1, seconds=4.0)

    scene = play(tmp_path, script)
    following = [incident["follows"] is not None for incident in scene.files]
    assert following[-8:] == [False, True, True, True] * 2
    gc.collect()
    assert sum(isinstance(each, Case) for each in gc.get_objects()) <= 4
    assert len(scene.incidents.newest(100)) == len(scene.files) == KEEP


def test_the_failure_of_the_whole_run_is_an_incident_with_what_was_not_ready(tmp_path: Path) -> None:
    def script(scene: Scene) -> None:
        scene.states[2] = state(
            "decode-1", ready_at=None, state=State.LOADING, healthy=False, detail="connect refused"
        )
        scene.lines["decode-1"] = ["Loading weights: 3%"]
        scene.failure = "not ready 60 s after the start: decode-1 is loading"
        scene.see(Kind.DRAINING, "")
        scene.see(Kind.FINISHED, "", at=112.0, detail="4")

    (incident,) = play(tmp_path, script).files
    assert incident["kind"] == "run"
    assert incident["what"] == "not ready 60 s after the start: decode-1 is loading"
    assert list(incident["last_lines"]) == ["decode-1"]
    assert incident["id"].endswith("-run")


def test_a_stop_that_was_asked_for_is_no_incident(tmp_path: Path) -> None:
    def script(scene: Scene) -> None:
        scene.see(Kind.DRAINING, "")
        for name in ("frontend", "decode-0"):
            scene.see(Kind.DRAINING, name)
            scene.see(Kind.EXITED, name, exit=killed(15))
            scene.see(Kind.DRAINED, name)
        scene.see(Kind.EXITED, "decode-1", exit=killed(9))
        scene.see(Kind.FINISHED, "")

    assert not play(tmp_path / "none", script).store.folder.exists()


def test_the_number_of_files_is_bounded_and_the_newest_stay(tmp_path: Path) -> None:
    def script(scene: Scene) -> None:
        for number in range(30):
            scene.see(Kind.EXITED, at=110.0 + number, exit=killed(), incarnation=number)
            scene.see(Kind.HEALTHY, at=110.5 + number, incarnation=number + 1)

    scene = play(tmp_path, script, keep=20)
    assert [incident["incarnation"] for incident in scene.files] == list(range(10, 30))
    assert len(list(tmp_path.iterdir())) == 40
    assert [each["id"] for each in Store(tmp_path).summaries()] == [
        each["id"] for each in scene.incidents.newest(20)
    ]


def test_of_earlier_runs_only_those_of_the_same_target_count_and_none_is_listed(tmp_path: Path) -> None:
    for target in ("sim", "other"):
        play(tmp_path, lambda scene: scene.see(Kind.EXITED, exit=killed(), at=130.0))
        path = max(tmp_path.glob("*.json"))
        path.write_text(path.read_text().replace('"target": "sim"', f'"target": "{target}"'))
        path.rename(tmp_path / f"20260101-000000.000-{target}.json")
    scene = play(tmp_path, lambda scene: scene.see(Kind.EXITED, "decode-1", at=120.0, exit=killed()))
    assert [each["process"] for each in scene.incidents.newest(5)] == ["decode-1"]
    assert scene.incidents.earlier == 1


def test_a_run_that_ends_meanwhile_is_an_outcome(tmp_path: Path) -> None:
    def script(scene: Scene) -> None:
        scene.see(Kind.EXITED, exit=killed())
        scene.see(Kind.RESTARTING, at=110.2, seconds=0.5)

    (incident,) = play(tmp_path, script).files
    assert incident["outcome"] == "restarted after 0.5 s, and the run ended before it was ready"


def test_what_a_killed_writer_left_is_removed_at_the_start(tmp_path: Path) -> None:
    left, written = (tmp_path / f".20260101-000000.000-run.json.{pid}" for pid in (7, 8))
    for path in (left, written):
        path.touch()
    os.utime(left, (1.0, 1.0))
    play(tmp_path, lambda scene: None)
    assert list(tmp_path.iterdir()) == [written]


@pytest.mark.parametrize("spoil", ["a file", "no access"])
def test_a_folder_that_cannot_be_written_costs_only_the_incident(tmp_path: Path, spoil: str) -> None:
    where = tmp_path / "incidents"
    if spoil == "a file":
        where.write_text("in the way")
    else:
        where = Path("/proc/nowhere/incidents")
    scene = play(where, lambda scene: scene.see(Kind.EXITED, exit=killed()))
    assert any("cannot write the incident" in line for line in scene.said)


def test_a_broken_file_in_the_folder_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "20260101-000000.000-decode-0-0.json").write_text('{"id": ')
    assert Store(tmp_path).summaries() == []


def test_a_reader_never_sees_half_an_incident(tmp_path: Path) -> None:
    incident = play(tmp_path, lambda scene: scene.see(Kind.EXITED, exit=killed())).files[0]
    store, path = Store(tmp_path), next(tmp_path.glob("*.json"))

    async def main() -> None:
        writing = asyncio.to_thread(lambda: [store.write(incident) for _ in range(30)])
        done = asyncio.ensure_future(writing)
        while not done.done():
            json.loads(path.read_text())
            await asyncio.sleep(0)
        await done

    run(main())
    assert not list(tmp_path.glob(".*"))


def test_incidents_outlive_the_runs_folder(tmp_path: Path) -> None:
    assert folder("/run/launcher/sim-1", None) == Path("/run/launcher/incidents")
    assert folder("/run/launcher/sim-1", tmp_path / "logs") == tmp_path / "logs" / "incidents"


def test_the_kubelet_is_told_only_where_it_listens(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    tell_kubelet("why", path)
    assert not path.exists()
    path.touch()
    tell_kubelet("x" * 5000, path)
    assert path.stat().st_size == 4096


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ""),
        (["INFO fine", "WARN hm"], ""),
        (["INFO a", "2026-01-01 ERROR first", "ERROR second"], "2026-01-01 ERROR first"),
        ([TRACEBACK, '  File "x"', "    f()", "ValueError: no", "ERROR later"], "ValueError: no"),
        ([f"(Engine pid=7) {TRACEBACK}", "(Engine pid=7)   File", "(Engine pid=7) OSError: x"], "OSError: x"),
        ([TRACEBACK, "  File"], "a traceback that was cut off"),
    ],
)  # fmt: skip
def test_the_first_error_is_found(lines: list[str], expected: str) -> None:
    assert first_error(lines) == expected
