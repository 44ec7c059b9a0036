"""Write the built-in model folder of simulated runs, ``launcher/simmodel/hub``.

    python scripts/make_simmodel.py [FOLDER]

Deterministic: the same source gives the same bytes (``tests/simmodel`` compares). The shape is gpt-oss-120b's
public config. The tokenizer knows single bytes, the harmony special tokens and the mocker's filler. The chat
template is our own writing of the harmony format, with one JSON object per tool so that the echo worker can read
the tools back.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from launcher.simmodel import HUB_CACHE, MODEL_NAME, REVISION, cache_folder
from launcher.simmodel.vocabulary import (
    END_OF_PROMPT,
    END_OF_TEXT,
    EOS_IDS,
    RETURN,
    SPECIAL_TOKENS,
    START_OF_TEXT,
    VOCAB_SIZE,
    byte_characters,
    filler_words,
)

# Plain text splits nowhere: every byte is a token of its own, so no pre-tokenizer pattern is needed.
# `tojson` escapes <, > and &, so a tool's description cannot smuggle in a special token.
CHAT_TEMPLATE = """\
{%- macro text(content) -%}
{%- if content is string -%}{{- content -}}
{%- elif content -%}{%- for part in content -%}{{- part.text or '' -}}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{{- '<|start|>system<|message|>You are a simulated model.\\n\\nReasoning: ' -}}
{{- reasoning_effort | default('medium', true) -}}
{{- '\\n\\n# Valid channels: analysis, commentary, final.<|end|>' -}}
{%- set lead = messages[0].role in ['system', 'developer'] if messages else false -%}
{%- if lead or tools -%}
{{- '<|start|>developer<|message|>' -}}
{%- if lead -%}{{- '# Instructions\\n\\n' -}}{{- text(messages[0].content) -}}{{- '\\n\\n' -}}{%- endif -%}
{%- if tools -%}
{{- '# Tools\\n\\n## functions\\n' -}}
{%- for tool in tools -%}{{- '\\n' -}}{{- (tool.function or tool) | tojson -}}{%- endfor -%}
{%- endif -%}
{{- '<|end|>' -}}
{%- endif -%}
{%- set last = namespace(call='tool') -%}
{%- for message in messages -%}
{%- if loop.first and lead -%}
{%- elif message.role in ['system', 'developer'] -%}
{{- '<|start|>developer<|message|># Instructions\\n\\n' -}}{{- text(message.content) -}}{{- '<|end|>' -}}
{%- elif message.role == 'tool' -%}
{{- '<|start|>functions.' + last.call + ' to=assistant<|channel|>commentary<|message|>' -}}
{{- text(message.content) -}}{{- '<|end|>' -}}
{%- elif message.role == 'assistant' -%}
{%- if message.tool_calls -%}
{%- for call in message.tool_calls -%}
{%- set function = call.function or call -%}
{%- set last.call = function.name -%}
{{- '<|start|>assistant<|channel|>commentary to=functions.' + function.name -}}
{{- ' <|constrain|>json<|message|>' -}}
{%- if function.arguments is string -%}{{- function.arguments -}}
{%- else -%}{{- function.arguments | tojson -}}
{%- endif -%}
{{- '<|call|>' -}}
{%- endfor -%}
{%- else -%}
{{- '<|start|>assistant<|channel|>final<|message|>' -}}{{- text(message.content) -}}{{- '<|end|>' -}}
{%- endif -%}
{%- else -%}
{{- '<|start|>' + message.role + '<|message|>' -}}{{- text(message.content) -}}{{- '<|end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%}
"""

LAYERS = 36


def config() -> dict[str, Any]:
    """Return gpt-oss-120b's shape (its public config.json)."""
    return {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": RETURN,
        "experts_per_token": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2880,
        "initial_context_length": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 2880,
        "layer_types": ["full_attention" if i % 2 else "sliding_attention" for i in range(LAYERS)],
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "output_router_logits": False,
        "pad_token_id": END_OF_TEXT,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
        },
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": VOCAB_SIZE,
    }


def tokenizer() -> dict[str, Any]:
    """Return a ``tokenizer.json``: byte-level BPE without merges, special tokens at their real ids."""
    characters = byte_characters()
    vocab = {character: rank for rank, character in enumerate(characters.values())}
    # No merge leads to these, so text never encodes to them; they only give the mocker's output a text.
    vocab |= {"".join(characters[b] for b in word.encode()): token for token, word in filler_words().items()}
    # The library numbers added tokens by itself unless the vocabulary already names them, hence both lists.
    vocab |= {text: token for token, text in SPECIAL_TOKENS.items()}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token, "content": SPECIAL_TOKENS[token], **flags}
            for token in range(START_OF_TEXT, END_OF_PROMPT + 1)
        ],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [],
        },
    }


def files() -> dict[str, str]:
    """Return the text of each file by its path inside the cache."""
    repository = cache_folder(MODEL_NAME)
    snapshot = f"{repository}/snapshots/{REVISION}"
    documents: dict[str, dict[str, Any]] = {
        "config.json": config(),
        "generation_config.json": {
            "bos_token_id": START_OF_TEXT,
            "do_sample": True,
            "eos_token_id": list(EOS_IDS),
            "pad_token_id": END_OF_TEXT,
        },
        "tokenizer_config.json": {
            "bos_token": SPECIAL_TOKENS[START_OF_TEXT],
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": SPECIAL_TOKENS[RETURN],
            "model_max_length": 131072,
            "pad_token": SPECIAL_TOKENS[END_OF_TEXT],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    }
    result = {f"{repository}/refs/main": REVISION}
    for name, document in documents.items():
        result[f"{snapshot}/{name}"] = json.dumps(document, indent=2) + "\n"
    # One entry per line would triple the size of a file nobody reads.
    result[f"{snapshot}/tokenizer.json"] = (
        json.dumps(tokenizer(), ensure_ascii=True, separators=(",", ":")) + "\n"
    )
    return result


def main() -> None:
    """Write the folder and say what it holds."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HUB_CACHE
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        print(f"{len(text):8,d} bytes  {path}")


if __name__ == "__main__":
    main()
