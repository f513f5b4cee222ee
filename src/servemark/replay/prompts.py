"""From a session's turns to the bytes of their `messages`, with the cache-bust marker where one is asked for.

A turn's prompt mostly repeats the messages of the turn before it, so encoded messages are kept and joined.
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

import msgspec

from servemark.traces.types import CacheBust, Message, Segment, Session

_MARKER_DIGITS: Final = 12
_encode = msgspec.json.Encoder().encode


class SegmentText(Protocol):
    """Makes the text of a segment: equal id and token count give equal text."""

    def text(self, segment: Segment) -> str:
        """The text, `segment.tokens` tokens long for the tokenizer it was made for."""


def cache_bust_marker(salt: str, session: str, turn: int | None = None) -> str:
    """`[rid:<12 hex digits>]` and a blank line: SHA-256 over the salt and the session, and the turn where
    given.

    The parts are separated by a zero byte, so that no two sets of parts run together to the same text.
    """
    parts = [salt, session] if turn is None else [salt, session, str(turn)]
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return f"[rid:{digest[:_MARKER_DIGITS]}]\n\n"


class SessionPrompts:
    """Encodes the turns of one session, in any order; cheapest in theirs."""

    def __init__(self, session: Session, maker: SegmentText, cache_bust: CacheBust, salt: str) -> None:
        self._session = session
        self._maker = maker
        self._cache_bust = cache_bust
        self._salt = salt
        self._known: dict[int, tuple[Message, bytes]] = {}

    def encode(self, turn: int) -> bytes:
        """The JSON array of the messages of one turn."""
        encoded = [self._message(turn, i, m) for i, m in enumerate(self._session.turns[turn].messages)]
        return b"[" + b",".join(encoded) + b"]"

    def _message(self, turn: int, position: int, message: Message) -> bytes:
        marker = self._marker(turn) if position == 0 else ""
        fresh_marker = position == 0 and self._cache_bust == "request"
        known = self._known.get(position)
        if known is not None and known[0] == message and not fresh_marker:
            return known[1]
        content = marker + "".join(self._maker.text(segment) for segment in message.segments)
        encoded = _encode_message(message.role, content)
        self._known[position] = (message, encoded)
        return encoded

    def _marker(self, turn: int) -> str:
        if self._cache_bust == "none":
            return ""
        scope = turn if self._cache_bust == "request" else None
        return cache_bust_marker(self._salt, self._session.id, scope)


def _encode_message(role: str, content: str) -> bytes:
    try:
        return _encode({"role": role, "content": content})
    except UnicodeEncodeError:  # half of a surrogate pair out of a trace of real conversations
        return _encode({"role": role, "content": content.encode("utf-8", "replace").decode("utf-8")})
