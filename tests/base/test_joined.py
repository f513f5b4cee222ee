"""Words are joined by the punctuation of their language; expected values are written by hand."""

from __future__ import annotations

from servemark.base.joined import clauses, in_list, sentences, with_detail, with_head


def test_english() -> None:
    """Commas, semicolons and colons with their spaces."""
    assert in_list(["c1", "c2"], "en") == "c1, c2"
    assert clauses(["a", "b"], "en") == "a; b"
    assert sentences(["One.", "Two."], "en") == "One. Two."
    assert with_head("c1", "nothing", "en") == "c1: nothing"
    assert with_detail("late", "c1", "en") == "late (c1)"


def test_chinese_has_no_half_width_marks() -> None:
    """Full-width marks, and no space between sentences."""
    assert in_list(["c1", "c2"], "zh") == "c1\u3001c2"
    assert clauses(["甲", "乙"], "zh") == "甲\uff1b乙"
    assert sentences(["一\u3002", "二\u3002"], "zh") == "一\u3002二\u3002"
    assert with_head("c1", "无", "zh") == "c1\uff1a无"
    assert with_detail("晚", "c1", "zh") == "晚\uff08c1\uff09"
