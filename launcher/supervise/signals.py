"""What each signal to the launcher means."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Protocol

SAME_S = 0.5
"""Two requests to stop within this time are one: `pkill` or systemd may signal the init and the launcher both."""


class Stoppable(Protocol):
    def stop(self, reason: str = "") -> None: ...

    def kill(self, reason: str = "") -> None: ...


def install_signals(
    target: Stoppable, on_user: Callable[[int], None] = lambda number: None
) -> Callable[[], None]:
    """Handle signals in the running event loop; returns what ends that, for when the run is over.

    From then on these signals are ignored: one that comes while the process ends must not change its exit code.

    SIGTERM, SIGINT and SIGHUP begin the drain, a second one kills at once, as SIGQUIT does. SIGUSR1 and SIGUSR2 call
    `on_user` with their number and otherwise do nothing. A SIGHUP that was ignored at the start (nohup) stays so.
    RuntimeError outside the main thread.
    """
    loop = asyncio.get_running_loop()
    first: list[float] = []

    def asked(number: signal.Signals) -> None:
        now = time.monotonic()
        if not first:
            first.append(now)
            target.stop(number.name)
        elif now - first[0] >= SAME_S:
            target.kill(f"second request ({number.name})")

    ending = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ending.append(signal.SIGHUP)
    for number in ending:
        loop.add_signal_handler(number, asked, number)
    loop.add_signal_handler(signal.SIGQUIT, target.kill, "SIGQUIT")
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        loop.add_signal_handler(number, on_user, number)

    def remove() -> None:
        for number in (*ending, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)

    return remove
