"""The pages of costs, history and reliability in a real Chromium: what they say, keyboard, width, hostile names, axe."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page

pytestmark = pytest.mark.browser

MADE = runpy.run_path(str(Path(__file__).parents[1] / "made_site.py"))
HOSTILE = "<img src=x onerror=alert(1)>"
CARD = f"""\
schema: 1
name: ours
date: 2026-11-01
currency: USD
note: "{HOSTILE}"
gpus:
  b200: {{usd-per-gpu-hour: 3.6, price-source: "{HOSTILE}", kw-per-gpu: 1.5, power-scope: facility, power-source: meter}}
"""
JOBS = [
    {"hardware": "b200", "date": "2026-05-10", "n_success": 3, "total": 4},
    {"hardware": HOSTILE, "date": "2026-05-01", "n_success": 1, "total": 2},
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over ten runs, the last five a quarter faster, a card, and published jobs."""
    home = tmp_path_factory.mktemp("pages") / "home"
    for day in range(1, 11):
        changes: dict[str, Any] = {
            "date": f"2026-05-{day:02}",
            "run_url": f"https://example.org/runs/{1000 + day}",
        }
        rows = json.loads(MADE["rows"](**changes))
        for row in rows:
            factor = (1.25 if day > 5 else 1.0) * (1 + day / 2000)
            metrics = row["metrics"]
            row["metrics"] = {
                name: value * factor if "tput" in name else value / factor for name, value in metrics.items()
            }
        MADE["fill"](home, json.dumps(rows).encode(), f"rows{day}.json")
    jobs = home.parent / "reliability.json"
    jobs.write_text(json.dumps(JOBS), encoding="utf-8")
    argv = [sys.executable, "-m", "servemark", "import", str(jobs), "--home", str(home)]
    subprocess.run(argv, capture_output=True, check=False, timeout=60)  # exit code 1: its rows are no points
    (home / "rates").mkdir()
    (home / "rates" / "ours.yaml").write_text(CARD, encoding="utf-8")
    with MADE["served"](home) as (address, _):
        yield address


def opened(
    browser: Browser, address: str, width: int = 1280, scheme: Literal["light", "dark"] = "light"
) -> tuple[Page, list[str]]:
    """The page when its data have come, and what went wrong."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    wrong: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            wrong.append(message.text)

    def ran(dialog: Dialog) -> None:
        wrong.append("a script of a name ran")
        dialog.dismiss()

    page.on("console", note)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", ran)
    page.goto(address)
    page.wait_for_selector("main h2")
    page.wait_for_timeout(200)
    return page, wrong


def test_costs_with_card_date_formula_and_other_figures(url: str, browser: Browser) -> None:
    """At 60 tok/s/user the point of concurrency 4 is the floor of its line; its cost stands with card, date and formula;
    another figure changes the bars and the address, not the points."""
    page, wrong = opened(browser, f"{url}/cost?target=60&lang=en")
    board = page.locator(".cost-board")
    assert "by ours of 2026-11-01" in board.inner_text()
    first = board.locator(".cost-value").first
    assert "÷" in (first.get_attribute("title") or "")
    before = first.inner_text()
    page.locator(".cost-controls select").nth(1).select_option("users_per_mw")
    page.wait_for_function("location.search.includes('y=users_per_mw')")
    assert board.locator(".cost-value").first.inner_text() != before
    page.locator(".cost-controls select").first.select_option("example-hyperstack-on-demand@2026-08-26")
    page.wait_for_selector("text=No deployment has this figure by this card")
    assert page.locator("img").count() == 0
    assert not wrong
    page.close()


def test_history_shows_the_step_and_walks_with_keys(url: str, browser: Browser) -> None:
    page, wrong = opened(browser, f"{url}/history?lang=en")
    assert "5 series got better between 2026-05-05 and 2026-05-06" in page.locator(".findings").inner_text()
    card = page.locator(".history-card").first
    assert card.locator(".stretch").count() == 2
    assert card.locator("svg a").count() == 10
    card.locator("svg a[tabindex='0']").focus()
    page.keyboard.press("ArrowLeft")
    assert "2026-05-09" in (page.evaluate("document.activeElement.getAttribute('aria-label')") or "")
    card.locator("summary").first.click()
    assert "changed" in card.locator(".what").inner_text() or "state" in card.locator(".what").inner_text()
    assert not wrong
    page.close()


def test_reliability_has_denominators(url: str, browser: Browser) -> None:
    page, wrong = opened(browser, f"{url}/reliability?lang=en")
    table = page.locator("table").first.inner_text()
    assert "75.0 %" in table
    assert "3 / 4" in table
    assert "no job" in table
    assert HOSTILE in table
    assert page.locator("img").count() == 0
    assert not wrong
    page.close()


@pytest.mark.parametrize("path", ["/cost?target=60", "/history?", "/reliability?"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_no_fault_of_accessibility_and_no_sideways_scroll(
    url: str, browser: Browser, path: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page, wrong = opened(browser, f"{url}{path}&lang=zh", width, scheme)
    found = axe.run(page).response["violations"]
    serious = [
        (each["id"], [node["target"] for node in each["nodes"]][:3])
        for each in found
        if each["impact"] in {"serious", "critical"}
    ]
    assert not serious
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not wrong
    page.close()
