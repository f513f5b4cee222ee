"""Points of an engine with random weights: they stand apart from a model's own, and say why."""

from __future__ import annotations

from dataclasses import replace

from tests.analysis.compare_points import point

from servemark.analysis.comparable import comparable, difference
from servemark.analysis.compare_match import match
from servemark.analysis.compare_words import parts_of
from servemark.analysis.front_findings import badges_of
from servemark.analysis.measured import Measured


def dummy(made: Measured, **extra: object) -> Measured:
    """The same point, its weights random."""
    return replace(made, identity=replace(made.identity, extra={"weights": "dummy", **extra}))


def test_they_share_no_front() -> None:
    """Alike in everything else, and told apart in both languages even where only they are selected."""
    real, made_up = comparable(point(), ()), comparable(dummy(point()), ())
    assert real != made_up and real.without_definitions() != made_up.without_definitions()
    assert "dummy weights" in difference(made_up, [made_up], "en")
    assert "dummy 权重" in difference(made_up, [made_up], "zh")
    assert "weights" not in difference(real, [real, made_up], "en")


def test_a_comparison_pairs_none_of_them() -> None:
    """Not even where configurations may differ in their model or topology."""
    one, other = point(), dummy(point("r2"))
    for by in ((), ("topology",), ("model", "topology")):
        keys = replace(other, point_key="k2", series_key="s2")
        assert match([replace(one, point_key="k1", series_key="s1")], [keys], by).pairs == ()
    assert "dummy weights" in parts_of(other, "en")["model"]


def test_topologies_are_paired_whatever_their_arms_are_called() -> None:
    """An arm's name, its router and what its entry states of the transfer follow the topology; the load does not."""
    one = dummy(point(tp=1), arm="agg", stated={"kv_p2p_transfer": None})
    other = dummy(point("r2", tp=2), arm="1p1d", stated={"kv_p2p_transfer": "nixl"})
    other = replace(other, identity=replace(other.identity, router="servemark-pd"))
    one, other = replace(one, point_key="k1"), replace(other, point_key="k2")
    assert len(match([one], [other], ("topology",)).pairs) == 1
    assert match([one], [other], ("hardware",)).pairs == ()
    elsewhere = replace(other, identity=replace(other.identity, concurrency=16), point_key="k3")
    assert match([one], [elsewhere], ("topology",)).pairs == ()


def test_a_badge_says_so_at_the_title() -> None:
    """All points, some with their number, none; in both languages."""
    one, other = dummy(point()), point("r2")
    assert badges_of([one, one], "en") == ("random weights",) and badges_of([one, one], "zh") == ("随机权重",)
    assert badges_of([one, other, other], "en") == ("points with random weights: 1 of 3",)
    assert badges_of([other], "en") == badges_of([], "en") == ()
