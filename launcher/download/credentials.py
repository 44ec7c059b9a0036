"""The Hugging Face token: where it was looked for, what was found, what is wrong with it at first sight."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.download import cache
from launcher.findings import Finding

TOKENS_URL = "https://huggingface.co/settings/tokens"
SECRET_COMMAND = "kubectl create secret generic hf-token-secret --from-literal=HF_TOKEN=hf_..."
_PLACEHOLDER = re.compile(
    r"^(hf_\.\.\.|hf_x+|<.*>|your[-_ ]?(hf[-_ ]?)?token.*|changeme|token|xxx+)$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Credential:
    """A token or the lack of one."""

    token: str | None
    where: str
    """The variable or file that it came from; empty where there is none."""
    searched: tuple[str, ...]
    """Every place that was looked at, with what was there."""
    finding: Finding | None = None
    """What is wrong with the value itself."""

    def __repr__(self) -> str:
        # The token is a secret: it must not end in a log through a traceback or an assertion.
        return f"Credential(where={self.where!r})"


def find(environ: Mapping[str, str]) -> Credential:
    """The token that huggingface_hub would send: HF_TOKEN, HUGGING_FACE_HUB_TOKEN, then the token file."""
    searched: list[str] = []
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        raw = environ.get(name)
        if raw and _clean(raw):
            return _found(raw, name, (*searched, f"{name} (used)"))
        searched.append(f"{name} ({'not set' if raw is None else 'empty'})")
    path = Path(environ.get("HF_TOKEN_PATH") or cache.home(environ) / "token")
    try:
        raw = path.read_text(errors="replace")
    except FileNotFoundError:
        searched.append(f"{path} (no such file)")
    except OSError as error:
        searched.append(f"{path} ({(error.strerror or 'unreadable').lower()})")
    else:
        if _clean(raw):
            return _found(raw, str(path), (*searched, f"{path} (used)"))
        searched.append(f"{path} (empty)")
    return Credential(None, "", tuple(searched))


def _clean(raw: str) -> str:
    return raw.strip()


def _found(raw: str, where: str, searched: tuple[str, ...]) -> Credential:
    token = _clean(raw)
    problem = ""
    if _PLACEHOLDER.match(token):
        problem = "is a placeholder, not a token"
    elif token[0] in "'\"" or token[-1] in "'\"":
        problem = "has quotation marks around it, which became part of the value"
    elif not token.isascii() or not token.isprintable() or " " in token:
        problem = "has characters that no token has (a line break, a space, or not ASCII)"
    finding = None
    if problem:
        finding = Finding(
            code="token-malformed",
            what=f"the Hugging Face token {problem}",
            where=where,
            why="the hub answers 401 to it, even for a public model",
            fix=f"make one of type Read at {TOKENS_URL}, then: {SECRET_COMMAND}",
        )
    return Credential(token, where, searched, finding)
