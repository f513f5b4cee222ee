"""Text of exactly N tokens for a segment: every word is one token of the target's tokenizer.

A word table is a list of words that the target tokenizes to one token each, alone at the start of a message
and after a space (chat templates differ in whether they strip a message's first space). A segment's text is
" w1 w2 … wN", words drawn by SHAKE-256 of the segment's id: equal in every process and on every machine, and
the text of the same id with fewer tokens is a prefix of the longer one.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources

from servemark.base.canonical import content_hash
from servemark.base.errors import Layer, ServemarkError
from servemark.traces.types import Message, Segment, Turn, Workload

Tokenize = Callable[[str], Sequence[int]]
"""Text -> token ids of the target model; a BOS before them is allowed."""

MIN_WORDS = 64
"""With fewer words, unrelated segments would begin alike too often, and a cache would find false hits."""
_CACHE_CHARS = 16_000_000
_SLOTS = 65_536
_AT_ONCE = 8


class TextMaker:
    """Makes the text of segments. Not safe for use by several threads at once.

    `seed` (any text or number) sets what the words are; two points with the same seed and table send the same
    bytes. At most `_CACHE_CHARS` characters of made text are kept.
    """

    def __init__(self, words: Sequence[str], seed: int | str) -> None:
        if not words or any(not w or not w.isascii() or any(c.isspace() for c in w) for w in words):
            raise ValueError("words must be non-empty ASCII without white space")
        spaced = [f" {w}" for w in words]
        self._table = [spaced[i % len(spaced)] for i in range(_SLOTS)]
        self._seed = f"{seed}\0"
        self._made: OrderedDict[Segment, str] = OrderedDict()
        self._chars = 0
        self.id = content_hash({"words": list(words), "seed": str(seed), "rule": "shake256-u16/1"}, 16)
        """Hash of everything that shapes the text; goes into a run's manifest."""

    def text(self, segment: Segment) -> str:
        """The segment's text: exactly `segment.tokens` words, each with a space before it."""
        found = self._made.get(segment)
        if found is not None:
            self._made.move_to_end(segment)
            return found
        made = self._make(segment)
        if len(made) <= _CACHE_CHARS // 4:
            self._made[segment] = made
            self._chars += len(made)
            while self._chars > _CACHE_CHARS:
                self._chars -= len(self._made.popitem(last=False)[1])
        return made

    def message(self, message: Message) -> str:
        """The message's text: its segments' texts joined."""
        return "".join(map(self.text, message.segments))

    def _make(self, segment: Segment) -> str:
        key = (self._seed + segment.id).encode("utf-8", "surrogatepass")
        numbers = array("H", hashlib.shake_256(key).digest(2 * segment.tokens))
        if sys.byteorder == "big":
            numbers.byteswap()
        return "".join(map(self._table.__getitem__, numbers))


@cache
def candidate_words() -> tuple[str, ...]:
    """Our own list of common short English words and identifiers, in alphabetical order."""
    return tuple(resources.files(__package__).joinpath("words.txt").read_text(encoding="ascii").split())


