"""Restart workers of a running deployment, one at a time and without a failed request.

Each worker drains, starts anew with fresh ports, and is routed to again before the next one's turn. Exit codes: 0 done,
2 no such worker, or no launcher that takes the order, 3 it was refused or did not come back.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from launcher import settings
from launcher.cli import status
from launcher.control import SOCKET, client
from launcher.findings import Exit, Finding, LauncherError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="such as decode-1, as `launcher status` shows them"
    )
    parser.add_argument("--all", action="store_true", help="every worker, one after the other")
    parser.add_argument(
        "--force", action="store_true", help="even where requests fail meanwhile: a role's last worker, the frontend"
    )  # fmt: skip
    parser.add_argument("--state-dir", metavar="DIR", help="where the run keeps its private folder")
    parser.add_argument(
        "--run", metavar="NAME", help="the folder of the run there, where several launchers run"
    )
    parser.add_argument("--url", help="find the run by its admin server instead")


def run(args: argparse.Namespace) -> int:
    """Order it and follow it; returns the exit code."""
    if bool(args.names) == args.all:
        raise LauncherError(
            Finding(
                code="command-line",
                what="a restart needs names, or --all"
                if not args.all
                else "names and --all exclude each other",
                where="the command line",
                fix="launcher restart decode-1, or launcher restart --all",
            )
        )
    order = {"do": "restart", "names": args.names, "force": args.force}
    problem = client.ask(_socket(args), order, lambda text: print(text, flush=True))
    if problem:
        print(problem, flush=True)
        return int(Exit.CHECK_FAILED)
    return int(Exit.OK)


def _socket(args: argparse.Namespace) -> Path:
    if args.url is not None:
        return Path(status.fetch(args.url)["plan"]["run_dir"]) / SOCKET
    loaded, _ = settings.load({"state_dir": args.state_dir} if args.state_dir is not None else {})
    state = (loaded.state_dir or settings.default_state_dir()).absolute()
    return state / args.run / SOCKET if args.run else client.find(state)
