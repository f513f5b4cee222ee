"""The report's own sentences in one language, and small helpers for words that came from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce

from servemark.base.messages import text

Words = Callable[..., str]
"""`t(key, **values)` -> the message in the page's language."""


def words_in(lang: str) -> Words:
    """`servemark.base.messages.text` bound to one language."""

    def said(key: str, **values: object) -> str:
        return text(key, lang, **values)

    return said


def clip(value: str, limit: int) -> str:
    """At most `limit` characters; what was cut is shown as an ellipsis."""
    return value if len(value) <= limit else value[: limit - 1].rstrip() + "…"


def listed(t: Words, parts: Iterable[str]) -> str:
    """The parts in a row, set apart as the language does: `a, b, c`."""
    said = list(parts)
    return reduce(lambda one, other: t("report.list", one=one, other=other), said) if said else ""


def capital(words: str) -> str:
    """The words as they stand at the head of a line: their first letter large."""
    return words[:1].upper() + words[1:]


def anchor(address: str) -> str:
    """The id of the definition that an address (`ttft_s.p90`) belongs to."""
    return "def-" + address.partition(".")[0]
