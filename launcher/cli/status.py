"""Show how a running deployment is: processes, phases, restarts, capacity, figures, incidents.

Exit codes: 0 ready, 3 not ready, 2 nothing answers.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from typing import Any

from launcher.checks.reach import said
from launcher.cli.addresses import addresses, http_url
from launcher.cli.numbers import real
from launcher.findings import Exit, Finding, LauncherError
from launcher.settings import load as load_settings

TIMEOUT_S = 5.0
MAX_BYTES = 16 << 20
INCIDENTS = 5
"""Newest incidents shown."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--url",
        help="the admin server (default: http://127.0.0.1:9000, or as LAUNCHER_ADMIN_PORT, LAUNCHER_ADMIN_HOST "
        "and LAUNCHER_TARGET say)",
    )
    parser.add_argument("--json", action="store_true", help="the page /status as it is")
    parser.add_argument("--watch", action="store_true", help="show it again and again, until Ctrl-C")
    parser.add_argument("--interval", type=real(0.1), default=1.0, metavar="SECONDS", help="of --watch")


def run(args: argparse.Namespace) -> int:
    """Print the status once, or until interrupted."""
    if args.url is None:
        url, where, *_ = addresses()
    else:
        load_settings({})  # a misspelt LAUNCHER_ variable is said here too
        url, where = args.url, "--url"
    if not args.watch:
        page = fetch(url, where)
        sys.stdout.write(_text(page, as_json=args.json))
        return _code(page)
    code = int(Exit.CHECK_FAILED)
    try:
        while True:
            page = fetch(url, where)
            code = _code(page)
            home = "\x1b[H\x1b[J" if sys.stdout.isatty() and not args.json else ""
            sys.stdout.write(home + _text(page, as_json=args.json, compact=True))
            sys.stdout.flush()
            time.sleep(args.interval)
    except KeyboardInterrupt:
        return code


def fetch(url: str, where: str = "--url") -> dict[str, Any]:
    """The page /status; `where` is what gave the address. Raises LauncherError where there is none."""
    address = http_url(url, where)
    # Without a proxy: the admin server is on this machine or in this cluster.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address + "/status", timeout=TIMEOUT_S) as response:
            page = json.loads(response.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        raise _unreachable(
            where, f"{url} answers {error.code}, so it is not a launcher's admin server"
        ) from None
    except urllib.error.URLError as error:
        reason = error.reason if isinstance(error.reason, str) else said(error.reason, TIMEOUT_S)
        raise _unreachable(where, f"nothing answers at {url}: {reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(where, f"no answer from {url}: {said(error, TIMEOUT_S)}") from None
    except ValueError:
        raise _unreachable(where, f"what {url} answers is not a launcher's status") from None
    if not isinstance(page, dict) or "processes" not in page:
        raise _unreachable(where, f"what {url} answers is not a launcher's status")
    return page


def _unreachable(where: str, what: str) -> LauncherError:
    return LauncherError(
        Finding(
            code="status-unreachable",
            what=what,
            where=where,
            fix="the launcher's first log line names its admin address; give it as --url http://HOST:PORT",
        )
    )


def _code(page: dict[str, Any]) -> int:
    return int(Exit.OK if page.get("ready") else Exit.CHECK_FAILED)


def _text(page: dict[str, Any], *, as_json: bool, compact: bool = False) -> str:
    if as_json:
        return json.dumps(page, indent=None if compact else 2) + "\n"
    # Here, not above: with --json a script waits for none of it.
    import io
    import os

    from rich.console import Console

    from launcher.observe.view.board import board

    terminal = sys.stdout.isatty()
    console = Console(
        file=io.StringIO(),
        # A pipe has no width: nothing is cut there.
        width=os.get_terminal_size().columns if terminal else 200,
        force_terminal=terminal and "NO_COLOR" not in os.environ,
        highlight=False,
    )
    with console.capture() as capture:
        console.print(board(page, columns=console.width))
        for incident in (page.get("incidents") or [])[:INCIDENTS]:
            console.print(
                f"incident {incident['time']}  {incident['what']}: {incident.get('outcome', '')}",
                markup=False,
            )
            console.print(f"  {incident['path']}", style="dim", markup=False, soft_wrap=True)
        earlier = page.get("earlier_incidents") or {}
        if count := earlier.get("count"):
            text = f"{count} earlier incident{'s' * (count > 1)} in {earlier['folder']}"
            console.print(text, style="dim", markup=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
