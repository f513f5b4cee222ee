"""What an accuracy task is: items with an expected answer each, how to ask them and who judges the replies."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from servemark.traces.types import Role

ChatMessage = tuple[Role, str]


@dataclass(frozen=True, slots=True)
class EvalItem:
    """One question. `id` is unique within its task; `kind` groups items of one sort. `turns` are user messages that
    come before the question and are answered by the model itself; `choices` the answers on offer, A first."""

    id: str
    kind: str
    question: str
    expected: str
    turns: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EvalPrompt:
    """One request for one item: greedy, streamed or not as the sender likes. `attempt` counts from 0, `turn` the
    item's messages from 0. `tools` is a JSON array of tools on offer."""

    item: str
    attempt: int
    messages: tuple[ChatMessage, ...]
    max_tokens: int
    stop: tuple[str, ...]
    temperature: float = 0.0
    tools: bytes | None = None
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a judge sees of a reply that ended as it should: its visible text and its tool calls as (name, arguments)."""

    text: str
    finish_reason: str | None = None
    calls: tuple[tuple[str, str], ...] = ()

    @property
    def truncated(self) -> bool:
        """The token limit cut it off."""
        return self.finish_reason == "length"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`extracted` is the answer found in the reply, None when there is none, and then `correct` is False."""

    extracted: str | None
    correct: bool = False


Judge = Callable[[EvalItem, Reply], Verdict]
"""Pure: the same item and reply give the same verdict. Raises nothing for what a reply holds."""

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


def exact(item: EvalItem, reply: Reply) -> Verdict:
    """The first line of the reply is the expected answer."""
    found = first_line(reply.text, reply.finish_reason)
    return Verdict(found, found is not None and exact_match(item.expected, found))


@dataclass(frozen=True, slots=True)
class EvalTask:
    """A fixed list of items. Equal `id` and `version` mean equal items, prompts and rules, forever.

    `preamble` goes before every question (instructions and worked examples), so an engine with a prefix cache
    computes it once. `tools` is a JSON array of tools on offer; `calls` says that the answer is a tool call.
    """

    id: str
    version: str
    preamble: tuple[ChatMessage, ...]
    items: tuple[EvalItem, ...]
    max_tokens: int
    stop: tuple[str, ...] = ("\n",)
    judge: Judge = exact
    tools: bytes | None = None
    calls: bool = False

    def prompt(self, item: EvalItem, attempt: int = 0, replies: tuple[str, ...] = ()) -> EvalPrompt:
        """The request for the next message of an item; `replies` are what the model said to the ones before."""
        asked = (*item.turns, item.question)[: len(replies) + 1]
        before: list[ChatMessage] = list(self.preamble)
        for said, reply in zip(asked, replies, strict=False):
            before += [("user", said), ("assistant", reply)]
        messages = (*before, ("user", asked[-1]))
        return EvalPrompt(
            item.id, attempt, messages, self.max_tokens, self.stop, tools=self.tools, turn=len(replies)
        )

    def first(self, limit: int | None) -> EvalTask:
        """The task with its first `limit` items, under a version of its own."""
        if limit is None or limit >= len(self.items):
            return self
        return replace(self, items=self.items[:limit], version=f"{self.version}-first{limit}")

    def with_max_tokens(self, max_tokens: int | None) -> EvalTask:
        """The task with room for a reply that thinks first: another token limit, no stop text, a version of its
        own."""
        if max_tokens is None:
            return self
        return replace(self, max_tokens=max_tokens, stop=(), version=f"{self.version}-max{max_tokens}")

    @property
    def constant_share(self) -> float:
        """Score of the best answer that never changes: what a model that reads nothing can reach. 0..1."""
        answers = Counter(normalise(item.expected) for item in self.items)
        return max(answers.values(), default=0) / len(self.items) if self.items else 0.0
