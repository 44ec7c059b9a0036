"""One session on a GPU machine: its time, its results, and launchers that are started, asked and always ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tests.gpu import watch
from tests.support.runs import ADDRESSES, ROOT, get, post

ROOT_FOLDER = Path(os.environ.get("GPU_ROOT", "/tmp/gpu"))
"""Models, caches and what has to outlast one call."""
PLUGIN = Path(__file__).parent / "plugin"
KEPT = (
    "ready",
    "reasons",
    "ready_s",
    "proofs",
    "report",
    "restarts",
    "discovery",
    "gpus",
    "errors",
    "incidents",
)
"""Of /status."""
LOG_LIMIT = 12 << 20
"""Bytes of the shared log; what comes after is left out."""


class OutOfTime(Exception):
    """The session's deadline leaves no time for this."""


class Session:
    """Give every step the same one."""

    def __init__(self, out: Path, deadline_s: float, *, dry: bool) -> None:
        self.out = out
        self.dry = dry
        """On the simulator: no GPU, everything short."""
        self.began = time.monotonic()
        self.deadline_s = deadline_s
        self.results: dict[str, Any] = {}
        self.tables: list[str] = []
        self.running: list[Deployment] = []
        out.mkdir(parents=True, exist_ok=True)
        self._log = (out / "launcher.log").open("a", buffering=1, errors="replace")
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline_s - (time.monotonic() - self.began)

    def need(self, seconds: float, what: str) -> None:
        """Raise OutOfTime where less is left."""
        if not self.dry and self.left < seconds:
            raise OutOfTime(f"{what} needs {seconds:.0f} s, {self.left:.0f} s are left")

    def say(self, text: str) -> None:
        """A line for who watches."""
        print(f"[{time.monotonic() - self.began:6.1f}] {text}", flush=True)

    def line(self, text: str) -> None:
        """A line of the shared log."""
        with self._lock:
            if self._log.tell() < LOG_LIMIT:
                self._log.write(text[:2000] + "\n")

    def save(self) -> None:
        """Write what is known so far."""
        (self.out / "summary.json").write_text(json.dumps(self.results, indent=1, default=str))
        (self.out / "table.txt").write_text("\n\n".join(self.tables) + "\n")

    def table(self, title: str, rows: Sequence[Sequence[Any]]) -> None:
        """Keep a table for the end, and print it."""
        cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
        widths = [max(len(row[place]) for row in cells if len(row) > place) for place in range(len(cells[0]))]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)).rstrip()
            for row in cells
        ]
        self.tables.append("\n".join([f"## {title}", *lines]))
        print(self.tables[-1], flush=True)
        self.save()

    def step(self, name: str, function: Callable[[Session, dict[str, Any]], None]) -> None:
        """Run one step; whatever goes wrong in it is its result."""
        result = self.results.setdefault(name, {})
        at = time.monotonic()
        self.say(f"== {name}")
        try:
            function(self, result)
        except OutOfTime as error:
            result["left_out"] = str(error)
        except Exception as error:
            import traceback

            result["failed"] = f"{type(error).__name__}: {str(error)[-1500:]}"
            result["trace"] = traceback.format_exc()[-1500:]
        finally:
            self.end_all()
        result["took_s"] = round(time.monotonic() - at, 1)
        for key in ("left_out", "failed"):
            if key in result:
                self.say(f"   {name}: {key}: {result[key][-400:]}")
        self.save()

    def end_all(self) -> None:
        """Nothing that was started may stay."""
        for deployment in list(self.running):
            deployment.kill()

    def guard(self, margin_s: float = 12.0) -> None:
        """A thread that ends everything, with the results written, before somebody else does."""

        def end() -> None:
            self.say("the deadline has come: ending everything")
            self.results["ended"] = "by the deadline"
            self.end_all()
            self.save()
            os._exit(3)

        timer = threading.Timer(max(1.0, self.left + margin_s), end)
        timer.daemon = True
        timer.start()


