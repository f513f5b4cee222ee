"""The random generator against published numbers and against its own promises."""

from __future__ import annotations

import statistics

import pytest

from servemark.traces.rng import SplitMix


def test_known_outputs() -> None:
    """The first three outputs of SplitMix64 from the state 1234567, as listed by Rosetta Code."""
    stream = SplitMix("any")
    stream._state = 1234567
    assert [stream.u64() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_streams_follow_their_key_only() -> None:
    assert SplitMix([1, "a"]).u64() == SplitMix([1, "a"]).u64()
    assert SplitMix([1, "a"]).u64() != SplitMix([1, "b"]).u64()


def test_ranges_and_moments() -> None:
    """Every value of a small range comes up; the normal has mean 0 and variance 1 within 5 standard
    errors."""
    stream = SplitMix(3)
    assert {stream.integer(-1, 2) for _ in range(200)} == {-1, 0, 1, 2}
    assert stream.integer(7, 7) == 7
    drawn = [stream.normal() for _ in range(4000)]
    assert abs(statistics.fmean(drawn)) < 5 / 4000**0.5
    assert abs(statistics.variance(drawn) - 1) < 5 * (2 / 4000) ** 0.5
    assert max(map(abs, drawn)) <= 6
    middle = statistics.median(stream.lognormal(10, 0.5) for _ in range(2001))
    assert 9.3 < middle < 10.7


def test_sample_takes_each_item_once() -> None:
    stream = SplitMix(4)
    assert sorted(stream.sample("abcde", 5)) == list("abcde")
    with pytest.raises(ValueError, match="cannot take 3 of 2"):
        stream.sample("ab", 3)
    with pytest.raises(ValueError, match="no integer"):
        stream.integer(2, 1)