def build_word_table(tokenize: Tokenize, want: int = 512) -> list[str]:
    """Up to `want` words of `candidate_words` that are one token each, spread over the list.

    Takes about five calls of `tokenize` where newlines are tokens of their own; else it halves the list until
    every part is accounted for (a few hundred calls). Raises ServemarkError (layer engine) when fewer than
    MIN_WORDS are left, since no text of exact length can be made then.
    """
    words = candidate_words()
    plain = _without_bos(tokenize)
    spaced = _single_by_lines(plain, words, " ")
    bare = _single_by_lines(plain, words, "")
    good = [w for w in words if w in spaced and w in bare]
    if len(good) < min(want, MIN_WORDS):
        good = [w for w in words if w in spaced]
    if not good or not _exact(plain, good) or not _exact(plain, good[::-1]):
        good = _single_by_halves(plain, list(words))
    if len(good) < MIN_WORDS:
        raise ServemarkError(
            "traces.too_few_words", Layer.ENGINE, found=len(good), tried=len(words), needed=MIN_WORDS
        )
    take = min(want, len(good))
    return [good[i * len(good) // take] for i in range(take)]


def word_table_by_counts(tokenize: Tokenize, want: int = 128) -> list[str]:
    """Up to `want` one-token words where only the number of a text's tokens is known, and each count costs a request.

    Words are tried eight at a time, spread over the list: eight that make eight tokens are kept, others are left. The
    whole table is counted forwards and backwards at the end. Takes about want / 5 calls; raises ServemarkError (layer
    engine) when fewer than MIN_WORDS are found within want / 2, or the table does not add up.
    """
    words = candidate_words()
    step = max(1, len(words) // (want // 2 * _AT_ONCE))
    good: list[str] = []
    for number in range(want // 2):
        tried = [words[(number * _AT_ONCE + i) * step % len(words)] for i in range(_AT_ONCE)]
        if _exact(tokenize, tried):
            good += tried
        if len(good) >= want:
            break
    good = list(dict.fromkeys(good))
    if len(good) < MIN_WORDS or not _exact(tokenize, good) or not _exact(tokenize, good[::-1]):
        raise ServemarkError(
            "traces.too_few_words",
            Layer.ENGINE,
            found=len(good),
            tried=want // 2 * _AT_ONCE,
            needed=MIN_WORDS,
        )
    return good


def _without_bos(tokenize: Tokenize) -> Callable[[str], list[int]]:
    """The tokenizer without what it puts before every text (BOS)."""
    before = list(tokenize(""))

    def plain(text: str) -> list[int]:
        tokens = list(tokenize(text))
        return tokens[len(before) :] if tokens[: len(before)] == before else tokens

    return plain


def _single_by_lines(plain: Tokenize, words: Sequence[str], space: str) -> frozenset[str]:
    """Words that are one token between newlines, after `space`; empty when lines cannot be told apart."""
    newline = plain("\n")
    if len(newline) != 1:
        return frozenset()
    lines: list[int] = [0]
    for token in plain("".join(f"{space}{w}\n" for w in words)):
        if token == newline[0]:
            lines.append(0)
        else:
            lines[-1] += 1
    if len(lines) != len(words) + 1:
        return frozenset()
    return frozenset(w for w, count in zip(words, lines, strict=False) if count == 1)


def _exact(plain: Tokenize, words: Sequence[str]) -> bool:
    return len(plain("".join(f" {w}" for w in words))) == len(words)


def _single_by_halves(plain: Tokenize, words: list[str]) -> list[str]:
    """Words of the parts of the list that tokenize to as many tokens as they have words."""
    good: list[str] = []
    parts = [words]
    while parts:
        part = parts.pop()
        if _exact(plain, part):
            good = part + good
        elif len(part) > 1:
            parts += [part[: len(part) // 2], part[len(part) // 2 :]]
    return good


def _turns_to_try(workload: Workload, samples: int) -> Iterator[Turn]:
    """All turns of sessions that are in memory; of lazy ones the longest turn of some sessions, spread evenly."""
    sessions = workload.sessions
    if isinstance(sessions, tuple):
        for session in sessions:
            for _, turns in session.streams():
                yield from turns
        return
    for number in sorted({i * len(sessions) // samples for i in range(min(samples, len(sessions)))}):
        turns = [turn for _, stream in sessions[number].streams() for turn in stream]
        yield max(turns, key=lambda turn: turn.input_tokens or 0)


def verify_exact(maker: TextMaker, tokenize: Tokenize, workload: Workload, samples: int = 8) -> int:
    """The largest |tokens - planned tokens| over whole messages: the longest one and `samples` spread evenly.

    0 means that every sampled prompt has exactly its planned length (the chat template's tokens come on top).
    """
    seen: dict[Message, None] = {}
    for turn in _turns_to_try(workload, samples):
        seen.update(dict.fromkeys(m for m in turn.messages if m.raw is None))
    messages = list(seen)
    if not messages:
        return 0

    def planned(message: Message) -> int:
        return sum(s.tokens for s in message.segments)

    step = max(1, len(messages) // max(1, samples))
    picked = {max(messages, key=planned), *messages[::step][:samples]}
    plain = _without_bos(tokenize)
    return max(abs(len(plain(maker.message(m))) - planned(m)) for m in picked)
