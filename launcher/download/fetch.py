"""One model into the cache: list, lock, then the work. What is there and verified needs no network."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from launcher.download import cache, disk, lock, manifest, snapshot
from launcher.download.orders import Options, Order, Outcome
from launcher.download.progress import Reporter
from launcher.download.refusal import Refused, explain
from launcher.download.remote import Hub, Listing, Torn
from launcher.download.transfer import GaveUp, Patience, Stopped
from launcher.download.verdict import human
from launcher.download.work import Download
from launcher.findings import Exit, Finding, LauncherError

WAITING_EVERY_S = 10.0


def run(order: Order, options: Options, reporter: Reporter, stop: threading.Event) -> Outcome:
    """Have the model whole and verified. Raises LauncherError with what stood in the way, or Stopped."""
    repo = cache.repo(options.hub_cache, order.model)
    done = _already(order, options, repo)
    if done is not None:
        return done
    hub = Hub(options.endpoint, options.credential.token)
    try:
        listing = _list(hub, order, options, reporter, stop)
        try:
            with lock.hold(
                repo / manifest.FOLDER / "lock", waiting=_Waiting(order.model, reporter), stop=stop
            ):
                return Download(hub, order, options, repo, listing, reporter, stop).run()
        except OSError as error:
            raise disk.write_error(error, repo, options.cache_where) from None
    except lock.Stopped:
        raise Stopped from None
    except GaveUp as error:
        raise _unreachable(order, options, error) from None
    finally:
        hub.close()


def _already(order: Order, options: Options, repo: Path) -> Outcome | None:
    """A pinned commit that was verified before and has not been touched since needs no network."""
    state = snapshot.inspect(
        order.model, order.revision, options.hub_cache, exclude=order.exclude, tokenizer=order.tokenizer
    )
    if options.verify or not (state.exact and state.complete) or not cache.COMMIT.fullmatch(order.revision):
        return None
    assert state.commit is not None
    assert state.folder is not None
    known = manifest.read(repo, state.commit)
    if known is None:
        return None
    try:
        stamps = {
            entry.blob: manifest.stamp(state.folder / entry.name) for entry in known.wanted(order.exclude)
        }
    except OSError:
        return None
    if any(known.verified.get(blob) != found for blob, found in stamps.items()):
        return None
    return Outcome(order.model, state.commit, state.folder, state.files, state.size, 0)


def _list(hub: Hub, order: Order, options: Options, reporter: Reporter, stop: threading.Event) -> Listing:
    patience = Patience(reporter.note, stop, options.pace)
    while True:
        try:
            return hub.list(order.model, order.revision)
        except Torn as error:
            patience.wait(str(error) if error.tries else f"{options.endpoint}: {error}", tries=error.tries)
        except Refused as error:
            if not error.transient:
                raise explain(
                    error, order.model, order.revision, options.credential, options.endpoint, order.where
                ) from None
            patience.wait(f"the hub answered {error.status}", error.wait_s)


class _Waiting:
    """Says who has the lock, at once and then every ten seconds."""

    def __init__(self, model: str, reporter: Reporter) -> None:
        self._model, self._reporter = model, reporter
        self._began = time.monotonic()
        self._said = float("-inf")

    def __call__(self, holder: str) -> None:
        now = time.monotonic()
        if now - self._said >= WAITING_EVERY_S:
            self._said = now
            self._reporter.note(
                f"{self._model}: another download has it ({holder}); waiting, {now - self._began:.0f} s so far"
            )


def _unreachable(order: Order, options: Options, error: GaveUp) -> LauncherError:
    return LauncherError(
        Finding(
            code="hub-unreachable",
            what=f"gave up on {order.model}: {error}",
            where=options.endpoint,
            why=f"no byte came in {error.tries} tries; what was fetched so far is kept",
            fix="check the network, HTTPS_PROXY and HF_ENDPOINT, then run the same command again",
        ),
        Exit.PROCESS_FAILED,
    )


def summary(outcome: Outcome) -> str:
    """What a person wants to know at the end."""
    came = f", {human(outcome.received)} fetched" if outcome.received else ", nothing to fetch"
    return (
        f"{outcome.model}@{outcome.commit[:12]}: complete, {outcome.files} files, {human(outcome.size)}{came}; "
        f"{outcome.folder}"
    )
