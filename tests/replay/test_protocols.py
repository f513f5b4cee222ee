"""The other protocols against a server that sends events as OpenAI's and Anthropic's references describe them.

Expected values are worked out by hand from the bytes that the server is told to send.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from tests.replay.conftest import LAST_CHUNK, STREAM_HEAD, Pause, RawServer, Serve, Step, chunk, reply, sse

from servemark.metrics.request import tpot_s, ttft_s
from servemark.replay.client import ChatRequest, Client, Target, run
from servemark.replay.protocols import PROTOCOLS, ProtocolName
from servemark.replay.record import RequestRecord

MESSAGES: list[dict[str, object]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather"}, {"type": "text", "text": "?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"x"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
]
TOOLS = json.dumps(
    [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}]
).encode()


def named(value: Mapping[str, object]) -> bytes:
    """One event with its type as its name too."""
    return b"event: " + str(value["type"]).encode() + b"\n" + sse(value)


def streamed(*events: bytes | Pause) -> list[Step]:
    """A reply of these events, each in a chunk of its own."""
    return [STREAM_HEAD, *(e if isinstance(e, Pause) else chunk(e) for e in events), LAST_CHUNK]


def send(
    server: RawServer, protocol: ProtocolName, *, count: Callable[[str], int] | None = None, **fields: object
) -> RequestRecord:
    """One request with text kept."""

    async def main() -> RequestRecord:
        target = Target(server.url, "m", protocol=protocol, idle_timeout_s=5)
        async with Client(target, count_tokens=count) as client:
            options: dict[str, object] = {"max_tokens": 9, "keep_text": True, **fields}
            request = ChatRequest("r", "s", 0, "measured", MESSAGES, **options)  # type: ignore[arg-type]
            return await client.send(request)

    return run(main())


def block_delta(**fields: object) -> bytes:
    """Anthropic: a piece of a content block."""
    return named({"type": "content_block_delta", "index": 0, "delta": fields})


ANTHROPIC: list[bytes | Pause] = [
    named(
        {
            "type": "message_start",
            "message": {
                "model": "m-1",
                "usage": {
                    "input_tokens": 5,
                    "cache_read_input_tokens": 30,
                    "cache_creation_input_tokens": 7,
                    "output_tokens": 1,
                },
            },
        }
    ),
    named({"type": "ping"}),
    named({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
    Pause(0.05),
    block_delta(type="thinking_delta", thinking="hm"),
    block_delta(type="signature_delta", signature="xx"),
    Pause(0.05),
    block_delta(type="text_delta", text="Sun"),
    block_delta(type="text_delta", text="ny"),
    named({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "look"}}),
    block_delta(type="input_json_delta", partial_json=""),
    block_delta(type="input_json_delta", partial_json='{"at"'),
    named({"type": "content_block_stop", "index": 1}),
    named({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 12}}),
    named({"type": "message_stop"}),
]


def test_anthropic_stream(serve: Serve) -> None:
    """Five events are content: thinking, two texts, a tool's name, its arguments. Prompt tokens are 5 + 30 + 7."""
    server = serve(streamed(*ANTHROPIC))
    record = send(server, "messages")
    assert (record.outcome, record.finish_reason, record.text) == ("ok", "tool_use", "Sunny")
    assert (record.input_tokens, record.cached_tokens, record.output_tokens) == (42, 30, 12)
    assert (record.tokens_origin, record.served_model) == ("usage", "m-1")
    assert len(record.chunk_s) == 5
    assert record.first_reasoning_s == record.chunk_s[0]
    assert record.first_text_s == record.chunk_s[1]
    first = ttft_s(record)
    assert first is not None and first >= 0.05
    head, body = server.exchanges[0].head, server.exchanges[0].json
    assert head.startswith(b"POST /v1/messages HTTP/1.1\r\n")
    assert server.exchanges[0].headers["anthropic-version"] == "2023-06-01"
    assert (body["system"], body["max_tokens"], body["stream"]) == ("Be brief.", 9, True)
    assert body["messages"] == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "x"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "rain"}]},
    ]


RESPONSES: list[bytes | Pause] = [
    named({"type": "response.created", "response": {"model": "m-2", "status": "in_progress"}}),
    named({"type": "response.output_item.added", "item": {"type": "reasoning"}}),
    named({"type": "response.reasoning_text.delta", "delta": "hm"}),
    Pause(0.02),
    named({"type": "response.output_text.delta", "delta": "Sun"}),
    named({"type": "response.output_text.delta", "delta": ""}),
    named({"type": "response.output_text.delta", "delta": "ny"}),
    named({"type": "response.output_text.done", "text": "Sunny"}),
    named({"type": "response.output_item.added", "item": {"type": "function_call", "name": "look"}}),
    named({"type": "response.function_call_arguments.delta", "delta": "{}"}),
]


