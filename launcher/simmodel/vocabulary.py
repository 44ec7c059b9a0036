"""The simulated model's vocabulary: single bytes and harmony special tokens at their real ids, and filler.

The ids agree with o200k_harmony (gpt-oss), so Dynamo's real harmony parser decodes what a simulated worker
emits. Nothing here is taken from the o200k ranks: the order of the single bytes is the one of byte-level BPE
since GPT-2 (printable characters first), and the special ids are published with the harmony format.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CALL",
    "CHANNEL",
    "CONSTRAIN",
    "END",
    "END_OF_PROMPT",
    "END_OF_TEXT",
    "EOS_IDS",
    "FILLER_IDS",
    "MESSAGE",
    "RETURN",
    "SPECIAL_TOKENS",
    "START",
    "START_OF_TEXT",
    "VOCAB_SIZE",
    "byte_characters",
    "byte_order",
    "decode",
    "decode_bytes",
    "encode",
    "encode_bytes",
    "filler_words",
]

START_OF_TEXT: Final = 199998
END_OF_TEXT: Final = 199999
RETURN: Final = 200002
CONSTRAIN: Final = 200003
CHANNEL: Final = 200005
START: Final = 200006
END: Final = 200007
MESSAGE: Final = 200008
CALL: Final = 200012
END_OF_PROMPT: Final = 200018

VOCAB_SIZE: Final = 201088
"""Entries of the embedding table, as in gpt-oss's config.json (ids 0..201087)."""

EOS_IDS: Final[tuple[int, ...]] = (RETURN, END_OF_TEXT, CALL)
"""Tokens that end a turn, in the order of gpt-oss's generation_config.json."""

_NAMED: Final[dict[int, str]] = {
    START_OF_TEXT: "<|startoftext|>",
    END_OF_TEXT: "<|endoftext|>",
    RETURN: "<|return|>",
    CONSTRAIN: "<|constrain|>",
    CHANNEL: "<|channel|>",
    START: "<|start|>",
    END: "<|end|>",
    MESSAGE: "<|message|>",
    CALL: "<|call|>",
    END_OF_PROMPT: "<|endofprompt|>",
}

SPECIAL_TOKENS: Final[dict[int, str]] = {
    token: _NAMED.get(token, f"<|reserved_{token}|>") for token in range(START_OF_TEXT, VOCAB_SIZE)
}
"""Every id from 199998 to 201087 and its text; the unnamed ones are reserved."""

FILLER_IDS: Final = range(1000, 2000)
"""The ids from which Dynamo's mocker draws its output (``generate_random_token``, lib/llm/src/mocker.rs)."""


def filler_words() -> dict[int, str]:
    """Return an invented word, with its leading space, for each id the mocker emits.

    Without them the frontend finds no text for the mocker's tokens and answers ``content: null``.
    """
    first = ("ba", "ce", "di", "lo", "mu", "na", "pe", "ri", "so", "tu")
    middle = ("be", "do", "la", "mi", "no", "ra", "se", "ti", "ve", "xu")
    last = ("at", "em", "ia", "is", "or", "um", "ur", "us", "it", "o")
    words = (f" {a}{b}{c}" for a in first for b in middle for c in last)
    return dict(zip(FILLER_IDS, words, strict=True))


def byte_order() -> list[int]:
    """Return the byte of each rank 0..255: visible Latin-1 characters, then the rest, each ascending."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return visible + [byte for byte in range(256) if byte not in visible]


def byte_characters() -> dict[int, str]:
    """Return the character that stands for each byte in a byte-level ``tokenizer.json``.

    Bytes that are not visible are written as the characters from U+0100 on, so that no entry is whitespace.
    """
    return {
        byte: chr(byte) if rank < 188 else chr(0x100 + rank - 188) for rank, byte in enumerate(byte_order())
    }


_RANK_OF_BYTE: Final[dict[int, int]] = {byte: rank for rank, byte in enumerate(byte_order())}
_BYTE_OF_RANK: Final[list[int]] = byte_order()
_FILLER: Final[dict[int, str]] = filler_words()


def encode_bytes(data: bytes) -> list[int]:
    """Return one token id per byte."""
    return [_RANK_OF_BYTE[byte] for byte in data]


def encode(text: str) -> list[int]:
    """Return the token ids of plain text, one per byte of UTF-8; special tokens in it are just text."""
    return encode_bytes(text.encode())


def decode_bytes(tokens: list[int]) -> bytes:
    """Return the bytes of token ids below 256."""
    return bytes(_BYTE_OF_RANK[token] for token in tokens)


def decode(tokens: list[int]) -> str:
    """Return the text of token ids, special tokens written out; ids outside the vocabulary are left out."""
    parts: list[str] = []
    run = bytearray()
    for token in tokens:
        if 0 <= token < 256:
            run.append(_BYTE_OF_RANK[token])
        elif token in _FILLER:
            run += _FILLER[token].encode()
        elif token in SPECIAL_TOKENS:
            parts.append(run.decode(errors="replace"))
            run.clear()
            parts.append(SPECIAL_TOKENS[token])
    parts.append(run.decode(errors="replace"))
    return "".join(parts)
