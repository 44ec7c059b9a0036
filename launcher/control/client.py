"""The asker's end of the control socket. Blocking.

A launcher takes requests (such as a rolling restart) on a unix socket in its run's private folder, mode 0600, from its
own user or root only; nothing of it is on the network. So it is asked on the machine, or in the pod, where it runs.
"""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launcher.control import SOCKET
from launcher.findings import Finding, LauncherError

CONNECT_S = 5.0
WAITING_S = 2.0
"""Silence after an order before the asker is told that it waits; a launcher that runs says at once that it has it."""
ACCEPT_S = 10.0
"""Silence after an order before it is given up. A launcher that wakes up later does not begin it."""


def find(state_dir: Path) -> Path:
    """The socket of the one run below `state_dir`. Raises LauncherError where there is none, or more than one."""
    found = sorted(path for path in state_dir.glob(f"*/{SOCKET}") if path.is_socket())
    live = [path for path in found if _answers(path)]
    if len(live) == 1:
        return live[0]
    if live:
        raise _problem(
            f"{len(live)} launchers run: {', '.join(path.parent.name for path in live)}",
            "name one with --run",
        )
    raise _problem(
        f"no launcher runs in {state_dir}", "give the --state-dir of the run, or --url of its admin server"
    )


def ask(path: Path, order: Mapping[str, Any], note: Callable[[str], None]) -> str:
    """Send an order and follow it to its end; empty where it was carried out, else why not.

    Raises LauncherError where nobody answers, and where the order itself is wrong, so that nothing was begun.
    """
    heard = False
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(CONNECT_S)
            sock.connect(str(path))
            sock.sendall(json.dumps(order).encode() + b"\n")
            _wait(sock, note)
            # Once it has the order it may be silent for as long as a worker drains and loads.
            sock.settimeout(None)
            with sock.makefile(encoding="utf-8") as answers:
                for line in answers:
                    answer = json.loads(line)
                    if "ok" in answer:
                        if not answer["ok"] and not heard:
                            raise _wrong(str(answer.get("error")))
                        return "" if answer["ok"] else str(answer.get("error"))
                    heard = True
                    if "note" in answer:
                        note(answer["note"])
    except (OSError, ValueError) as error:
        raise _problem(f"no answer from {path}: {error}", "see whether the launcher still runs") from None
    return "the launcher ended before it had answered"


def _wait(sock: socket.socket, note: Callable[[str], None]) -> None:
    """Until something can be read. Raises TimeoutError where nothing comes."""
    if not select.select((sock,), (), (), WAITING_S)[0]:
        note(f"waiting: the launcher has not taken the order yet; giving up after {ACCEPT_S:g} s")
        if not select.select((sock,), (), (), ACCEPT_S - WAITING_S)[0]:
            raise TimeoutError(
                f"it has not taken the order in {ACCEPT_S:g} s, and will not begin it: it is stopped or stuck"
            )


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(CONNECT_S)
            sock.connect(str(path))
    except OSError:
        return False  # Left behind by a launcher that was killed together with its init.
    return True


def _problem(what: str, fix: str) -> LauncherError:
    return LauncherError(Finding(code="control-unreachable", what=what, where="the control socket", fix=fix))


def _wrong(what: str) -> LauncherError:
    return LauncherError(Finding(code="order-refused", what=what, where="the command line"))
