"""The OpenAI chat protocol: the request's body, and what each reply event says, folded into the record.

Content is visible text (`content`), reasoning (`reasoning_content` or `reasoning`) and tool calls with a
name or arguments. A delta without any of these (role only, finish only, usage only) is never content.

The fast path is one typed decode per event. Whatever does not fit the types (NaN, half characters, lists
where text is usual) goes through `lenient_event`, which reads the same fields out of any JSON and leaves
the rest alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from servemark.replay.failures import FailureKind, ReplyError, short_detail
from servemark.replay.record import RequestRecord
from servemark.replay.sse import SseParser

MAX_TOKENS: Final = 1_000_000_000
"""No reply has more tokens; a larger count is a server's fault and is dropped."""

RESERVED_FIELDS: Final = frozenset({"model", "messages", "stream"})
"""Fields that the client itself decides; additions to the body must not name them."""

_DONE = b"[DONE]"
_ENDED_BADLY = frozenset({"abort", "error"})
_DECODE_ERRORS = (msgspec.MsgspecError, RecursionError)
_LONGEST_NUMBER = 400
_MAX_CALLS = 64
"""More tool calls of one reply are not kept."""


class Function(msgspec.Struct, gc=False):
    """A called function, or a piece of it."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    """One tool call of a delta."""

    function: Function | None = None
    index: object = None
    """Which call of the reply a piece belongs to; servers that send whole calls may leave it out."""


class Delta(msgspec.Struct, gc=False):
    """What an event adds to the reply."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct, gc=False):
    """One choice of an event (`delta`) or of a whole reply (`message`)."""

    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None


class PromptDetails(msgspec.Struct, gc=False):
    """How many prompt tokens came from a cache."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """Token counts so far, as the server states them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class ChatEvent(msgspec.Struct, gc=False):
    """The needed fields of a chat chunk or of a whole chat reply; all others are skipped unread."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: object = None
    model: str | None = None


_decode = msgspec.json.Decoder(ChatEvent).decode
_encode = msgspec.json.Encoder().encode


def encode_body(
    model: str,
    messages: Sequence[Mapping[str, object]] | bytes,
    *,
    stream: bool,
    max_tokens: int | None,
    temperature: float,
    ignore_eos: bool,
    stop: Sequence[str] | None,
    extra: Mapping[str, object],
    tools: bytes | None = None,
) -> bytes:
    """The JSON body of one request. `messages` and `tools` given as bytes are JSON arrays, put in as they are.

    `extra` may set anything but RESERVED_FIELDS (ValueError). Raises UnicodeEncodeError for text that has
    no UTF-8.
    """
    clash = RESERVED_FIELDS.intersection(extra)
    if clash:
        raise ValueError(f"the client decides {sorted(clash)} itself")
    body: dict[str, object] = {"model": model, "stream": stream, "temperature": temperature}
    body["messages"] = msgspec.Raw(messages) if isinstance(messages, bytes) else messages
    if stream:
        body["stream_options"] = {"include_usage": True}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    if ignore_eos:
        body["ignore_eos"] = True
    if stop:
        body["stop"] = list(stop)
    if tools is not None:
        body["tools"] = msgspec.Raw(tools)
    body.update(extra)
    return _encode(body)


def clean_count(value: object) -> int | None:
    """A token count as a server means it; None for what is not one (NaN, negative, fractions, absurd
    sizes)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= MAX_TOKENS or value != int(value):
        return None
    return int(value)


