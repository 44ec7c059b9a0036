"""Model folders without a download: gpt-oss's tokenizer and configuration, in two shapes, as a Hugging Face cache.

    python -m tests.gpu.stage FOLDER --vocabulary o200k_base.tiktoken

FOLDER/hf-small and FOLDER/hf-full become caches (HF_HOME) that hold openai/gpt-oss-120b, openai/gpt-oss-20b and an
EAGLE3 head; hf-small with 8 layers (EAGLE3 reads three different ones) and 8 experts, hf-full with the 120b's own
shape. There are no weights: serve with `--load-format dummy`. Needs transformers 4 with tiktoken, which vLLM brings.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
from pathlib import Path
from typing import Any

from launcher.simmodel import MODEL_PATH

REVISIONS = {
    "openai/gpt-oss-120b": "b5c939de8f754692c1647ca79fbf85e8c1e70f8a",
    "openai/gpt-oss-20b": "6cee5e81ee83917806bbde320786a8fb61efebee",
    "nvidia/gpt-oss-120b-Eagle3-v3": "0" * 39 + "1",
}
VOCABULARY = "o200k_base.tiktoken"
SPECIAL = {
    199998: "<|startoftext|>",
    199999: "<|endoftext|>",
    200002: "<|return|>",
    200003: "<|constrain|>",
    200005: "<|channel|>",
    200006: "<|start|>",
    200007: "<|end|>",
    200008: "<|message|>",
    200012: "<|call|>",
    200018: "<|endofprompt|>",
}
PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = (
    "{%- for m in messages -%}{{ '<|start|>' + m.role + '<|message|>' + (m.content or '') + '<|end|>' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"
)


def config(layers: int, experts: int) -> dict[str, Any]:
    """`config.json` of the model: that of the simulated one, cut to these sizes, with weights in MXFP4."""
    whole: dict[str, Any] = json.loads((MODEL_PATH / "config.json").read_text())
    return whole | {
        "layer_types": whole["layer_types"][:layers],
        "num_hidden_layers": layers,
        "num_local_experts": experts,
        "quantization_config": {
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
            "quant_method": "mxfp4",
        },
    }


def draft_config() -> dict[str, Any]:
    """`config.json` of an EAGLE3 head of the model's width: one layer, the model's vocabulary.

    The sizes of NVIDIA's own head beyond that are not known here; most of its work is the vocabulary projection.
    """
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "attention_bias": False,
        "bos_token_id": 199998,
        "draft_vocab_size": 201088,
        "eos_token_id": 200002,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2880,
        "initializer_range": 0.02,
        "intermediate_size": 17280,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 64,
        "num_hidden_layers": 1,
        "num_key_value_heads": 8,
        "pad_token_id": 199999,
        "rms_norm_eps": 1e-05,
        "rope_theta": 150000,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": 201088,
    }


def tokenizer(vocabulary: Path, folder: Path) -> None:
    """Write the tokenizer's files."""
    convert = importlib.import_module("transformers.convert_slow_tokenizer")
    extra = [SPECIAL.get(number, f"<|reserved_{number}|>") for number in range(199998, 201088)]
    try:
        converter = convert.TikTokenConverter(
            vocab_file=str(vocabulary), pattern=PATTERN, additional_special_tokens=extra
        )
    except TypeError:  # renamed in transformers 5
        converter = convert.TikTokenConverter(
            vocab_file=str(vocabulary), pattern=PATTERN, extra_special_tokens=extra
        )
    folder.mkdir(parents=True, exist_ok=True)
    converter.converted().save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|startoftext|>",
            "eos_token": "<|return|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 1000000,
            "chat_template": TEMPLATE,
        },
    )
    _write(
        folder / "generation_config.json",
        {
            "bos_token_id": 199998,
            "eos_token_id": [200002, 199999, 200012],
            "pad_token_id": 199999,
            "do_sample": True,
        },
    )


def lay_out(home: Path, tokens: Path, shape: dict[str, Any]) -> None:
    """A Hugging Face cache with all three models."""
    for name, revision in REVISIONS.items():
        repo = home / "hub" / ("models--" + name.replace("/", "--"))
        snapshot = repo / "snapshots" / revision
        snapshot.mkdir(parents=True, exist_ok=True)
        (repo / "refs").mkdir(exist_ok=True)
        (repo / "refs" / "main").write_text(revision)
        if "Eagle3" in name:
            _write(snapshot / "config.json", draft_config())
            continue
        _write(snapshot / "config.json", shape)
        for file in tokens.iterdir():
            link = snapshot / file.name
            link.unlink(missing_ok=True)
            link.symlink_to(file.resolve())


def stage(folder: Path, vocabulary: Path) -> None:
    """Everything below `folder`; what is there already is kept."""
    (folder / "voc").mkdir(parents=True, exist_ok=True)
    if not (folder / "voc" / VOCABULARY).exists():
        shutil.copy(vocabulary, folder / "voc" / VOCABULARY)
    if not (folder / "model" / "tokenizer.json").exists():
        tokenizer(vocabulary, folder / "model")
    lay_out(folder / "hf-small", folder / "model", config(8, 8))
    lay_out(folder / "hf-full", folder / "model", config(36, 128))


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", type=Path, required=True, help=VOCABULARY)
    args = parser.parse_args()
    stage(args.folder, args.vocabulary)
    print(f"{args.folder}: {', '.join(REVISIONS)}")


if __name__ == "__main__":
    main()
