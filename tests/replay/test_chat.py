"""What counts as content, what counts as a token, and what odd shapes mean. No sockets: see
test_streams.py."""

from __future__ import annotations

import json
import math

import pytest
from tests.replay.conftest import delta, sse, usage

from servemark.replay.chat import StreamReader, WholeReader, clean_count, encode_body
from servemark.replay.failures import ReplyError
from servemark.replay.record import RequestRecord

DONE = b"[DONE]"


def read(*events: object, keep_text: bool = False, end: bool = True) -> RequestRecord:
    """Event k arrives at second k + 1, in a read of its own."""
    record = RequestRecord("r", "s", 0, "measured")
    reader = StreamReader(record, keep_text=keep_text, event_limit=1 << 20)
    for at, event in enumerate(events, 1):
        reader.feed(float(at), sse(event))
    if end:
        reader.end(99.0, whole=True)
    reader.close()
    return record


def call(**function: object) -> dict[str, object]:
    """A delta with one tool call."""
    return delta(tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": function}])


def test_only_content_counts() -> None:
    """Role, empty, null, finish and usage deltas are not content: content is at 3, 5 and 8."""
    record = read(
        delta(role="assistant", content=""),
        delta(role="assistant", content=None),
        delta(content="Hi"),
        delta(),
        delta(content=" you"),
        {"choices": []},
        {"choices": None},
        delta(content="!"),
        delta("stop"),
        usage(11, 3, 4),
        DONE,
    )
    assert record.chunk_s == [3.0, 5.0, 8.0]
    assert record.first_text_s == 3.0
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (11, 3, 4)
    assert (record.tokens_origin, record.finish_reason) == ("usage", "stop")
    assert record.chunk_tokens is None
    assert record.text is None


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_content_but_not_text(name: str) -> None:
    """First content at 1, first visible text at 3; without usage the three events are the count."""
    record = read(
        delta(**{name: "hm"}), delta(**{name: " so"}), delta(content="42"), delta("stop"), keep_text=True
    )
    assert record.chunk_s == [1.0, 2.0, 3.0]
    assert record.first_text_s == 3.0
    assert (record.output_tokens, record.tokens_origin) == (3, "chunks")
    assert record.text == "42"


def test_tool_calls_count_by_name_or_arguments() -> None:
    """A call with neither is not content; arguments as an object are arguments."""
    record = read(
        call(name="f", arguments=""),
        call(arguments='{"a"'),
        call(name="", arguments=""),
        call(name=None),
        call(arguments={"a": 1}),
        delta(tool_calls=[]),
        delta(tool_calls=[None, 5, {"function": None}]),
        delta("tool_calls"),
    )
    assert record.chunk_s == [1.0, 2.0, 5.0]
    assert record.first_text_s is None


def test_content_in_parts() -> None:
    """A list of typed parts is text too; a list without text is not."""
    record = read(
        delta(content=[]), delta(content=[{"type": "text", "text": "a"}]), delta("stop"), keep_text=True
    )
    assert record.chunk_s == [2.0]
    assert record.text == "a"


def test_continuous_usage_gives_tokens_per_chunk() -> None:
    """Totals 0 (role), 3, 4, 4 (withheld), 9: the last chunk carries 5, since what was withheld came with
    it."""
    record = read(
        delta(role="assistant", content="") | usage(7, 0) | {"choices": [{"delta": {"content": ""}}]},
        delta(content="abc") | {"usage": {"prompt_tokens": 7, "completion_tokens": 3}},
        delta(content="d") | {"usage": {"prompt_tokens": 7, "completion_tokens": 4}},
        {"choices": [], "usage": {"completion_tokens": 4}},
        delta(content="efghi") | {"usage": {"prompt_tokens": 7, "completion_tokens": 9}},
        delta("stop") | {"usage": {"prompt_tokens": 7, "completion_tokens": 10}},
    )
    assert record.chunk_s == [2.0, 3.0, 5.0]
    assert record.chunk_tokens == [3, 1, 5]
    assert (record.output_tokens, record.tokens_origin) == (10, "usage")


@pytest.mark.parametrize(
    "totals",
    [[3, None, 5], [3, 2, 5], [0, 0, 0], [None, 4, 5], [1, -2, 3]],
    ids=["gap", "falls", "zero", "late", "negative"],
)
def test_tokens_per_chunk_are_known_or_absent(totals: list[int | None]) -> None:
    """A total that is missing, falls, or never moves makes all of them unknown, not wrong."""
    record = read(*(delta(content="x") | {"usage": {"completion_tokens": t}} for t in totals), delta("stop"))
    assert len(record.chunk_s) == 3
    assert record.chunk_tokens is None


@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "-Infinity", "-1", "1e999", "1.5", "9" * 5000, "9" * 12, '"7"', "true", "[]", "{}"],
)
def test_odd_counts_are_absent(value: str) -> None:
    """A count that cannot be one is dropped, the rest of the event is kept, and the events are counted
    instead."""
    odd = f'{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":{value}}}}}'.encode()
    record = read(delta(content="a"), delta(content="b"), delta("stop"), odd)
    assert record.input_tokens == 5
    assert (record.output_tokens, record.tokens_origin) == (2, "chunks")