class ReplyFold:
    """Folds the events of one reply into its record; `close` writes what is known only at the end.

    `count` counts the tokens of a text; it is asked once, at the end, and only where the server sent no usage.
    """

    __slots__ = (
        "_all_texts",
        "_calls",
        "_chunk_s",
        "_count",
        "_cumulative",
        "_keep_text",
        "_output_tokens",
        "_per_chunk",
        "_record",
        "_texts",
        "finish_reason",
    )

    def __init__(
        self, record: RequestRecord, keep_text: bool, count: Callable[[str], int] | None = None
    ) -> None:
        self._record = record
        self._chunk_s = record.chunk_s
        self._keep_text = keep_text
        self._texts: list[str] = []
        self._calls: dict[object, list[str]] = {}
        self._count = count
        self._all_texts: list[str] = []
        self._per_chunk: list[int] | None = []
        self._cumulative = 0
        self._output_tokens: int | None = None
        self.finish_reason: str | None = None

    def add(self, at: float, event: ChatEvent) -> None:
        """Take one event that arrived at `at`. Raises ReplyError when the event reports a failure."""
        usage = event.usage
        if usage is not None:
            self._add_usage(usage)
        if event.model is not None and self._record.served_model is None:
            self._record.served_model = short_detail(event.model)
        choices = event.choices
        if not choices:
            if event.error is not None:
                raise ReplyError("error", "stream_error", error_detail(event.error))
            return
        content = False
        for choice in choices:
            delta = choice.delta or choice.message
            if delta is not None and self._is_content(at, delta):
                content = True
            if choice.finish_reason is not None:
                self.finish_reason = choice.finish_reason
        if content:
            self._chunk_s.append(at)
            if self._per_chunk is not None:
                self._count_chunk(usage)
        if event.error is not None:
            raise ReplyError("error", "stream_error", error_detail(event.error))

    def _is_content(self, at: float, delta: Delta) -> bool:
        text = delta.content
        if text:
            if self._record.first_text_s is None:
                self._record.first_text_s = at
            if self._keep_text:
                self._texts.append(text)
            if self._count is None:
                return True
            self._all_texts.append(text)
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            if self._record.first_reasoning_s is None:
                self._record.first_reasoning_s = at
            if self._count is not None:
                self._all_texts.append(reasoning)
        called = delta.tool_calls
        if called and self._count is not None:
            functions = [call.function for call in called if call.function is not None]
            self._all_texts += [part for f in functions for part in (f.name, f.arguments) if part]
        if called and self._keep_text:
            self._keep_calls(called)
        return bool(text or reasoning) or _calls_something(called)

    def _keep_calls(self, called: list[ToolCall]) -> None:
        """Put pieces of calls together: one with an index goes to that call, one without is a call of its own."""
        for call in called:
            if call.function is None or len(self._calls) >= _MAX_CALLS:
                continue
            key = call.index if isinstance(call.index, int) else ("whole", len(self._calls))
            name, arguments = self._calls.setdefault(key, ["", ""])
            name, arguments = name + (call.function.name or ""), arguments + (call.function.arguments or "")
            self._calls[key] = [name, arguments]

    def close(self) -> None:
        """Write tokens and their origin, finish reason and kept text. May be called for a reply cut short."""
        record = self._record
        record.finish_reason = short_detail(self.finish_reason) if self.finish_reason else None
        if self._output_tokens is not None:
            record.output_tokens = self._output_tokens
            record.tokens_origin = "usage"
        elif self._count is not None and self._all_texts:
            record.output_tokens = self._count(
                "".join(self._all_texts).encode("utf-8", "replace").decode("utf-8")
            )
            record.tokens_origin = "tokenizer"
        elif self._chunk_s:
            record.output_tokens = len(self._chunk_s)
            record.tokens_origin = "chunks"
        counts = self._per_chunk
        if counts and min(counts) >= 0 and sum(counts) > 0:
            record.chunk_tokens = counts
        if self._keep_text:
            whole = "".join(self._texts)
            record.text = _sound(whole)
            if self._calls:
                record.calls = [(_sound(name), _sound(said)) for name, said in self._calls.values()]

    def _add_usage(self, usage: Usage) -> None:
        record = self._record
        record.input_tokens = _later(record.input_tokens, usage.prompt_tokens)
        self._output_tokens = _later(self._output_tokens, usage.completion_tokens)
        if usage.prompt_tokens_details is not None:
            record.cached_tokens = _later(record.cached_tokens, usage.prompt_tokens_details.cached_tokens)

    def _count_chunk(self, usage: Usage | None) -> None:
        """Tokens of this content event, where each one carries usage so far; given up for good where one
        does not."""
        total = None if usage is None else clean_count(usage.completion_tokens)
        if total is None or self._per_chunk is None:
            self._per_chunk = None
            return
        self._per_chunk.append(total - self._cumulative)
        self._cumulative = total