def ended(kind: str, status: str, **fields: object) -> bytes:
    """Responses: the event that ends it."""
    usage = {"input_tokens": 40, "output_tokens": 8, "input_tokens_details": {"cached_tokens": 16}}
    return named({"type": kind, "response": {"status": status, "usage": usage, **fields}})


@pytest.mark.parametrize(
    ("end", "finish"),
    [
        (ended("response.completed", "completed"), "completed"),
        (
            ended("response.incomplete", "incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "max_output_tokens",
        ),
    ],
)
def test_responses_stream(serve: Serve, end: bytes, finish: str) -> None:
    """Content: one reasoning piece, two texts, a call's name, its arguments. A full budget is an ordinary end."""
    server = serve(streamed(*RESPONSES, end))
    record = send(server, "responses", tools=TOOLS)
    assert (record.outcome, record.finish_reason, record.text) == ("ok", finish, "Sunny")
    assert (record.input_tokens, record.cached_tokens, record.output_tokens) == (40, 16, 8)
    assert (len(record.chunk_s), record.served_model) == (5, "m-2")
    body = server.exchanges[0].json
    assert server.exchanges[0].head.startswith(b"POST /v1/responses HTTP/1.1\r\n")
    assert body["max_output_tokens"] == 9
    assert body["tools"] == [
        {"type": "function", "name": "look", "description": "d", "parameters": {"type": "object"}}
    ]
    assert body["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"x"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
    ]


def test_completions_stream(serve: Serve) -> None:
    """Texts joined to one prompt; usage and the end as in chat; 4 tokens in 3 events, so TPOT divides by 4 - 1."""

    def piece(text: str, finish: str | None = None) -> bytes:
        return sse({"model": "m-3", "choices": [{"text": text, "finish_reason": finish}]})

    end = {"choices": [], "usage": {"prompt_tokens": 6, "completion_tokens": 4}}
    events: list[bytes | Pause] = [
        piece("a"),
        Pause(0.03),
        piece("b"),
        Pause(0.03),
        piece("cd", "length"),
        sse(end),
        sse(b"[DONE]"),
    ]
    server = serve(streamed(*events))
    record = send(server, "completions", ignore_eos=True, stop=["x"])
    assert (record.outcome, record.text, record.finish_reason) == ("ok", "abcd", "length")
    assert (record.input_tokens, record.output_tokens, record.served_model) == (6, 4, "m-3")
    assert tpot_s(record) == pytest.approx((record.chunk_s[2] - record.chunk_s[0]) / 3)
    body = server.exchanges[0].json
    assert (body["prompt"], body["ignore_eos"], body["stop"]) == ("Be brief.Weather?rain", True, ["x"])
    assert server.exchanges[0].head.startswith(b"POST /v1/completions HTTP/1.1\r\n")


WHOLE: dict[ProtocolName, dict[str, object]] = {
    "chat": {
        "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    },
    "completions": {
        "choices": [{"text": "hi", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    },
    "messages": {
        "type": "message",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "stop",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    },
    "responses": {
        "object": "response",
        "status": "stop",
        "error": None,
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
        "usage": {"input_tokens": 3, "output_tokens": 2},
    },
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whole_replies(serve: Serve, protocol: ProtocolName) -> None:
    """Not streamed: one content event, at the end."""
    server = serve([reply("200 OK", json.dumps(WHOLE[protocol]).encode())])
    record = send(server, protocol, stream=False)
    assert (record.outcome, record.text, record.finish_reason) == ("ok", "hi", "stop")
    assert (record.input_tokens, record.output_tokens, len(record.chunk_s)) == (3, 2, 1)


ERRORS: dict[ProtocolName, bytes] = {
    "completions": sse({"error": {"type": "server_error", "message": "boom"}}),
    "messages": named({"type": "error", "error": {"type": "server_error", "message": "boom"}}),
    "responses": named(
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "boom"}}}
    ),
}


@pytest.mark.parametrize("protocol", ERRORS)
def test_failures_in_a_good_reply(serve: Serve, protocol: ProtocolName) -> None:
    """An error object inside a 200 stream ends the request as an error with the server's words."""
    record = send(serve(streamed(ERRORS[protocol])), protocol)
    assert (record.outcome, record.error_kind) == ("error", "stream_error")
    assert record.error_detail == "server_error: boom"


@pytest.mark.parametrize("protocol", ERRORS)
def test_streams_that_are_cut_off(serve: Serve, protocol: ProtocolName) -> None:
    """The event that says the reply is over never came."""
    start: dict[str, list[bytes | Pause]] = {
        "messages": ANTHROPIC[:-2],
        "responses": RESPONSES,
        "completions": [sse({"choices": [{"text": "a"}]})],
    }
    record = send(serve(streamed(*start[protocol])), protocol)
    assert (record.outcome, record.error_kind) == ("incomplete", "truncated")
    assert record.chunk_s


ODD = [
    b"data: NaN\n\n",
    b"data: [1]\n\n",
    b'data: {"type": 3}\n\n',
    b'data: {"usage": {"output_tokens": NaN}}\n\n',
]


@pytest.mark.parametrize("protocol", ERRORS)
def test_odd_events_say_nothing(serve: Serve, protocol: ProtocolName) -> None:
    """Unknown shapes and counts that are none are passed over; what follows them counts."""
    rest: dict[str, list[bytes | Pause]] = {
        "messages": ANTHROPIC,
        "responses": [*RESPONSES, ended("response.completed", "completed")],
    }
    done: list[bytes | Pause] = [sse({"choices": [{"text": "a"}] * 5}), sse(b"[DONE]")]
    record = send(serve(streamed(*ODD, *rest.get(protocol, done))), protocol)
    assert record.outcome == "ok"
    assert len(record.chunk_s) == (1 if protocol == "completions" else 5)


@pytest.mark.parametrize("protocol", ERRORS)
def test_what_is_not_json_is_an_error(serve: Serve, protocol: ProtocolName) -> None:
    """As in chat."""
    record = send(serve(streamed(b"data: {oops\n\n")), protocol)
    assert (record.outcome, record.error_kind) == ("error", "bad_event")


def test_tokens_by_the_targets_tokenizer(serve: Serve) -> None:
    """Without usage the whole reply is counted once: text, reasoning, a call's name and arguments."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text.split())

    events: list[bytes | Pause] = [
        sse({"choices": [{"delta": {"reasoning_content": "let me "}}]}),
        sse({"choices": [{"delta": {"content": "see it "}}]}),
        sse(
            {
                "choices": [
                    {"delta": {"tool_calls": [{"function": {"name": "look "}}]}, "finish_reason": "stop"}
                ]
            }
        ),
        sse(b"[DONE]"),
    ]
    record = send(serve(streamed(*events)), "chat", count=count)
    assert counted == ["let me see it look "]
    assert (record.output_tokens, record.tokens_origin, len(record.chunk_s)) == (5, "tokenizer", 3)


def test_the_servers_own_count_goes_first(serve: Serve) -> None:
    """With usage nobody tokenizes."""

    def count(text: str) -> int:
        raise AssertionError(text)

    record = send(serve(streamed(*ANTHROPIC)), "messages", count=count)
    assert (record.output_tokens, record.tokens_origin) == (12, "usage")


@pytest.mark.parametrize(
    ("protocol", "fields", "said"),
    [
        ("messages", {"max_tokens": None}, "max_tokens"),
        ("responses", {"tools": b'{"a":1}'}, "tools"),
    ],
)
def test_requests_that_the_protocol_cannot_carry(
    serve: Serve, protocol: ProtocolName, fields: dict[str, object], said: str
) -> None:
    """Ended before anything is sent, with the reason."""
    server = serve([reply("200 OK", b"{}")])
    record = send(server, protocol, count=None, **fields)
    assert (record.outcome, record.error_kind) == ("error", "unencodable")
    assert said in (record.error_detail or "")
    assert not server.exchanges


def test_images_cannot_be_sent_as_text(serve: Serve) -> None:
    """A part without text is refused, not dropped."""
    server = serve([reply("200 OK", b"{}")])

    async def main() -> RequestRecord:
        async with Client(Target(server.url, "m", protocol="completions")) as client:
            picture = [{"type": "image_url", "image_url": {"url": "data:,"}}]
            return await client.send(
                ChatRequest("r", "s", 0, "measured", [{"role": "user", "content": picture}], 1)
            )

    assert run(main()).error_kind == "unencodable"
