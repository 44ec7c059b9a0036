"""The deployment under test: one that somebody else runs, or one that the benchmark starts, clears and stops itself."""

from __future__ import annotations

import asyncio
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import aiohttp

from launcher.findings import Exit, Finding, LauncherError
from launcher.plan.ports import free_everywhere
from launcher.prove.frontend import Frontend

READY_S = 3600.0
POLL_S = 1.0
TELL_S = 15.0
COMPLETION_S = 120.0
STOP_S = 180.0
"""Above every drain schedule of the targets."""
CLEAR_S = 3600.0
PORTS = (15000, 19000)


class Service(Protocol):
    """A deployment that answers at `url`."""

    @property
    def url(self) -> str: ...

    @property
    def how(self) -> str:
        """How its KV state is cleared, for the report; empty where it cannot be."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether it is known to have served nothing but a sign of life."""
        ...

    def clear(self) -> None:
        """Empty every KV cache. Raises LauncherError where that cannot be done."""
        ...

    def close(self) -> None:
        """Stop what was started here."""
        ...


def wait_ready(
    url: str,
    model: str,
    tell: Callable[[str], None],
    *,
    timeout_s: float = READY_S,
    alive: Callable[[], None] | None = None,
    admin: str = "",
) -> None:
    """Return when a real completion came back. Raises LauncherError when it does not in time.

    `alive` raises where there is nothing to wait for any more; `admin` is the launcher's admin server, whose word is
    asked first where it is given.
    """

    began = told = time.monotonic()

    async def look(reason: str) -> None:
        """Between two tries: is there still something to wait for, and still time."""
        nonlocal told
        if alive is not None:
            alive()
        now = time.monotonic()
        if now - began > timeout_s:
            raise _not_ready(url, reason, timeout_s)
        if now - told > TELL_S:
            told = now
            tell(f"waiting for {url}, {now - began:.0f} s: {reason[:200]}")
        await asyncio.sleep(POLL_S)

    async def ask() -> None:
        async with aiohttp.ClientSession(trust_env=False) as session:
            frontend = Frontend(session, url, model)
            status = Frontend(session, admin, model)
            while True:
                if admin and not (said := await status.get("/readyz")).ok:
                    await look(f"not ready: {str(said.body or said).strip()}")
                    continue
                # A frontend of another make has no such page: there, the completion alone decides.
                reason = await frontend.routable()
                if not reason or "does not know" in reason:
                    reason = await _complete(frontend)
                if not reason:
                    return
                await look(reason)

    asyncio.run(ask())


async def _complete(frontend: Frontend) -> str:
    """Empty where one real completion came back with a token; else what happened."""
    body = {
        "model": frontend.model,
        "messages": [{"role": "user", "content": "Say that you are ready."}],
        "max_tokens": 16,
    }
    answer = await frontend.post("/v1/chat/completions", body, COMPLETION_S)
    usage = answer.body.get("usage") if answer.ok and isinstance(answer.body, dict) else None
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return "" if isinstance(tokens, int) and tokens > 0 else str(answer)


def _not_ready(url: str, reason: str, timeout_s: float) -> LauncherError:
    return LauncherError(
        Finding(
            code="bench-not-ready",
            what=f"{url} did not become ready in {timeout_s:g} s: {reason}",
            where="--url",
            fix="see the deployment's log, or give it longer with --ready-timeout",
        ),
        Exit.CHECK_FAILED,
    )


