"""Text that came from a file, a server or a command line, made safe to show: nothing in it can steer a terminal."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters but tab and line feed, marks that change the direction of text, invisible ones, surrogates."""


def printable(text: str) -> str:
    """The text with every unsafe character written as its escape, for example `\\x1b`."""
    return _UNSAFE.sub(_escape, text)


def one_line(text: str) -> str:
    """As `printable`, and on one line."""
    return printable(text).replace("\n", "\\n").replace("\t", " ")


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
