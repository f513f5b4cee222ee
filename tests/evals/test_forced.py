"""Forced acceptance: who says so. Recipes are written here; patterns of positions are worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from servemark.base.messages import LANGUAGES
from servemark.evals.acceptance import Acceptance
from servemark.evals.forced import forced_by_counters, forced_by_engine, forced_in_recipe


@pytest.mark.parametrize(
    ("details", "length"),
    [
        ({"started_with": {"speculative.synth_len": 2.5}}, 2.5),
        ({"started_with": {"speculative.synth_len": -1.0}}, None),  # llama.cpp's "off"
        ({"config": [{"speculative_config": {"synthetic_acceptance_length": "3.36"}}]}, 3.36),
        (
            {"env": {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.36"}},
            2.36,
        ),  # counts accepted drafts only
        ({"env": {"SGLANG_SIMULATE_ACC_LEN": "2.36"}}, 2.36),
        ({"speculative_config": {"num_speculative_tokens": 4}}, None),
        ({}, None),
    ],
)
def test_an_engine_says_so(details: dict[str, object], length: float | None) -> None:
    found = forced_by_engine(details)
    assert (None if found is None else found.length) == length
    if found is not None:
        for lang in LANGUAGES:
            assert f"{length:.2f}" in found.refusal().what(lang)


def test_a_deep_answer_ends() -> None:
    deep: dict[str, object] = {"synth_len": 2.0}
    for _ in range(5000):
        deep = {"inner": deep}
    assert forced_by_engine(deep) is None


def test_a_pattern_that_only_a_rule_makes() -> None:
    """3.36 of 4 drafts with the least variance: 1, 1, 0.36, 0. A model as its own draft: 1, 1, 0.93."""
    rule = Acceptance(3.36, 0.59, 200, 800, 472, (1.0, 1.0, 0.36, 0.0))
    assert forced_by_counters(rule) is not None
    own = Acceptance(3.93, 1.0, 200, 600, 586, (1.0, 1.0, 0.93))
    assert forced_by_counters(own) is None
    few = Acceptance(3.36, 0.59, 10, 40, 23, (1.0, 1.0, 0.3, 0.0))
    assert forced_by_counters(few) is None
    real = Acceptance(2.5, 0.4, 200, 800, 300, (0.9, 0.4, 0.2, 0.0))
    assert forced_by_counters(real) is None


@pytest.mark.parametrize(
    "said",
    [
        "model='m', speculative_config=SpeculativeConfig(method='mtp', synthetic_acceptance_length=2.5)",
        "SpeculativeConfig(rejection_sample_method='synthetic', num_spec_tokens=3)",
        '{"synthetic-acceptance-length": 2.5}',
        '{\\"rejection_sample_method\\": \\"synthetic\\"}',
        "--spec x SGLANG_SIMULATE_ACC_LEN=2.5",
        "synthetic_acceptance_rates=[1.0, 0.5]",
    ],
)
def test_a_configuration_shown_as_text_says_so_too(said: str) -> None:
    """vLLM shows its configuration as a Python repr; engines show JSON inside of JSON."""
    assert forced_by_engine({"vllm_config": said}) is not None
    assert forced_by_engine({"args": ["x", said]}) is not None


@pytest.mark.parametrize(
    "said",
    [
        "synthetic_acceptance_length=None, synthetic_acceptance_rates=None",
        "rejection_sample_method='standard'",
        "SGLANG_SIMULATE_ACC_LEN=-1",
        "my_synthetic_acceptance_lengthy=3",
    ],
)
def test_settings_that_are_off_force_nothing(said: str) -> None:
    assert forced_by_engine({"vllm_config": said}) is None


def test_a_field_spelt_with_hyphens_says_so() -> None:
    assert forced_by_engine({"speculative-config": {"rejection-sample-method": "synthetic"}}) is not None


@pytest.mark.parametrize(
    ("value", "forces"),
    [
        ({"rejection_sample_method": "synthetic"}, True),
        ({"synthetic-acceptance-length": 2.5}, True),
        ({"synthetic_acceptance_rates": [1.0, 0.5]}, True),
        ({"synthetic-acceptance-rates": [1.0, 0.5]}, True),
        ('{"method": "mtp", "synthetic_acceptance_length": "2.5"}', True),
        ({"method": "mtp", "num_speculative_tokens": 3}, False),
        ("{broken", False),
    ],
)
def test_a_recipe_says_so_in_every_spelling(
    value: object, forces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines take hyphens for underscores, and the configuration as one text."""
    monkeypatch.setattr("servemark.evals.forced.recipe_lengths", lambda *_: [])
    role = SimpleNamespace(flags={"speculative-config": SimpleNamespace(value=value, at="r.yaml:3:1")})
    found = forced_in_recipe(cast("Any", SimpleNamespace(roles=[role])))
    assert (found is not None) == forces
