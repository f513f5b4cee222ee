"""One recipe, two deployments: with the master's acceptance length, and with none. Settings as engines document them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.catalog.acceptance import as_measured, as_verified, differences, master_force
from servemark.catalog.arms import SearchEntry
from servemark.catalog.deployment import Deployment
from servemark.catalog.nodes import Problem
from servemark.catalog.recipe import deployment_of
from servemark.catalog.suite import load_suite
from servemark.catalog.yaml_nodes import read_yaml

RECIPE = """
schema: 2
name: tiny
model: {{path: m, container: c, precision: fp8}}
engine: {{type: {engine}}}
environment: {environment}
roles:
  aggregated:
    nodes: 1
    workers: 1
    gpus: 1
    env: {env}
    args: {args}
benchmark: {{type: manual}}
"""
SPECULATES = {
    "vllm": {
        "speculative-config": '{"method":"mtp","num_speculative_tokens":3,"rejection_sample_method":"block"}'
    },
    "sglang": {"speculative-algorithm": "EAGLE", "speculative-num-steps": 3},
    "trtllm": {"speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 3}},
    "llamacpp": {"spec-type": "ngram-simple"},
}


def recipe(
    folder: Path, engine: str, args: object, env: object = None, environment: object = None
) -> Deployment:
    """A recipe of one worker, read as every recipe is."""
    path = folder / "tiny.yaml"
    words = {"args": args, "env": env or {}, "environment": environment or {}}
    path.write_text(
        RECIPE.format(engine=engine, **{name: json.dumps(value) for name, value in words.items()})
    )
    problems: list[Problem] = []
    node, faults = read_yaml(path, "tiny.yaml")
    found = deployment_of(node, problems, None)
    assert found is not None and not faults, problems
    return found


def entry(*settings: tuple[str, str]) -> SearchEntry:
    """An entry of a shipped suite with these settings."""
    found = next(iter(load_suite("quickstart").arms.values())).entries[0]
    return replace(found, prefill=replace(found.prefill, settings=settings))


FORCING = entry(("SYNTHETIC_ACCEPTANCE", "true"), ("SYNTHETIC_ACCEPTANCE_LENGTH", "3.36"))


@pytest.mark.parametrize(
    ("engine", "where", "name", "value"),
    [
        ("sglang", "env", "SGLANG_SIMULATE_ACC_LEN", "3.36"),
        ("trtllm", "env", "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS", "2.36"),  # accepted drafts: one less
        ("llamacpp", "args", "spec-synth-len", 3.36),
    ],
)
def test_a_length_is_told_and_taken_away_again(
    engine: str, where: str, name: str, value: object, tmp_path: Path
) -> None:
    plain = recipe(tmp_path, engine, SPECULATES[engine])
    measured = as_measured(FORCING, plain)
    assert getattr(measured.roles[0], where)[name] == value
    assert measured.fingerprint() != plain.fingerprint()
    assert as_verified(measured).fingerprint() == plain.fingerprint()
    assert as_verified(plain) is plain


def test_vllm_is_told_in_the_text_that_it_is_given(tmp_path: Path) -> None:
    """A recipe's own way to verify comes back for the evals, since they start from the recipe."""
    plain = recipe(tmp_path, "vllm", SPECULATES["vllm"])
    measured = as_measured(FORCING, plain)
    written = measured.roles[0].args["speculative-config"]
    assert isinstance(written, str)
    assert json.loads(written) == {
        "method": "mtp",
        "num_speculative_tokens": 3,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": 3.36,
    }
    assert measured.roles[0].speculative is not None
    assert measured.roles[0].speculative.rejection_sampling == "synthetic"
    found = {
        (one.name, str(one.measured), str(one.scored)) for one in differences(measured, as_verified(plain))
    }
    assert found == {
        ("speculative-config.rejection_sample_method", "synthetic", "block"),
        ("speculative-config.synthetic_acceptance_length", "3.36", "None"),
    }


@pytest.mark.parametrize(
    "config",
    [
        {"method": "mtp", "rejection-sample-method": "Synthetic", "synthetic-acceptance-length": 2.5},
        {"method": "mtp", "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [1.0, 0.5]},
    ],
)
def test_a_recipes_own_forcing_is_taken_away_in_every_spelling(config: object, tmp_path: Path) -> None:
    real = as_verified(recipe(tmp_path, "vllm", {"speculative_config": config}))
    assert real.roles[0].args == {"speculative_config": {"method": "mtp"}}


def test_a_variable_of_all_roles_is_taken_away(tmp_path: Path) -> None:
    made = recipe(tmp_path, "sglang", SPECULATES["sglang"], None, {"SGLANG_SIMULATE_ACC_LEN": "3", "A": "1"})
    assert as_verified(made).environment == {"A": "1"}


@pytest.mark.parametrize(
    ("settings", "forces", "length"),
    [
        ((("SYNTHETIC_ACCEPTANCE", "true"), ("SYNTHETIC_ACCEPTANCE_LENGTH", "2.5")), True, 2.5),
        ((("SYNTHETIC_ACCEPTANCE", "true"),), True, None),
        ((("SYNTHETIC_ACCEPTANCE", "yes"), ("SYNTHETIC_ACCEPTANCE_LENGTH", "nan")), True, None),
        ((("SYNTHETIC_ACCEPTANCE_LENGTH", "2.5"),), False, None),
        ((("SYNTHETIC_ACCEPTANCE", "false"), ("SYNTHETIC_ACCEPTANCE_LENGTH", "2.5")), False, None),
    ],
)
def test_what_a_master_forces(
    settings: tuple[tuple[str, str], ...], forces: bool, length: float | None
) -> None:
    found = master_force(entry(*settings))
    assert (found is not None) == forces
    assert found is None or found.length == length
