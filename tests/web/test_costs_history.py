"""Costs, cards, history and reliability over a real store and a real home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

Made = dict[str, Any]
CARD = """\
schema: 1
name: ours
date: 2026-11-01
currency: USD
gpus:
  b200: {usd-per-gpu-hour: 3.6, price-source: contract, kw-per-gpu: 1.5, power-scope: facility, power-source: meter}
"""


def with_card(home: Path, body: str = CARD, name: str = "ours.yaml") -> None:
    """A card of this home."""
    (home / "rates").mkdir(exist_ok=True)
    (home / "rates" / name).write_text(body, encoding="utf-8")


def test_costs_go_by_the_home_s_card(home: Path, made: Made) -> None:
    """The point at concurrency 4 gives 71.429 tok/s/user and 140.83 tok/s/GPU: 3.6 / (140.83 x 0.0036) = 7.1007 $/M."""
    with_card(home)
    body = made["ask"](made["app_of"](home), "/api/v1/costs?target=60").json()
    assert body["card"]["edition"] == "ours@2026-11-01"
    row = body["rows"][0]
    costs = {cell["address"]: cell["value"] for cell in row["measured"]["costs"]}
    assert row["measured"]["card"] == "ours@2026-11-01"
    assert costs["usd_per_million_total_tokens"] == pytest.approx(3.6 / (140.8269 * 0.0036), rel=1e-4)
    assert costs["provisioned_joules_per_total_token"] == pytest.approx(1500 / 140.8269, rel=1e-4)


def test_a_card_that_changes_is_seen(home: Path, made: Made) -> None:
    """Twice the price, twice the cost, though the store is the same; another card by its name."""
    with_card(home)
    app = made["app_of"](home)
    first = made["ask"](app, "/api/v1/costs?target=60")
    with_card(home, CARD.replace("3.6", "7.2"))
    second = made["ask"](app, "/api/v1/costs?target=60", headers={"if-none-match": first.headers["etag"]})
    assert second.status_code == 200

    def total(answer: Any) -> float:  # noqa: ANN401 - httpx's
        return float(answer.json()["rows"][0]["measured"]["costs"][0]["value"])

    assert total(second) == pytest.approx(2 * total(first))
    other = made["ask"](app, "/api/v1/costs?target=60&card=example-hyperstack-on-demand")
    assert other.json()["card"]["date"] == "2026-08-26"


@pytest.mark.parametrize(
    "asked",
    [
        "/api/v1/costs?card=/etc/passwd",
        "/api/v1/costs?card=../x.yaml",
        "/api/v1/costs?x=window_s",
        "/api/v1/costs?target=nan",
        "/api/v1/history?metric=none",
        "/api/v1/history?series=../x",
        "/api/v1/history?limit=0",
        "/api/v1/reliability?x=1",
    ],
)
def test_bad_questions_are_refused(shared_home: Path, made: Made, asked: str) -> None:
    answer = made["ask"](made["app_of"](shared_home), asked)
    assert answer.status_code in (400, 404)
    assert set(answer.json()) >= {"title", "detail", "next"}


def test_cards_name_sources_and_no_folder_of_this_machine(home: Path, made: Made) -> None:
    with_card(home)
    with_card(home, CARD.replace("3.6", "0"), "bad.yaml")
    answer = made["ask"](made["app_of"](home), "/api/v1/cards")
    body = answer.json()
    assert [card["origin"] for card in body["cards"]] == ["user", "shipped", "shipped"]
    assert body["cards"][0]["gpus"][0]["price_source"] == "contract"
    assert len(body["faults"]) == 1
    assert "bad.yaml:6:28" in body["faults"][0]
    assert str(home) not in answer.text


def test_history_has_a_value_a_run_by_date(home: Path, made: Made) -> None:
    """Nine more runs of the same five loads: ten dates a series, and no change among equal values."""
    for day in range(2, 11):
        more = made["rows"](
            date=f"2026-05-{day:02}", run_url=f"https://example.org/actions/runs/{1000 + day}"
        )
        made["fill"](home, more, f"more{day}.json")
    app = made["app_of"](home)
    body = made["ask"](app, "/api/v1/history").json()
    assert len(body["series"]) == 5
    assert body["tested"] == 5
    assert body["changed"] == 0
    assert [point["date"] for point in body["series"][0]["points"]] == [
        f"2026-05-{day:02}" for day in range(1, 11)
    ]
    key = body["series"][0]["key"]
    alone = made["ask"](app, f"/api/v1/history?series={key[:12]}&metric=tpot_s.p50").json()
    assert [series["key"] for series in alone["series"]] == [key]
    assert alone["metric"]["better"] == "lower"
    few = made["ask"](app, "/api/v1/history?limit=2").json()
    assert (len(few["series"]), few["left_out"]) == (2, 3)
    cost = made["ask"](
        app, "/api/v1/history?metric=usd_per_million_total_tokens&card=example-coreweave-on-demand"
    )
    assert cost.json()["series"][0]["points"][0]["value"] > 0


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_reliability_of_a_home_without_jobs(shared_home: Path, made: Made, lang: str) -> None:
    body = made["ask"](made["app_of"](shared_home), f"/api/v1/reliability?lang={lang}").json()
    assert body["rows"] == []
    assert len(body["window_labels"]) == 5
