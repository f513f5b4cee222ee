"""The exposition format, strictly."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemark.launch.engines.prometheus import parse_prometheus

REAL = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 550
# TYPE llamacpp:prompt_tokens_seconds gauge
llamacpp:prompt_tokens_seconds 284.879
"""


def test_a_real_reply() -> None:
    """As llama.cpp's server prints it."""
    expected = {"llamacpp:prompt_tokens_total": 550.0, "llamacpp:prompt_tokens_seconds": 284.879}
    assert parse_prometheus(REAL) == expected


def test_labels_timestamps_and_special_values() -> None:
    """Cases of the format's own documentation."""
    text = (
        'http_requests_total{method="post",code="200"} 1027 1395066363000\n'
        'msdos_file{path="C:\\\\DIR\\\\F.TXT",error="no \\"F\\"\\n"} 1.458255915e9\n'
        "metric_without_timestamp_and_labels 12.47\r\n"
        'weird{a="}"} +Inf -3982045\n'
        "nan_one NaN\n"
        "empty_labels{} 3\n"
        'trailing_comma{a="b",} 4\n'
    )
    parsed = parse_prometheus(text)
    assert parsed['http_requests_total{method="post",code="200"}'] == 1027
    assert parsed["metric_without_timestamp_and_labels"] == 12.47
    assert parsed['weird{a="}"}'] == math.inf
    assert math.isnan(parsed["nan_one"])
    assert len(parsed) == 7


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a b",
        "a 1 2 3",
        "1a 1",
        'a{b="c} 1',
        "a{b=c} 1",
        "a 1_000",
        "a \u0661",
        "<html>",
        "a 0x10",
        'a{b="\\t"} 1',
        "a 1\na 2",
    ],
)
def test_nonsense_is_an_error(line: str) -> None:
    """Not skipped: a skipped counter would be an absent one without anybody knowing."""
    with pytest.raises(ValueError, match="line"):
        parse_prometheus(line)


@given(st.text(max_size=200))
def test_never_anything_but_a_value_error(text: str) -> None:
    """Any text gives samples or ValueError."""
    with contextlib.suppress(ValueError):
        parse_prometheus(text)