@pytest.mark.parametrize(
    ("value", "count"),
    [(0, 0), (7, 7), (7.0, 7), (1e9, 10**9), (1e9 + 1, None), (math.nan, None), (True, None), (None, None)],
)
def test_clean_count(value: object, count: int | None) -> None:
    """By hand: whole numbers from 0 to 10^9."""
    assert clean_count(value) == count


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"object": "ping"},
        {"choices": [None, 3, {"delta": 4}, {"delta": None}, {}]},
        {"choices": "none"},
        {"choices": [], "usage": []},
        {"choices": [], "usage": {"prompt_tokens_details": []}},
        {"choices": [{"delta": {"content": 5}, "finish_reason": 7}]},
        [1, 2],
        None,
        "text",
        b" ",
        b'{"choices":[],"x":' + b"[" * 900 + b"]" * 900 + b"}",
    ],
)
def test_unknown_shapes_say_nothing(odd: object) -> None:
    """What is not understood neither counts nor hurts."""
    record = read(odd, delta(content="a"), odd, delta("stop"))
    assert record.chunk_s == [2.0]
    assert record.output_tokens == 1


def test_invalid_utf8_is_tolerated() -> None:
    """Bytes that are no UTF-8 and escaped half characters become replacement characters."""
    bad = b'{"choices":[{"delta":{"content":"a\xff\xfeb"}}]}'
    half = b'{"choices":[{"delta":{"content":"\\ud83d"}}]}'
    record = read(bad, half, delta("stop"), keep_text=True)
    assert record.chunk_s == [1.0, 2.0]
    assert record.text == "a\ufffd\ufffdb?"


@pytest.mark.parametrize(
    ("event", "detail"),
    [
        (
            {"error": {"message": "out of memory", "type": "server_error", "code": 500}},
            "server_error: 500: out of memory",
        ),
        ({"error": "plain words"}, "plain words"),
        ({"error": {"odd": [1]}}, '{"odd": [1]}'),
        ({"object": "error", "message": "old form", "code": 40001}, "40001: old form"),
        ({"choices": [], "error": {"message": "late"}}, "late"),
        ({"error": {"message": "two\r\nlines\x1b[31m"}}, "two lines [31m"),
    ],
)
def test_error_object_in_a_stream(event: object, detail: str) -> None:
    """A 200 that turns bad is an error with the server's own words, on one printable line."""
    with pytest.raises(ReplyError) as caught:
        read(delta(content="a"), event)
    assert (caught.value.outcome, caught.value.kind, caught.value.detail) == ("error", "stream_error", detail)


@pytest.mark.parametrize("stream", [b"event: error\ndata: boom\n\n", b'error: {"message":"boom"}\n\n'])
def test_named_error_event(stream: bytes) -> None:
    """An event named error is an error whatever its data look like."""
    reader = StreamReader(RequestRecord("r", "s", 0, "measured"), keep_text=False, event_limit=1000)
    with pytest.raises(ReplyError, match="boom"):
        reader.feed(1.0, stream)


@pytest.mark.parametrize("payload", [b"{not json", b'{"choices":[', b"[" * 100_000, b"hello"])
def test_what_is_not_json_is_an_error(payload: bytes) -> None:
    """A corrupt event makes the whole reply doubtful."""
    with pytest.raises(ReplyError) as caught:
        read(payload)
    assert caught.value.kind == "bad_event"
    assert len(caught.value.detail or "") <= 300


