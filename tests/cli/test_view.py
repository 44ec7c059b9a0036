"""`--view`: a live view only where a terminal can show one, and a word where it was asked for in vain."""

from __future__ import annotations

import sys

import pytest

from launcher.cli.common import wants_view
from launcher.settings import Settings


@pytest.mark.parametrize(
    ("view", "terminal", "term", "form", "live", "says"),
    [
        ("auto", True, "xterm", "auto", True, ""),
        ("live", True, "xterm", "text", True, ""),
        ("plain", True, "xterm", "auto", False, ""),
        ("auto", False, "xterm", "auto", False, ""),
        ("auto", True, "dumb", "auto", False, ""),
        ("auto", True, "xterm", "json", False, ""),
        ("live", False, "xterm", "auto", False, "no terminal"),
        ("live", True, "dumb", "auto", False, "TERM"),
        ("live", True, "xterm", "json", False, "JSON"),
    ],
)
def test_the_view_that_is_shown(
    monkeypatch: pytest.MonkeyPatch, view: str, terminal: bool, term: str, form: str, live: bool, says: str
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    shown, findings = wants_view(Settings.model_validate({"view": view, "log_format": form}))
    assert shown is live
    assert [finding.code for finding in findings] == (["view-plain"] if says else [])
    assert all(says in finding.what for finding in findings)
