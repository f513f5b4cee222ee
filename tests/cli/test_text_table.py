"""Text on a terminal: no line wider than asked for, nothing lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servemark.cli.text_table import columns_of, padded, shortened, table, wrapped

LETTERS = st.text(alphabet="ab ,.\u4e2d\u6587\uff0c\u3002\uff09(12345", max_size=200)


@given(LETTERS, st.integers(20, 90))
def test_wrapped(line: str, width: int) -> None:
    """Every line fits, and all letters but spaces are still there in their order."""
    lines = wrapped(line, width, "")
    assert all(columns_of(one) <= width for one in lines)
    assert "".join("".join(lines).split()) == "".join(line.split())


def test_closing_punctuation_ends_a_line() -> None:
    """Eleven wide letters and a full stop in 22 columns: the letter before the stop goes with it."""
    line = "\u4e2d" * 11 + "\u3002"
    assert wrapped(line, 22, "") == ["\u4e2d" * 10, "  \u4e2d\u3002"]


def test_columns() -> None:
    """Wide letters take two columns; the middle gives way."""
    assert columns_of("a\u4e2d") == 3
    assert padded("\u4e2d", 4, left=True) == "\u4e2d  " and padded("a", 3, left=False) == "  a"
    assert shortened("abcdefgh", 5) == "ab\u2026gh"
    assert table(["n", "x"], [["a", "1"]], 40) == ["n  x", "\u2500  \u2500", "a  1"]
