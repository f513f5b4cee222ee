#!/usr/bin/env python3
"""Model folders without weights, for engines that can fill them with random values (`--load-format dummy`).

    weightless_models.py TOKENIZER_DIR OUT

TOKENIZER_DIR holds a `tokenizer.json` (BPE) and its `tokenizer_config.json`. The vocabulary is padded with made-up words up
to the shape's size, so that every id that is sampled is text. The chat template adds no words of its own. Shapes are those
of the published configurations.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

VOCABULARY = 151_936
SHAPES = {  # hidden, layers, heads, KV heads, feed-forward, tied embeddings
    "qwen3-0.6b": (1024, 28, 16, 8, 3072, True),
    "qwen3-8b": (4096, 36, 32, 8, 12288, False),
}
TEMPLATE = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>
' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
SHARED = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def padded(tokenizer: dict[str, object]) -> dict[str, object]:
    """The tokenizer with a word for every id below VOCABULARY."""
    model, added = tokenizer["model"], tokenizer.get("added_tokens", [])
    if not isinstance(model, dict) or not isinstance(added, list):
        sys.exit("tokenizer.json has no model")
    vocabulary = model["vocab"]
    taken = {*vocabulary.values(), *(each["id"] for each in added)}
    for number in range(VOCABULARY):
        if number not in taken:
            vocabulary[f"\u0120x{number}"] = number
    return tokenizer


def config(shape: tuple[int, int, int, int, int, bool]) -> dict[str, object]:
    """The configuration of one shape."""
    hidden, layers, heads, kv_heads, inner, tied = shape
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": 128,
        "intermediate_size": inner,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 40960,
        "rope_theta": 1_000_000,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "use_cache": True,
        "initializer_range": 0.02,
    }


def main() -> None:
    """The command line."""
    base, out = (Path(each) for each in sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = padded(json.loads((base / "tokenizer.json").read_text(encoding="utf-8")))
    text = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(text, encoding="utf-8")
    shutil.copy(base / "tokenizer_config.json", out)
    (out / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    for name, shape in SHAPES.items():
        folder = out / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config(shape), indent=1), encoding="utf-8")
        ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
        (folder / "generation_config.json").write_text(json.dumps(ids), encoding="utf-8")
        for shared in SHARED:
            (folder / shared).unlink(missing_ok=True)
            (folder / shared).symlink_to(f"../{shared}")


if __name__ == "__main__":
    main()
