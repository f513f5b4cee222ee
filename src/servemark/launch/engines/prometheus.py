"""The Prometheus text format (version 0.0.4), read strictly: a line that is not understood is an error."""

from __future__ import annotations

import re

_SAMPLE = re.compile(
    r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)"
    r"(?P<labels>\{(?:[A-Za-z_][A-Za-z0-9_]*=\"(?:[^\"\\\n]|\\[\\\"n])*\",?[ ]*)*\})?"
    r"[ \t]+(?P<value>[^ \t]+)(?:[ \t]+-?\d+)?[ \t]*\Z"
)
MAX_SAMPLES = 50_000


def parse_prometheus(text: str) -> dict[str, float]:
    """Sample -> value, labels kept in the name as they were written (`name{a="b"}`).

    Raises ValueError naming the line for text that is no exposition, for a sample given twice, and for more
    than MAX_SAMPLES samples.
    """
    samples: dict[str, float] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip(" \t\r")
        if not stripped or stripped.startswith("#"):
            continue
        match = _SAMPLE.match(stripped)
        if match is None:
            raise ValueError(f"line {number} is no sample")
        key = match["name"] + (match["labels"] or "")
        if key in samples:
            raise ValueError(f"line {number} repeats {key[:80]}")
        if len(samples) >= MAX_SAMPLES:
            raise ValueError(f"more than {MAX_SAMPLES} samples")
        samples[key] = _number(match["value"], number)
    return samples


def _number(word: str, line: int) -> float:
    """Go's ParseFloat as the format uses it; Python alone would also take 1_000 and other digits than
    ASCII's."""
    if not word.isascii() or "_" in word:
        raise ValueError(f"line {line} has no number")
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"line {line} has no number") from None
