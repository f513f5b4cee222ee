"""Scales, label placing and drawings, with places worked out by hand."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from servemark.metrics.registry import Better
from servemark.report import svg
from servemark.report.charts.bars import PhasePart, phase_bar, score_bar, share_bar
from servemark.report.charts.front import HEIGHT, FrontAxis, FrontMark, FrontView, front_chart
from servemark.report.charts.histogram import Histogram, histogram
from servemark.report.charts.placing import Box, place
from servemark.report.charts.timeline import Bar, Timeline, timeline
from servemark.report.scale import Scale, between, from_zero, logarithmic, tick_text


def tree(drawing: Markup) -> ElementTree.Element:
    """The drawing as XML; fails when it is not well formed."""
    return ElementTree.fromstring(str(drawing))  # noqa: S314 - our own output


def by_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """Elements that carry one class."""
    return [node for node in root.iter() if name in node.get("class", "").split()]


def test_scale_places_and_ticks() -> None:
    """0..142 with a tenth of headroom ends at 156.2; 50 is the smallest round step that makes at most 5."""
    scale = from_zero(142.0)
    assert (scale.low, round(scale.high, 6)) == (0.0, 156.2)
    assert scale.ticks == (0.0, 50.0, 100.0, 150.0)
    assert scale.share(78.1) == pytest.approx(0.5)


def test_between_keeps_its_ends() -> None:
    """Ticks lie inside; 33..45 in at most 4 parts gives steps of 5."""
    assert between(33.0, 45.0).ticks == (35.0, 40.0, 45.0)


def test_logarithmic_shares() -> None:
    """Equal factors, equal room: 10 lies in the middle of 1..100, and 0 at the low end."""
    scale = logarithmic(1.0, 100.0)
    assert scale.share(10.0) == pytest.approx(0.5)
    assert scale.share(0.0) == 0.0
    assert scale.ticks == (1.0, 3.0, 10.0, 30.0, 100.0)


def test_tick_text_has_no_dust() -> None:
    """0.1 x 3 is 0.30000000000000004 in binary."""
    assert [tick_text(v) for v in (0.1 * 3, 2.5, 100.0, 25000.0, -0.0)] == [
        "0.3",
        "2.5",
        "100",
        "25\u202f000",
        "0",
    ]


@given(st.floats(1e-9, 1e12), st.integers(2, 8))
def test_from_zero_always_holds_its_value(highest: float, wanted: int) -> None:
    """The value lies inside, ticks ascend inside the axis, and there are not too many."""
    scale = from_zero(highest, wanted)
    assert 0 < scale.share(highest) < 1
    assert all(a < b for a, b in itertools.pairwise(scale.ticks))
    assert scale.ticks[-1] <= scale.high * (1 + 1e-9)
    assert len(scale.ticks) <= wanted + 1


@given(st.floats(1e-6, 1e3), st.floats(1.01, 1e6))
def test_logarithmic_ticks_lie_inside(low: float, factor: float) -> None:
    """Whatever the range."""
    scale = logarithmic(low, low * factor)
    assert len(scale.ticks) <= 5
    assert all(-1e-6 <= scale.share(tick) <= 1 + 1e-6 for tick in scale.ticks)


def test_labels_do_not_cover_each_other() -> None:
    """Two points 4 px apart: their labels take different sides."""
    spots = place([Box(100, 100, 40), Box(104, 100, 40)], 270, 360, right_first=True, up_first=True)
    assert spots[0] != spots[1]


def test_label_at_the_edge_turns_inwards() -> None:
    """A point at the right end has its label on the left."""
    (spot,) = place([Box(268, 100, 40)], 270, 360, right_first=True, up_first=True)
    assert spot.anchor == "end"


def test_elements_are_escaped() -> None:
    """Attribute and text alike."""
    assert str(svg.el("g", "<&", aria_label='"><')) == '<g aria-label="&#34;&gt;&lt;">&lt;&amp;</g>'
    assert (svg.num(0.004), svg.num(-0.01), svg.num(12.5), svg.num(100.0)) == ("0", "0", "12.5", "100")
    assert svg.pct(1 / 3) == "33.33%"


def _view(x_better: Better) -> FrontView:
    """Three points on a front and one behind it, on axes of 0..100 and 0..1000."""
    points = [(20.0, 900.0), (40.0, 700.0), (80.0, 300.0)]
    path = [
        (0.0, 900.0),
        (20.0, 900.0),
        (20.0, 700.0),
        (40.0, 700.0),
        (40.0, 300.0),
        (80.0, 300.0),
        (80.0, 0.0),
    ]
    if x_better is Better.LOWER:
        points = [(100 - x, y) for x, y in points]
        path = [(100 - x, y) for x, y in path]
    marks = [FrontMark(f"row-{i}", str(i), x, y, True, f"point {i}") for i, (x, y) in enumerate(points)]
    marks.append(FrontMark("row-3", "3", 50.0, 200.0, False, "behind"))
    return FrontView(
        FrontAxis(x_better, Scale(0, 100, (0, 50, 100))),
        FrontAxis(Better.HIGHER, Scale(0, 1000, (0, 500, 1000))),
        tuple(path),
        tuple(marks),
        "summary",
    )


@pytest.mark.parametrize("x_better", [Better.HIGHER, Better.LOWER])
def test_front_marks_and_staircase(x_better: Better) -> None:
    """Marks at x % and (1 - y/1000) x height; only level and upright edges; shade to the worst corner."""
    root = tree(front_chart(_view(x_better)))
    marks = by_class(root, "mark")
    flip = x_better is Better.LOWER
    assert [m.get("x") for m in marks] == [*(["80%", "60%", "20%"] if flip else ["20%", "40%", "80%"]), "50%"]
    assert float(marks[0].get("y", "")) == pytest.approx(HEIGHT * 0.1)
    assert all(m.get("tabindex") == "0" and m.get("aria-label") for m in marks)
    assert len(by_class(root, "dominated")) == 1
    for line in by_class(root, "edge"):
        assert (line.get("x1") == line.get("x2")) != (line.get("y1") == line.get("y2"))
    shade = by_class(root, "attained")
    assert [s.get("width") for s in shade] == ["20%", "40%", "80%"]
    assert [s.get("x") for s in shade] == (["80%", "60%", "20%"] if flip else ["0%", "0%", "0%"])
    assert [float(s.get("height", "")) for s in shade] == pytest.approx([HEIGHT * h for h in (0.9, 0.7, 0.3)])


def _hist(edges: list[float], counts: list[int], marks: list[tuple[str, float]], axis: Scale) -> Histogram:
    return Histogram(edges, counts, [str(c) for c in counts], marks, axis, 1.0, "", "words")


def test_histogram_bars() -> None:
    """Heights follow counts, the tallest leaves 8 px; an empty bin draws nothing; one value can be seen."""
    root = tree(histogram(_hist([0, 1, 2, 3], [960, 0, 1], [("p50", 0.5)], Scale(0, 3, (0, 3)))))
    bars = by_class(root, "bars")[0].findall("rect")
    assert [b.get("x") for b in bars] == ["0%", "66.67%"]
    assert [float(b.get("height", "")) for b in bars] == [96.0, 2.0]


def test_histogram_percentiles_merge_and_leave_the_axis() -> None:
    """p50 and p90 nearer than a label share one; p99 beyond the axis is an arrow at its end and no line."""
    chart = _hist([0, 10], [5], [("p50", 5.0), ("p90", 5.5), ("p99", 70.0)], Scale(0, 10, (0, 10)))
    root = tree(histogram(chart))
    assert [n.text for n in by_class(root, "pm-label")] == ["p50 · p90", "p99 →"]
    assert [n.get("x1") for n in by_class(root, "pm")] == ["50%", "55%"]


def test_histogram_of_equal_values() -> None:
    """No width to draw: the bar stands in the middle."""
    root = tree(histogram(_hist([7, 7], [4], [("p50", 7.0)], Scale(6, 8, (6, 8)))))
    (bar,) = by_class(root, "bars")[0].findall("rect")
    assert (bar.get("x"), bar.get("width")) == ("47.5%", "5%")


def test_timeline_bars() -> None:
    """Waiting then streaming; a request without content only waits; a failed one bears a cross at its end."""
    bars = [Bar(0, 0.0, 2.0, 10.0, False, "a"), Bar(1, 5.0, None, 7.5, True, "b")]
    root = tree(timeline(Timeline(bars, ["lane 1", "lane 2"], Scale(0, 10, (0, 10)), "s", "words")))
    assert [(r.get("x"), r.get("width")) for r in by_class(root, "w")] == [("0%", "20%"), ("50%", "25%")]
    assert [(r.get("x"), r.get("width")) for r in by_class(root, "s")] == [("20%", "80%")]
    (cross,) = [n for n in root.iter("svg") if n.find("path") is not None]
    assert cross.get("x") == "75%"


@pytest.mark.parametrize("lanes", [1, 8, 24, 100, 500])
def test_timeline_is_never_taller_than_a_tall_screen(lanes: int) -> None:
    """500 lanes of 3 px make 1,500 px at most."""
    bars = [Bar(lane, 0.0, 1.0, 2.0, False, "x") for lane in range(lanes)]
    root = tree(timeline(Timeline(bars, [str(n) for n in range(lanes)], Scale(0, 2, (0,)), "s", "w")))
    assert float(root.get("height", "")) <= 1500


def test_small_bars() -> None:
    """A share of 0.83 fills 83 %; an absent one draws its track alone; a score's band ends at 0 and 1."""
    assert by_class(tree(share_bar(0.83, "fill-a")), "fill-a")[0].get("width") == "83%"
    assert not by_class(tree(share_bar(None, "fill-a")), "fill-a")
    band = by_class(tree(score_bar(0.98, 0.05)), "band")[0]
    assert (band.get("x"), band.get("width")) == ("93%", "7%")
    drawn = tree(
        phase_bar(
            [PhasePart(0, 0.25, "a", 0), PhasePart(0.25, 0.25, "b", 1), PhasePart(0.25, 1, "c", 2)], "w"
        )
    )
    assert [r.get("class") for r in drawn.findall("rect")] == ["ph0", "ph2"]


def test_every_class_drawn_has_a_style() -> None:
    """A class that the style sheet does not know would be black."""
    from servemark.report.assets import style

    drawn = front_chart(_view(Better.HIGHER)) + histogram(
        _hist([0, 1], [1], [("p50", 0.5)], Scale(0, 1, (0,)))
    )
    drawn += timeline(Timeline([Bar(0, 0.0, 1.0, 2.0, True, "")], ["1"], Scale(0, 2, (0,)), "s", ""))
    drawn += share_bar(None, "fill-b") + score_bar(0.5, 0.1)
    known = set(re.findall(r"\.([a-z][a-z0-9-]*)", str(style())))
    free = {"tick", "front", "hist", "bar", "score", "pm0"}
    used = {name for found in re.findall(r'class="([^"]+)"', str(drawn)) for name in found.split()}
    assert used - known - free == set()
