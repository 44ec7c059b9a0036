"""Where Hugging Face's tools keep models, and what their variables say.

The same rules as huggingface_hub's `constants` (1.x), read from a given environment instead of at import, and
without importing it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

PUBLIC_ENDPOINT = "https://huggingface.co"
COMMIT = re.compile(r"[0-9a-f]{40}")
"""A revision that names one commit for good; anything else is a branch or a tag."""
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def home(environ: Mapping[str, str]) -> Path:
    """HF_HOME, else the `huggingface` folder of the user's caches."""
    given = environ.get("HF_HOME")
    if given:
        return _path(given, environ)
    caches = environ.get("XDG_CACHE_HOME")
    return (_path(caches, environ) if caches else _user(environ) / ".cache") / "huggingface"


def hub(environ: Mapping[str, str]) -> Path:
    """The folder with one `models--ORG--NAME` per model."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        given = environ.get(name)
        if given:
            return _path(given, environ)
    return home(environ) / "hub"


def hub_origin(environ: Mapping[str, str]) -> str:
    """The variable that decides where the model cache is, for messages."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        if environ.get(name):
            return name
    return "the default, HF_HOME is not set"


def repo(hub_cache: Path, model: str) -> Path:
    """The folder of one model in a hub cache."""
    return hub_cache / ("models--" + model.replace("/", "--"))


def endpoint(environ: Mapping[str, str]) -> str:
    """The hub's address, without a trailing slash."""
    return (environ.get("HF_ENDPOINT") or PUBLIC_ENDPOINT).rstrip("/")


def offline(environ: Mapping[str, str]) -> str | None:
    """The variable that forbids the network, or None."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if environ.get(name, "").upper() in _TRUE:
            return name
    return None


def _user(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or os.path.expanduser("~"))


def _path(text: str, environ: Mapping[str, str]) -> Path:
    """Absolute, with `~` and `$NAME` replaced as huggingface_hub does."""
    text = re.sub(r"\$(\w+|\{\w+\})", lambda found: environ.get(found[1].strip("{}"), found[0]), text)
    if text == "~" or text.startswith("~/"):
        text = str(_user(environ)) + text[1:]
    return Path(os.path.abspath(text))
