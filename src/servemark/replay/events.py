"""Events of the other protocols, read as chat events: one generic JSON decode each, every field looked at before it is
believed.

Sources: OpenAI's API reference (completions; Responses streaming events) and Anthropic's (Messages, streaming). Anthropic
counts cached prompt tokens beside `input_tokens`; here `prompt_tokens` is their sum, as everywhere else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from servemark.replay.chat import (
    ChatEvent,
    Choice,
    Delta,
    Function,
    PromptDetails,
    ReplyFold,
    ToolCall,
    Usage,
    clean_count,
)
from servemark.replay.failures import ReplyError, short_detail
from servemark.replay.record import RequestRecord
from servemark.replay.sse import SseParser

Translate = Callable[[bytes, bytes], tuple[ChatEvent, bool]]
"""(event name, payload) -> (chat event, whether the reply is over). Raises ReplyError for what is not JSON."""

_DONE: Final = b"[DONE]"
_SILENT: Final = ChatEvent()
_ENDED_BADLY: Final = frozenset({"abort", "error", "failed", "cancelled"})
_LONGEST_NUMBER: Final = 400
_decode = msgspec.json.decode
Plain = Mapping[str, object]


def read_object(payload: bytes) -> Plain | None:
    """A JSON object of any content (NaN counts as nothing); None for other JSON and for white space. Raises ReplyError
    (`bad_event`) for what is not JSON."""
    try:
        value = _decode(payload)
    except (msgspec.MsgspecError, RecursionError):
        text = payload.decode("utf-8", "replace")
        if not text.strip():
            return None
        try:
            value = json.loads(text, parse_int=_number, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            raise ReplyError("error", "bad_event", short_detail(text[:2000])) from None
    return value if isinstance(value, dict) else None


def _number(digits: str) -> int | None:
    return int(digits) if len(digits) < _LONGEST_NUMBER else None


def _str(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _dict(value: object) -> Plain:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[Plain]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _usage(prompt: object, completion: object, cached: object) -> Usage | None:
    counts = clean_count(prompt), clean_count(completion), clean_count(cached)
    if counts == (None, None, None):
        return None
    return Usage(counts[0], counts[1], None if counts[2] is None else PromptDetails(counts[2]))


def _failure(name: bytes, payload: bytes, value: Plain | None) -> ChatEvent | None:
    """The event as an error report, where it is one."""
    if name == b"error" or (value is not None and value.get("type") == "error"):
        inner = None if value is None else value.get("error")
        return ChatEvent(error=inner or value or payload.decode("utf-8", "replace"))
    if value is not None and (value.get("error") or value.get("object") == "error"):
        return ChatEvent(error=value.get("error") or value)
    return None


def _content(text: str | None = None, reasoning: str | None = None, call: str | None = None) -> Delta:
    calls = [ToolCall(Function(arguments=call))] if call else None
    return Delta(content=text, reasoning_content=reasoning, tool_calls=calls)


def completions_event(name: bytes, payload: bytes) -> tuple[ChatEvent, bool]:
    """`choices[].text`, `usage` as in chat, `[DONE]`."""
    if payload.strip() == _DONE:
        return _SILENT, True
    value = read_object(payload)
    failure = _failure(name, payload, value)
    if failure is not None or value is None:
        return failure or _SILENT, False
    usage = _dict(value.get("usage"))
    choices = [
        Choice(Delta(_str(choice.get("text"))), None, _str(choice.get("finish_reason")))
        for choice in _dicts(value.get("choices"))
    ]
    cached = _dict(usage.get("prompt_tokens_details")).get("cached_tokens")
    counted = _usage(usage.get("prompt_tokens"), usage.get("completion_tokens"), cached)
    return ChatEvent(choices, counted, None, _str(value.get("model"))), False


def messages_event(name: bytes, payload: bytes) -> tuple[ChatEvent, bool]:
    """Anthropic's events, and its whole reply (`type: message`)."""
    value = read_object(payload)
    failure = _failure(name, payload, value)
    if failure is not None or value is None:
        return failure or _SILENT, False
    kind = value.get("type")
    read = _MESSAGE_EVENTS.get(kind) if isinstance(kind, str) else None
    return (_SILENT if read is None else read(value)), kind in {"message_stop", "message"}


