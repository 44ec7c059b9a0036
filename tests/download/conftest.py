"""A hub with a small model laid out as the 120b is, and a cache of the test's own to fetch it into."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.download import credentials, fetch, snapshot
from launcher.download.orders import Options, Order, Outcome
from launcher.download.progress import Lines
from tests.download.standin import COMMIT, MODEL, Hub, Repo

SHARDS = ("model-00000-of-00001.safetensors", "model-00001-of-00001.safetensors")
Run = Callable[..., Outcome]


def shard(size: int, seed: int) -> bytes:
    """A safetensors file with one tensor of `size` bytes that no compression makes small."""
    header = json.dumps({f"t{seed}": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + hashlib.shake_128(bytes([seed])).digest(size)


def repo(size: int = 3_000_000) -> Repo:
    """A model laid out as the 120b is, a few MB small."""
    index = {"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}
    return Repo(
        {
            "config.json": b"{}",
            "tokenizer.json": b"{}" * 200_000,
            "model.safetensors.index.json": json.dumps(index).encode(),
            SHARDS[0]: shard(size, 1),
            SHARDS[1]: shard(size // 2, 2),
            "original/model.safetensors": shard(size, 3),
            "metal/model.bin": b"m" * 500_000,
            "empty.txt": b"",
        }
    )


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A running hub with no model."""
    server = Hub()
    yield server
    server.close()


@pytest.fixture(scope="session")
def vocabulary() -> Path:
    """The real vocabulary, which is test data beside the project."""
    path = Path(__file__).resolve().parents[3] / "shared" / "harmony" / "o200k_base.tiktoken"
    if not path.exists():
        pytest.skip(f"no {path}")
    return path


@pytest.fixture
def run(hub: Hub, tmp_path: Path) -> Run:
    """Fetches the model of `hub` into a cache of this test."""
    hub.repos[MODEL] = repo()

    def fetch_it(
        model: str = MODEL, revision: str = COMMIT, *, out: io.StringIO | None = None, **values: Any
    ) -> Outcome:
        environ = {"HOME": str(tmp_path)} | values.pop("environ", {})
        options = Options(
            hub_cache=tmp_path / "hub",
            cache_where="HF_HOME",
            endpoint=hub.url,
            credential=credentials.find(environ),
            pace=0.01,
            **values,
        )
        order = Order(model, revision, ("metal/*", "original/*"), True, "model.id")
        return fetch.run(order, options, Lines(out or io.StringIO()), threading.Event())

    return fetch_it


def state(tmp_path: Path, revision: str = COMMIT) -> snapshot.SnapshotState:
    return snapshot.inspect(MODEL, revision, tmp_path / "hub", exclude=("metal/*", "original/*"))
