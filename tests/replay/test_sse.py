"""Framing of server-sent events. Expected events are written out by hand from the WHATWG rules."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from servemark.replay.failures import ReplyError
from servemark.replay.sse import Event, SseParser

LIMIT = 1 << 20


def events(*pieces: bytes, limit: int = LIMIT) -> list[Event]:
    """All events of a stream that arrives in these pieces."""
    parser = SseParser(limit)
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\n\r\ndata: b\r\n\n", [b"a", b"b"]),
        (b"data:a\n\ndata:  b\n\n", [b"a", b" b"]),
        (b"data: one\ndata: two\n\n", [b"one\ntwo"]),
        (b"data\n\n", [b""]),
        (b": keep-alive\n\ndata: a\n\n:\n\n", [b"a"]),
        (b"id: 7\nretry: 10\ndata: a\n: in between\n\n", [b"a"]),
        (b"id: 7\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"\n\n\ndata: a\n\n\n\n", [b"a"]),
        (b"data: a\n\ndata: unfinished\n", [b"a"]),
        (b'data: {"x":": \xff"}\n\n', [b'{"x":": \xff"}']),
    ],
)
def test_rules(stream: bytes, expected: list[bytes]) -> None:
    """Line ends, comments, unknown fields, blank lines, one optional space, a byte order mark, any bytes."""
    assert events(stream) == [(b"", data) for data in expected]


def test_names() -> None:
    """A name belongs to its own event only; a field named error makes an event of that name."""
    stream = b"event: error\ndata: a\n\ndata: b\n\nerror: c\n\n"
    assert events(stream) == [(b"error", b"a"), (b"", b"b"), (b"error", b"c")]


def test_character_split_over_packets() -> None:
    """U+6C34 is three bytes; each arrives alone."""
    whole = "data: 水\n\n".encode()
    assert events(whole[:7], whole[7:8], whole[8:]) == [(b"", "水".encode())]


PIECES = st.lists(
    st.sampled_from(
        [
            b"data: a",
            b"data:",
            b"data: \xe6\xb0\xb4",
            b"event: e",
            b": c",
            b"\n",
            b"\r\n",
            b"\r",
            b"\n\n",
            b"\xef\xbb\xbf",
        ]
    )
)


@given(PIECES, st.lists(st.integers(0, 200)))
@example([b"data: a", b"\r", b"\n", b"\r", b"\n", b"data: b", b"\n\n"], [8, 9, 10])
@example([b"\xef\xbb\xbf", b"data: a", b"\n\n"], [1, 2])
def test_any_split_gives_the_same_events(pieces: list[bytes], cuts: list[int]) -> None:
    """The split of the bytes over reads is the network's affair and changes nothing; nor does one byte a
    read."""
    stream = b"".join(pieces)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    parts = [stream[low:high] for low, high in pairwise(edges)]
    whole = events(stream)
    assert events(*parts) == whole
    assert events(*(stream[i : i + 1] for i in range(len(stream)))) == whole


def test_gigantic_event_ends_the_reply() -> None:
    """What has no end must not fill the memory: 100 bytes are allowed, the 101st is one too many."""
    parser = SseParser(100)
    assert parser.feed(b"x" * 100) == []
    with pytest.raises(ReplyError) as caught:
        parser.feed(b"x")
    assert (caught.value.outcome, caught.value.kind) == ("error", "too_large")


def test_long_event_in_small_reads_costs_linear_time() -> None:
    """A 4 MiB event in reads of 64 bytes: quadratic searching would look at 10^11 bytes and time out."""
    parser = SseParser(1 << 23)
    assert parser.feed(b"data: ") == []
    for _ in range(1 << 16):
        assert parser.feed(b"y" * 64) == []
    assert parser.feed(b"\n\n") == [(b"", b"y" * (1 << 22))]


@pytest.mark.parametrize(
    ("stream", "left"),
    [
        (b"data: [DONE]", [b"[DONE]"]),
        (b"data: a\n\ndata: [DONE]\n", [b"[DONE]"]),
        (b"data: a\n\n", []),
        (b"\xef", []),
    ],
)
def test_flush_gives_the_unfinished_event(stream: bytes, left: list[bytes]) -> None:
    """Servers that forget the last blank line."""
    parser = SseParser(LIMIT)
    parser.feed(stream)
    assert [data for _, data in parser.flush()] == left
    assert parser.flush() == []
