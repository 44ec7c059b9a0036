"""The command line: one thin module per command, imported only when its command is asked for."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

from launcher.cli.streams import Errors, Output, OutputError, open_streams, write_no_more
from launcher.findings import Exit, Finding, LauncherError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

COMMANDS: dict[str, str] = {
    "serve": "start a target's deployment and keep it serving (the default)",
    "plan": "show the exact processes, environments, ports and deadlines; starts nothing",
    "doctor": "check target, releases, machine, model and environment; starts nothing",
    "explain": "say what lies behind a finding's code",
    "render": "write a target's Kubernetes manifests",
    "smoke": "ask a running deployment what its clients will ask",
    "status": "show how a running deployment is",
    "restart": "restart workers one at a time, without a failed request",
    "targets": "list the targets, and which of them fit this machine",
    "download": "have the model, the draft head and the harmony vocabulary on disk, verified",
    "trace": "make a benchmark trace from a seed, or check one",
    "simulate": "predict throughput and latency of every split of a target's GPUs, without GPUs",
    "bench": "measure a deployment with AIPerf, one point or a sweep, beside the published figures",
}
"""Command to its one line of help; each is the module `launcher.cli.<command>` with `configure` and `run`."""


BRIEF = ("plan", "doctor", "targets", "explain")
"""Commands that end before garbage could matter."""


class Parser(argparse.ArgumentParser):
    """argparse with our error form and exit code, and without guessing abbreviated flags."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # argparse drops an OSError here: help that nobody got would look like help.
        if message:
            (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        fix = f"see {self.prog} --help"
        if message.startswith("unrecognized arguments:"):
            # An empty argument leaves nothing to split.
            unknown = (message.partition(":")[2].split() or [""])[0].partition("=")[0]
            known = [flag for action in self._actions for flag in action.option_strings]
            fix = did_you_mean(unknown, known) if unknown.startswith("-") else fix
        raise LauncherError(Finding(code="command-line", what=message, where="the command line", fix=fix))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. Errors go to stderr, one finding a line, never a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    open_streams()
    # Imports make much garbage of no cycles: collecting meanwhile is a tenth of a dry run's time.
    gc.disable()
    plain, plain_errors = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast("TextIO", Output(plain)), cast("TextIO", Errors(plain_errors))
    code = int(Exit.OK)
    try:
        try:
            code = _told(arguments)
        finally:
            # Not at the interpreter's exit, where a failure is a complaint of Python's and exit code 120.
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # `launcher plan | head`: the reader has what it wanted.
        write_no_more(plain)
        return code
    except OutputError as error:
        write_no_more(plain)
        return _say(
            LauncherError(Finding(code="output", what=f"cannot write to standard output: {error.strerror}"))
        )
    finally:
        sys.stdout, sys.stderr = plain, plain_errors
        gc.enable()


def _told(arguments: list[str]) -> int:
    try:
        return _dispatch(arguments)
    except LauncherError as error:
        return _say(error)
    except KeyboardInterrupt:
        return 130


def _say(error: LauncherError) -> int:
    """One finding a line; returns the exit code."""
    for finding in error.findings:
        print(finding.line(), file=sys.stderr)
    return int(error.exit_code)


def _dispatch(arguments: list[str]) -> int:
    name = "serve"
    if arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        if name not in COMMANDS:
            raise LauncherError(
                Finding(
                    code="command-line",
                    what=f"there is no command {name!r}",
                    where="the command line",
                    fix=did_you_mean(name, COMMANDS),
                )
            )
    elif not arguments and "LAUNCHER_TARGET" not in os.environ:
        from launcher import settings

        settings.load({})  # a misspelt LAUNCHER_TARGET is said, not the lack of one
        _overview().print_help()
        sys.stdout.flush()
        raise LauncherError(
            Finding(
                code="target-missing",
                what="no target was named",
                where="the command line",
                fix="give --target NAME, or set LAUNCHER_TARGET; launcher targets lists them",
            )
        )
    elif arguments and arguments[0] in ("-h", "--help"):
        _overview().print_help()
        return int(Exit.OK)
    elif arguments and arguments[0] == "--version":
        from launcher import __version__

        print(f"launcher {__version__}")
        return int(Exit.OK)
    module = importlib.import_module(f"launcher.cli.{name.replace('-', '_')}")
    parser = Parser(prog=f"launcher {name}", description=module.__doc__)
    module.configure(parser)
    parsed = parser.parse_args(arguments)
    if name not in BRIEF and not getattr(parsed, "dry_run", False):
        gc.enable()
    return int(module.run(parsed))


def _overview() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return Parser(
        prog="launcher",
        usage="launcher [serve] --target NAME [options]\n       launcher COMMAND [options]",
        description="Turns a named target into a running deployment of gpt-oss-120b on NVIDIA Dynamo.",
        epilog=f"commands:\n{listing}\n\nlauncher COMMAND --help says more. Exit codes: 0 stopped as asked, "
        "2 wrong command line,\nenvironment or target, 3 a check failed, 4 a process failed for good, "
        "5 something had to be killed.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=True,
    )
