"""Selectors: `[SUITE:]ARM[/TOPOLOGY][@CONC,...]`."""

from __future__ import annotations

from dataclasses import dataclass

from servemark.base.errors import input_error

MAX_CONCURRENCY = 1_000_000


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed selector; None where a part was not given."""

    suite: str | None
    arm: str
    topology: str | None
    concurrencies: tuple[int, ...] | None


def parse_selector(text: str) -> Selector:
    """Parse; ServemarkError (exit 2) says which part is wrong and shows the form."""
    body, at_sign, tail = text.partition("@")
    head, colon, rest = body.rpartition(":")
    suite = head if colon else None
    arm, slash, topology = rest.partition("/")
    if not arm or (colon and not suite) or (slash and not topology):
        raise input_error("catalog.bad_selector", selector=text)
    return Selector(suite, arm, topology or None, _concurrencies(text, tail) if at_sign else None)


def _concurrencies(text: str, tail: str) -> tuple[int, ...]:
    values: list[int] = []
    for part in tail.split(","):
        if not (part.isascii() and part.isdigit() and len(part) < 8 and 1 <= int(part) <= MAX_CONCURRENCY):
            raise input_error("catalog.bad_concurrency", selector=text, part=part)
        if int(part) in values:
            raise input_error("catalog.twice_concurrency", selector=text, part=part)
        values.append(int(part))
    return tuple(values)
