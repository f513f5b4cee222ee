"""The framing of HTTP replies on one connection, on llhttp: head, body pieces, end."""

from __future__ import annotations

from typing import Final

import httptools

_KEPT_HEADERS: Final = frozenset({b"content-type", b"content-encoding", b"location", b"retry-after"})
_FRAMING_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


class ReplyParser:
    """Reads the replies of one connection one after the other; `expect` comes before each.

    `parts` collects the body's pieces of the last `feed`. `framed` says that the body's end can be told
    from its bytes and not only from the connection's. `surplus` is a second reply that no request asked
    for.
    """

    __slots__ = (
        "_informational",
        "_parser",
        "complete",
        "framed",
        "head_seen",
        "headers",
        "keep_alive",
        "on_body",
        "parts",
        "status",
        "surplus",
    )

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.on_body = self.parts.append  # called by the parser, in C, for each piece of a body
        self.headers: dict[bytes, bytes] = {}
        self.expect()
        self._parser = httptools.HttpResponseParser(self)

    def expect(self) -> None:
        """A new request goes out: forget the reply before."""
        self.parts.clear()
        self.headers = {}
        self.status = 0
        self.head_seen = False
        self.framed = False
        self.complete = False
        self.keep_alive = False
        self.surplus = False
        self._informational = False

    def feed(self, data: bytes) -> str | None:
        """Take bytes; returns what is wrong with them, or None. After a fault the parser is of no use."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            return str(error) or type(error).__name__
        return None

    # -- what llhttp calls

    def on_message_begin(self) -> None:
        """A reply begins."""
        if self.complete:
            self.surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the few headers that matter; trailers never do."""
        if self.head_seen:
            return
        name = name.lower()
        if name in _KEPT_HEADERS:
            self.headers[name] = value
        elif name in _FRAMING_HEADERS:
            self.framed = True

    def on_headers_complete(self) -> None:
        """100 Continue and 103 Early Hints come before the reply proper and are passed over."""
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._informational = True
            self.headers.clear()
            self.framed = False
            return
        self.status = status
        self.head_seen = True

    def on_message_complete(self) -> None:
        """The reply is complete by its framing."""
        if self._informational:
            self._informational = False
            return
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()