class Deployment:
    """`python -m launcher ...`, as a context manager. Every line of it goes to the session's log."""

    def __init__(
        self, session: Session, name: str, target: str, *options: str, home: str = "hf-small", **env: str
    ) -> None:
        self.session = session
        self.name = name
        self.target = target
        self.options = list(options)
        self.lines: list[tuple[float, str]] = []
        self.http_port = self.admin_port = 0
        self.env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [
                    str(ROOT),
                    *([] if session.dry else [str(PLUGIN)]),
                    *filter(None, [os.environ.get("PYTHONPATH")]),
                ]
            ),
            "GPT_OSS_DUMMY": "spread",
            "HF_HUB_OFFLINE": "1",
            "NO_COLOR": "1",
            **env,
        }
        if not session.dry:
            self.env |= {
                "HF_HOME": str(ROOT_FOLDER / home),
                "TIKTOKEN_ENCODINGS_BASE": os.environ.get(
                    "TIKTOKEN_ENCODINGS_BASE", str(ROOT_FOLDER / "voc")
                ),
            }
        self.env.pop("CUDA_VISIBLE_DEVICES", None)
        if session.dry:
            self.options += ["--engine", "mocker", "--set", "deadlines.pause_s=0.2"]

    # -- asking before anything starts

    def command(self, *verb: str) -> list[str]:
        return [sys.executable, "-m", "launcher", *verb, "--target", self.target, *self.options]

    def doctor(self) -> dict[str, Any]:
        """The doctor's report for exactly this deployment."""
        done = subprocess.run(
            [*self.command("doctor"), "--json"],
            capture_output=True,
            text=True,
            env=self.env,
            cwd=ROOT,
            timeout=60,
        )
        try:
            report = json.loads(done.stdout)
        except ValueError:
            return {"ok": False, "exit": done.returncode, "findings": [], "stderr": done.stderr[-1500:]}
        report["exit"] = done.returncode
        return dict(report)

    def ignore_errors(self) -> dict[str, str]:
        """Start in spite of what the doctor objects to: code to text, for the record."""
        report = self.doctor()
        found = {
            each["code"]: each["what"] for each in report.get("findings", ()) if each["severity"] == "error"
        }
        for code in found:
            self.options += ["--ignore", f"{code}=gpu tests"]
        return found

    # -- running

    def __enter__(self) -> Deployment:
        self.admin_wanted = ["--http-port", "0", "--admin-port", "0"]
        argv = [*self.command(), *self.admin_wanted, "--log-format", "text", "--view", "plain"]
        self.session.line(f"[{self.name}] $ {' '.join(argv[1:])}")
        self.started_wall = time.time()
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=self.env, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        self.session.running.append(self)
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it, gently where there is time."""
        if self in self.session.running:
            self.session.running.remove(self)
        members = watch.tree(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(25 if self.session.left > 30 else 1)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)  # the second one kills at once
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        for each in members:
            with contextlib.suppress(Exception):
                if each.is_running():
                    each.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self._reader.join(3)

    def _read(self, stream: IO[str]) -> None:
        for raw in stream:
            line = re.sub(r"\x1b\[[0-9;]*m", "", raw.rstrip("\n"))
            at = time.monotonic() - self.started
            self.lines.append((at, line))
            self.session.line(f"[{self.name} {at:7.2f}] {line}")
            found = ADDRESSES.search(line)
            if found and not self.admin_port:
                self.http_port, self.admin_port = int(found[2]), int(found[4])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    @property
    def model(self) -> str:
        return str(self.status()["model"])

    def tail(self, count: int = 12) -> list[str]:
        """What went wrong, as far as the log says."""
        bad = [
            line for _, line in self.lines if re.search(r"Error|ERROR|Traceback|error\[|not supported", line)
        ]
        return [line[:300] for line in (bad or [line for _, line in self.lines])[-count:]]

    def status(self) -> dict[str, Any]:
        """The page /status; empty where nobody answers."""
        code, body = get(f"{self.admin_url}/status", 5.0)
        with contextlib.suppress(ValueError):
            page = json.loads(body) if code == 200 else {}
            return page if isinstance(page, dict) else {}
        return {}

    def ready(self, timeout_s: float) -> float:
        """Wait until ready; seconds since the start. RuntimeError where it ends or takes too long."""
        limit = min(timeout_s, self.session.left - 20) if not self.session.dry else timeout_s
        while time.monotonic() - self.started < limit:
            if self.process.poll() is not None:
                self._reader.join(3)
                raise RuntimeError(f"ended with {self.process.returncode}: " + "\n".join(self.tail()))
            if self.admin_port and get(f"{self.admin_url}/readyz", 2.0)[0] == 200:
                return round(time.monotonic() - self.started, 1)
            time.sleep(0.1)
        reasons = get(f"{self.admin_url}/readyz", 2.0)[1] if self.admin_port else "no admin server"
        raise RuntimeError(f"not ready in {limit:.0f} s: {reasons[:600]}\n" + "\n".join(self.tail()))

    def worker(self, name: str) -> dict[str, Any]:
        """One process of /status."""
        return next((each for each in self.status().get("processes", ()) if each["name"] == name), {})

    def wait_for(self, what: Callable[[], Any], timeout_s: float, every_s: float = 0.2) -> Any:
        """Ask until the answer is true; None where it never was."""
        limit = time.monotonic() + (
            min(timeout_s, self.session.left - 15) if not self.session.dry else timeout_s
        )
        while time.monotonic() < limit:
            answer = what()
            if answer:
                return answer
            time.sleep(every_s)
        return None

    def complete(
        self, tokens: int, output: int = 8, timeout_s: float = 60.0, **extra: Any
    ) -> tuple[int, Any]:
        """One completion of a prompt that nobody has seen."""
        import random

        from tests.gpu.load import words

        body = {
            "model": self.model,
            "prompt": words(random.Random(), tokens),
            "max_tokens": output,
            "min_tokens": output,
            "ignore_eos": True,
            **extra,
        }
        code, text = post(f"{self.url}/v1/completions", body, timeout_s)
        with contextlib.suppress(ValueError):
            return code, json.loads(text)
        return code, text[:300]

    def metric(self, name: str, worker: str) -> float | None:
        """Sum of a metric on a worker's own page."""
        from launcher.observe import exposition

        port = self.worker(worker).get("ports", {}).get("system")
        code, text = get(f"http://127.0.0.1:{port}/metrics", 5.0) if port else (0, "")
        return exposition.parse(text).total(name) if code == 200 else None

    def events(self, process: str = "") -> Iterator[dict[str, Any]]:
        """Events of /status, of one process where one is named."""
        for event in self.status().get("events", ()):
            if not process or event.get("process") == process:
                yield event

    def smoke(self, *options: str) -> dict[str, Any]:
        """`launcher smoke` against it: check to outcome."""
        done = subprocess.run(
            [sys.executable, "-m", "launcher", "smoke", "--admin", self.admin_url, "--json", *options],
            capture_output=True, text=True, env=self.env, cwd=ROOT, timeout=max(20.0, min(120.0, self.session.left)),
        )  # fmt: skip
        try:
            return dict(json.loads(done.stdout))
        except ValueError:
            return {"exit": done.returncode, "stderr": done.stderr[-600:], "stdout": done.stdout[-600:]}

    def brief(self) -> dict[str, Any]:
        """What of /status is worth keeping."""
        page = self.status()
        found = {key: page.get(key) for key in KEPT}
        found["processes"] = [
            {key: each.get(key) for key in ("name", "pid", "state", "restarts", "ready_s", "phases", "ports")}
            for each in page.get("processes", ())
        ]
        return found
