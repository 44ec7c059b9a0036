"""Have the target's model, draft head and harmony vocabulary on disk, whole and verified."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from launcher.cli import common
from launcher.download import cache, credentials, harmony, needs, snapshot, verdict
from launcher.download.orders import Options
from launcher.download.progress import Reporter, choose
from launcher.findings import Exit, Finding, LauncherError, Severity
from launcher.target.resolve import Resolved


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    common.add_target_options(parser, hidden=(*common.ONLY_SERVING, *common.ONLY_PLANNING))
    group = parser.add_argument_group("how to download")
    group.add_argument(
        "--jobs", type=_count, default=8, metavar="N", help="files fetched at once (default 8)"
    )
    group.add_argument("--verify", action="store_true", help="hash again what was found right before")
    group.add_argument(
        "--vocabulary",
        default=harmony.URL,
        metavar="SOURCE",
        help=f"address, file or folder of {harmony.FILE} (default: OpenAI's public copy)",
    )
    parser.epilog = (
        "Goes on where an earlier run stopped. Reads HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE, "
        "HTTPS_PROXY. Exit codes: 0 all there; 2 token, model or revision is wrong; 3 disk, hash or offline mode; "
        "4 the hub could not be reached; 130 or 143 interrupted."
    )


def run(args: argparse.Namespace) -> int:
    """Download what the target needs."""
    loaded = common.load(args)
    reporter = choose(sys.stdout, as_json=loaded.settings.log_format == "json")
    with _stoppable() as stop:
        from launcher.download.transfer import Stopped

        try:
            _download(args, loaded.resolved, reporter, stop)
        except Stopped:
            reporter.note("interrupted; the same command goes on from here")
            return 128 + (stop.signal or signal.SIGINT)
    return Exit.OK


class _Stop(threading.Event):
    """Set by a signal, which it remembers."""

    signal: int = 0


@contextmanager
def _stoppable() -> Iterator[_Stop]:
    """SIGTERM and SIGINT end the download in order; as PID 1 of a job they would do nothing by themselves."""
    stop = _Stop()

    def handle(number: int, _: FrameType | None) -> None:
        stop.signal = number
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _download(
    args: argparse.Namespace, resolved: Resolved, reporter: Reporter, stop: threading.Event
) -> None:
    environ = os.environ
    target = resolved.target
    orders = needs.orders(resolved)
    if needs.vocabulary(target):
        from launcher.download import stage

        path = stage.vocabulary(environ, args.vocabulary, reporter, stop)
        reporter.note(f"harmony vocabulary: complete; {path}")
    if needs.simulated(target):
        nothing = "no model" if needs.vocabulary(target) else "no model and no vocabulary"
        reporter.note(f"{target.name} on {target.engine.kind} uses the built-in model: {nothing} to download")
    elif target.model.path is not None:
        reporter.note(f"{target.model.id} is served from {target.model.path}: not downloaded")
    if not orders:
        return
    blocked = cache.offline(environ)
    if blocked is not None:
        _offline(resolved, blocked, reporter)
        return
    credential = credentials.find(environ)
    if credential.finding is not None:
        raise LauncherError(credential.finding)
    from launcher.download import fetch

    options = Options(
        hub_cache=cache.hub(environ),
        cache_where=cache.hub_origin(environ),
        endpoint=cache.endpoint(environ),
        credential=credential,
        workers=args.jobs,
        verify=args.verify,
    )
    for order in orders:
        outcome = fetch.run(order, options, reporter, stop)
        reporter.note(fetch.summary(outcome))
        for finding in outcome.findings:
            print(finding.line(), file=sys.stderr)


def _offline(resolved: Resolved, blocked: str, reporter: Reporter) -> None:
    """Offline mode: what is there must do."""
    hub_cache = cache.hub(os.environ)
    wrong: list[Finding] = []
    for order in needs.orders(resolved):
        state = snapshot.inspect(
            order.model, order.revision, hub_cache, exclude=order.exclude, tokenizer=order.tokenizer
        )
        wrong += verdict.findings(
            state,
            where=order.where,
            fix=f"unset {blocked}, then launcher download --target {resolved.target.name}",
        )
        if state.complete:
            reporter.note(f"{order.model}: complete in {state.folder}; {blocked} is set, nothing was fetched")
    if any(finding.severity is Severity.ERROR for finding in wrong):
        raise LauncherError(wrong, Exit.CHECK_FAILED)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 64")
    return int(text)
