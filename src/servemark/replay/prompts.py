"""From a session's turns to the bytes of their `messages`, with the cache-bust marker where one is asked for.

A turn's prompt mostly repeats the messages of the turn before it, so encoded messages are kept and joined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from servemark.traces.types import CacheBust, Message, Segment, Session, SubAgent

_MARKER_DIGITS: Final = 12
_NO_REPLIES: Final[Mapping[int, str]] = {}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class SegmentText(Protocol):
    """Makes the text of a segment: equal id and token count give equal text."""

    def text(self, segment: Segment) -> str:
        """The text, `segment.tokens` tokens long for the tokenizer it was made for."""


def cache_bust_marker(salt: str, session: str, turn: int | str | None = None) -> str:
    """`[rid:<12 hex digits>]` and a blank line: SHA-256 over the salt and the session, and the turn where
    given.

    The parts are separated by a zero byte, so that no two sets of parts run together to the same text.
    """
    parts = [salt, session] if turn is None else [salt, session, str(turn)]
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return f"[rid:{digest[:_MARKER_DIGITS]}]\n\n"


class SessionPrompts:
    """Encodes the turns of one stream of a session, in any order; cheapest in theirs.

    `agent` None is the main stream. All streams of a tree carry the marker of their session, so that what
    they share stays shared.
    """

    def __init__(
        self,
        session: Session,
        maker: SegmentText,
        cache_bust: CacheBust,
        salt: str,
        agent: SubAgent | None = None,
    ) -> None:
        self._session = session
        self._agent = agent
        self._turns = session.turns if agent is None else agent.turns
        self._maker = maker
        self._cache_bust = cache_bust
        self._salt = salt
        self._known: dict[int, tuple[Message, bytes]] = {}

    def encode(self, turn: int, replies: Mapping[int, str] = _NO_REPLIES) -> bytes:
        """The JSON array of the messages of one turn.

        `replies` holds texts that the engine really answered, by the position of the assistant message that
        stands in for each; the message's recorded content is not sent then.
        """
        encoded = []
        for position, message in enumerate(self._turns[turn].messages):
            reply = replies.get(position) if message.role == "assistant" else None
            if reply is None:
                encoded.append(self._message(turn, position, message))
            else:
                encoded.append(_encode_message("assistant", reply))
        return b"[" + b",".join(encoded) + b"]"

    def _message(self, turn: int, position: int, message: Message) -> bytes:
        marker = self._marker(turn) if position == 0 else ""
        fresh_marker = position == 0 and self._cache_bust == "request"
        known = self._known.get(position)
        if known is not None and known[0] == message and not fresh_marker:
            return known[1]
        if message.raw is not None:
            encoded = _mark_raw(message.raw, marker)
        else:
            content = marker + "".join(self._maker.text(segment) for segment in message.segments)
            encoded = _encode_message(message.role, content)
        self._known[position] = (message, encoded)
        return encoded

    def _marker(self, turn: int) -> str:
        if self._cache_bust == "none":
            return ""
        if self._cache_bust == "session":
            return cache_bust_marker(self._salt, self._session.id)
        scope = turn if self._agent is None else f"{turn}\0{self._agent.id}"
        return cache_bust_marker(self._salt, self._session.id, scope)


def _mark_raw(raw: bytes, marker: str) -> bytes:
    """A recorded message with the marker before its content; one without text content is sent as it is."""
    if not marker:
        return raw
    try:
        message = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return _encode({**message, "content": marker + content})
    if isinstance(content, list):
        return _encode({**message, "content": [{"type": "text", "text": marker}, *content]})
    return raw


def _encode_message(role: str, content: str) -> bytes:
    try:
        return _encode({"role": role, "content": content})
    except UnicodeEncodeError:  # half of a surrogate pair out of a trace of real conversations
        return _encode({"role": role, "content": content.encode("utf-8", "replace").decode("utf-8")})
