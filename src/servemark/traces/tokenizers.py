"""Tokenizers of the target model: a `tokenizer.json`, a server's endpoint, or nothing but counted prompts.

All give a `Tokenize` for `text.build_word_table` and `text.verify_exact`. Knows no HTTP: a server is a callable
that takes the JSON body of a POST to /tokenize and gives the reply's. A GGUF file's own tokenizer is read by the
engine that serves it: the llama.cpp wheel in use has no call that loads a vocabulary alone, so a GGUF is counted
through the running server's /tokenize.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.traces.text import Tokenize

Engine = Literal["llamacpp", "vllm", "sglang"]
PostJson = Callable[[Mapping[str, object]], object]
"""JSON body of a POST to the server's /tokenize -> the reply's JSON. Raises ServemarkError where it fails."""
MAX_TOKENIZER_BYTES = 500_000_000


def file_tokenizer(path: Path) -> Tokenize:
    """The tokenizer of a Hugging Face `tokenizer.json`, named itself or by its folder; adds no special tokens.

    Raises ServemarkError (exit code 2) for a missing or broken file, for a GGUF, and where the extra
    `tokenizer` is not installed.
    """
    found = path / "tokenizer.json" if path.is_dir() else path
    if found.suffix == ".gguf":
        raise input_error("traces.gguf_tokenizer", path=str(path))
    if not found.is_file():
        raise input_error("traces.no_tokenizer_file", path=str(found))
    if found.stat().st_size > MAX_TOKENIZER_BYTES:
        raise input_error("traces.file_too_long", path=str(found), limit=MAX_TOKENIZER_BYTES)
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise input_error("traces.no_tokenizers_package", path=str(found)) from error
    try:
        loaded = Tokenizer.from_str(found.read_text(encoding="utf-8"))
    except Exception as error:
        raise input_error("traces.bad_tokenizer", path=str(found), reason=str(error)[:200]) from error
    loaded.no_truncation()  # a file may ask for its training's cut and fill
    loaded.no_padding()

    def tokenize(text: str) -> Sequence[int]:
        ids: list[int] = loaded.encode(text, add_special_tokens=False).ids
        return ids

    return tokenize


def server_tokenizer(post: PostJson, engine: Engine, model: str = "") -> Tokenize:
    """The tokenizer of a running server through its /tokenize.

    llama.cpp takes `content` and `add_special`; vLLM and SGLang take `model`, `prompt` and `add_special_tokens`.
    All answer `tokens`, a list of ids. Raises ServemarkError (layer engine) for another answer.
    """

    def tokenize(text: str) -> Sequence[int]:
        body: dict[str, object] = (
            {"content": text, "add_special": False}
            if engine == "llamacpp"
            else {"model": model, "prompt": text, "add_special_tokens": False}
        )
        reply = post(body)
        tokens = reply.get("tokens") if isinstance(reply, dict) else None
        if not isinstance(tokens, list) or not all(type(t) is int for t in tokens):
            raise ServemarkError("traces.bad_tokenize_reply", Layer.ENGINE, engine=engine)
        return tokens

    return tokenize


def usage_tokenizer(count: Callable[[str], int], word: str = "the") -> Tokenize:
    """A tokenizer that knows lengths only, for servers that report nothing but `usage.prompt_tokens`.

    `count` gives the prompt tokens of a request with one user message of that text, chat template and all. What
    the template adds is learnt from one, two and three times the same word; the ids that come out are all 0, so
    only lengths may be read from them. Raises ServemarkError (layer engine) when the three do not lie on a line.
    """
    text = f" {word}"
    one, two, three = count(text), count(text * 2), count(text * 3)
    if two - one != 1 or three - two != 1:
        raise ServemarkError("traces.usage_not_linear", Layer.ENGINE, counts=f"{one}, {two}, {three}")
    added = one - 1

    def tokenize(text: str) -> Sequence[int]:
        return [0] * max(0, count(text) - added) if text else []

    return tokenize
