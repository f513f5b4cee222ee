"""The protocols a target may speak: path, headers, the request's body, and how its replies are read.

`chat` (OpenAI chat completions) has its own fast reader in `chat.py`. The others are built from the same chat messages,
and their events are read as chat events (`events.py`), so that one fold makes every record:

* `completions`: the messages' texts joined to one prompt; nobody applies a chat template.
* `messages` (Anthropic): system messages go to `system`, tool results and calls become content blocks. `max_tokens` must
  be known. `ignore_eos` has no place there and is not sent.
* `responses` (OpenAI): messages become input items; `stop` and `ignore_eos` have no place there and are not sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import msgspec

from servemark.replay.chat import encode_body
from servemark.replay.events import Translate, completions_event, messages_event, responses_event
from servemark.replay.failures import ReplyError

ProtocolName = Literal["chat", "completions", "messages", "responses"]
PROTOCOLS: tuple[ProtocolName, ...] = get_args(ProtocolName)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
Plain = dict[str, object]


@dataclass(frozen=True, slots=True)
class BodyParts:
    """What one request says, whatever the protocol. `messages` and `tools` as bytes are JSON arrays."""

    model: str
    messages: Sequence[Mapping[str, object]] | bytes
    stream: bool
    max_tokens: int | None
    temperature: float
    ignore_eos: bool
    stop: Sequence[str] | None
    tools: bytes | None
    extra: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Wire:
    """One protocol. `translate` is None for chat. `key_header` names the header of the API key where it is not (only)
    `Authorization`; `headers` are sent with every request."""

    path: str
    body: Callable[[BodyParts], bytes]
    translate: Translate | None
    key_header: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


def _chat(parts: BodyParts) -> bytes:
    return encode_body(
        parts.model,
        parts.messages,
        stream=parts.stream,
        max_tokens=parts.max_tokens,
        temperature=parts.temperature,
        ignore_eos=parts.ignore_eos,
        stop=parts.stop,
        extra=parts.extra,
        tools=parts.tools,
    )


def _completions(parts: BodyParts) -> bytes:
    body = _common(parts)
    body["prompt"] = "".join(_text(message.get("content")) for message in _messages(parts))
    if parts.stream:
        body["stream_options"] = {"include_usage": True}
    if parts.max_tokens is not None:
        body["max_tokens"] = parts.max_tokens
    if parts.ignore_eos:
        body["ignore_eos"] = True
    if parts.stop:
        body["stop"] = list(parts.stop)
    return _encode(body | dict(parts.extra))


def _anthropic(parts: BodyParts) -> bytes:
    if parts.max_tokens is None:
        raise ReplyError("error", "unencodable", "this protocol needs max_tokens")
    body = _common(parts)
    body["max_tokens"] = parts.max_tokens
    messages = _messages(parts)
    system = "".join(_text(m.get("content")) for m in messages if m.get("role") in _SYSTEM)
    if system:
        body["system"] = system
    body["messages"] = [_anthropic_message(m) for m in messages if m.get("role") not in _SYSTEM]
    if parts.stop:
        body["stop_sequences"] = list(parts.stop)
    if parts.tools is not None:
        body["tools"] = [
            {
                "name": function.get("name"),
                "description": function.get("description") or "",
                "input_schema": function.get("parameters") or {"type": "object"},
            }
            for function in _functions(parts.tools)
        ]
    return _encode(body | dict(parts.extra))


def _responses(parts: BodyParts) -> bytes:
    body = _common(parts)
    body["input"] = [item for message in _messages(parts) for item in _input_items(message)]
    body["store"] = False
    if parts.max_tokens is not None:
        body["max_output_tokens"] = parts.max_tokens
    if parts.tools is not None:
        body["tools"] = [{"type": "function", **function} for function in _functions(parts.tools)]
    return _encode(body | dict(parts.extra))


WIRES: Final[Mapping[ProtocolName, Wire]] = {
    "chat": Wire("/chat/completions", _chat, None),
    "completions": Wire("/completions", _completions, completions_event),
    "messages": Wire(
        "/messages", _anthropic, messages_event, "x-api-key", (("anthropic-version", "2023-06-01"),)
    ),
    "responses": Wire("/responses", _responses, responses_event),
}

_SYSTEM: Final = ("system", "developer")


def _common(parts: BodyParts) -> Plain:
    clash = {"model", "messages", "stream", "prompt", "input"}.intersection(parts.extra)
    if clash:
        raise ValueError(f"the client decides {sorted(clash)} itself")
    return {"model": parts.model, "stream": parts.stream, "temperature": parts.temperature}


def _messages(parts: BodyParts) -> list[Plain]:
    """The chat messages as objects. They come from a trace, so any shape is possible."""
    found = _decode(parts.messages) if isinstance(parts.messages, bytes) else list(parts.messages)
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise ReplyError("error", "unencodable", "messages are no list of objects")
    return [dict(each) for each in found]


def _text(content: object) -> str:
    """The text of a content: a string, or parts that have a `text`; other parts cannot be sent in this protocol."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(str(text) for text in texts)
    raise ReplyError("error", "unencodable", "a message has content that is not text")


def _functions(tools: bytes) -> list[Plain]:
    found = _decode(tools)
    functions = (
        [each.get("function") for each in found if isinstance(each, Mapping)]
        if isinstance(found, list)
        else []
    )
    if not functions or not all(isinstance(each, Mapping) for each in functions):
        raise ReplyError("error", "unencodable", "tools are no list of functions")
    return [dict(each) for each in functions if isinstance(each, Mapping)]


def _calls(message: Plain) -> list[tuple[str, str, str]]:
    """(id, name, arguments as JSON text) of each tool call of an assistant message."""
    calls = message.get("tool_calls")
    found: list[tuple[str, str, str]] = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise ReplyError("error", "unencodable", "a tool call names no function")
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        found.append((str(call.get("id")), str(function.get("name")), text))
    return found


def _anthropic_message(message: Plain) -> Plain:
    text = _text(message.get("content"))
    if message.get("role") == "tool":
        result: Plain = {
            "type": "tool_result",
            "tool_use_id": str(message.get("tool_call_id")),
            "content": text,
        }
        return {"role": "user", "content": [result]}
    calls = _calls(message)
    if not calls:
        return {"role": message.get("role"), "content": text}
    blocks: list[Plain] = [{"type": "text", "text": text}] if text else []
    for number, name, arguments in calls:
        blocks.append({"type": "tool_use", "id": number, "name": name, "input": _object(arguments)})
    return {"role": "assistant", "content": blocks}


def _object(arguments: str) -> object:
    try:
        found = json.loads(arguments or "{}")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"arguments": arguments}


def _input_items(message: Plain) -> list[Plain]:
    text = _text(message.get("content"))
    if message.get("role") == "tool":
        return [{"type": "function_call_output", "call_id": str(message.get("tool_call_id")), "output": text}]
    items: list[Plain] = []
    calls = _calls(message)
    if text or not calls:
        items.append({"role": message.get("role"), "content": text})
    for number, name, arguments in calls:
        items.append({"type": "function_call", "call_id": number, "name": name, "arguments": arguments})
    return items
