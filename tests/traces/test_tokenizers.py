"""Tokenizers of a file, of a server's reply shapes, and of counted prompts alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.traces.agentic_tree import TreeRecipe
from servemark.traces.open import open_workload
from servemark.traces.text import MIN_WORDS, TextMaker, build_word_table, candidate_words, verify_exact
from servemark.traces.tokenizers import file_tokenizer, server_tokenizer, usage_tokenizer
from servemark.traces.types import Segment
from servemark.traces.write import write_made


def trained(path: Path) -> Path:
    """A byte-level BPE tokenizer trained on our own words, with a truncation that must not count."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra `tokenizer` is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=3000, show_progress=False, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator([" ".join(candidate_words()), "\n".join(candidate_words())] * 3, trainer)
    made.enable_truncation(5)
    path.mkdir()
    made.save(str(path / "tokenizer.json"))
    return path


def test_a_tokenizer_file_makes_prompts_of_exact_length(tmp_path: Path) -> None:
    """Checked against the package itself: every sampled message of a trace has its planned length."""
    folder = trained(tmp_path / "model")
    tokenize = file_tokenizer(folder)
    assert list(tokenize("the the the the the the the")) == list(
        file_tokenizer(folder / "tokenizer.json")("the" + " the" * 6)
    )
    words = build_word_table(tokenize)
    assert len(words) >= MIN_WORDS
    maker = TextMaker(words, 3)
    trace = tmp_path / "t.jsonl"
    write_made(TreeRecipe(2, 1, scale=0.02), trace, "weka")
    workload = open_workload(trace)
    assert verify_exact(maker, tokenize, workload) == 0
    block = Segment("weka/s/7", 64)
    assert list(tokenize(maker.text(block))) == list(tokenize(TextMaker(words, 3).text(block)))
    assert len(tokenize(maker.text(block))) == 64


def test_files_that_are_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ServemarkError) as caught:
        file_tokenizer(tmp_path)
    assert caught.value.key == "traces.no_tokenizer_file"
    with pytest.raises(ServemarkError) as caught:
        file_tokenizer(tmp_path / "m.gguf")
    assert caught.value.key == "traces.gguf_tokenizer"
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ServemarkError) as caught:
        file_tokenizer(tmp_path)
    assert caught.value.key in {"traces.bad_tokenizer", "traces.no_tokenizers_package"}


def _reply(text: str, _: Mapping[str, object]) -> object:
    return json.loads(text)


def test_shapes_of_servers() -> None:
    seen: list[Mapping[str, object]] = []

    def post(body: Mapping[str, object]) -> object:
        seen.append(body)
        return {"tokens": [5, 6], "count": 2, "max_model_len": 10}

    assert server_tokenizer(post, "llamacpp")("x") == [5, 6]
    assert server_tokenizer(post, "vllm", "m")("x") == [5, 6]
    assert seen == [
        {"content": "x", "add_special": False},
        {"model": "m", "prompt": "x", "add_special_tokens": False},
    ]
    for bad in ("[]", "{}", '{"tokens": "12"}', '{"tokens": [1, "a"]}', '{"tokens": [true]}', '{"error": 1}'):
        with pytest.raises(ServemarkError) as caught:
            server_tokenizer(partial(_reply, bad), "sglang")("x")
        assert caught.value.key == "traces.bad_tokenize_reply"


def test_counted_prompts_alone_find_the_words() -> None:
    """A server that takes 17 tokens more than the text; every third word is two tokens long."""
    words = candidate_words()
    long = set(words[::3]) - {"the"}

    def count(text: str) -> int:
        return 17 + sum(2 if w in long else 1 for w in text.split())

    found = build_word_table(usage_tokenizer(count))
    assert len(found) >= MIN_WORDS
    assert not set(found) & long
    with pytest.raises(ServemarkError) as caught:
        usage_tokenizer(len)
    assert caught.value.key == "traces.usage_not_linear"
