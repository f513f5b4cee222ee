"""Change points: against Apache Otava, against hand-worked statistics, and against noise."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis.change_point_series import OTAVA, SERIES, noise

from servemark.analysis.change_points import MAX_P_VALUE, MAX_VALUES, best_division, change_points


def indices(values: list[float], **options: float) -> list[int]:
    return [point.index for point in change_points(values, **options)]  # type: ignore[arg-type]


def table(values: list[float]) -> list[list[float]]:
    return [[abs(a - b) for b in values] for a in values]


@pytest.mark.parametrize("name", SERIES)
def test_the_statistic_is_otavas(name: str) -> None:
    """Best division and its Q to six decimals, with stretches of one value allowed as Otava does."""
    values = SERIES[name]
    found = best_division(table(values), list(range(len(values))), [(0, len(values))], 1)
    assert found is not None
    assert found.index == OTAVA[name]["best"]
    assert found.q == pytest.approx(OTAVA[name]["q"], abs=1e-6)


@pytest.mark.parametrize("name", SERIES)
def test_change_points_are_those_of_otavas_e_divisive(name: str) -> None:
    """With Otava's settings (sides of one value, p <= 0.05) the same points stand."""
    assert indices(SERIES[name], max_p_value=0.05, min_side=1) == OTAVA[name]["permutations"]


def test_with_our_settings_a_last_value_alone_hides_no_change() -> None:
    """A division must have two values on each side, so the last value (66.1) is no state of its own yet, and the fall
    before it is found, where Otava's t-test variant finds it too."""
    assert indices(SERIES["published_down_up"]) == [5] == OTAVA["published_down_up"]["t_test"]
    for name in ("published_steps", "step", "two_steps", "there_and_back", "wide_noise", "flat", "constant"):
        assert indices(SERIES[name]) == OTAVA[name]["permutations"]


def test_otava_itself_still_says_so() -> None:
    """Runs Otava where a Python has it: this one, or the one that OTAVA_PYTHON names."""
    python = os.environ.get("OTAVA_PYTHON", sys.executable)
    there = subprocess.run([python, "-c", "import otava"], capture_output=True, check=False, timeout=60)
    if there.returncode:
        pytest.skip("Apache Otava is not installed here (pip install apache-otava, or OTAVA_PYTHON=…)")
    script = Path(__file__).with_name("change_point_series.py")
    said = subprocess.run([python, str(script)], capture_output=True, check=True, timeout=100)
    assert json.loads(said.stdout) == OTAVA


def test_the_statistic_by_hand() -> None:
    """0 0 4 4 cut in the middle: four distances of 4 between, none within: 2/4 x 16 = 8. Cut after one value:
    between 0 + 4 + 4 = 8, within the right side 4 + 4 + 0 = 8: 2/4 x (8 - 1 x 8/2) = 2."""
    found = best_division(table([0, 0, 4, 4]), [0, 1, 2, 3], [(0, 4)])
    assert found is not None
    assert (found.index, found.q) == (2, 8.0)
    shuffled = best_division(table([0, 4, 4]), [0, 1, 2], [(0, 3)])
    assert shuffled is not None
    assert shuffled.index == 1
    assert shuffled.q == pytest.approx(2 / 3 * 8)


def test_before_after_and_magnitude_are_medians_of_the_stretches() -> None:
    found = change_points([*noise(1, 12, 100, 0.1), *noise(2, 12, 80, 0.1)])
    assert len(found) == 1
    assert found[0].before == pytest.approx(100, abs=0.2)
    assert found[0].after == pytest.approx(80, abs=0.2)
    assert found[0].magnitude == pytest.approx(-0.2, abs=0.01)
    zero = change_points([0.0] * 8 + [1.0] * 8)
    assert [point.magnitude for point in zero] == [None]


def test_it_seldom_fires_on_noise() -> None:
    """Of 300 series of normal noise at most 5 % fire: 2 % are expected (6), and 15 or more would come about once in
    a thousand times."""
    chance = random.Random(7)
    made = [[chance.gauss(100, 1) for _ in range(12)] for _ in range(300)]
    fired = sum(bool(change_points(values)) for values in made)
    assert fired < 0.05 * len(made)


@pytest.mark.parametrize("count", range(9))
def test_too_few_values_say_nothing(count: int) -> None:
    """However clear the step: with eight values or fewer, chance does the same too often."""
    assert indices([1.0] * (count // 2) + [9.0] * (count - count // 2)) == []


def test_eight_values_cannot_be_enough() -> None:
    """A clean step of 4 and 4 comes about in 2 of the 70 ways to deal the values: 0.029, above the limit."""
    assert MAX_P_VALUE < 2 / 70


def test_a_step_of_nine_values_is_enough() -> None:
    assert indices([1, 1.1, 1, 1.05, 2, 2.1, 2, 2.05, 2.02]) == [4]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), max_size=14), st.floats(0.1, 1000), st.floats(-1e5, 1e5))
def test_it_does_not_depend_on_units(values: list[float], scale: float, shift: float) -> None:
    """Scaling and shifting move no change point, and asking twice gives the same."""
    values = [round(value, 1) for value in values]
    first = change_points(values)
    assert first == change_points(values)
    if first and max(map(abs, values)) < 1e5:
        moved = change_points([value * round(scale, 2) + round(shift) for value in values])
        assert [point.index for point in moved] == [point.index for point in first]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        change_points([1.0] * (MAX_VALUES + 1))
    with pytest.raises(ValueError, match="finite"):
        change_points([1.0, float("nan")])
