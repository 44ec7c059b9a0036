"""Which files a model folder must have, and whether a weights file is whole, from the files themselves."""

from __future__ import annotations

import json
import struct
from pathlib import Path, PurePosixPath
from typing import Any

INDEX = "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tiktoken.model")
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
MAX_JSON = 64 << 20
MAX_HEADER = 100 << 20
"""Bytes of a safetensors header; the format's own limit is 100 MB."""


class Unreadable(Exception):
    """A file of the folder says nothing sensible; the text says what."""


def required(folder: Path, *, tokenizer: bool) -> tuple[str, ...]:
    """Names that the folder must have: config, weights, tokenizer. Raises Unreadable for a broken index."""
    names = ["config.json"]
    if tokenizer:
        names += [name for name in TOKENIZERS if (folder / name).exists()] or [TOKENIZERS[0]]
    if (folder / INDEX).exists():
        return (*names, INDEX, *shards(folder / INDEX))
    single = sorted(path.name for path in folder.glob("*.safetensors"))
    torch = sorted(path.name for path in folder.glob("pytorch_model*.bin"))
    # Shards are named after their number (model-00001-of-00015): without an index nothing says what is missing.
    if any("-of-" in name for name in single):
        names.append(INDEX)
    return (*names, *(single or torch or ["model.safetensors"]))


def shards(index: Path) -> tuple[str, ...]:
    """The weights files that an index names. Raises Unreadable."""
    try:
        if index.stat().st_size > MAX_JSON:
            raise Unreadable("is larger than any index")
        content = index.read_bytes()
        if content.startswith(LFS_POINTER):
            return ()  # said by the check for pointers
        table: Any = json.loads(content)["weight_map"]
        names = sorted({str(name) for name in table.values()})
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unreadable("is no index (JSON with a weight_map)") from None
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name:
            raise Unreadable(f"names a file outside the model: {name!r}")
    return tuple(names)


def is_pointer(path: Path) -> bool:
    """Whether the file is what git leaves where Git LFS was not installed. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def safetensors_size(path: Path) -> int:
    """Bytes that the file's own header says it has. Raises OSError or Unreadable.

    Layout: 8 bytes little-endian length N, N bytes of JSON with each tensor's `data_offsets`, then the data.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            raise Unreadable(f"is {size} bytes long")
        (length,) = struct.unpack("<Q", start)
        if not 2 <= length <= MAX_HEADER:
            raise Unreadable("is no safetensors file")
        text = file.read(length)
    if len(text) < length:
        raise Unreadable(f"ends inside its header, after {size} bytes")
    try:
        tensors: Any = json.loads(text)
        ends: list[int] = [
            int(entry["data_offsets"][1]) for name, entry in tensors.items() if name != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise Unreadable("is no safetensors file") from None
    return int(8 + length + max(ends, default=0))
