"""Whether a model is whole in the Hugging Face cache or in a folder. Reads files, imports nothing heavy."""

from __future__ import annotations

import enum
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.download import cache, manifest, weights


class Fault(enum.StrEnum):
    """What can be wrong with one file."""

    MISSING = "missing"
    SIZE = "wrong size"
    POINTER = "Git LFS pointer"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Problem:
    """One file that is not as it must be."""

    name: str
    fault: Fault
    detail: str = ""

    def text(self) -> str:
        """The file and what is wrong with it."""
        return f"{self.name} ({self.detail or self.fault.value})"


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """A model on disk."""

    model: str
    revision: str
    """As asked for: a branch, a tag or a commit."""
    repo: Path
    """The model's folder in the cache, or the local folder itself."""
    commit: str | None
    """What the revision stands for here; None where the cache does not know it."""
    folder: Path | None
    """The folder with the files, None where there is none for the revision."""
    exact: bool = False
    """Judged by the hub's own list of files, else by the model's index and the files' headers."""
    files: int = 0
    """Files that are there and right."""
    size: int = 0
    """Bytes of those."""
    problems: tuple[Problem, ...] = ()
    torn: tuple[tuple[str, int], ...] = ()
    """Partial downloads, `.incomplete` files, with their bytes: of an interrupted or a running download."""
    commits: tuple[str, ...] = ()
    """Every commit that has a folder here."""

    @property
    def complete(self) -> bool:
        """Whether an engine can load it."""
        return self.folder is not None and not self.problems

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the files that are not there at all."""
        return tuple(problem.name for problem in self.problems if problem.fault is Fault.MISSING)


def inspect(
    model: str, revision: str, hub_cache: Path, *, exclude: Sequence[str] = (), tokenizer: bool = True
) -> SnapshotState:
    """The state of a model in a hub cache. Never raises for what is on disk.

    `tokenizer` is False for a draft head, which uses its base model's. A few ms for the 120b (15 headers are read).
    """
    repo = cache.repo(hub_cache, model)
    commits = tuple(
        sorted(path.name for path in _folder(repo / "snapshots") if cache.COMMIT.fullmatch(path.name))
    )
    torn = tuple(
        (path.name, _size(path))
        for path in sorted(_folder(repo / "blobs"))
        if path.name.endswith(".incomplete")
    )
    commit = resolve(repo, revision)
    if commit is None or not _is_folder(repo / "snapshots" / commit):
        return SnapshotState(model, revision, repo, commit, None, torn=torn, commits=commits)
    folder = repo / "snapshots" / commit
    known = manifest.read(repo, commit)
    return _judge(
        SnapshotState(model, revision, repo, commit, folder, known is not None, torn=torn, commits=commits),
        known.wanted(exclude) if known is not None else None,
        tokenizer,
    )


def inspect_folder(model: str, folder: Path, *, tokenizer: bool = True) -> SnapshotState:
    """The same for a model that is served from a folder (`model.path`)."""
    if not _is_folder(folder):
        return SnapshotState(model, "", folder, None, None)
    return _judge(SnapshotState(model, "", folder, None, folder), None, tokenizer)


def resolve(repo: Path, revision: str) -> str | None:
    """The commit that a revision stands for in this cache, None where the cache does not know."""
    if cache.COMMIT.fullmatch(revision):
        return revision
    if ".." in revision.split("/") or revision.startswith("/"):
        return None
    try:
        text = (repo / "refs" / revision).read_text(errors="replace")[:100].strip()
    except (OSError, ValueError):
        return None
    # A name that is no commit could lead out of the folder; the simulated model's commit is 40 digits too.
    return text if cache.COMMIT.fullmatch(text) else None


def _judge(state: SnapshotState, listed: Sequence[manifest.Entry] | None, tokenizer: bool) -> SnapshotState:
    assert state.folder is not None
    expected: dict[str, int | None]
    problems: list[Problem] = []
    if listed is not None:
        expected = {entry.name: entry.size for entry in listed}
    else:
        try:
            expected = dict.fromkeys(weights.required(state.folder, tokenizer=tokenizer))
        except weights.Unreadable as error:
            expected = {"config.json": None}
            problems.append(Problem(weights.INDEX, Fault.UNREADABLE, f"{weights.INDEX} {error}"))
    files = size = 0
    for name, wanted in expected.items():
        found = list(_faults(state.folder / name, name, wanted))
        problems += found
        if not found:
            files += 1
            size += _size(state.folder / name)
    return SnapshotState(
        state.model,
        state.revision,
        state.repo,
        state.commit,
        state.folder,
        state.exact,
        files,
        size,
        tuple(problems),
        state.torn,
        state.commits,
    )


def _faults(path: Path, name: str, size: int | None) -> Iterator[Problem]:
    """What is wrong with one file, at most one thing."""
    try:
        seen = path.stat()
        actual = seen.st_size
        if not stat.S_ISREG(seen.st_mode):
            yield Problem(name, Fault.UNREADABLE, "is not a file")
            return
        # A pointer is about 130 bytes, and a file of the right size is none.
        if actual != size and actual < 1024 and weights.is_pointer(path):
            yield Problem(name, Fault.POINTER)
        elif size is not None and actual != size:
            yield Problem(name, Fault.SIZE, f"{actual} bytes of {size}")
        elif size is None and name.endswith(".safetensors"):
            own = weights.safetensors_size(path)
            if own != actual:
                yield Problem(name, Fault.SIZE, f"{actual} bytes, its header says {own}")
        elif size is None and actual == 0:
            yield Problem(name, Fault.SIZE, "empty")
    except FileNotFoundError:
        detail = "its blob is gone" if path.is_symlink() else ""
        yield Problem(name, Fault.MISSING, detail)
    except OSError as error:
        yield Problem(name, Fault.UNREADABLE, (error.strerror or str(error)).lower())
    except weights.Unreadable as error:
        yield Problem(name, Fault.SIZE, str(error))


def _folder(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
