"""Comparisons: expected values worked by hand, properties, and real repeats."""

from __future__ import annotations

import json
import math
import random
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis.compare_points import RATE, point

from servemark.analysis.compare import CompareOptions, compare
from servemark.analysis.compare_judge import holm, judge, ratio_test, share_test
from servemark.analysis.compare_match import fields_of, match, usable
from servemark.analysis.compare_types import CompareView, Verdict
from servemark.analysis.measured import Measured
from servemark.analysis.noise import Noise, NoiseModel, noise_model
from servemark.analysis.unstored import read_unstored
from servemark.base.errors import ServemarkError
from servemark.results.gates.registry import judge_all
from servemark.results.importers.registry import importers
from servemark.results.point import Eval, Requests
from servemark.store.found_files import Found, find
from servemark.store.intake import Intake
from servemark.store.raw_files import RawFiles

DATA = Path(__file__).resolve().parents[3] / "shared/data/results"
GPU_LESS = "total_tokens_per_s"
OPPOSITE: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}


def fixed(rel_sd: float) -> NoiseModel:
    """A model that assumes one spread of everything."""
    return replace(noise_model([]), assumed={}, assumed_else=rel_sd)


def taking(folder: Path, **hints: str) -> Intake:
    """How files are read."""
    return Intake(RawFiles(folder), importers(), judge_all, "", hints)


def verdicts(view: CompareView, address: str = RATE) -> list[Verdict]:
    return [each.verdict for pair in view.pairs for each in pair.judged if each.address == address]


def test_a_ratio_by_hand() -> None:
    """ln(110/100) = 0.09531; noise 2 % on either side, one against four: se = 0.02 √(1 + 1/4) = 0.022361; z = 4.2624,
    two-sided p = 2.02e-5; interval 0.09531 ± 1.95996 * 0.022361."""
    noise = Noise(0.02, 0, 0, math.inf, "assumed", "assumed", "x")
    test = ratio_test([100.0], [110.0] * 4, (noise, noise), 0.02)
    assert test.effect == pytest.approx(0.0953102)
    assert test.p == pytest.approx(2.02e-5, rel=0.01)
    assert test.low == pytest.approx(0.051483, rel=1e-4)
    assert test.high == pytest.approx(0.139137, rel=1e-4)
    assert judge([test], [1.0])[0].verdict == "better"
    assert judge([test], [-1.0])[0].verdict == "worse"


def test_holm_by_hand() -> None:
    """0.01 * 3 = 0.03; 0.03 * 2 = 0.06; 0.04 * 1 is raised to 0.06. Levels: 0.05/3, then 0.05/2, where it stops."""
    found = holm([0.01, 0.04, 0.03])
    assert [p for p, _ in found] == pytest.approx([0.03, 0.06, 0.06])
    assert [level for _, level in found] == pytest.approx([0.05 / 3, 0.025, 0.025])


def test_shares_by_hand() -> None:
    """90 and 80 of 100: z = 0.1 / √(0.85 * 0.15 * 0.02) = 1.9803, p = 0.04767. Agresti and Caffo: 91/102 and 81/102,
    -0.09804 ± 1.95996 √(0.8922 * 0.1078 / 102 + 0.7941 * 0.2059 / 102) = -0.09804 ± 0.09884."""
    test = share_test(0.9, 100, 0.8, 100)
    assert test.p == pytest.approx(0.04767, rel=1e-3)
    assert test.low == pytest.approx(-0.19688, abs=2e-4)
    assert test.high == pytest.approx(0.00080, abs=2e-4)
    assert judge([test], [1.0])[0].verdict == "worse"
    assert judge([share_test(1.0, 50, 1.0, 50)], [1.0])[0].verdict == "cannot_tell"


def test_the_same_difference_under_two_noises() -> None:
    """405.3 -> 396.1 tok/s/GPU is -2.27 %: nothing at the 15 % of agentic points, worse at the 0.5 % of fixed lengths."""
    a, b = point("a", 405.3, kind="agentic-coding"), point("b", 396.1, kind="agentic-coding")
    view = compare([a], [b])
    assert verdicts(view) == ["cannot_tell"]
    (judged,) = view.pairs[0].judged
    assert judged.effect == pytest.approx(-2.27, abs=0.01)
    assert "assumed" in judged.noise
    assert judged.low is not None and judged.high is not None
    assert judged.low < -30 and judged.high > 40
    assert verdicts(compare([a], [b], noise=fixed(0.005))) == ["worse"]
    assert compare([a], [b], noise=fixed(0.005)).verdict == "worse"