class Attached:
    """Somebody else's deployment; cleared by the command that they give."""

    fresh = False

    def __init__(
        self, url: str, model: str, tell: Callable[[str], None], *, command: str | None, ready_s: float
    ) -> None:
        self.url = url.rstrip("/")
        self._model, self._tell, self._command, self._ready_s = model, tell, command, ready_s
        wait_ready(self.url, model, tell, timeout_s=ready_s)

    @property
    def how(self) -> str:
        return f"`{self._command}`" if self._command else ""

    def clear(self) -> None:
        """Run the command and wait until requests work again."""
        if self._command is None:
            raise LauncherError(
                Finding(
                    code="bench-no-clear",
                    what="nobody said how to clear the KV caches of a deployment that another started",
                    where="--url",
                    why="Dynamo's frontend has no request for it, and leftovers of one point make the next look better",
                    fix="--clear-command 'kubectl rollout restart …', or leave --url out: "
                    "then the launcher starts and restarts the deployment itself",
                )
            )
        self._tell(f"clearing KV state: {self._command}")
        done = subprocess.run(shlex.split(self._command), timeout=CLEAR_S, check=False)
        if done.returncode:
            raise LauncherError(
                Finding(
                    code="bench-clear-failed",
                    what=f"{self._command!r} ended with code {done.returncode}",
                    where="--clear-command",
                ),
                Exit.PROCESS_FAILED,
            )
        wait_ready(self.url, self._model, self._tell, timeout_s=self._ready_s)

    def close(self) -> None:
        """It is not ours to stop."""


class Started:
    """A deployment that the benchmark starts with `launcher serve`; to clear it is to restart it whole."""

    how = "restart of all workers by the benchmark"
    fresh = True
    """Cleared or just started: whoever sends load clears it before the next."""

    def __init__(
        self,
        words: Sequence[str],
        model: str,
        folder: Path,
        tell: Callable[[str], None],
        *,
        ready_s: float,
        proven: bool = True,
    ) -> None:
        """`words`: options of `launcher serve`; `folder`: where its log goes.

        `proven`: wait until the launcher itself says ready; without, until requests are answered.
        """
        self._words, self._model, self._tell, self._ready_s = list(words), model, tell, ready_s
        self._proven = proven
        self._log = folder / "serve.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def clear(self) -> None:
        """Stop and start: the caches live in the workers' memory and end with them."""
        self._tell("clearing KV state: restarting the deployment")
        self.close()
        self._start()

    def close(self) -> None:
        """Drain and stop."""
        child, self._child = self._child, None
        if child is None or child.poll() is not None:
            return
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _start(self) -> None:
        began = time.monotonic()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._port, admin = _ports()
        argv = [sys.executable, "-m", "launcher", "serve", *self._words]
        argv += ["--http-host", "127.0.0.1", "--http-port", str(self._port), "--admin-port", str(admin)]
        self._tell(f"starting the deployment, log in {self._log}")
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C goes to the benchmark, which stops the deployment in order.
            self._child = subprocess.Popen(
                argv,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=os.environ.copy(),
                start_new_session=True,
            )
        try:
            wait_ready(
                self.url,
                self._model,
                self._tell,
                timeout_s=self._ready_s,
                alive=self._alive,
                admin=f"http://127.0.0.1:{admin}" if self._proven else "",
            )
        except BaseException:
            self.close()
            raise
        self._tell(f"ready in {time.monotonic() - began:.0f} s")

    def _alive(self) -> None:
        assert self._child is not None
        if self._child.poll() is None:
            return
        lines = self._log.read_text(errors="replace").splitlines()
        told = " | ".join(([line for line in lines if line.startswith("error[")] or lines)[-3:])
        raise LauncherError(
            Finding(
                code="bench-serve-failed",
                what=f"the deployment ended with code {self._child.returncode} before it was ready: {told}",
                where=str(self._log),
            ),
            Exit(self._child.returncode) if self._child.returncode in (2, 3) else Exit.PROCESS_FAILED,
        )


def _ports() -> tuple[int, int]:
    """Two ports that are free now, below the range that the kernel hands out.

    From a place of chance: another benchmark that starts at this moment looks too.
    """
    start = random.SystemRandom().randrange(*PORTS)
    free = (port for port in [*range(start, PORTS[1]), *range(PORTS[0], start)] if free_everywhere(port))
    return next(free), next(free)
