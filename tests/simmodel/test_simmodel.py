"""The built-in model folder: reproducible, small, and at the ids that the real harmony parser expects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.simmodel import HUB_CACHE, MODEL_NAME, MODEL_PATH, REVISION, cache_folder
from launcher.simmodel import vocabulary as v

ROOT = Path(__file__).resolve().parents[2]
O200K = (
    Path(os.environ.get("TIKTOKEN_ENCODINGS_BASE", ROOT.parent / "shared" / "harmony"))
    / "o200k_base.tiktoken"
)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_regenerating_gives_identical_bytes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_simmodel.py", tmp_path], check=True, capture_output=True
    )
    assert contents(tmp_path) == contents(HUB_CACHE)


def test_small() -> None:
    assert sum(map(len, contents(HUB_CACHE).values())) < 150_000


def test_cache_layout() -> None:
    repository = HUB_CACHE / cache_folder(MODEL_NAME)
    assert (repository / "refs" / "main").read_text() == REVISION
    assert repository / "snapshots" / REVISION == MODEL_PATH
    # A link would break where the package is unpacked from a wheel.
    assert not [path for path in HUB_CACHE.rglob("*") if path.is_symlink()]


def test_shape_and_eos() -> None:
    config = json.loads((MODEL_PATH / "config.json").read_text())
    assert (config["model_type"], config["max_position_embeddings"]) == ("gpt_oss", 131072)
    assert config["vocab_size"] == v.VOCAB_SIZE == 201088
    generation = json.loads((MODEL_PATH / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [200002, 199999, 200012]


def test_tokenizer_ids() -> None:
    tokenizer = json.loads((MODEL_PATH / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    assert set(vocab.values()) == {*range(256), *v.FILLER_IDS, *range(199998, 201088)}
    assert [vocab[text] for text in ("<|return|>", "<|call|>", "<|reserved_201087|>")] == [
        200002,
        200012,
        201087,
    ]
    assert {token["id"]: token["content"] for token in tokenizer["added_tokens"]}[200008] == "<|message|>"


def test_round_trip() -> None:
    text = "<|start|>user<|message|>héllo\n\t 🦄<|end|>"
    tokens = [v.START, *v.encode("user"), v.MESSAGE, *v.encode("héllo\n\t 🦄"), v.END]
    assert v.decode(tokens) == text
    tokenizers = pytest.importorskip("tokenizers")
    library = tokenizers.Tokenizer.from_file(str(MODEL_PATH / "tokenizer.json"))
    assert library.encode(text).ids == tokens
    assert library.decode(tokens, skip_special_tokens=False) == text
    assert library.decode([1000, 1999]) == v.decode([1000, 1999]) == " babeat tuxuo"


@pytest.mark.skipif(not O200K.is_file(), reason="needs the o200k vocabulary")
def test_bytes_agree_with_o200k() -> None:
    import base64

    with O200K.open() as lines:
        first = [base64.b64decode(next(lines).split()[0]) for _ in range(256)]
    assert first == [bytes([byte]) for byte in v.byte_order()]


def render(**context: object) -> str:
    jinja2 = pytest.importorskip("jinja2")
    source = json.loads((MODEL_PATH / "tokenizer_config.json").read_text())["chat_template"]
    return str(jinja2.Environment().from_string(source).render(add_generation_prompt=True, **context))


def test_template_plain() -> None:
    assert render(messages=[{"role": "user", "content": "hi"}]) == (
        "<|start|>system<|message|>You are a simulated model.\n\nReasoning: medium\n\n"
        "# Valid channels: analysis, commentary, final.<|end|>"
        "<|start|>user<|message|>hi<|end|><|start|>assistant"
    )


def test_template_tools_and_history() -> None:
    function = {"name": "look", "description": "a <|call|> in it", "parameters": {"type": "object"}}
    prompt = render(
        reasoning_effort="high",
        tools=[{"type": "function", "function": function}],
        messages=[
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "look"}, {"type": "text", "text": " there"}],
            },
            {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": '{"a": 1}'}}]},
            {"role": "tool", "content": "seen"},
            {"role": "assistant", "content": "done"},
            {"role": "developer", "content": "be kind"},
        ],
    )
    assert "Reasoning: high" in prompt
    head, rest = prompt.split("## functions\n\n")
    line, rest = rest.split("<|end|>", 1)
    assert head.endswith("<|start|>developer<|message|># Instructions\n\nbe brief\n\n# Tools\n\n")
    assert json.loads(line) == function
    assert "<|call|>" not in line
    assert rest == (
        "<|start|>user<|message|>look there<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>"
        '{"a": 1}<|call|>'
        "<|start|>functions.look to=assistant<|channel|>commentary<|message|>seen<|end|>"
        "<|start|>assistant<|channel|>final<|message|>done<|end|>"
        "<|start|>developer<|message|># Instructions\n\nbe kind<|end|>"
        "<|start|>assistant"
    )