def test_same_needs_an_interval_within_what_matters() -> None:
    """Noise 0.5 %, one each: half of the interval is 1.96 times 0.5 √2 = 1.39 %; with 0.3 % it ends at 1.7 %, within 2 %."""
    assert verdicts(compare([point("a", 100)], [point("b", 100.3)], noise=fixed(0.005))) == ["same"]
    assert verdicts(compare([point("a", 100)], [point("b", 101.0)], noise=fixed(0.005))) == ["cannot_tell"]
    assert verdicts(compare([point("a", 100)], [point("b", 101.6)], noise=fixed(0.001))) == ["same"]
    assert verdicts(compare([point("a", 100)], [point("b", 102.1)], noise=fixed(0.001))) == ["better"]


def test_pairs_by_point_then_by_series() -> None:
    a = [point("a", concurrency=c) for c in (4, 8, 16)]
    b = [point("b", concurrency=4), point("b", concurrency=8, image="img:2"), point("b", concurrency=32)]
    found = match(a, b)
    assert [(each.level, each.a[0].concurrency) for each in found.pairs] == [("point", 4), ("series", 8)]
    assert [(each.point.concurrency, each.reason) for each in found.left_a] == [(16, "no_partner")]
    assert [(each.point.concurrency, each.reason) for each in found.left_b] == [(32, "no_partner")]
    view = compare(a, b)
    assert [(each.field, each.a, each.b) for each in view.pairs[1].changed] == [("image", "img:1", "img:2")]
    assert len(view.left_a) == len(view.left_b) == 1


def test_of_several_images_the_newest_is_compared() -> None:
    old, new = point("o", image="img:1", day="2026-01-01"), point("n", image="img:2", day="2026-02-01")
    found = match([old, new], [point("b", image="img:3")])
    assert [each.a for each in found.pairs] == [(new,)]
    assert [(each.point, each.reason) for each in found.left_a] == [(old, "older")]


def test_pairs_by_named_fields() -> None:
    a = [point("a", hardware="h100"), point("a", hardware="h100", concurrency=64)]
    b = [point("b", hardware="h200", image="img:9")]
    assert match(a, b).pairs == ()
    found = match(a, b, fields_of(["hardware"]))
    assert [(each.level, each.a[0].concurrency) for each in found.pairs] == [("fields", 8)]
    assert match(a, [point("b", hardware="h200", tp=4)], ("hardware",)).pairs == ()
    assert len(match(a, [point("b", hardware="h200", tp=4)], fields_of(["topology,hardware"])).pairs) == 1
    several = [point("a", tp=2), point("a", tp=4)]
    left = match(several, [point("b", tp=8)], ("topology",))
    assert left.pairs == ()
    assert {each.reason for each in left.left_a} == {"several"}
    assert {each.reason for each in match(a, [point("c")], ("hardware",)).left_b} == {"same_fields"}


@pytest.mark.parametrize("name", ["scenario", "concurrency", "colour"])
def test_fields_that_may_not_differ(name: str) -> None:
    with pytest.raises(ServemarkError) as told:
        fields_of([name])
    assert told.value.exit_code == 2


def test_what_is_set_aside() -> None:
    good = point("a")
    kept, left = usable(
        [
            good,
            good,
            point("b", verdict="quarantined"),
            point("c", status="partial"),
            point("d", requests=Requests(ok=89, error=11)),
            point("e", attempt=1),
            point("e", attempt=2),
            replace(point("f"), current=False),
        ]
    )
    assert [each.run for each in kept] == ["a", "e"]
    assert [each.reason for each in left] == ["quarantined", "partial", "errors", "superseded", "superseded"]


def test_unlike_definitions_are_refused() -> None:
    view = compare([point("a", source="x", definition="d1")], [point("b", source="y", definition="d2")])
    assert verdicts(view) == ["refused"]
    assert "d1" in (view.pairs[0].judged[0].reason or "")