def _block_delta(value: Plain) -> ChatEvent:
    delta = _dict(value.get("delta"))
    made = _content(_str(delta.get("text")), _str(delta.get("thinking")), _str(delta.get("partial_json")))
    return ChatEvent([Choice(made)])


def _block_start(value: Plain) -> ChatEvent:
    return ChatEvent([Choice(_block(_dict(value.get("content_block"))))])


def _message_start(value: Plain) -> ChatEvent:
    message = _dict(value.get("message"))
    usage = dict(_dict(message.get("usage")))
    usage.pop("output_tokens", None)  # a placeholder here, not a count
    return ChatEvent(None, _anthropic_usage(usage), None, _str(message.get("model")))


def _message_delta(value: Plain) -> ChatEvent:
    reason = _str(_dict(value.get("delta")).get("stop_reason"))
    return ChatEvent([Choice(None, None, reason)], _anthropic_usage(_dict(value.get("usage"))))


def _message(value: Plain) -> ChatEvent:
    blocks = [Choice(None, _block(block)) for block in _dicts(value.get("content"))]
    end = Choice(None, None, _str(value.get("stop_reason")))
    usage = _anthropic_usage(_dict(value.get("usage")))
    return ChatEvent([*blocks, end], usage, None, _str(value.get("model")))


_MESSAGE_EVENTS: Final[Mapping[str, Callable[[Plain], ChatEvent]]] = {
    "content_block_delta": _block_delta,
    "content_block_start": _block_start,
    "message_start": _message_start,
    "message_delta": _message_delta,
    "message": _message,
}


def _block(block: Plain) -> Delta:
    called = block.get("name") if block.get("type") in {"tool_use", "server_tool_use"} else None
    return _content(_str(block.get("text")), _str(block.get("thinking")), _str(called))


def _anthropic_usage(usage: Plain) -> Usage | None:
    read = clean_count(usage.get("cache_read_input_tokens"))
    written = clean_count(usage.get("cache_creation_input_tokens"))
    plain = clean_count(usage.get("input_tokens"))
    whole = None if plain is None else plain + (read or 0) + (written or 0)
    return _usage(whole, usage.get("output_tokens"), read)


_TEXT_DELTAS: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING_DELTAS: Final = frozenset(
    {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}
)
_CALL_DELTAS: Final = frozenset(
    {"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"}
)
_ENDS: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)


def responses_event(name: bytes, payload: bytes) -> tuple[ChatEvent, bool]:
    """OpenAI's Responses events, and its whole reply (`object: response`)."""
    if payload.strip() == _DONE:
        return _SILENT, True
    value = read_object(payload)
    kind = None if value is None else _str(value.get("type"))
    if value is not None and (kind in _ENDS or value.get("object") == "response"):
        streamed = kind in _ENDS
        return _response(_dict(value.get("response")) if streamed else value, streamed=streamed), True
    failure = _failure(name, payload, value)
    if failure is not None or value is None:
        return failure or _SILENT, False
    return _response_piece(kind, value), False


def _response_piece(kind: str | None, value: Plain) -> ChatEvent:
    piece = _str(value.get("delta"))
    if kind in _TEXT_DELTAS:
        return ChatEvent([Choice(_content(text=piece))])
    if kind in _REASONING_DELTAS:
        return ChatEvent([Choice(_content(reasoning=piece))])
    if kind in _CALL_DELTAS:
        return ChatEvent([Choice(_content(call=piece))])
    if kind == "response.output_item.added":
        item = _dict(value.get("item"))
        called = _str(item.get("name")) if "call" in str(item.get("type")) else None
        return ChatEvent([Choice(_content(call=called))])
    return ChatEvent(model=_str(_dict(value.get("response")).get("model")))


