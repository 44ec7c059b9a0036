"""What the hub's refusals mean, and which of them pass by themselves."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping

from launcher.download import cache
from launcher.download.credentials import SECRET_COMMAND, TOKENS_URL, Credential
from launcher.findings import Exit, Finding, LauncherError

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
MAX_WAIT_S = 3600.0
_RATE = re.compile(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d+)")
"""The hub's `RateLimit: "api";r=0;t=55`: nothing remains, reset in 55 s."""


class Refused(Exception):
    """The hub answered with an error status."""

    def __init__(self, status: int, headers: Mapping[str, str], url: str) -> None:
        self.status = status
        self.code = headers.get("x-error-code", "")
        self.message = headers.get("x-error-message", "")
        self.wait_s = wait_s(headers)
        self.url = url.partition("?")[0]
        """Without its query: a signed address is a secret."""
        super().__init__(f"{status} {self.code or self.message}".strip())

    @property
    def transient(self) -> bool:
        return self.status in TRANSIENT


def wait_s(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that the answer asks to wait: Retry-After as seconds or date, or the hub's RateLimit. At most an hour."""
    text = headers.get("retry-after", "").strip()
    seconds: float | None = None
    if text.isascii() and text.isdecimal():
        seconds = float(text[:9])
    elif text:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - (
                time.time() if now is None else now
            )
        except (ValueError, OverflowError):
            seconds = None
    if seconds is None:
        found = _RATE.search(headers.get("ratelimit", ""))
        seconds = float(found[1][:9]) if found else None
    return None if seconds is None else min(max(seconds, 0.0), MAX_WAIT_S)


def explain(
    refused: Refused, model: str, revision: str, credential: Credential, endpoint: str, where: str
) -> LauncherError:
    """The hub's refusal of a repository as one finding."""
    page = f"{endpoint}/{model}"
    looked = "looked for a token in: " + "; ".join(credential.searched)
    if refused.code == "GatedRepo":
        return _gated(refused, model, credential, page, looked)
    if refused.code == "RevisionNotFound":
        return LauncherError(
            Finding(
                code="revision-unknown",
                what=f"{model} has no revision {revision!r}",
                where=where,
                fix=f"choose one of {page}/commits/main",
            )
        )
    if refused.status == 401:
        return _unauthorized(refused, model, credential, page, looked)
    if refused.status == 403:
        return LauncherError(
            Finding(
                code="token-scope",
                what=f"the hub forbids {model} (403{_said(refused)})",
                where=credential.where or "no token was sent",
                why="a fine-grained token reads only what it was given; or a network policy stands between",
                fix=f"give the token read access to the repository at {TOKENS_URL}",
            )
        )
    if refused.status == 404:
        return LauncherError(
            Finding(
                code="model-unknown",
                what=f"{endpoint} has no model {model}"
                + (f" with {refused.url.rpartition('/')[2]}" if refused.code == "EntryNotFound" else ""),
                where=where,
                fix=f"compare with {page}"
                + (
                    ""
                    if endpoint == cache.PUBLIC_ENDPOINT
                    else "; HF_ENDPOINT is set: does the mirror have it?"
                ),
            )
        )
    return LauncherError(
        Finding(
            code="hub-failed",
            what=f"the hub answered {refused.status} for {model}{_said(refused)}",
            where=refused.url,
            fix="run the same command again: it goes on where it stopped",
        ),
        Exit.PROCESS_FAILED,
    )


def _gated(refused: Refused, model: str, credential: Credential, page: str, looked: str) -> LauncherError:
    if credential.token is None:
        what, where = f"{model} is gated and no token was sent ({refused.status}); {looked}", "HF_TOKEN"
        fix = f"accept the terms at {page}, then {SECRET_COMMAND}"
    else:
        what, where = (
            f"{model} is gated and the token's account has no access ({refused.status})",
            credential.where,
        )
        fix = f"accept the terms at {page} with the account that the token belongs to"
    return LauncherError(Finding(code="model-gated", what=what, where=where, fix=fix))


def _unauthorized(
    refused: Refused, model: str, credential: Credential, page: str, looked: str
) -> LauncherError:
    if credential.token is None:
        # The hub says 401 for what does not exist too, so as not to tell which private models do.
        finding = Finding(
            code="token-missing",
            what=f"the hub wants a token for {model} (401); {looked}",
            where="HF_TOKEN",
            why="it is private or gated, or there is no such model",
            fix=f"see whether {page} opens; if so, {SECRET_COMMAND}",
        )
    else:
        finding = Finding(
            code="token-rejected",
            what=f"the hub rejects the token (401{_said(refused)}) for {model}",
            where=credential.where,
            why="it is mistyped, expired or revoked; a wrong token fails even for a public model",
            fix=f"make a new one of type Read at {TOKENS_URL}, then {SECRET_COMMAND}",
        )
    return LauncherError(finding)


def _said(refused: Refused) -> str:
    return f": {refused.message[:200]}" if refused.message else ""