def test_an_absent_figure_is_told_and_not_zero() -> None:
    view = compare(
        [point("a", interactivity=50)], [point("b")], CompareOptions(metrics=("interactivity.p50", RATE))
    )
    (first, second) = view.pairs[0].judged
    assert (first.verdict, first.b, first.effect) == ("absent", None, None)
    assert first.reason
    assert second.verdict == "cannot_tell"


def test_accuracy_and_failed_requests() -> None:
    """0.95 and 0.90 of 1319 items: z = 0.05 / √(0.925 * 0.075 * 2/1319) = 4.87. 0 and 50 of 1000 failed."""
    a = point("a", evals=(Eval("gsm8k", 0.95, "exact", n=1319),), requests=Requests(ok=1000, error=0))
    b = point("b", evals=(Eval("gsm8k", 0.90, "exact", n=1319),), requests=Requests(ok=950, error=50))
    view = compare([a], [b])
    assert verdicts(view, "eval_score.gsm8k") == ["worse"]
    assert verdicts(view, "error_rate") == ["worse"]
    unknown = point("c", evals=(Eval("gsm8k", 0.90, "exact"),))
    assert verdicts(compare([a], [unknown]), "eval_score.gsm8k") == ["cannot_tell"]


def test_the_mean_over_pairs_of_one_run_is_no_surer_than_one() -> None:
    """Points of one line share what was different about its run: noise 2 %, four pairs of one line, se of the mean stays
    0.02 √2; four lines give half of it."""
    one = [[point(r, 100 * f, concurrency=c) for c in (1, 2, 4, 8)] for r, f in (("a", 1.0), ("b", 1.05))]
    four = [[point(r, 100 * f, tp=t) for t in (1, 2, 4, 8)] for r, f in (("a", 1.0), ("b", 1.05))]
    (mean_one,) = [m for m in compare(one[0], one[1], noise=fixed(0.02)).metrics if m.address == RATE]
    (mean_four,) = [m for m in compare(four[0], four[1], noise=fixed(0.02)).metrics if m.address == RATE]
    half = 1.95996 * 0.02 * math.sqrt(2)
    assert mean_one.low_percent == pytest.approx(100 * math.expm1(math.log(1.05) - half), rel=1e-4)
    assert mean_four.low_percent == pytest.approx(100 * math.expm1(math.log(1.05) - half / 2), rel=1e-4)
    assert (mean_one.verdict, mean_four.verdict) == ("cannot_tell", "better")


def test_hints_say_what_keeps_two_sides_apart() -> None:
    view = compare([point("a", hardware="h100")], [point("b", hardware="h200")])
    assert view.pairs == ()
    assert any("--by hardware" in hint for hint in view.hints)


_RATES = st.floats(1e-3, 1e6, allow_nan=False)


@st.composite
def sides(draw: st.DrawFn) -> list[Measured]:
    """A few points of one to three lines."""
    found = {}
    for _ in range(draw(st.integers(1, 8))):
        made = point(
            draw(st.sampled_from(["a", "b", "c"])),
            draw(_RATES),
            interactivity=draw(st.none() | _RATES),
            concurrency=draw(st.sampled_from([1, 2, 4, 8])),
            image=draw(st.sampled_from(["img:1", "img:2", None])),
            kind=draw(st.sampled_from(["fixed-seq-len", "agentic-coding"])),
        )
        found[made.ref] = made
    return list(found.values())


@settings(max_examples=60, deadline=None)
@given(sides())
def test_a_side_against_itself_is_the_same(some: list[Measured]) -> None:
    view = compare(some, some)
    assert view.verdict == "same"
    assert {each.verdict for pair in view.pairs for each in pair.judged} == {"same"}
    assert all(each.effect == 0 for pair in view.pairs for each in pair.judged)
    assert {curve.verdict for curve in view.curves} <= {"same", "absent"}
    assert not any(left.reason == "no_partner" for left in (*view.left_a, *view.left_b))