@pytest.mark.parametrize(
    ("events", "whole", "kind"),
    [
        ([delta(content="a"), DONE], True, None),
        ([delta(content="a"), DONE], False, None),
        ([delta(content="a"), delta("length")], True, None),
        ([delta(content="a"), delta("length")], False, "truncated"),
        ([delta(content="a")], True, "truncated"),
        ([], True, "truncated"),
        ([delta(content="a"), delta("abort"), DONE], True, "aborted_by_server"),
    ],
)
def test_how_a_stream_may_end(events: list[object], whole: bool, kind: str | None) -> None:
    """Good: `[DONE]`, or a finish reason and a body that is whole."""
    reader = StreamReader(RequestRecord("r", "s", 0, "measured"), keep_text=False, event_limit=1000)
    for event in events:
        reader.feed(1.0, sse(event))
    if kind is None:
        reader.end(2.0, whole=whole)
        return
    with pytest.raises(ReplyError) as caught:
        reader.end(2.0, whole=whole)
    assert caught.value.kind == kind


def test_done_ends_everything() -> None:
    """Nothing after `[DONE]` counts, in the same read or later; `[DONE]` may lack its blank line at the
    end."""
    record = RequestRecord("r", "s", 0, "measured")
    reader = StreamReader(record, keep_text=False, event_limit=1000)
    reader.feed(1.0, sse(delta(content="a")) + sse(DONE) + sse(delta(content="b")))
    assert reader.over
    assert record.chunk_s == [1.0]
    late = StreamReader(record, keep_text=False, event_limit=1000)
    late.feed(1.0, b"data: [DONE]\n")
    assert not late.over
    late.end(2.0, whole=True)


def test_many_events_of_one_read_have_one_time() -> None:
    """Zero gaps are legal: they say that the bytes came together."""
    record = RequestRecord("r", "s", 0, "measured")
    reader = StreamReader(record, keep_text=False, event_limit=1000)
    reader.feed(1.5, sse(delta(content="a")) * 3)
    assert record.chunk_s == [1.5, 1.5, 1.5]


def whole_reply(value: object) -> RequestRecord:
    """A reply that is one JSON object, in two reads."""
    record = RequestRecord("r", "s", 0, "eval")
    reader = WholeReader(record, keep_text=True)
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    reader.feed(1.0, body[:5])
    reader.feed(2.0, body[5:])
    reader.end(2.0, whole=True)
    reader.close()
    return record


def test_whole_reply() -> None:
    """Text, usage and finish reason of a reply that is not streamed."""
    message = {"role": "assistant", "content": "Paris", "reasoning_content": None}
    record = whole_reply(
        {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        | {"usage": usage(9, 1, 8)["usage"]}
    )
    assert (record.text, record.finish_reason) == ("Paris", "stop")
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (9, 1, 8)
    assert (record.chunk_s, record.chunk_tokens) == ([2.0], [1])


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"error": {"message": "no"}}, "stream_error"),
        ({"object": "error", "message": "no"}, "stream_error"),
        ({"choices": []}, "bad_reply"),
        ({"hello": "world"}, "bad_reply"),
        (b"<html>captive portal</html>", "bad_reply"),
        (b"", "bad_reply"),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "error"}]}, "aborted_by_server"),
    ],
)
def test_whole_reply_that_is_none(value: object, kind: str) -> None:
    """A 200 that holds no completion is an error."""
    with pytest.raises(ReplyError) as caught:
        whole_reply(value)
    assert caught.value.kind == kind


def test_body() -> None:
    """Only what was asked for is in the body; messages that are bytes go in as they are."""
    body = json.loads(
        encode_body(
            "m",
            b'[{"role":"user","content":"x"}]',
            stream=True,
            max_tokens=5,
            temperature=0.0,
            ignore_eos=True,
            stop=["\n"],
            extra={"seed": 3},
        )
    )
    assert body == {
        "model": "m",
        "stream": True,
        "temperature": 0.0,
        "messages": [{"role": "user", "content": "x"}],
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "ignore_eos": True,
        "stop": ["\n"],
        "seed": 3,
    }


def test_body_refuses_what_the_client_decides() -> None:
    """A hidden change of `stream` would make the record a lie."""
    with pytest.raises(ValueError, match="stream"):
        encode_body(
            "m",
            [],
            stream=True,
            max_tokens=1,
            temperature=0.0,
            ignore_eos=False,
            stop=None,
            extra={"stream": False},
        )
