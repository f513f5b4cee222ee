"""Server-sent events out of a byte stream: framing only, no JSON.

Follows "Parsing an event stream" of the WHATWG HTML standard (section 9.2.6): lines end with LF, CRLF or
CR; a blank line ends an event; a line that begins with a colon is a comment; several `data` lines are
joined with LF; one space after the colon belongs to the field, not to its value; a byte order mark at the
very start is dropped. Works on bytes, so a character split over two packets stays whole until its event is.

One addition: some servers report a failure in a field named `error` instead of an event of that name; both
give an event named `error` here.
"""

from __future__ import annotations

from servemark.replay.failures import ReplyError

Event = tuple[bytes, bytes]
"""(name, data): the name is empty for the unnamed events that chat streams consist of."""

_BOM = b"\xef\xbb\xbf"
_PLAIN = b"data: "
_COLON = 0x3A
_LF = 0x0A
_NONE: list[Event] = []


class SseParser:
    """Feeds on the body's bytes in any split and returns the events that each piece completes.

    Keeps at most `limit` bytes of an unfinished event; more raises ReplyError (`too_large`), after which
    the parser must not be used again. Finding the end of a long event looks at each byte once, not once per
    read.
    """

    __slots__ = ("_after_cr", "_limit", "_opening", "_tail")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail = bytearray()
        self._after_cr = False
        self._opening: bytes | None = b""

    def feed(self, data: bytes) -> list[Event]:
        """Events completed by `data`, in order. The returned list must not be changed."""
        if self._opening is not None:
            data = self._open(data)
        if self._after_cr or b"\r" in data:
            data = self._to_lf(data)
        tail = self._tail
        if tail:
            seam = tail[-1] == _LF and data[:1] == b"\n"
            if not seam and b"\n\n" not in data:
                self._keep(data)
                return _NONE
            data = bytes(tail) + data
            tail.clear()
        blocks = data.split(b"\n\n")
        rest = blocks.pop()
        if rest:
            self._keep(rest)
        events: list[Event] = []
        for block in blocks:
            # Nearly every event of a chat stream is one plain data line.
            if block.startswith(_PLAIN) and b"\n" not in block:
                events.append((b"", block[6:]))
            else:
                _read_lines(block, events)
        return events

    def flush(self) -> list[Event]:
        """What a stream that ended without its last blank line leaves: its unfinished event, as if it were
        whole.

        The standard throws it away; servers that forget the line after `[DONE]` are common, so the caller
        decides.
        """
        events: list[Event] = []
        block = (self._opening or b"") + bytes(self._tail)
        self._opening = None
        self._tail.clear()
        if block:
            _read_lines(block, events)
        return events

    def _open(self, data: bytes) -> bytes:
        """Hold the first bytes back until they are known to be, or not to be, a byte order mark."""
        start = (self._opening or b"") + data
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._opening = start
            return b""
        self._opening = None
        return start.removeprefix(_BOM)

    def _to_lf(self, data: bytes) -> bytes:
        """CRLF and CR become LF; a CR at the end of a read counts at once, and an LF that follows it is its
        second half."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
            if not data:
                return data
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, data: bytes) -> None:
        if len(self._tail) + len(data) > self._limit:
            raise ReplyError("error", "too_large", f"event_bytes>{self._limit}")
        self._tail += data


def _read_lines(block: bytes, events: list[Event]) -> None:
    """Interpret the lines of one event; a block of comments or unknown fields gives none."""
    name = b""
    parts: list[bytes] = []
    for line in block.split(b"\n"):
        if not line or line[0] == _COLON:
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            parts.append(value)
        elif field == b"event":
            name = value
        elif field == b"error":
            name = b"error"
            parts.append(value)
    if parts:
        events.append((name, b"\n".join(parts)))
