"""Joining words by the punctuation of the language: a Chinese line with `, ` or `: ` in it reads as two languages.

Pure; `lang` is that of `servemark.base.messages.text` (None: the current one).
"""

from __future__ import annotations

from collections.abc import Iterable

from servemark.base.messages import text


def in_list(parts: Iterable[str], lang: str | None = None) -> str:
    """`a, b`, in Chinese with an enumeration comma."""
    return _between("base.join.list", lang).join(parts)


def clauses(parts: Iterable[str], lang: str | None = None) -> str:
    """`a; b`, in Chinese with a full-width semicolon."""
    return _between("base.join.clauses", lang).join(parts)


def sentences(parts: Iterable[str], lang: str | None = None) -> str:
    """Whole sentences behind each other: with a space in English, without one in Chinese."""
    return _between("base.join.sentences", lang).join(parts)


def with_head(head: str, body: str, lang: str | None = None) -> str:
    """`head: body`, in Chinese with a full-width colon."""
    return text("base.join.told", lang, head=head, body=body)


def with_detail(said: str, detail: str, lang: str | None = None) -> str:
    """`said (detail)`, in Chinese with full-width brackets."""
    return text("base.join.detail", lang, said=said, detail=detail)


def _between(key: str, lang: str | None) -> str:
    return text(key, lang, first="", then="")