def _sound(text: str) -> str:
    """Without halves of surrogate pairs, which no JSON file can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _later(known: int | None, value: object) -> int | None:
    """The newer count, unless it is none."""
    count = clean_count(value)
    return known if count is None else count


def _calls_something(calls: list[ToolCall] | None) -> bool:
    if not calls:
        return False
    return any(c.function is not None and (c.function.name or c.function.arguments) for c in calls)


class StreamReader:
    """Reads an event stream. `over` is set by `[DONE]`, after which nothing else counts."""

    __slots__ = ("_fold", "_sse", "over")

    def __init__(
        self,
        record: RequestRecord,
        *,
        keep_text: bool,
        event_limit: int,
        count: Callable[[str], int] | None = None,
    ) -> None:
        self._fold = ReplyFold(record, keep_text, count)
        self._sse = SseParser(event_limit)
        self.over = False

    def feed(self, at: float, data: bytes) -> None:
        """Body bytes that arrived at `at`; every event they complete gets this time. Raises ReplyError."""
        add = self._fold.add
        for name, payload in self._sse.feed(data):
            try:
                event = _decode(payload)
            except _DECODE_ERRORS:
                if payload.strip() == _DONE:
                    self.over = True
                    return
                event = lenient_event(payload, named_error=name == b"error")
            else:
                if name == b"error" or (event.choices is None and event.usage is None):
                    event = lenient_event(payload, named_error=name == b"error")
            add(at, event)

    def end(self, at: float, *, whole: bool) -> None:
        """The body is over; `whole` says that its framing was complete. Raises ReplyError unless the reply
        was whole."""
        if not self.over and whole:
            self._read_unfinished(at)
        reason = self._fold.finish_reason
        if reason in _ENDED_BADLY:
            raise ReplyError("error", "aborted_by_server", f"finish_reason={reason}")
        if not self.over and not (whole and reason is not None):
            raise ReplyError("incomplete", "truncated")

    def close(self) -> None:
        """See ReplyFold.close."""
        self._fold.close()

    def _read_unfinished(self, at: float) -> None:
        """A last event without its blank line counts if it can be read; otherwise it was cut off and says
        nothing."""
        for _, payload in self._sse.flush():
            if payload.strip() == _DONE:
                self.over = True
                return
            try:
                event = _decode(payload)
            except _DECODE_ERRORS:
                return
            self._fold.add(at, event)


class WholeReader:
    """Reads a reply that is one JSON object. Its content, if any, is one content event at the arrival of
    its end."""

    __slots__ = ("_fold", "_parts", "over")

    def __init__(
        self, record: RequestRecord, *, keep_text: bool, count: Callable[[str], int] | None = None
    ) -> None:
        self._fold = ReplyFold(record, keep_text, count)
        self._parts: list[bytes] = []
        self.over = False

    def feed(self, at: float, data: bytes) -> None:
        """Keep body bytes; the connection bounds their sum."""
        self._parts.append(data)

    def end(self, at: float, *, whole: bool) -> None:
        """Read the object. Raises ReplyError when it was cut off, is no chat reply, or reports an error."""
        if not whole:
            raise ReplyError("incomplete", "truncated")
        body = b"".join(self._parts)
        self._parts.clear()
        try:
            event = _decode(body)
        except _DECODE_ERRORS:
            event = ChatEvent()
        if event.choices is None:
            event = lenient_event(body, kind_is_reply=True)
        if event.error is None and not event.choices:
            raise ReplyError("error", "bad_reply", short_detail(body[:2000].decode("utf-8", "replace")))
        self._fold.add(at, event)
        if self._fold.finish_reason in _ENDED_BADLY:
            raise ReplyError("error", "aborted_by_server", f"finish_reason={self._fold.finish_reason}")

    def close(self) -> None:
        """See ReplyFold.close."""
        self._fold.close()


def lenient_event(payload: bytes, *, named_error: bool = False, kind_is_reply: bool = False) -> ChatEvent:
    """Read an event of any shape: what can be understood is kept, the rest is absent.

    `named_error` takes the whole payload for an error report. Raises ReplyError (`bad_event`, or
    `bad_reply` when `kind_is_reply`) for what is not JSON at all; blank payloads are events that say
    nothing.
    """
    text = payload.decode("utf-8", "replace")
    if not named_error and not text.strip():
        return ChatEvent()
    try:
        value = json.loads(text, parse_int=_number, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        if named_error:
            return ChatEvent(error=text)
        kind: FailureKind = "bad_reply" if kind_is_reply else "bad_event"
        raise ReplyError("error", kind, short_detail(text[:2000])) from None
    if named_error:
        return ChatEvent(error=value if value is not None else "")
    if not isinstance(value, dict):
        return ChatEvent()
    error = value.get("error")
    if error is None and value.get("object") == "error":
        error = value
    choices = value.get("choices")
    found = (
        [_lenient_choice(c) for c in choices if isinstance(c, dict)] if isinstance(choices, list) else None
    )
    model = value.get("model")
    return ChatEvent(
        found, _lenient_usage(value.get("usage")), error, model if isinstance(model, str) else None
    )


def _number(digits: str) -> int | None:
    return int(digits) if len(digits) < _LONGEST_NUMBER else None


def _lenient_choice(choice: dict[str, object]) -> Choice:
    reason = choice.get("finish_reason")
    return Choice(
        _lenient_delta(choice.get("delta")),
        _lenient_delta(choice.get("message")),
        reason if isinstance(reason, str) else None,
    )


def _lenient_delta(delta: object) -> Delta | None:
    if not isinstance(delta, dict):
        return None
    calls = delta.get("tool_calls")
    return Delta(
        _lenient_text(delta.get("content")),
        _lenient_text(delta.get("reasoning_content")),
        _lenient_text(delta.get("reasoning")),
        [_lenient_call(c) for c in calls] if isinstance(calls, list) else None,
    )


def _lenient_text(value: object) -> str | None:
    """Text as a string, or as a list of parts that have a `text`."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = (part.get("text") for part in value if isinstance(part, dict))
        return "".join(t for t in texts if isinstance(t, str))
    return None


def _lenient_call(call: object) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        return ToolCall()
    name, arguments = function.get("name"), function.get("arguments")
    if arguments and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)  # some servers send arguments as an object
    return ToolCall(
        Function(
            name if isinstance(name, str) else None,
            arguments if isinstance(arguments, str) else None,
        ),
        call.get("index"),
    )


def _lenient_usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        clean_count(usage.get("prompt_tokens")),
        clean_count(usage.get("completion_tokens")),
        None if cached is None else PromptDetails(clean_count(cached)),
    )


def error_detail(error: object) -> str:
    """One line out of an error report of any shape: its type or code and its message, else its JSON."""
    if isinstance(error, dict):
        inner = error.get("error")
        if isinstance(inner, dict):
            error = inner
    if isinstance(error, dict):
        parts = [error.get(name) for name in ("type", "code", "message")]
        known = [str(part) for part in parts if isinstance(part, str | int | float) and part != ""]
        if known:
            return short_detail(": ".join(known))
    if isinstance(error, str):
        return short_detail(error)
    try:
        return short_detail(json.dumps(error, ensure_ascii=False))
    except (ValueError, RecursionError):
        return ""
