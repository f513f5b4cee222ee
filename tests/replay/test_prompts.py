"""From turns to the bytes of their messages."""

from __future__ import annotations

import json

import pytest

from servemark.replay.prompts import SessionPrompts, cache_bust_marker
from servemark.traces.types import CacheBust, Message, Segment, Session, Turn


class Counting:
    """A segment's text is its id; counts how often each is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def text(self, segment: Segment) -> str:
        """See the class."""
        self.asked.append(segment.id)
        return segment.id


def said(text: str) -> Message:
    """A user message of one segment."""
    return Message("user", (Segment(text, 1),))


def prompts(*turns: tuple[Message, ...], bust: CacheBust = "none") -> tuple[SessionPrompts, Counting]:
    """The prompts of one session, and what they ask of the text maker."""
    maker = Counting()
    return SessionPrompts(Session("s", tuple(Turn(m, 1) for m in turns)), maker, bust, "salt"), maker


def contents(encoded: bytes) -> list[str]:
    """The messages' contents."""
    return [message["content"] for message in json.loads(encoded)]


def test_grown_prompt_makes_only_its_new_text() -> None:
    """Each text is made once although it is sent in every later turn."""
    made, maker = prompts((said("a"),), (said("a"), said("b")), (said("a"), said("b"), said("c")))
    assert [contents(made.encode(n)) for n in range(3)] == [["a"], ["a", "b"], ["a", "b", "c"]]
    assert maker.asked == ["a", "b", "c"]


def test_prompt_that_was_rewritten() -> None:
    """An agent that compacts its history: what changed is made anew, what did not change stays right."""
    made, _ = prompts((said("a"), said("b"), said("c")), (said("a"), said("x"), said("c")), (said("y"),))
    assert [contents(made.encode(n)) for n in range(3)] == [["a", "b", "c"], ["a", "x", "c"], ["y"]]


def test_same_id_of_another_length_is_another_text() -> None:
    """Equality is of id and token count."""
    longer = Message("user", (Segment("a", 2),))
    made, maker = prompts((said("a"),), (longer,))
    made.encode(0)
    made.encode(1)
    assert maker.asked == ["a", "a"]


@pytest.mark.parametrize("bust", ["session", "request"])
def test_marker_stands_in_the_first_message_only(bust: CacheBust) -> None:
    """Also when the first message is the same one in every turn."""
    made, _ = prompts((said("a"), said("b")), (said("a"), said("b")), bust=bust)
    first, second = contents(made.encode(0)), contents(made.encode(1))
    turns = (0, 1) if bust == "request" else (None, None)
    assert first == [cache_bust_marker("salt", "s", turns[0]) + "a", "b"]
    assert second == [cache_bust_marker("salt", "s", turns[1]) + "a", "b"]
    assert (first == second) is (bust == "session")


def test_marker_is_what_it_was() -> None:
    """First 12 digits of `printf 'salt\\0s' | sha256sum` and of `printf 'salt\\0s\\0001' | sha256sum`."""
    assert cache_bust_marker("salt", "s") == "[rid:fbab619b03c0]\n\n"
    assert cache_bust_marker("salt", "s", 1) == "[rid:b02f9fb5b10d]\n\n"


def test_half_characters_are_replaced() -> None:
    """Text out of a broken trace still makes valid JSON."""
    made, _ = prompts((said("a\ud83d"),))
    assert contents(made.encode(0)) == ["a?"]


def test_turn_without_messages() -> None:
    """An empty prompt is an empty array; the server will have its say."""
    made, _ = prompts((), bust="session")
    assert made.encode(0) == b"[]"
