"""Costs, worked out by hand, and the identities that tie them together."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.analysis.made_points import IDENTITY, measured

from servemark.analysis.costs import COST_IDS, cost_from, cost_of, cost_value, is_cost
from servemark.analysis.rate_cards import GpuRate, RateCard, Stated
from servemark.base.messages import LANGUAGES
from servemark.metrics.derive import TIMES
from servemark.metrics.figures import figure_value
from servemark.metrics.registry import METRICS
from servemark.results.point import RoleTopology


def rate(gpu: str, usd: float | None, kw: float | None, scope: str = "it-load") -> GpuRate:
    return GpuRate(
        gpu,
        Stated(usd, "made", "2026-01-01") if usd else None,
        Stated(kw, "made", "2026-01-01") if kw else None,
        scope if kw else None,
    )


CARD = RateCard(
    "made",
    "2026-01-01",
    "USD",
    {
        "h100": rate("h100", 3.6, 1.5),
        "b200": rate("b200", 7.2, 2.0),
        "dry": rate("dry", 1.0, None),
        "free": rate("free", None, 1.0),
        "big": rate("big", 1.0, 1.0, "facility"),
    },
)
POINT = measured(
    {"total_tokens_per_s_per_gpu": 1000.0, "output_tokens_per_s_per_gpu": 400.0, "tpot_s.p50": 1 / 50}
)
"""1000 tok/s/GPU, of them 400 output and so 600 input; 50 tok/s/user: 8 users a GPU."""

HAND = {
    "usd_per_million_total_tokens": 1.0,  # 3.6 / (1000 x 3600 / 1e6) = 3.6 / 3.6
    "usd_per_million_output_tokens": 2.5,  # 3.6 / 1.44
    "usd_per_million_input_tokens": 3.6 / 2.16,
    "usd_per_user_hour": 0.45,  # 3.6 / 8 users
    "provisioned_joules_per_total_token": 1.5,  # 1500 W / 1000 tok/s
    "provisioned_joules_per_output_token": 3.75,
    "provisioned_joules_per_input_token": 2.5,
    "total_tokens_per_s_per_mw": 1000 * 1000 / 1.5,
    "output_tokens_per_s_per_mw": 400 * 1000 / 1.5,
    "input_tokens_per_s_per_mw": 600 * 1000 / 1.5,
    "users_per_mw": 8 * 1000 / 1.5,
}


def with_input() -> dict[str, float]:
    return {**POINT.figures, "input_tokens_per_s_per_gpu": 600.0}


@pytest.mark.parametrize("name", COST_IDS)
def test_every_cost_by_hand(name: str) -> None:
    """Each with its card, its parts, and a formula that gives the same when it is computed as written."""
    reading = cost_of(replace(POINT, figures=with_input()), CARD, name)
    assert reading.value == pytest.approx(HAND[name], rel=1e-12)
    assert reading.edition == "made@2026-01-01"
    assert reading.power_scope == (None if name.startswith("usd") else "it-load")
    assert reading.why() is None
    again = eval(reading.formula.replace("÷", "/").replace(TIMES, "*"))  # noqa: S307 - our own arithmetic
    assert again == pytest.approx(reading.value, rel=1e-8)
    for _, value in reading.made_of:
        assert f"{value:.9g}" in reading.formula


def test_the_identities_that_costs_obey() -> None:
    """What the formulas imply: cost x throughput and energy x throughput are constants of the card alone, whatever the
    point; a user-hour is the output tokens of an hour at the price of output tokens."""
    for total in (17.0, 1000.0, 31234.5):
        point = measured({"total_tokens_per_s_per_gpu": total, "output_tokens_per_s_per_gpu": total / 3})
        usd = cost_value(point, CARD, "usd_per_million_total_tokens")
        joules = cost_value(point, CARD, "provisioned_joules_per_total_token")
        per_mw = cost_value(point, CARD, "total_tokens_per_s_per_mw")
        assert usd is not None
        assert joules is not None
        assert per_mw is not None
        assert usd * total * 3600 / 1e6 == pytest.approx(3.6)
        assert joules * total == pytest.approx(1500)
        assert joules * per_mw == pytest.approx(1e6)
    output = cost_value(POINT, CARD, "usd_per_million_output_tokens")
    hour = cost_value(POINT, CARD, "usd_per_user_hour")
    assert output is not None
    assert hour is not None
    assert hour == pytest.approx(output * 50 * 3600 / 1e6)
    users = cost_value(POINT, CARD, "users_per_mw")
    gpus_of_a_megawatt = 1 * 1000 / 1.5
    assert users == pytest.approx(gpus_of_a_megawatt * 400 / 50)


@pytest.mark.parametrize(
    ("hardware", "card", "name", "said"),
    [
        ("mi300x", CARD, "usd_per_million_total_tokens", "does not name mi300x"),
        ("dry", CARD, "provisioned_joules_per_total_token", "no power for dry"),
        ("free", CARD, "usd_per_million_total_tokens", "no price for free"),
        ("h100", None, "usd_per_million_total_tokens", "no rate card"),
        ("h100", CARD, "usd_per_million_input_tokens", "Input throughput per GPU is absent"),
    ],
)
def test_no_card_entry_is_no_cost(hardware: str, card: RateCard | None, name: str, said: str) -> None:
    """Absent with a reason in every language, and never 0."""
    point = replace(POINT, identity=replace(IDENTITY, hardware=hardware))
    reading = cost_of(point, card, name)
    assert reading.value is None
    assert said in (reading.why("en") or "")
    assert reading.why("zh") != reading.why("en")
    assert cost_value(point, card, name) is None


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e-320])
def test_a_throughput_that_nothing_can_be_divided_by(value: float) -> None:
    for name in ("usd_per_million_total_tokens", "total_tokens_per_s_per_mw"):
        found = cost_value(measured({"total_tokens_per_s_per_gpu": value}), CARD, name)
        assert found is None or math.isfinite(found)


def test_roles_on_unlike_gpus_are_weighed_by_their_gpus() -> None:
    """4 h100 at 3.6 and 12 b200 at 7.2: (14.4 + 86.4) / 16 = 6.3 a GPU-hour; power (6 + 24) / 16 = 1.875."""
    roles = (RoleTopology("prefill", 1, 4, hardware="h100"), RoleTopology("decode", 1, 12, hardware="b200"))
    point = replace(POINT, identity=replace(IDENTITY, topology=roles))
    assert cost_value(point, CARD, "usd_per_million_total_tokens") == pytest.approx(6.3 / 3.6)
    assert cost_value(point, CARD, "provisioned_joules_per_total_token") == pytest.approx(1.875)
    unknown = (roles[0], replace(roles[1], gpus=None))
    found = cost_of(replace(POINT, identity=replace(IDENTITY, topology=unknown)), CARD, "users_per_mw")
    assert "how many of each is not known" in (found.why("en") or "")
    scopes = (roles[0], replace(roles[1], hardware="big"))
    found = cost_of(replace(POINT, identity=replace(IDENTITY, topology=scopes)), CARD, "users_per_mw")
    assert "different scopes" in (found.why("en") or "")


def test_an_estimates_cost_comes_from_its_throughput() -> None:
    """Half-way between 900 and 300 tok/s/GPU lie 600, which cost 3.6 / 2.16 = 1.667; half-way between the two costs
    (1.111 and 3.333) lies 2.222, which no deployment of 600 tok/s/GPU pays."""
    found = cost_from({"total_tokens_per_s_per_gpu": 600.0}, POINT, CARD, "usd_per_million_total_tokens")
    assert found.value == pytest.approx(3.6 / 2.16)
    users = cost_from(
        {"output_tokens_per_s_per_gpu": 300.0, "interactivity.p50": 60.0}, POINT, CARD, "usd_per_user_hour"
    )
    assert users.value == pytest.approx(3.6 / 5)


def test_costs_are_metrics_and_other_addresses_pass_through() -> None:
    assert set(HAND) == set(COST_IDS)
    assert cost_value(POINT, None, "total_tokens_per_s_per_gpu") == 1000.0
    assert is_cost("users_per_mw")
    assert not is_cost("joules_per_output_token" if "joules_per_output_token" in METRICS else "ttft_s.p50")
    with pytest.raises(ValueError, match="no cost"):
        cost_of(POINT, CARD, "ttft_s.p50")
    stated = {"usd_per_million_total_tokens": 0.01}
    assert figure_value(stated, "usd_per_million_total_tokens") is None, "another's cost is not ours"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_reason_is_in_the_language_asked_for(lang: str) -> None:
    reading = cost_of(measured({}), CARD, "usd_per_million_total_tokens")
    assert (reading.why(lang) or "").isascii() == (lang == "en")
