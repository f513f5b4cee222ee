"""Recipes of the generator: what is wrong is named, whatever a suite's file holds."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.traces.recipe import FIELDS, AgenticRecipe, recipe_problems

GOOD: dict[str, Any] = {
    "seed": 7,
    "sessions": 3,
    "turns": [2, 4],
    "system_tokens": 50,
    "tools_tokens": 80,
    "first_user_tokens": [10, 20],
    "tool_result_tokens": {"median": 30, "sigma": 0.8, "min": 5, "max": 60},
    "output_tokens": {"median": 12, "sigma": 0.5, "min": 4, "max": 24},
    "think_s": {"median": 2.4, "sigma": 1.2, "cap": 30},
    "think_scale": 0.5,
}
GONE = object()
HUGE = 10**4000
"""An integer that YAML reads and that must not be printed."""


def changed(path: str, value: object) -> dict[str, Any]:
    """GOOD with one field changed or, for GONE, removed."""
    data = copy.deepcopy(GOOD)
    *parents, name = path.split(".")
    spot = data
    for parent in parents:
        spot = spot[parent]
    if value is GONE:
        del spot[name]
    else:
        spot[name] = value
    return data


def test_good_recipe_reads_and_writes_back() -> None:
    recipe = AgenticRecipe.from_mapping(GOOD)
    assert recipe_problems(GOOD) == []
    assert AgenticRecipe.from_mapping(recipe.to_mapping()) == recipe
    # by hand: 50 + 80 + 20 first, then 3 later turns of 24 + 60 each, then 24 of output
    assert recipe.worst_context_tokens == 150 + 3 * 84 + 24


@pytest.mark.parametrize(
    ("path", "value", "key", "shown"),
    [
        ("sead", 1, "recipe_unknown_field_near", "`seed`"),
        ("zzz", 1, "recipe_unknown_field", "`zzz`"),
        ("think_s.medain", 1, "recipe_unknown_field_near", "`think_s.median`"),
        ("seed", GONE, "recipe_missing_field", "`seed`"),
        ("think_s.cap", GONE, "recipe_missing_field", "`think_s.cap`"),
        ("seed", "7", "recipe_wrong_type", "integer"),
        ("seed", True, "recipe_wrong_type", "boolean"),
        ("sessions", 2.0, "recipe_wrong_type", "number"),
        ("sessions", 0, "recipe_out_of_range", "1 to 100000"),
        ("sessions", HUGE, "recipe_out_of_range", "±2^200"),
        ("system_tokens", -1, "recipe_out_of_range", "-1"),
        ("think_s.median", float("nan"), "recipe_out_of_range", "nan"),
        ("think_scale", float("inf"), "recipe_out_of_range", "inf"),
        ("turns", 4, "recipe_not_pair", "integer"),
        ("turns", [4], "recipe_not_pair", "list"),
        ("turns", [4, "6"], "recipe_wrong_type", "text"),
        ("turns", [6, 4], "recipe_reversed", "6"),
        ("output_tokens", [8, 96], "recipe_not_parts", "median, sigma, min, max"),
        ("output_tokens.max", 3, "recipe_reversed", "4"),
        ("kind", "weka", "recipe_kind", "weka"),
        ("name", "", "recipe_name", "text"),
        ("turns", [1, 5000], "recipe_too_large", "5000"),
        ("tool_result_tokens.max", 2_000_000, "recipe_too_long", "10000000"),
    ],
)
def test_each_fault_is_named(path: str, value: object, key: str, shown: str) -> None:
    data = changed(path, value)
    if key == "recipe_too_large":
        data["sessions"] = 10
    if key == "recipe_too_long":
        data["turns"] = [2, 7]
    with pytest.raises(ServemarkError) as caught:
        AgenticRecipe.from_mapping(data, where="w.yaml:3:1")
    assert caught.value.key == f"traces.{key}"
    assert caught.value.exit_code == 2
    for lang in ("en", "zh"):
        assert caught.value.what(lang).startswith("w.yaml:3:1: ")
        assert caught.value.next_step(lang)
    assert shown in caught.value.what("en") + (caught.value.next_step("en") or "")


def test_all_faults_are_reported_at_once() -> None:
    data = changed("seed", "x") | {"turns": [9, 1], "extra": 1}
    assert [p.key for p in recipe_problems(data)] == [
        "traces.recipe_unknown_field",
        "traces.recipe_wrong_type",
        "traces.recipe_reversed",
    ]
    assert recipe_problems([1])[0].key == "traces.recipe_not_mapping"  # type: ignore[arg-type]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=9), ANYTHING, max_size=4))
def test_nothing_crashes_it(part: dict[str, Any]) -> None:
    """Any YAML-like value in any field gives a recipe or ServemarkErrors whose texts can be made."""
    data = {**GOOD, **part}
    for problem in recipe_problems(data):
        assert problem.what("zh")
        assert problem.what("en")
