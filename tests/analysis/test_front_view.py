"""The view of a front: series, lines, reasons, groups that do not compare, overlays, findings; properties for any points."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis.made_points import IDENTITY, measured

from servemark.analysis.columnar import columnar, flat_rows, short
from servemark.analysis.front_types import FrontOptions, FrontView
from servemark.analysis.front_view import SHOWN, front_view
from servemark.analysis.measured import Measured
from servemark.analysis.stretches import stretches
from servemark.base.errors import ServemarkError
from servemark.base.messages import LANGUAGES
from servemark.metrics.registry import Better
from servemark.results.point import Eval, PointIdentity, Precision, Scenario, Speculation

X, Y = "interactivity.p50", "total_tokens_per_s_per_gpu"


def point(
    speed: float | None,
    rate: float | None,
    *,
    load: int = 1,
    run: str = "r1",
    hardware: str = "h100",
    identity: PointIdentity = IDENTITY,
    **changes: object,
) -> Measured:
    """A point at `speed` tok/s/user and `rate` tok/s/GPU."""
    figures = {"tpot_s.p50": 1 / speed} if speed else {}
    if rate is not None:
        figures[Y] = rate
    identity = replace(identity, hardware=hardware, concurrency=load)
    ref = str(changes.pop("ref", f"{run}-{hardware}:{load}"))
    return measured(figures, identity=identity, run=run, ref=ref, **changes)  # type: ignore[arg-type]


def view(points: list[Measured], lang: str = "en", **options: object) -> FrontView:
    """On the usual axes."""
    return front_view(points, FrontOptions(**{"x": X, "y": Y, **options}), lang)  # type: ignore[arg-type]


def near(values: tuple[float, ...]) -> object:
    """Equal but for rounding: speeds are made of latencies."""
    return pytest.approx(values)


def by_ref(found: FrontView) -> dict[str, str]:
    """The state of every point."""
    return {row.ref: row.state for row in found.rows}


BY_HAND = [
    point(20, 900, load=16),
    point(40, 700, load=8),
    point(80, 300, load=4),
    point(30, 800, load=8, hardware="b200"),
    point(50, 600, load=4, hardware="b200"),
    point(45, 500, load=2, hardware="b200"),
]
"""h100: (20, 900) (40, 700) (80, 300); b200: (30, 800) (50, 600), and (45, 500) that (50, 600) beats."""


def test_a_front_of_two_series_by_hand() -> None:
    """All but (45, 500) stand on the overall front. Its stretches: 20-30 b200, 30-40 h100, 40-50 b200, 50-80 h100: h100
    holds 40 of 60 tok/s/user and comes first."""
    found = view(BY_HAND)
    assert sorted(ref for ref, state in by_ref(found).items() if state == "dominated") == ["r1-b200:2"]
    on = [(found.rows[row].x, found.rows[row].y) for row in found.groups[0].on]
    assert on == [near(each) for each in ((20, 900), (30, 800), (40, 700), (50, 600), (80, 300))]
    assert [series.label for series in found.series] == ["h100 · e", "b200 · e"]
    assert [series.shown for series in found.series] == [True, True]
    corners = ((20, 900), (20, 700), (40, 700), (40, 300), (80, 300))
    assert list(found.series[0].path) == [near(each) for each in corners]
    assert "h100 · e for 67 %, b200 · e for 33 %" in found.findings[0]


def test_target_and_lead_by_hand() -> None:
    """At 60: only (80, 300) reaches it; half way between (40, 700) and (80, 300) is 500. b200 does not reach it. At 35 the
    best is h100's 700; b200's best there is 600: 700 / 600 = 1.17."""
    found = view(BY_HAND, target=60)
    assert found.target is not None
    assert found.target.overall.y == 300
    assert found.target.overall.estimate is not None
    assert found.target.overall.estimate.y == pytest.approx(500)
    assert {read.state for place, read in found.target.series if found.series[place].label == "b200 · e"} == {
        "not_reached"
    }
    again = view(BY_HAND, target=35)
    assert "700 tok/s/GPU" in again.findings[1].replace("\u202f", " ")
    assert "by a factor of 1.17" in again.findings[2]


def test_an_absent_figure_is_no_point_at_zero() -> None:
    """Without a p50 there is no place; the row stays, with the reason, and nothing is drawn at 0."""
    found = view([point(20, 900), point(None, 5000, load=2)])
    row = next(each for each in found.rows if each.ref == "r1-h100:2")
    assert (row.state, row.x, row.y) == ("absent", None, 5000)
    assert row.reason is not None and found.reasons[row.reason].startswith("interactivity.p50 is absent")
    assert [(each.points) for each in found.left_out] == [1]
    assert "1 of 2 selected" in found.findings[-1]
    assert all(0 not in vertex for series in found.series for vertex in series.path)


def test_runs_are_lines_of_their_own() -> None:
    """The same configuration in two runs: two lines of one series, never joined."""
    found = view([point(20, 900, load=2), point(40, 700, load=1), point(21, 910, load=2, run="r2")])
    assert [(line.run, len(line.points)) for line in found.lines] == [("r1", 2), ("r2", 1)]
    assert len(found.series) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"scenario": Scenario("fixed-seq-len", 8192, 1024)},
        {"scenario": Scenario("fixed-seq-len", 1024, 1024, range_ratio=0.8)},
        {"scenario": Scenario("fixed-seq-len", 1024, 1024, arrivals="poisson:4")},
        {"scenario": Scenario("agentic", dataset="other")},
        {"model": "other"},
        {"speculation": Speculation("mtp", 3, "golden")},
        {"extra": {"mean_input_tokens": 1000, "mean_output_tokens": 100}},
    ],
)
def test_unlike_workloads_never_share_a_front(change: dict[str, object]) -> None:
    """A point that would beat all others but is of another workload, model or acceptance policy: it has a front of its
    own, the others keep theirs, and both are named."""
    best = point(100, 9000, identity=replace(IDENTITY, **change), run="x")  # type: ignore[arg-type]
    found = view([*BY_HAND, best])
    assert len(found.groups) == 2
    assert found.groups[0].on == view(BY_HAND).groups[0].on
    assert [found.rows[row].ref for row in found.groups[1].on] == [best.ref]
    assert found.groups[0].label != found.groups[1].label
    assert any(found.groups[1].label in note for note in found.notes)


def test_unlike_definitions_never_share_a_front() -> None:
    """Two tools call two things TPOT: one axis, two groups."""
    other = point(100, 9000, run="x")
    other = replace(other, definitions=dict.fromkeys(other.definitions, "another-tool"))
    found = view([*BY_HAND, other])
    assert [group.points for group in found.groups] == [6, 1]
    assert "another-tool" in found.groups[1].label
    lacking = replace(point(None, 1, run="y"), definitions={})
    assert [group.points for group in view([*BY_HAND, other, lacking]).groups] == [7, 1]


def test_samples_of_one_workload_compare() -> None:
    """Nobody declared lengths; 7183/904 and 7207/914 tokens are within 5 %, 7183/1200 are not."""
    some = [
        point(
            20 + i,
            900 - i,
            load=i,
            run=f"r{i}",
            identity=replace(
                IDENTITY,
                scenario=Scenario("unknown"),
                extra={"mean_input_tokens": a, "mean_output_tokens": b},
            ),
        )
        for i, (a, b) in enumerate([(7183, 904), (7207, 914), (7183, 1200)], 1)
    ]
    found = view(some)
    assert [group.points for group in found.groups] == [2, 1]
    assert "7183-7207/904-914" in found.groups[0].label


def test_failed_accuracy_keeps_off_and_low_accuracy_warns() -> None:
    """The eval is a point of its own, of the same run and configuration."""
    task = replace(IDENTITY, scenario=Scenario("eval", dataset="gsm8k"))
    bad = measured({}, identity=task, ref="e:0", evals=(Eval("gsm8k", 0.2, "em", 0.01, 100, False),))
    found = view(BY_HAND, evals=[bad])
    assert by_ref(found)["r1-h100:16"] == "excluded"
    assert by_ref(found)["r1-b200:8"] == "on"
    assert found.left_out[0].reason == "accuracy failed in the same run"
    rest = [
        measured(
            {},
            identity=replace(task, hardware="a"),
            run=f"s{i}",
            ref=f"e{i}:0",
            evals=(Eval("gsm8k", 0.95, "em", 0.005, 1319),),
        )
        for i in range(6)
    ]
    unjudged = replace(bad, evals=(Eval("gsm8k", 0.875, "em", 0.009, 1319),))
    found = view(BY_HAND, evals=[*rest, unjudged])
    assert by_ref(found) == by_ref(view(BY_HAND))
    warned = [row.ref for row in found.rows if row.warning is not None]
    assert sorted(warned) == ["r1-h100:16", "r1-h100:4", "r1-h100:8"]
    assert any("0.875" in note for note in found.notes)


def test_an_overlay_is_on_no_official_front() -> None:
    """It would beat everything: the official front stays, the point is marked `beyond`, its series is shown and its own."""
    mine = point(90, 9000, run="mine", hardware="x", official=False)
    found = view(BY_HAND, overlay=[mine])
    assert [found.rows[row].ref for row in found.groups[0].on] == [
        view(BY_HAND).rows[row].ref for row in view(BY_HAND).groups[0].on
    ]
    assert by_ref(found)[mine.ref] == "beyond"
    own = next(each for each in found.series if not each.official)
    assert own.shown and own.id.startswith("overlay.") and len(own.path) == 1
    assert [row["official"] for row in flat_rows(found) if row["ref"] == mine.ref] == [False]
    assert found.notes[-1].startswith("Unofficial points: 1")


def test_at_most_five_series_at_first() -> None:
    """Nine on the front: five are shown, and they are those that hold most of it."""
    some = [point(10 * i * i, 1000 - 10 * i, hardware=f"g{i}") for i in range(1, 10)]
    shown = [series.parts["hardware"] for series in view(some).series if series.shown]
    assert len(shown) == SHOWN
    assert shown == ["g9", "g8", "g7", "g6", "g5"]


def test_default_axes_vary_and_are_there() -> None:
    """Without GPUs there is no rate per GPU; equal rates choose nothing; an axis without a better way is refused."""
    some = [
        measured(
            {"tpot_s.p50": 0.01 * i, "total_tokens_per_s": 100.0, "output_tokens_per_s": 10.0 * i},
            gpus=None,
            ref=f"a:{i}",
        )
        for i in (1, 2)
    ]
    found = front_view(some, FrontOptions(), "en")
    assert (found.x.address, found.y.address) == (X, "output_tokens_per_s")
    same = front_view(some, FrontOptions(y="total_tokens_per_s"), "en")
    assert any("is the same for all points" in note for note in same.notes)
    for bad in ("concurrency", "nothing", "ttft_s.n", "ttft_s"):
        with pytest.raises(ServemarkError) as caught:
            front_view(some, FrontOptions(x=bad), "en")
        assert caught.value.exit_code == 2


def test_nothing_selected() -> None:
    """An empty view is a view."""
    found = view([])
    assert found.findings == ("No point is selected.",)
    body = columnar(found)
    assert body["front"] == {"on": [], "path": []}


class Bands:
    """Repeats vary by a tenth."""

    def band(self, point: Measured, address: str, value: float) -> tuple[float, float] | None:
        """Ten per cent to each side."""
        return value * 0.9, value * 1.1


def test_noise_bands_tell_what_cannot_be_told() -> None:
    """700 and 600 with 10 % each: 630..770 and 540..660 overlap."""
    found = view(BY_HAND, target=35, noise=Bands())
    assert found.rows[0].y_band == near((270, 330))
    assert "cannot be told" in found.findings[2]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_columns_say_what_the_view_says(lang: str) -> None:
    """Every index of the body leads somewhere, every list of columns is as long, and it is JSON."""
    body = json.loads(json.dumps(columnar(view([*BY_HAND, point(None, 1, load=9)], lang)), allow_nan=False))
    columns = body["columns"]
    assert {len(values) for values in columns.values()} == {7}
    assert {len(values) for values in body["values"].values()} <= {7}
    assert all(0 <= line < len(body["lines"]) for line in columns["line"])
    assert sorted(row for line in body["lines"] for row in line["points"]) == list(range(7))
    assert all(0 <= line["series"] < len(body["series"]) for line in body["lines"])
    assert all(reason is None or body["reasons"][reason] for reason in columns["reason"])
    assert [columns["state"][row] for row in body["front"]["on"]] == ["on"] * 5
    assert body["x"]["better"] == "higher" and body["x"]["unit"] == "tok/s/user"
    if lang == "zh":
        assert "前沿" in body["findings"][0]


def test_five_digits() -> None:
    """12345.6 -> 12346, 0.00123456 -> 0.0012346, a whole number without a fraction."""
    assert [short(v) for v in (12345.6, 0.00123456, 40.0, None)] == [12346, 0.0012346, 40, None]
    # a reader rounds once more: 5809.49 must not come as 5809.5, which is 5810; whole parts are never cut
    assert [short(v) for v in (5809.49, 1234567.4, 0.25)] == [5809.49, 1234567.4, 0.25]
    assert [short(v) for v in (5809.4999999999, 73.0000001, 73.0)] == [5809.4999999999, 73.0000001, 73]


def test_stretches_by_hand() -> None:
    """x higher: a target between 10 and 20 is reached by the point at 20. x lower (a latency): by the one at 10."""
    on = [("a", 10.0), ("b", 20.0), ("b", 40.0)]
    assert stretches(on, Better.HIGHER) == [("a", 10, 10), ("b", 10, 40)]
    assert stretches(on, Better.LOWER) == [("a", 10, 20), ("b", 20, 40)]
    assert stretches([], Better.LOWER) == []


PLACES = st.integers(1, 8).map(float) | st.floats(0.5, 500) | st.none()
SOME = st.lists(
    st.tuples(
        PLACES,
        PLACES,
        st.sampled_from(["h100", "b200", "x"]),
        st.sampled_from(["r1", "r2"]),
        st.sampled_from(["complete", "complete", "partial"]),
        st.sampled_from(["fp4", "fp8"]),
    ),
    max_size=20,
)


def made(some: list[tuple[float | None, float | None, str, str, str, str]]) -> list[Measured]:
    """Points of a drawn list."""
    return [
        point(
            x,
            y,
            load=i + 1,
            hardware=hw,
            run=run,
            status=status,
            ref=f"f:{i}",
            identity=replace(IDENTITY, precision=Precision(p, p)),
        )
        for i, (x, y, hw, run, status, p) in enumerate(some)
    ]


@settings(max_examples=60)
@given(SOME, st.randoms(use_true_random=False), st.sampled_from([X, "tpot_s.p50"]), st.sampled_from([Y]))
def test_properties(
    some: list[tuple[float | None, float | None, str, str, str, str]], rng: random.Random, x: str, y: str
) -> None:
    """No point on the front is dominated by any eligible one, ties stand together, all others are dominated or have a
    reason; order is nothing; the front of the front is itself; every vertex of a staircase is reached by a point."""
    points = made(some)
    found = view(points, x=x, y=y)
    higher = found.x.better == "higher"
    usable = [r for r in found.rows if r.reason is None]
    for row in found.rows:
        better = [
            o
            for o in usable
            if row.x is not None
            and row.y is not None
            and o.x is not None
            and o.y is not None
            and (o.x >= row.x if higher else o.x <= row.x)
            and o.y >= row.y
            and (o.x, o.y) != (row.x, row.y)
        ]
        expected = "on" if not better else "dominated"
        assert row.state == expected if row.reason is None else row.state in {"excluded", "absent"}
    shuffled = list(points)
    rng.shuffle(shuffled)
    assert columnar(view(shuffled, x=x, y=y)) == columnar(found)
    kept = {found.rows[row].ref for row in found.groups[0].on} if found.groups else set()
    again = view([p for p in points if p.ref in kept], x=x, y=y)
    assert {again.rows[row].ref for row in again.groups[0].on} == kept if kept else not again.rows
    for series in found.series:
        own = [
            (r.x, r.y)
            for r in usable
            if found.series[found.lines[r.line].series] is series and r.x is not None and r.y is not None
        ]
        for vx, vy in series.path:
            assert any((px >= vx if higher else px <= vx) and py >= vy for px, py in own)
    assert sum(line_points for line_points in (len(line.points) for line in found.lines)) == len(points)
    assert len([s for s in found.series if s.shown]) <= SHOWN
    assert all(math.isfinite(v) for group in found.groups for vertex in group.path for v in vertex)
