"""The part of a download that happens under the lock: disk, threads, verification, refs."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from launcher.download import disk, manifest, snapshot, store, transfer
from launcher.download.manifest import Entry, Manifest
from launcher.download.orders import Options, Order, Outcome
from launcher.download.progress import Counter, Reporter
from launcher.download.refusal import Refused, explain
from launcher.download.remote import Hub, Listing
from launcher.download.transfer import Corrupt, Patience, Stopped
from launcher.findings import Exit, Finding, LauncherError, Severity

SMALL = 16 << 20
"""Files up to here go first: a wrong token or a full disk then shows at once."""
TICK_S = 0.1
SAME_NOTE_S = 10.0


class Download:
    """The work under the lock."""

    def __init__(
        self,
        hub: Hub,
        order: Order,
        options: Options,
        repo: Path,
        listing: Listing,
        reporter: Reporter,
        stop: threading.Event,
    ) -> None:
        self._hub, self._order, self._options, self._repo = hub, order, options, repo
        self._commit = listing.commit
        self._reporter, self._outer_stop = reporter, stop
        self._stop = threading.Event()
        known = manifest.read(repo, listing.commit)
        verified = dict(known.verified) if known is not None and not options.verify else {}
        self._manifest = Manifest(order.model, listing.commit, listing.entries, verified)
        self._verified = verified
        self._keeping = threading.Lock()
        self._wanted = self._manifest.wanted(order.exclude)
        self._counter = Counter(sum(entry.size for entry in self._wanted), len(self._wanted))
        self._failures: list[BaseException] = []
        self._noted: dict[str, float] = {}

    def run(self) -> Outcome:
        order = self._order
        if not self._wanted:
            raise LauncherError(
                Finding(code="model-empty", what=f"{order.model} has no file to fetch", where=order.where)
            )
        self._check_disk()
        manifest.write(self._repo, self._manifest)
        (self._repo / "blobs").mkdir(parents=True, exist_ok=True)
        self._reporter.begin(f"{order.model}@{self._commit[:12]}")
        try:
            self._work()
        finally:
            self._reporter.end()
        if self._failures:
            raise self._failure(self._failures[0])
        return self._finish()

    def _check_disk(self) -> None:
        needed = 0
        for entry in (group[0] for group in self._groups()):
            if store.present(self._repo, self._commit, entry) is None:
                part = transfer.partial(store.blob(self._repo, entry))
                needed += max(0, entry.size - (part.stat().st_size if part.exists() else 0))
        disk.check(self._repo, needed, what=self._order.model, where=self._options.cache_where)

    def _work(self) -> None:
        """Run the threads until all files are done, one failed, or somebody asks to stop."""
        todo: queue.SimpleQueue[list[Entry]] = queue.SimpleQueue()
        for group in self._groups():
            todo.put(group)
        # Daemons: a thread that hangs in a dead connection must not keep the process from ending.
        threads = [
            threading.Thread(target=self._worker, args=(todo,), name=f"download-{number}", daemon=True)
            for number in range(min(self._options.workers, len(self._wanted)))
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                if self._outer_stop.wait(TICK_S):
                    raise Stopped
                self._reporter.show(self._counter.state())
            self._reporter.show(self._counter.state(), last=True)
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(timeout=5.0)

    def _groups(self) -> list[list[Entry]]:
        """The files by content, because two threads must not write one blob: small ones first, then by size."""
        groups: dict[str, list[Entry]] = {}
        for entry in self._wanted:
            groups.setdefault(entry.blob, []).append(entry)
        return sorted(groups.values(), key=lambda group: (group[0].size > SMALL, -group[0].size))

    def _worker(self, todo: queue.SimpleQueue[list[Entry]]) -> None:
        try:
            while not self._stop.is_set():
                try:
                    group = todo.get_nowait()
                except queue.Empty:
                    return
                for entry in group:
                    self._have(entry)
        except Stopped:
            pass
        except BaseException as error:
            # Told to the main thread, which raises it.
            self._failures.append(error)
            self._stop.set()

    def _have(self, entry: Entry) -> None:
        """One file whole, verified and in its place."""
        path = store.present(self._repo, self._commit, entry)
        part = transfer.partial(store.blob(self._repo, entry))
        have = 0 if path is not None or not part.exists() else min(part.stat().st_size, entry.size)
        self._counter.begin(entry.name, entry.size, have)
        if path is None or not self._is_right(path, entry):
            self._fetch(entry)
        store.link(self._repo, self._commit, entry)
        self._keep(entry)
        self._counter.finish(entry.name)

    def _is_right(self, path: Path, entry: Entry) -> bool:
        """Whether a file that is there hashes right; what was hashed before and not touched since is."""
        if self._verified.get(entry.blob) == manifest.stamp(path):
            self._counter.add(entry.name, entry.size, received=False)
            return True
        digest = transfer.hash_file(
            path, entry, stop=self._stop, on_bytes=self._on_bytes(entry, received=False)
        )
        if digest.hexdigest() == entry.blob:
            return True
        self._note(f"{entry.name}: the file in the cache is corrupt, fetching it again")
        self._counter.add(entry.name, -entry.size, received=False)
        store.place(self._repo, self._commit, entry).unlink(missing_ok=True)
        return False

    def _fetch(self, entry: Entry) -> None:
        blob = store.blob(self._repo, entry)
        url = self._hub.url(self._order.model, self._commit, entry.name)
        for last in (False, True):
            patience = Patience(self._note, self._stop, self._options.pace)
            try:
                transfer.fetch(
                    self._hub,
                    url,
                    entry,
                    blob,
                    patience=patience,
                    stop=self._stop,
                    on_bytes=self._on_bytes(entry),
                )
                return
            except Corrupt as error:
                part = transfer.partial(blob)
                self._counter.add(entry.name, -min(part.stat().st_size, entry.size))
                part.unlink(missing_ok=True)
                if last:
                    raise
                self._note(f"{error}; fetching it again from its start")

    def _on_bytes(self, entry: Entry, *, received: bool = True) -> Callable[[int], None]:
        return lambda count: self._counter.add(entry.name, count, received=received)

    def _keep(self, entry: Entry) -> None:
        """Remember that the file is right, so that no later run hashes it again."""
        with self._keeping:
            self._verified[entry.blob] = manifest.stamp(store.place(self._repo, self._commit, entry))
            manifest.write(self._repo, self._manifest)

    def _note(self, text: str) -> None:
        """Eight threads that are refused together say so once."""
        now = time.monotonic()
        with self._keeping:
            said = now - self._noted.get(text, float("-inf")) < SAME_NOTE_S
            self._noted[text] = now
        if not said:
            self._reporter.note(text)

    def _finish(self) -> Outcome:
        order = self._order
        other = store.set_refs(self._repo, order.revision, self._commit)
        state = snapshot.inspect(
            order.model,
            self._commit,
            self._options.hub_cache,
            exclude=order.exclude,
            tokenizer=order.tokenizer,
        )
        assert state.folder is not None
        findings = [_skew(order, self._commit, other, self._repo)] if other is not None else []
        received = self._counter.state().received
        return Outcome(
            order.model, self._commit, state.folder, state.files, state.size, received, tuple(findings)
        )

    def _failure(self, error: BaseException) -> BaseException:
        order, options = self._order, self._options
        if isinstance(error, Refused):
            return explain(
                error, order.model, order.revision, options.credential, options.endpoint, order.where
            )
        if isinstance(error, Corrupt):
            return LauncherError(
                Finding(
                    code="download-corrupt",
                    what=f"{order.model}: {error}, twice",
                    where=options.endpoint,
                    why="a proxy or a mirror changes what passes through it, or a disk does",
                    fix="try another mirror or volume (HF_ENDPOINT, HF_HOME)",
                ),
                Exit.CHECK_FAILED,
            )
        return error


def _skew(order: Order, commit: str, other: str, repo: Path) -> Finding:
    return Finding(
        code="revision-skew",
        what=f"{order.model}: `main` in the cache is {other[:12]}, the target pins {commit[:12]}",
        severity=Severity.WARNING,
        where=str(repo / "refs" / "main"),
        why="Dynamo's frontend reads tokenizer and chat template from `main`, the workers read the pinned one",
        fix=f"delete {repo / 'refs' / 'main'} and download again, unless something else on this volume needs it",
    )