def _response(response: Plain, *, streamed: bool) -> ChatEvent:
    """The final response object; its output counts only where it was not streamed before."""
    status = _str(response.get("status"))
    error = response.get("error")
    reason = (
        _str(_dict(response.get("incomplete_details")).get("reason")) if status == "incomplete" else status
    )
    choices = [Choice(None, None, reason)]
    if not streamed:
        choices = [Choice(None, part) for part in _output(response)] + choices
    usage = _dict(response.get("usage"))
    cached = _dict(usage.get("input_tokens_details")).get("cached_tokens")
    counted = _usage(usage.get("input_tokens"), usage.get("output_tokens"), cached)
    return ChatEvent(choices, counted, error or None, _str(response.get("model")))


def _output(response: Plain) -> list[Delta]:
    found: list[Delta] = []
    for item in _dicts(response.get("output")):
        kind = str(item.get("type"))
        if "call" in kind:
            found.append(_content(call=_str(item.get("name"))))
        for part in [*_dicts(item.get("content")), *_dicts(item.get("summary"))]:
            text = _str(part.get("text")) or _str(part.get("refusal"))
            found.append(_content(reasoning=text) if kind == "reasoning" else _content(text=text))
    return found


class TranslatedStream:
    """Reads an event stream of a protocol other than chat; the interface of `chat.StreamReader`."""

    __slots__ = ("_fold", "_sse", "_translate", "over")

    def __init__(
        self,
        record: RequestRecord,
        translate: Translate,
        *,
        keep_text: bool,
        event_limit: int,
        count: Callable[[str], int] | None = None,
    ) -> None:
        self._fold = ReplyFold(record, keep_text, count)
        self._sse = SseParser(event_limit)
        self._translate = translate
        self.over = False

    def feed(self, at: float, data: bytes) -> None:
        """Body bytes that arrived at `at`; every event they complete gets this time. Raises ReplyError."""
        for name, payload in self._sse.feed(data):
            event, self.over = self._translate(name, payload)
            self._fold.add(at, event)
            if self.over:
                return

    def end(self, at: float, *, whole: bool) -> None:
        """The body is over. Raises ReplyError unless the reply was whole."""
        if not self.over and whole:
            for name, payload in self._sse.flush():
                try:
                    event, self.over = self._translate(name, payload)
                except ReplyError:
                    break
                self._fold.add(at, event)
        reason = self._fold.finish_reason
        if reason in _ENDED_BADLY:
            raise ReplyError("error", "aborted_by_server", f"finish_reason={reason}")
        if not self.over and not (whole and reason is not None):
            raise ReplyError("incomplete", "truncated")

    def close(self) -> None:
        """See ReplyFold.close."""
        self._fold.close()


class TranslatedWhole:
    """Reads a reply that is one JSON object of a protocol other than chat; the interface of `chat.WholeReader`."""

    __slots__ = ("_fold", "_parts", "_translate", "over")

    def __init__(
        self,
        record: RequestRecord,
        translate: Translate,
        *,
        keep_text: bool,
        count: Callable[[str], int] | None = None,
    ) -> None:
        self._fold = ReplyFold(record, keep_text, count)
        self._parts: list[bytes] = []
        self._translate = translate
        self.over = False

    def feed(self, at: float, data: bytes) -> None:
        """Keep body bytes; the connection bounds their sum."""
        self._parts.append(data)

    def end(self, at: float, *, whole: bool) -> None:
        """Read the object. Raises ReplyError when it was cut off, is no reply, or reports an error."""
        if not whole:
            raise ReplyError("incomplete", "truncated")
        body = b"".join(self._parts)
        self._parts.clear()
        said = short_detail(body[:2000].decode("utf-8", "replace"))
        try:
            event, _ = self._translate(b"", body)
        except ReplyError:
            raise ReplyError("error", "bad_reply", said) from None
        if event.error is None and not event.choices:
            raise ReplyError("error", "bad_reply", said)
        self._fold.add(at, event)
        if self._fold.finish_reason in _ENDED_BADLY:
            raise ReplyError("error", "aborted_by_server", f"finish_reason={self._fold.finish_reason}")

    def close(self) -> None:
        """See ReplyFold.close."""
        self._fold.close()
