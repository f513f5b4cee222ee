"""What a store offers to choose from, where to begin, and fronts straight from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.analysis.made_points import IDENTITY
from tests.analysis.made_store import a_point, fill

from servemark.analysis.facets import columnar_facets, facets
from servemark.analysis.front_query import beginning, front_of
from servemark.analysis.front_types import FrontOptions
from servemark.analysis.selection import matches, parse_selection, select
from servemark.results.point import Eval, Precision, RoleTopology, Scenario, Speculation
from servemark.store.database import Store

SPLIT = (RoleTopology("prefill", 1, 4, tp=4), RoleTopology("decode", 2, 2, tp=2))
FIGURES = {"tpot_s.p50": 0.02, "total_tokens_per_s_per_gpu": 700.0}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Eight points: of `m` three fp8 (h100) at 1k/1k and three fp4 (b200, two of them disaggregated with mtp, of which one
    is quarantined), one of `n`, one failed eval of `m`; the fp8 ones and the eval in run r1 of January, the others in r2
    of February."""
    fp4 = replace(IDENTITY, hardware="b200", precision=Precision("nvfp4", "fp4"))
    split = replace(fp4, topology=SPLIT, speculation=Speculation("mtp", 3))
    points = [a_point(FIGURES, identity=replace(IDENTITY, concurrency=load)) for load in (1, 2, 4)]
    points += [
        a_point(FIGURES, identity=each, run="r2", at="2026-02-01T10:00:00Z")
        for each in (fp4, split, replace(split, concurrency=32))
    ]
    points += [a_point(FIGURES, identity=replace(IDENTITY, model="n"), run="r2", at="2026-02-01T10:00:00Z")]
    task = replace(IDENTITY, scenario=Scenario("eval", dataset="gsm8k"))
    points += [a_point({}, identity=task, evals=(Eval("gsm8k", 0.1, "em", 0.01, 100, False),))]
    fill(tmp_path, points, quarantined=[5])
    with Store.open(tmp_path / "store.sqlite", read_only=True) as opened:
        yield opened


def counts(store: Store, facet: str, words: list[str]) -> dict[str, int]:
    """Value -> points of one filter."""
    found = facets(store, chosen=parse_selection(words))
    return {each.id: each.points for each in found.facets[facet]}


def test_counts_by_hand(store: Store) -> None:
    """As the fixture says; filters follow the model and scenario that are chosen, models do not."""
    found = facets(store)
    assert [(m.id, m.points) for m in found.models] == [("m", 7), ("n", 1)]
    assert [(s.id, s.points) for s in found.models[0].scenarios] == [
        ("fixed-seq-len:1024/1024", 6),
        ("eval:gsm8k", 1),
    ]
    chosen = ["model=m", "scenario=fixed-seq-len:1024/1024"]
    assert counts(store, "hardware", chosen) == {"h100": 3, "b200": 3}
    assert counts(store, "speculation", chosen) == {"none": 4, "mtp": 2}
    assert counts(store, "disaggregated", chosen) == {"no": 4, "yes": 2}
    assert counts(store, "run", []) == {"r1": 4, "r2": 4}
    assert found.store.points == 8
    assert found.store.newest == "2026-02-01T10:00:00Z"
    assert [each.id for each in facets(store, chosen=parse_selection(["model=n"])).models] == ["m", "n"]


def test_axes_are_what_the_points_have(store: Store) -> None:
    """TPOT p50 gives interactivity p50 and no other percentile; the rate per GPU gives the total. Costs want a card."""
    names = {each.address for each in facets(store).metrics}
    assert {"interactivity.p50", "tpot_s.p50", "total_tokens_per_s", "total_tokens_per_s_per_gpu"} <= names
    assert not names & {"interactivity.p90", "ttft_s.p50", "usd_per_million_total_tokens", "gpus_deployed"}
    assert "usd_per_million_total_tokens" in {each.address for each in facets(store, costs=True).metrics}
    assert json.loads(json.dumps(columnar_facets(facets(store))))["models"][0]["id"] == "m"


def test_where_to_begin(store: Store) -> None:
    """The scenario with the most points is no eval; its precision with the most points; what was named stays."""
    start = beginning(store, parse_selection([]))
    assert (start.model, start.scenario, start.precision) == (("m",), ("fixed-seq-len:1024/1024",), ("fp8",))
    assert beginning(store, parse_selection(["hardware=b200"])).precision == ("fp4",)
    narrowed = beginning(store, parse_selection(["run=r2", "model=n"])).words()
    assert narrowed == ["model=n", "scenario=fixed-seq-len:1024/1024", "run=r2"]
    named = parse_selection(["model=x", "scenario=y"])
    assert beginning(store, named) == named
    nothing = parse_selection(["hardware=none"])
    assert beginning(store, nothing) == nothing


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["hardware=b200,h100"],
        ["precision=fp4,unknown"],
        ["date=2026-02-01"],
        ["date=..2026-01-31"],
        ["date=2026-01-02.."],
        ["speculation=mtp"],
        ["run=r1,r2", "model=n"],
        ["disaggregated=yes", "concurrency=16"],
    ],
)
def test_the_store_narrows_as_the_words_say(store: Store, words: list[str]) -> None:
    """What SQL leaves out is what `matches` would leave out."""
    chosen = parse_selection(words)
    every = select(store, parse_selection([]))
    assert len(every) == 8
    assert [p.ref for p in select(store, chosen)] == [p.ref for p in every if matches(p, chosen)]


def test_front_from_a_store(store: Store) -> None:
    """The failed eval is of another scenario and is heard all the same: run r1's points are off. The quarantined point
    says which gate."""
    view = front_of(
        store, parse_selection(["model=m", "scenario=fixed-seq-len:1024/1024"]), FrontOptions(), "en"
    )
    states = [(view.lines[row.line].run, row.state, row.reason is None) for row in view.rows]
    assert sorted(states) == [
        *[("r1", "excluded", False)] * 3,
        ("r2", "excluded", False),
        *[("r2", "on", True)] * 2,
    ]
    assert any(reason.startswith("quarantined: attempt 1 was followed") for reason in view.reasons)
    assert {(left.reason, left.points) for left in view.left_out} == {
        ("accuracy failed in the same run", 3),
        ("quarantined: Later attempts", 1),
    }
