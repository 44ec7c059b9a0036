"""Registrations of living workers vanish or go bad behind the launcher's back: it heals them, and restarts nobody."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.load import Load, bad
from tests.chaos.strike import listed, routed
from tests.e2e.test_keep_serving import side, until
from tests.plan.test_real_parsers import interpreter
from tests.support.runs import Run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
RELEASES = [
    "",
    pytest.param("1.3.1", marks=pytest.mark.compat),
    pytest.param("1.4.2", marks=pytest.mark.compat),
]
RESTORED_S = 7.0
"""The keeper waits three seconds, lest it put back what a worker that ends has removed; the frontend follows."""
HEALED_S = 40.0
"""What the frontend does not see for 15 s is written anew; some releases let it expire first."""


def entries(run: Run, name: str) -> list[Path]:
    """The files by which the frontend knows a worker."""
    (folder,) = run.state.glob("sim-*/discovery/v1")
    port = run.process_state(name)["ports"]["rpc"]
    files = [path for path in folder.rglob("*") if path.is_file()]
    ids = {path.name.rpartition("%2F")[2] for path in files if f":{port}/" in path.read_text()}
    found = [path for path in files if any(number in path.name for number in ids)]
    assert {path.parent.name for path in found} >= {"instances", "mdc"}
    return found


@contextmanager
def whole(release: str, state: Path) -> Iterator[tuple[Run, Callable[[], bool]]]:
    """A deployment, and whether its frontend routes to all of it, decode-0 too; at the end nothing was restarted."""
    options = ("--python", interpreter(release)) if release else ()
    with Run("sim", *options, state=state) as run:
        run.ready(180)
        counts, pids = routed(side(run)), {each["name"]: each["pid"] for each in run.status()["processes"]}
        port = run.process_state("decode-0")["ports"]["rpc"]
        yield run, lambda: port in listed(side(run)) and routed(side(run)) == counts
        assert {each["name"]: each["pid"] for each in run.status()["processes"]} == pids


@pytest.mark.parametrize("release", RELEASES)
def test_a_living_worker_s_entries_come_back(release: str, state: Path) -> None:
    with whole(release, state) as (run, seen):
        with Load(run.url, run.model, streams=8, tokens=64) as load:
            time.sleep(1)
            for path in entries(run, "decode-0"):
                path.unlink()
            until(lambda: run.status()["discovery"]["restored"] >= 2, "written back", RESTORED_S)
            until(seen, "seen again", RESTORED_S)
            time.sleep(1)
            requests = load.finish()
        assert len(requests) > 8
        assert [(each.outcome, each.detail) for each in bad(requests)] == []


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_entries_that_say_nothing_are_written_anew(release: str, state: Path) -> None:
    """Only the frontend's own view shows that anything is wrong."""
    with whole(release, state) as (run, seen):
        for path in entries(run, "decode-0"):
            path.write_text("{}")
        until(lambda: not seen(), "lost", HEALED_S)
        until(seen, "healed", HEALED_S)
        assert run.status()["discovery"]["healed"] == 1
        assert run.chat()["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("what", ["discovery", pytest.param("", marks=pytest.mark.slow)])
def test_a_folder_that_somebody_removed_is_made_anew(release: str, what: str, state: Path) -> None:
    """As cleaners of /tmp do. The frontend followed the old one, and would learn of nothing any more."""
    options = ("--python", interpreter(release)) if release else ()
    with Run("sim", *options, state=state) as run:
        run.ready(180)
        counts, before = routed(side(run)), {each["name"]: each["pid"] for each in run.status()["processes"]}
        (folder,) = state.glob("sim-*")
        shutil.rmtree(folder / what)
        until(lambda: "made it anew" in run.log, "made anew", RESTORED_S)
        until(lambda: run.status()["ready"] and routed(side(run)) == counts, "healed", HEALED_S)
        assert run.chat()["usage"]["completion_tokens"] == 16
        after = {each["name"]: each["pid"] for each in run.status()["processes"]}
        again = {name for name in after if after[name] != before[name]}
        assert again == ({"frontend"} if what else {"frontend", "events"})
        assert folder.stat().st_mode & 0o077 == 0
        assert run.stop() == 0
    assert not folder.exists()
