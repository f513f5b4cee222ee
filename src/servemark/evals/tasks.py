"""What an accuracy task is: items with one expected answer each, how to ask them and judge the replies."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from servemark.traces.types import Role

ChatMessage = tuple[Role, str]


@dataclass(frozen=True, slots=True)
class EvalItem:
    """One question. `id` is unique within its task; `kind` groups items of one sort."""

    id: str
    kind: str
    question: str
    expected: str


@dataclass(frozen=True, slots=True)
class EvalPrompt:
    """One request for one item: greedy, streamed or not as the sender likes. `attempt` counts from 0."""

    item: str
    attempt: int
    messages: tuple[ChatMessage, ...]
    max_tokens: int
    stop: tuple[str, ...]
    temperature: float = 0.0


_EDGES = "\"'`.,;:!? \u2018\u2019\u201c\u201d"
"""Dropped at both ends of an answer; the last four are typographic quotes."""


def first_line(reply: str | None, finish_reason: str | None) -> str | None:
    """The answer in a reply, or None when there is none.

    Rules: white space around the reply is dropped; the answer is its first line; a reply that was cut off by
    the token limit before its first line ended is no answer, and neither is an empty one.
    """
    line, ended, _ = (reply or "").strip().partition("\n")
    if finish_reason == "length" and not ended:
        return None
    return line.strip() or None


def normalise(answer: str) -> str:
    """What is compared: Unicode NFKC, case folded, runs of white space as one space, and quotes and the
    punctuation . , ; : ! ? dropped at both ends."""
    folded = unicodedata.normalize("NFKC", answer).casefold()
    return " ".join(folded.split()).strip(_EDGES)


def exact_match(expected: str, answer: str) -> bool:
    """True when both are the same after `normalise`; partial credit does not exist."""
    return normalise(expected) == normalise(answer)


@dataclass(frozen=True, slots=True)
class EvalTask:
    """A fixed list of items. Equal `id` and `version` mean equal items, prompts and rules, forever.

    `preamble` goes before every question (instructions and worked examples), so an engine with a prefix cache
    computes it once. `extract` takes a reply and its finish reason; `judge` an expected answer and an
    extracted one.
    """

    id: str
    version: str
    preamble: tuple[ChatMessage, ...]
    items: tuple[EvalItem, ...]
    max_tokens: int
    stop: tuple[str, ...] = ("\n",)
    extract: Callable[[str | None, str | None], str | None] = first_line
    judge: Callable[[str, str], bool] = exact_match

    def prompt(self, item: EvalItem, attempt: int = 0) -> EvalPrompt:
        """The request for one item."""
        messages = (*self.preamble, ("user", item.question))
        return EvalPrompt(item.id, attempt, messages, self.max_tokens, self.stop)

    @property
    def constant_share(self) -> float:
        """Score of the best answer that never changes: what a model that reads nothing can reach. 0..1."""
        answers = Counter(normalise(item.expected) for item in self.items)
        return max(answers.values(), default=0) / len(self.items) if self.items else 0.0