@settings(max_examples=60, deadline=None)
@given(sides(), sides())
def test_b_against_a_mirrors_a_against_b(a: list[Measured], b: list[Measured]) -> None:
    b = [replace(each, ref=f"b{each.ref}", run=f"b{each.run}") for each in b]
    there, back = compare(a, b), compare(b, a)
    assert len(there.pairs) == len(back.pairs)
    mirrored = {(pair.b_refs, pair.a_refs): pair for pair in back.pairs}
    for pair in there.pairs:
        other = {each.address: each for each in mirrored[pair.a_refs, pair.b_refs].judged}
        for each in pair.judged:
            twin = other[each.address]
            assert twin.verdict == OPPOSITE.get(each.verdict, each.verdict)
            assert twin.n_a == each.n_b
            if each.effect is not None and twin.effect is not None:
                assert (1 + each.effect / 100) * (1 + twin.effect / 100) == pytest.approx(1, rel=1e-6)
    assert sorted(OPPOSITE.get(c.verdict, c.verdict) for c in there.curves) == sorted(
        c.verdict for c in back.curves
    )


def real_repeats() -> dict[str, list[Measured]]:
    """The 12 groups of real repeats, each under the name that its file gave it."""
    path = DATA / "repeat-runs-h200" / "merged.json"
    if not path.exists():
        pytest.skip("needs ../shared/data")
    names = [row["_source_path"] for row in json.loads(path.read_text())]
    read = read_unstored(find(str(path), path.parent, None), taking(path.parent, hardware="h200"))  # type: ignore[arg-type]
    groups: dict[str, list[Measured]] = defaultdict(list)
    for each in read.points:
        named = re.fullmatch(r"(.*)_r\d+\.json", names[int(each.ref.partition(":")[2])])
        if named:
            groups[named[1]].append(each)
    assert [len(groups), sum(map(len, groups.values()))] == [12, 52]
    return groups


@pytest.mark.corpus
def test_halves_of_real_repeats_are_never_called_different() -> None:
    """Random halves of each of 12 groups: a false alarm is any figure called better or worse. At most 5 % of splits.
    And the test of the test: the same halves with every rate of one 3 % lower are told apart."""
    groups, dice, alarms, seen, splits = real_repeats(), random.Random(7), 0, 0, 60
    for _ in range(splits):
        a: list[Measured] = []
        b: list[Measured] = []
        for some in groups.values():
            mixed = dice.sample(some, len(some))
            a, b = [*a, *mixed[: len(some) // 2]], [*b, *mixed[len(some) // 2 :]]
        view = compare(a, b)
        assert len(view.pairs) == 12
        said = {each.verdict for pair in view.pairs for each in pair.judged}
        said |= {each.verdict for each in view.metrics if each.verdict is not None}
        alarms += bool(said & {"better", "worse"})
        slower = [
            replace(each, figures={**each.figures, GPU_LESS: each.figures[GPU_LESS] * 0.97}) for each in b
        ]
        seen += any(m.address == GPU_LESS and m.verdict == "worse" for m in compare(a, slower).metrics)
    print(f"false alarms: {alarms} of {splits} splits of 12 groups x 5 figures; 3 % slower seen in {seen}")
    assert alarms <= 0.05 * splits
    assert seen >= 0.95 * splits


@pytest.mark.corpus
def test_the_real_retry_pair() -> None:
    """Two attempts of one agentic point: 405.3 and 396.1 tok/s/GPU."""
    folder = DATA / "agentic-v3-h100-retry"
    if not folder.exists():
        pytest.skip("needs ../shared/data")
    one, other = (
        read_unstored(find(str(folder / name), folder, None), taking(folder)).points  # type: ignore[arg-type]
        for name in ("attempt1.json", "attempt2.json")
    )
    view = compare(one, other)
    (judged,) = [each for each in view.pairs[0].judged if each.address == RATE]
    assert (round(judged.a or 0, 1), round(judged.b or 0, 1)) == (405.3, 396.1)
    assert view.verdict == judged.verdict == "cannot_tell"
    assert verdicts(compare(one, other, noise=fixed(0.005))) == ["worse"]


def test_files_that_are_no_results(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.txt").write_text("hello")
    found = [each for each in find(str(tmp_path), tmp_path, None) if isinstance(each, Found)]  # type: ignore[arg-type]
    read = read_unstored(found, taking(tmp_path))
    assert (read.points, read.files, read.faults) == ([], 2, 2)
