"""What may be let go: worked out by hand on interactivity (higher is better) against throughput (higher is better)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from servemark.metrics.registry import Better
from servemark.plan.rows import reason
from servemark.predict.pruning import Axes, MeasuredSpot, PlannedSpot, PruneRules, PruneVerdict, prune
from servemark.predict.types import Predicted, PredictionClass

AXES = Axes("interactivity.p50", "output_tokens_per_s_per_gpu", Better.HIGHER, Better.HIGHER)
NO_SHARE = PruneRules(share=0.0)


def figure(low: float | None, high: float | None, klass: PredictionClass = "interpolated") -> Predicted:
    """A prediction with this interval."""
    value = None if low is None or high is None or klass == "none" else (low + high) / 2
    return Predicted("m", klass, value, low, high, 0.9, 50)


def spot(  # noqa: PLR0917 - a test helper
    name: str,
    x: tuple[float, float] | None,
    y: tuple[float, float] | None,
    concurrency: int = 8,
    klass: PredictionClass = "interpolated",
    line: str = "line",
    scope: str = "front",
) -> PlannedSpot:
    """A planned point."""
    return PlannedSpot(
        name,
        name,
        line,
        scope,
        concurrency,
        None if x is None else figure(*x, klass),
        None if y is None else figure(*y, klass),
    )


FIRST, LAST = spot("first", None, None, 1), spot("last", None, None, 999)
"""The ends of the line, of which nothing is said."""


def verdict(
    *middle: PlannedSpot, measured: tuple[MeasuredSpot, ...] = (), rules: PruneRules = NO_SHARE
) -> dict[str, PruneVerdict]:
    """Verdicts of the points between the ends."""
    return {each.id: each for each in prune([FIRST, *middle, LAST], measured, AXES, rules)}


GOOD = MeasuredSpot("m1", "front", 50.0, 200.0)


def test_better_end_beaten_by_a_measured_point() -> None:
    """At best (45, 190) against a measured (50, 200): let go. At best (45, 201) or (51, 190): runs."""
    found = verdict(
        spot("a", (40, 45), (150, 190)),
        spot("b", (40, 45), (150, 201)),
        spot("c", (40, 51), (150, 190)),
        measured=(GOOD,),
    )
    assert [found[name].runs for name in "abc"] == [False, True, True]
    said = found["a"].why
    assert said.key == "plan.prune.measured"
    assert {"x_best": 45, "y_best": 190, "x_bar": 50, "y_bar": 200, "by": "m1"}.items() <= dict(
        said.values
    ).items()
    assert "m1" in said.said("en") and "190" in said.said("zh")
    assert found["b"].why.key == "plan.prune.may_reach"


def test_a_tie_is_not_beaten() -> None:
    """Equal in both stands on the front together; equal in one and worse in the other does not."""
    found = verdict(spot("a", (1, 50), (1, 200)), spot("b", (1, 50), (1, 199)), measured=(GOOD,))
    assert (found["a"].runs, found["b"].runs) == (True, False)


def test_planned_points_beat_with_their_worse_end() -> None:
    """b's worse end (46, 191) beats a's better end (45, 190); c's better end (46, 191) alone would not."""
    found = verdict(spot("a", (40, 45), (150, 190)), spot("b", (46, 60), (191, 300)))
    assert found["a"].runs is False and found["a"].why.key == "plan.prune.planned"
    found = verdict(spot("a", (40, 45), (150, 190)), spot("c", (44, 46), (180, 191)))
    assert found["a"].runs is True


def test_what_beats_runs_itself() -> None:
    """a < b < c: both are let go because of c, never because of one that is let go."""
    found = verdict(spot("a", (1, 2), (1, 2)), spot("b", (3, 4), (3, 4)), spot("c", (5, 6), (5, 6)))
    assert [found[name].runs for name in "abc"] == [False, False, True]
    assert [dict(found[name].why.values)["by"] for name in "ab"] == ["c", "c"]


def test_lower_is_better_turns_the_ends() -> None:
    """On TTFT (lower better) against throughput: at best (0.5 s, 190) against a measured (0.4 s, 200)."""
    axes = Axes("ttft_s.p50", "output_tokens_per_s_per_gpu", Better.LOWER, Better.HIGHER)
    points = [FIRST, spot("a", (0.5, 0.9), (150, 190)), spot("b", (0.3, 0.9), (150, 190)), LAST]
    found = {
        each.id: each for each in prune(points, [MeasuredSpot("m", "front", 0.4, 200.0)], axes, NO_SHARE)
    }
    assert (found["a"].runs, found["b"].runs) == (False, True)
    assert dict(found["a"].why.values)["x_best"] == 0.5
    assert dict(found["a"].why.values)["x_bar"] == 0.4


