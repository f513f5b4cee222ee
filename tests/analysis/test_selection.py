"""Selections in words."""

from __future__ import annotations

import pytest

from servemark.analysis.selection import Selection, parse_selection
from servemark.base.errors import ServemarkError


def test_words_read_back() -> None:
    words = ["model=a,b", "hardware=h100", "date=2026-05-01..", "all=yes"]
    chosen = parse_selection(words)
    assert chosen == Selection(model=("a", "b"), hardware=("h100",), since="2026-05-01", latest=False)
    assert parse_selection(chosen.words()) == chosen
    assert parse_selection(["model=a", "model=b", "model=a"]).model == ("a", "b")


@pytest.mark.parametrize("word", ["model", "colour=red", "date=2026-5-1", "date=x..", "model=" + "a" * 401])
def test_what_is_no_selection(word: str) -> None:
    with pytest.raises(ServemarkError):
        parse_selection([word])


def test_bytes_that_are_no_text_are_refused_as_a_selection() -> None:
    """A command line's byte 0xFF arrives as a lone surrogate, which no store can be asked for."""
    with pytest.raises(ServemarkError) as found:
        parse_selection(["model=\udcff"])
    assert found.value.key == "analysis.selection.no_text"
    assert parse_selection(["model=中文"]).model == ("中文",)
