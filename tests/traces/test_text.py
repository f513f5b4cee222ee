"""Texts of exact length: with small tokenizers written here, whose every token can be counted by eye."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.traces import text
from servemark.traces.text import TextMaker, build_word_table, candidate_words, verify_exact
from servemark.traces.types import Message, Segment, Session, Turn, Workload

WORDS = [f"w{i}" for i in range(512)]


class Tokenizer:
    """Splits like a byte-level BPE: a word with its leading space is one piece, a newline is one, other white
    space too. `cost(piece)` says how many tokens a piece is; a BOS token comes first when asked for."""

    def __init__(
        self, cost: Callable[[str], int] = lambda _: 1, *, bos: bool = False, pattern: str = ""
    ) -> None:
        self.cost = cost
        self.bos = bos
        self.pattern = re.compile(pattern or r" ?[a-z0-9]+|\n|\s")
        self.known: dict[str, int] = {}
        self.calls = 0

    def __call__(self, given: str) -> list[int]:
        self.calls += 1
        tokens = [0] if self.bos else []
        for piece in self.pattern.findall(given):
            tokens += [self.known.setdefault(piece, len(self.known) + 1)] * self.cost(piece)
        return tokens


def one_message(*segments: Segment) -> Workload:
    """A workload of one prompt."""
    return Workload("", "", (Session("s", (Turn((Message("user", segments),), 1),)),))


def test_candidates_are_many_and_plain() -> None:
    words = candidate_words()
    assert len(words) == len(set(words)) > 800
    assert all(re.fullmatch("[a-z]{2,12}", w) for w in words)


def test_a_segment_has_one_word_a_token() -> None:
    maker = TextMaker(WORDS, 1)
    made = maker.text(Segment("a", 300))
    assert made.startswith(" w")
    assert len(made.split()) == 300 == made.count(" ")
    assert maker.text(Segment("a", 0)) == ""
    assert maker.text(Segment("a", 40)) == " " + " ".join(made.split()[:40])
    assert maker.message(Message("user", (Segment("a", 2), Segment("b", 1)))) == (
        maker.text(Segment("a", 2)) + maker.text(Segment("b", 1))
    )


def test_ids_seeds_and_tables_make_other_texts() -> None:
    maker = TextMaker(WORDS, 1)
    made = maker.text(Segment("a", 50))
    assert made != maker.text(Segment("b", 50))
    assert made != TextMaker(WORDS, 2).text(Segment("a", 50))
    assert maker.id != TextMaker(WORDS, 2).id != TextMaker(WORDS[:-1], 2).id
    assert maker.id == TextMaker(WORDS, 1).id
    assert maker.text(Segment("\udcff", 3))  # half a surrogate pair, as a trace's id may hold


def test_words_are_spread() -> None:
    """20,000 draws of 512 words: all come up, none more than three times its share of 39."""
    counts: dict[str, int] = {}
    for word in TextMaker(WORDS, 5).text(Segment("a", 20_000)).split():
        counts[word] = counts.get(word, 0) + 1
    assert len(counts) == 512
    assert max(counts.values()) < 3 * 20_000 / 512


def test_equal_text_in_another_process() -> None:
    code = (
        "from servemark.traces.text import TextMaker; from servemark.traces.types import Segment;"
        "print(TextMaker([f'w{i}' for i in range(512)], 'x').text(Segment('seg', 64)), end='')"
    )
    here = TextMaker(WORDS, "x").text(Segment("seg", 64))
    for seed in ("0", "99"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == here


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_CACHE_CHARS", 1000)
    maker = TextMaker(["word"], 0)  # 5 characters a token
    texts = [maker.text(Segment(str(i), 40)) for i in range(10)]
    assert maker._chars <= 1000
    assert len(maker._made) == 5
    assert [maker.text(Segment(str(i), 40)) for i in range(10)] == texts
    maker.text(Segment("5", 40))  # used again, so the next new one pushes out 6
    maker.text(Segment("new", 40))
    assert [s.id for s in maker._made] == ["7", "8", "9", "5", "new"]
    maker.text(Segment("large", 60))  # more than a quarter of the cache is not kept
    assert Segment("large", 60) not in maker._made


def test_long_prompts_are_fast() -> None:
    """60,000 tokens in 118 segments; the best of five, so that a busy machine does not decide."""
    spent = []
    for attempt in range(5):
        maker = TextMaker(WORDS, attempt)
        message = Message("user", tuple(Segment(str(i), 509) for i in range(118)))
        began = time.perf_counter()
        made = maker.message(message)
        spent.append(time.perf_counter() - began)
        assert made.count(" ") == 118 * 509
    assert min(spent) < 0.02


@pytest.mark.parametrize("bos", [False, True])
def test_word_table_leaves_out_what_is_not_one_token(bos: bool) -> None:
    """Words with a `q` are two tokens here, words with a `z` only without a space before them; tokenizers
    that strip a message's first space need both to be one."""

    def cost(piece: str) -> int:
        return 2 if "q" in piece or ("z" in piece and piece[0] != " ") else 1

    tokenizer = Tokenizer(cost, bos=bos)
    table = build_word_table(tokenizer, want=10_000)
    assert table == [w for w in candidate_words() if "q" not in w and "z" not in w]
    assert tokenizer.calls < 10
    some = build_word_table(tokenizer, want=512)
    assert len(some) == 512
    assert some == sorted(set(some))
    assert some[0][0] == "a"
    assert some[-1][0] > "v"


def test_word_table_without_lines() -> None:
    """A tokenizer that takes a newline and the next word as one piece: the list is halved until it adds
    up."""

    def cost(piece: str) -> int:
        return 2 if "qu" in piece else 1

    tokenizer = Tokenizer(cost, pattern=r"[ \n]*[a-z]+|\s")
    table = build_word_table(tokenizer, want=10_000)
    assert table == [w for w in candidate_words() if "qu" not in w]
    assert tokenizer.calls < 500


def test_no_words_is_an_error() -> None:
    tokenizer = Tokenizer(len)  # a token a character
    with pytest.raises(ServemarkError) as caught:
        build_word_table(tokenizer)
    assert caught.value.key == "traces.too_few_words"
    assert caught.value.layer is Layer.ENGINE
    assert "0 of" in caught.value.what("en")


def test_verify_finds_a_wrong_table() -> None:
    """A table made for another tokenizer: the word `w7` is two tokens, so a text is longer than planned."""
    workload = one_message(Segment("a", 2000), Segment("b", 30))
    maker = TextMaker(WORDS, 1)
    assert verify_exact(maker, Tokenizer(bos=True), workload) == 0
    sevens = maker.message(Message("user", (Segment("a", 2000), Segment("b", 30)))).split().count("w7")
    assert sevens > 0
    assert verify_exact(maker, Tokenizer(lambda p: 2 if p == " w7" else 1), workload) == sevens
    assert verify_exact(maker, Tokenizer(), Workload("", "", ())) == 0


@pytest.mark.parametrize("words", [[], ["a b"], [""], ["é"]])
def test_words_must_be_words(words: list[str]) -> None:
    with pytest.raises(ValueError, match="ASCII"):
        TextMaker(words, 0)