def test_never_the_ends_of_a_line() -> None:
    """However bad, the lowest and the highest concurrency run; a line of two has no middle."""
    bad = [spot(f"p{c}", (1, 2), (1, 2), c) for c in (4, 8, 16)]
    found = {each.id: each.runs for each in prune(bad, [GOOD], AXES, NO_SHARE)}
    assert found == {"p4": True, "p8": False, "p16": True}
    assert all(each.runs for each in prune(bad[:2], [GOOD], AXES, NO_SHARE))


def test_classes_that_are_not_sure_run_unless_stated() -> None:
    """none and one_anchor only where somebody names them, and as bars neither."""
    weak: tuple[PredictionClass, ...] = ("one_anchor", "none")
    found = verdict(*(spot(k, (1, 2), (1, 2), klass=k) for k in weak), measured=(GOOD,))
    assert [found[k].why.key for k in weak] == [f"plan.prune.class.{k}" for k in weak]
    stated = PruneRules(classes=frozenset({"one_anchor", "none"}), share=0.0)
    found = verdict(*(spot(k, (1, 2), (1, 2), klass=k) for k in weak), measured=(GOOD,), rules=stated)
    assert not any(found[k].runs for k in weak)
    found = verdict(spot("a", (1, 2), (1, 2)), spot("b", (8, 9), (8, 9), klass="one_anchor"))
    assert found["a"].runs


def test_held_points_run_and_beat_nothing() -> None:
    """What is held by another reason (another version was measured) neither goes nor lets others go."""
    held = replace(spot("a", (1, 2), (1, 2)), held=reason("plan.prune.version"))
    assert verdict(held, measured=(GOOD,))["a"].why.key == "plan.prune.version"
    strong = replace(spot("b", (50, 60), (200, 300)), held=reason("plan.prune.version"))
    assert verdict(spot("a", (1, 2), (1, 2)), strong)["a"].runs


def test_without_an_interval_it_runs() -> None:
    """No prediction, an interval without ends, an end that is no number."""
    found = verdict(
        spot("a", None, (1, 2)),
        PlannedSpot("b", "b", "line", "front", 8, figure(None, None), figure(1, 2)),
        spot("c", (1, float("inf")), (1, 2)),
        spot("d", (1, float("nan")), (1, 2)),
        measured=(GOOD, MeasuredSpot("nan", "front", float("nan"), float("inf"))),
    )
    assert all(found[name].runs for name in "abcd")
    assert {found[name].why.key for name in "abcd"} == {"plan.prune.open"}


def test_other_fronts_do_not_count() -> None:
    """A point of another scope beats nothing here."""
    found = verdict(spot("a", (1, 2), (1, 2), scope="other"), measured=(GOOD,))
    assert found["a"].runs


@pytest.mark.parametrize(
    ("count", "share", "anyway"), [(30, 0.1, 3), (31, 0.1, 4), (5, 0.1, 1), (5, 0.0, 0), (5, 1.0, 5)]
)
def test_a_share_runs_anyway(count: int, share: float, anyway: int) -> None:
    """Rounded up, so that one is always looked at; the same ones for the same seed, whatever the order."""
    points = [spot(f"p{i}", (1, 2), (1, 2), 8 + i) for i in range(count)]
    found = verdict(*points, measured=(GOOD,), rules=PruneRules(share=share))
    kept = {name for name, each in found.items() if each.why.key == "plan.prune.anyway"}
    assert len(kept) == anyway
    assert sum(not each.runs for each in found.values()) == count - anyway
    again = verdict(*reversed(points), measured=(GOOD,), rules=PruneRules(share=share))
    assert {name for name, each in again.items() if each.why.key == "plan.prune.anyway"} == kept


def test_seeds_choose_differently() -> None:
    """Of thirty points ten seeds do not all choose the same three."""
    points = [spot(f"p{i}", (1, 2), (1, 2), 8 + i) for i in range(30)]
    chosen = set()
    for seed in range(10):
        found = verdict(*points, measured=(GOOD,), rules=PruneRules(seed=seed))
        chosen.add(frozenset(name for name, each in found.items() if each.why.key == "plan.prune.anyway"))
    assert len(chosen) > 5


def test_nothing_that_could_be_on_the_front_is_let_go() -> None:
    """Every corner of a grid of intervals: whichever values within all intervals come true, no point that was let go is on
    the front of all."""
    cells = [(x, y) for x in (10.0, 20.0, 30.0) for y in (100.0, 200.0)]
    points = [spot(f"p{i}", (x, x + 8), (y, y + 50), 8 + i) for i, (x, y) in enumerate(cells)]
    found = verdict(*points)
    gone = [p for p in points if not found[p.id].runs]
    assert gone
    for ends in itertools.product((0, 1), repeat=len(points)):
        true = {}
        for p, end in zip(points, ends, strict=True):
            assert p.x is not None and p.y is not None
            true[p.id] = ((p.x.low, p.x.high)[end], (p.y.low, p.y.high)[end])
        for p in gone:
            x, y = true[p.id]
            assert any(
                (a >= x and b >= y and (a, b) != (x, y))  # type: ignore[operator]
                for name, (a, b) in true.items()
                if found[name].runs
            )
