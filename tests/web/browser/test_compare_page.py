"""The page of comparisons in a real browser: what a reader asks, with the keyboard, on a phone, for axe-core."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.browser

R1 = {"model": "deepseek-r1", "scenario": "fixed-seq-len:1024/1024"}
READY = ".page:not([aria-busy]) .notice h2"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_axe_finds_nothing_serious_and_nothing_is_wider(visit: Any, width: int, scheme: str) -> None:  # noqa: ANN401
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit("/compare", R1, width=width, scheme=scheme, wait=READY)
    for summary in page.locator("details.left-out summary").all():
        summary.click()
    found = axe.run(page).response["violations"]
    wrong = [
        f"{e['id']}: {n['html'][:160]}"
        for e in found
        if e["impact"] in {"serious", "critical"}
        for n in e["nodes"]
    ]
    assert wrong == []
    wide = (
        "[...document.querySelectorAll('.page *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1"
        " && !e.closest('.table-scroll')).map((e) => e.outerHTML.slice(0, 160))"
    )
    assert page.evaluate(wide) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_address_is_the_comparison(visit: Any) -> None:  # noqa: ANN401
    """A first visit names both sides in its address; another choice is another address, and going there shows the same."""
    page = visit("/compare", R1, wait=READY)
    assert "a=hardware%3D" in page.url or "a=hardware=" in page.url
    chosen = page.locator("#side-b option").nth(2).get_attribute("value")
    page.select_option("#side-b", chosen)
    page.wait_for_function(f"location.search.includes({chosen.partition('=')[2]!r})")
    page.wait_for_selector(READY)
    said = page.locator(".notice h2").inner_text()
    again = visit(page.url, wait=READY)
    assert again.locator(".notice h2").inner_text() == said
    assert again.locator("#side-b").input_value() == chosen


def test_words_that_are_no_side_are_told(visit: Any) -> None:  # noqa: ANN401
    page = visit(
        "/compare", {**R1, "a": "@tomorrow", "b": "hardware=b200"}, wait=".notice.bad", expected="400"
    )
    assert "@2026-05-01" in page.locator(".notice.bad").inner_text()


def test_a_curve_can_be_walked_with_the_keyboard(visit: Any) -> None:  # noqa: ANN401
    page = visit("/compare", R1, wait=".chart .dots a")
    first = page.locator(".chart .dots a[tabindex='0']")
    first.focus()
    before = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    after = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert before and after and before != after
