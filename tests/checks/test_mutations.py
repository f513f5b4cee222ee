"""One changed fact is found; another way of writing the same gives nothing. The samplers are in benchmarks/checks and look
at no rule."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from servemark.checks.check import check_suite
from servemark.checks.example import write

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
REAL, SEED = DATA / "inferencex-2026-08", DATA / "seed" / "suite"
HELD_OUT = 20261130
"""A seed that no rule was made with."""


def sampler(name: str) -> ModuleType:
    """A module of benchmarks/checks."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "checks"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def test_mutants_of_the_example(tmp_path: Path) -> None:
    """Every stated fact of the example suite, changed alone: at least 95 of 100 are found."""
    result = sampler("mutants").run_whole(write(tmp_path), 1000, HELD_OUT)
    assert result.arms == 3 and result.drawn == result.pool >= 100
    assert result.found / result.drawn >= 0.95, result.misses


@pytest.mark.parametrize("seed", [1, 2])
def test_harmless_edits_of_the_example(seed: int, tmp_path: Path) -> None:
    """The example written otherwise is still right: no finding, not even a note."""
    made, false = sampler("harmless").run(write(tmp_path / "suite"), 100, seed)
    assert made.total() == 100 and len(made) >= 8
    assert false == []


@pytest.mark.parametrize(
    "said",
    [
        "args: '--router-mode kv --router-session-affinity-ttl-secs 900'",
        "args: '--router-mode=kv --router-session-affinity-ttl-secs=900'",
        "args: [--router-mode=kv, --router-session-affinity-ttl-secs, '900']",
        "args: {router_mode: kv, router_session_affinity_ttl_secs: 900}",
        "args: &a {router-mode: kv, router-session-affinity-ttl-secs: 9_00}",
    ],
)
@pytest.mark.parametrize("recipe", ["agg", "disagg"])
def test_ways_to_write_arguments(said: str, recipe: str, tmp_path: Path) -> None:
    """A mapping, a list or one text; a value behind `=` or a space: the same arguments."""
    mapping = "args: {router-mode: kv, router-session-affinity-ttl-secs: 900}"
    report = check_suite(write(tmp_path, ((f"recipes/owl/{recipe}.yaml", mapping, said),)))
    assert [finding.message() for finding in report.findings] == []


@pytest.mark.corpus
def test_mutants_of_a_real_suite() -> None:
    """600 single facts of correct arms of a real suite, with a held-out seed: at least 95 of 100 are found."""
    if not REAL.is_dir():
        pytest.skip("the real suite is not on this machine")
    result = sampler("mutants").run(REAL, 600, HELD_OUT)
    assert result.drawn == 600 and result.arms >= 25
    assert result.found / result.drawn >= 0.95, result.misses


@pytest.mark.corpus
@pytest.mark.parametrize(("suite", "count"), [(REAL, 120), (SEED, 80)], ids=["real", "seed"])
def test_harmless_edits_of_real_suites(suite: Path, count: int, tmp_path: Path) -> None:
    """200 edits that change no fact give no finding that was not there, whatever its weight."""
    if not suite.is_dir():
        pytest.skip("the real suite is not on this machine")
    copy = tmp_path / "suite"
    shutil.copytree(suite, copy, copy_function=shutil.copyfile)
    made, false = sampler("harmless").run(copy, count, HELD_OUT)
    assert made.total() == count and len(made) >= 7
    assert false == []
