"""Costs at a target, by the three points of which every read is known: 20 -> 900, 40 -> 700, 80 -> 300 tok/s/GPU."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.analysis.made_points import IDENTITY, measured
from tests.analysis.test_costs import CARD

from servemark.analysis.cost_view import CostAt, CostView, cards_view, cost_view
from servemark.analysis.rate_cards import RateCard, shelf
from servemark.results.point import RoleTopology

KNOWN = ((20, 900, 64), (40, 700, 16), (80, 300, 4))


def points(hardware: str = "h100", run: str = "r1") -> list:  # type: ignore[type-arg]
    found = []
    for speed, rate, load in KNOWN:
        figures = {"tpot_s.p50": 1 / speed, "total_tokens_per_s_per_gpu": float(rate)}
        figures["output_tokens_per_s_per_gpu"] = rate / 2
        identity = replace(IDENTITY, hardware=hardware, concurrency=load)
        found.append(measured(figures, identity=identity, run=run, ref=f"{hardware}:{load}"))
    return found


def cost(at: CostAt | None, name: str) -> float | None:
    assert at is not None
    return next(cell.value for cell in at.costs if cell.address == name)


def at_60(card: RateCard | None = CARD, **options: object) -> CostView:
    return cost_view(points(), card, 60.0, **options)  # type: ignore[arg-type]


def test_the_headline_is_a_measured_point_and_the_estimate_comes_from_throughput() -> None:
    """At 60 the floor is the point of 300 tok/s/GPU: 3.6 / 1.08 = 3.333 $/M. The estimate is 500 tok/s/GPU: 3.6 / 1.8
    = 2 $/M; splining the two costs (1.4286 at 40, 3.3333 at 80) would have said 2.381."""
    view = at_60()
    assert len(view.rows) == 1
    row = view.rows[0]
    assert row.measured is not None
    assert row.measured.x == pytest.approx(80)
    assert row.measured.throughput == 300
    assert not row.measured.estimated
    assert row.measured.refs == ("h100:4",)
    assert "4" in row.measured.configuration
    assert cost(row.measured, "usd_per_million_total_tokens") == pytest.approx(3.6 / 1.08)
    assert row.estimate is not None
    assert row.estimate.throughput == pytest.approx(500)
    assert row.estimate.refs == ("h100:16", "h100:4")
    assert cost(row.estimate, "usd_per_million_total_tokens") == pytest.approx(2.0)
    assert cost(row.estimate, "provisioned_joules_per_total_token") == pytest.approx(3.0)
    assert cost(row.estimate, "usd_per_user_hour") == pytest.approx(3.6 / (250 / 60))


def test_every_figure_carries_the_card_and_its_date() -> None:
    view = at_60()
    assert view.card is not None
    assert (view.card.name, view.card.date) == ("made", "2026-01-01")
    row = view.rows[0]
    assert row.measured is not None
    assert row.estimate is not None
    assert row.measured.card == row.estimate.card == "made@2026-01-01"


@pytest.mark.parametrize("name", ["usd_per_million_total_tokens", "provisioned_joules_per_total_token"])
def test_cost_times_throughput_is_the_cards_price_in_an_estimate_too(name: str) -> None:
    row = at_60().rows[0]
    assert row.measured is not None
    assert row.estimate is not None
    products = [
        (cost(at, name) or 0) * (at.throughput or 0) for at in (row.measured, row.estimate) if at is not None
    ]
    assert products[0] == pytest.approx(products[1])


def test_out_of_reach_and_below_are_said() -> None:
    far = cost_view(points(), CARD, 100.0).rows[0]
    assert (far.state, far.measured, far.estimate) == ("not_reached", None, None)
    assert "80" in (far.said or "")
    near = cost_view(points(), CARD, 10.0).rows[0]
    assert near.estimate is None
    assert near.measured is not None
    assert near.measured.throughput == 900
    assert "not measured" in (near.said or "")


def test_a_gpu_without_a_rate_keeps_its_row_and_its_reason() -> None:
    """Cheapest first, then those without a cost; nothing is 0."""
    view = cost_view([*points("mi300x", "r2"), *points("b200", "r3"), *points()], CARD, 60.0)
    assert [row.label.split(" ")[0] for row in view.rows] == ["h100", "b200", "mi300x"]
    amd = view.rows[2].measured
    assert amd is not None
    assert all(cell.value is None and cell.text == "—" and cell.absent_because for cell in amd.costs)


def test_without_a_card_there_is_no_cost() -> None:
    view = at_60(None)
    assert view.card is None
    assert "no rate card" in view.notes[0]
    row = view.rows[0]
    assert row.measured is not None
    assert all(cell.value is None for cell in row.measured.costs)


def test_failed_and_quarantined_points_cost_nothing() -> None:
    """The fast point is quarantined: the target is not reached any more."""
    bad = [replace(each, verdict="quarantined") if each.concurrency == 4 else each for each in points()]
    view = cost_view(bad, CARD, 60.0)
    assert view.rows[0].measured is None
    assert any("quarantined" in note for note in view.notes)


def test_nothing_selected() -> None:
    view = cost_view([], CARD, 60.0)
    assert view.rows == ()
    assert view.target_text


def test_roles_of_unlike_hardware() -> None:
    roles = (RoleTopology("prefill", 1, 4, hardware="h100"), RoleTopology("decode", 1, 12, hardware="b200"))
    mixed = [replace(each, identity=replace(each.identity, topology=roles)) for each in points()]
    row = cost_view(mixed, CARD, 60.0).rows[0]
    assert cost(row.measured, "usd_per_million_total_tokens") == pytest.approx(6.3 / 1.08)
    assert cost(row.estimate, "usd_per_million_total_tokens") == pytest.approx(6.3 / 1.8)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_views_are_plain_data_in_the_language_asked_for(lang: str) -> None:
    body = msgspec.json.encode(msgspec.to_builtins(at_60(lang=lang)))
    assert body.decode().startswith('{"card":{"name":"made"')
    cards = cards_view(shelf(None), lang)
    assert cards.cards[0].origin_label == {"en": "shipped example", "zh": "随附示例"}[lang]
    msgspec.json.encode(msgspec.to_builtins(cards))
