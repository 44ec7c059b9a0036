"""Secrets are masked wherever they turn up, and ordinary log lines stay readable."""

from __future__ import annotations

import pytest

from launcher.observe.secrets import Masker
from launcher.plan.model import MASK

MASKER = Masker(
    [
        {
            "HF_TOKEN": "correct-horse",
            "DB_PASSWORD": "correct-horse-battery",
            "MODEL": "gpt-oss",
            "API_KEY": "k",
        }
    ]
)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("token is correct-horse.", f"token is {MASK}."),
        ("correct-horse-battery", MASK),
        ("Authorization: Bearer abc.def-123", f"Authorization: Bearer {MASK}"),
        ("hf_abcdefghijklmnopqrstuvwxyz", MASK),
        ("api_key=abcdefgh", f"api_key={MASK}"),
        ('{"password": "s3cretvalue"}', f'{{"password": "{MASK}"}}'),
        ("--api-key abcd1234", f"--api-key {MASK}"),
        ("password: correcthorse", f"password: {MASK}"),
        ("db:\n  password: correct horse battery", f"db:\n  password: {MASK} horse battery"),
        ("connecting with password: correcthorse", f"connecting with password: {MASK}"),
        ("connecting with password: correcthorse user: bob", f"connecting with password: {MASK} user: bob"),
        (
            "connecting with password: c0rrecthorse to the base",
            f"connecting with password: {MASK} to the base",
        ),
        ("connecting with password=correcthorse to the base", f"connecting with password={MASK} to the base"),
        ("nats://user:pass1@host:4222", f"nats://user:{MASK}@host:4222"),
    ],
)
def test_a_secret_is_masked(text: str, masked: str) -> None:
    assert MASKER.text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "input_tokens=142 output_tokens=16 max_token: 123456",
        "unexpected token: comma",
        "Loading tokenizer from /models/openai",
        "token ids 200012 and 200002",
        "the secret ingredient",
        "they ask for no password: whoever reaches that address can use them",
        "it needs no api-key: nobody's asked, so far",
        "keep the secret: nothing. Else it is none",
        "request_id=8e19ccce-01e8-4ea0 model=openai/gpt-oss-120b",
        "http://127.0.0.1:8000/v1/chat/completions",
        "ok",
    ],
)
def test_an_ordinary_line_stays(text: str) -> None:
    assert MASKER.text(text) == text


def test_values_are_masked_at_any_depth() -> None:
    page = {
        "env": {"HF_TOKEN": "x", "EMPTY_TOKEN": "", "PORT": "8000"},
        "argv": ["--api-key", "x", "--max-tokens", "64", "--header", "correct-horse"],
        "count": 3,
        "none": None,
    }
    assert MASKER.value(page) == {
        "env": {"HF_TOKEN": MASK, "EMPTY_TOKEN": "", "PORT": "8000"},
        "argv": ["--api-key", MASK, "--max-tokens", "64", "--header", MASK],
        "count": 3,
        "none": None,
    }
