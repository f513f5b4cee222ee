"""What people come for, done with mouse and keyboard on the real page. Expected figures are those of `made_store.LINES`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytestmark = pytest.mark.browser

R1 = {"model": "deepseek-r1", "scenario": "fixed-seq-len:1024/1024", "precision": "fp8"}


def query(page: Any) -> dict[str, list[str]]:  # noqa: ANN401 - playwright may be absent
    """The address's query."""
    return parse_qs(urlsplit(page.url).query)


def settled(page: Any) -> None:  # noqa: ANN401
    """Wait until the page has drawn what was asked last."""
    page.wait_for_function("() => !document.querySelector('[aria-busy=true]')")


def rows(page: Any) -> list[list[str]]:  # noqa: ANN401
    """The table's body as texts."""
    found: list[list[str]] = page.eval_on_selector_all(
        ".rows tbody tr", "rows => rows.map(r => [...r.children].map(c => c.textContent.trim()))"
    )
    return found


def test_a_newcomer_sees_one_scenario_and_a_sentence(visit: Any) -> None:  # noqa: ANN401
    """From the first page: one model, scenario and precision, at most five deployments, a finding in words, and an address
    that says all."""
    page = visit("/", wait=".cards .card")
    page.locator(".card", has_text="deepseek-r1").locator("a").first.click()
    page.wait_for_selector(".dots a")
    assert page.locator(".legend ul").first.locator(".key").count() <= 5
    assert page.locator(".key[aria-pressed=true]").count() <= 5
    assert len(page.locator(".lead-line").inner_text()) > 30
    assert {"model", "scenario", "precision", "x", "y"} <= set(query(page))
    assert page.title().endswith("· servemark")
    page.locator(".axis-pick.x .axis-what summary").click()
    said = page.locator(".axis-pick.x .pop").inner_text()
    assert "How fast one user sees tokens" in said and "1 ÷ TPOT" in said
    page.locator(".axis-pick.x .pop a").click()
    page.wait_for_selector(".metric")
    assert page.locator(".metric h2").all_inner_texts()[0].startswith("Interactivity")


def test_a_reader_reads_a_target_and_opens_its_point(visit: Any) -> None:  # noqa: ANN401
    """By hand: of h200 alone (20, 900), (40, 700), (80, 300), at 60: measured 300 at 80; estimate 500 between its neighbours
    at 40 and 80, whose concurrencies are 70 and 15."""
    page = visit("/front", R1)
    page.locator(".facet summary", has_text="Hardware").click()
    page.locator(".facet .tick-box", has_text="h200").click()
    settled(page)
    page.fill(".target-label input", "60")
    page.wait_for_function("() => document.querySelector('.read-card h3').textContent.includes('60')")
    card = page.locator(".read-card").inner_text().replace("\u202f", " ")
    assert "300" in card and "measured at 80.0 tok/s/user" in card
    assert "500 tok/s/GPU" in card and "concurrency 15" in card and "concurrency 70" in card
    assert query(page)["target"] == ["60"] and query(page)["hardware"] == ["h200"]
    assert page.locator(".read-who").get_attribute("href").startswith("/point/")


def test_a_copied_link_shows_the_same_view(visit: Any, serve: str) -> None:  # noqa: ANN401
    """Filters, axes, scales, target, series: all of it is in the address."""
    page = visit("/front", {**R1, "target": "50"})
    page.locator(".axis-pick.y select").first.select_option(label="TTFT")
    settled(page)
    page.locator(".view-options label", has_text="Log scale up").click()
    page.locator(".legend .key").first.click()
    page.locator("thead button", has_text="Concurrency").click()
    page.get_by_role("button", name="Copy link").click()
    page.wait_for_function("() => document.body.textContent.includes('Link copied')")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(serve)
    other = visit(link)
    pressed = "keys => keys.filter(k => k.ariaPressed === 'true').map(k => k.textContent).sort()"
    assert other.eval_on_selector_all(".key", pressed) == page.eval_on_selector_all(".key", pressed)
    for selector in (".board .note", ".lead-line", ".read-card"):
        assert other.locator(selector).first.inner_text() == page.locator(selector).first.inner_text()
    assert other.locator("svg.chart").inner_html() == page.locator("svg.chart").inner_html()
    assert rows(other) == rows(page)
    assert other.locator("th[aria-sort=descending]").count() == 1


def test_back_undoes_a_choice(visit: Any) -> None:  # noqa: ANN401
    """A filter is a step that Back takes back; typing a target is none."""
    page = visit("/front", R1)
    settled(page)
    before = len(rows(page))
    page.locator(".facet summary", has_text="Engine").click()
    page.locator(".facet .tick-box", has_text="vllm").click()
    settled(page)
    page.wait_for_function(f"() => document.querySelectorAll('.rows tbody tr').length !== {before}")
    page.fill(".target-label input", "33")
    page.wait_for_function("() => location.search.includes('target')")
    page.go_back()
    page.wait_for_function("() => !location.search.includes('engine')")
    page.wait_for_function(f"() => document.querySelectorAll('.rows tbody tr').length === {before}")


def test_an_author_lays_a_file_over_the_page(visit: Any, made: SimpleNamespace, tmp_path: Path) -> None:  # noqa: ANN401
    """An unofficial point far beyond the front: shown as such, on no official front, flagged in exports, taken away."""
    better = made.row("h200", "vllm", 200, 5000, run=9000, isl=1024)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps([better]), encoding="utf-8")
    page = visit("/front", R1)
    front = page.locator(".attained").get_attribute("d")
    page.set_input_files("input[type=file]", str(path))
    page.wait_for_selector(".notice.overlay")
    settled(page)
    assert "Unofficial points on this page: 1" in page.locator(".notice.overlay").inner_text()
    assert page.locator(".dot.unofficial").count() >= 1
    assert page.locator("svg.chart a .dot.beyond.unofficial").count() == 1
    mine = [each for each in rows(page) if "unofficial" in " ".join(each)]
    assert len(mine) == 1 and "beyond the official front" in " ".join(mine[0])
    with page.expect_download() as held:
        page.locator(".rows .tools a", has_text="CSV").click()
    with Path(held.value.path()).open(encoding="utf-8-sig", newline="") as stream:
        exported = list(csv.DictReader(stream))
    assert sum(each["official"].lower() == "false" for each in exported) == 1
    page.locator(".notice.overlay button").click()
    page.wait_for_function("() => !document.querySelector('.notice.overlay')")
    settled(page)
    assert "overlay" not in query(page)
    assert page.locator(".attained").get_attribute("d") == front


def test_a_file_dropped_on_the_page_is_taken(visit: Any, made: SimpleNamespace) -> None:  # noqa: ANN401
    """The same by drag and drop, which a script must play."""
    page = visit("/front", R1)
    text = json.dumps([made.row("h200", "vllm", 150, 250, run=9001)])
    page.evaluate(
        """text => {
            const held = new DataTransfer();
            held.items.add(new File([text], "dropped.json"));
            for (const kind of ["dragenter", "dragover", "drop"])
                document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: held, bubbles: true, cancelable: true }));
        }""",
        text,
    )
    page.wait_for_selector(".notice.overlay")
    assert page.locator(".veil").is_hidden()


def test_a_file_that_is_no_result_is_refused_in_words(visit: Any) -> None:  # noqa: ANN401
    """The page stays as it is and says what is wrong."""
    page = visit("/front", R1, expected="status of 4")
    page.set_input_files("input[type=file]", {"name": "empty.json", "mimeType": "text/plain", "buffer": b""})
    page.wait_for_selector(".overlay-told .notice.bad")
    assert page.locator("svg.chart").is_visible()


def test_a_maintainer_sees_what_is_left_out_and_why(visit: Any) -> None:  # noqa: ANN401
    """The point without TPOT is no point of the chart and is in the table with its reason; it is drawn nowhere near 0."""
    page = visit("/front", {**R1, "hardware": "h200"})
    lacking = [each for each in rows(page) if "no value" in " ".join(each)]
    assert len(lacking) == 1
    assert "—" in lacking[0]
    assert page.locator("svg.chart .dots a").count() == 3
    page.locator(".left-out summary").click()
    assert page.locator(".left-out li").count() >= 1


def test_points_by_keyboard_alone(visit: Any) -> None:  # noqa: ANN401
    """Tab comes to one point; arrows walk its line by speed and change lines; Home, End, Escape; Enter opens it."""
    page = visit("/front", {**R1, "hardware": "h200,h100"})
    assert page.locator(".chart a[tabindex='0']").count() == 1
    page.locator(".chart a[tabindex='0']").focus()
    name = "document.activeElement.getAttribute('aria-label')"
    page.keyboard.press("Home")
    first = page.evaluate(name)
    walked = [first]
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        walked.append(page.evaluate(name))
    line = "h200" if "h200" in first else "h100"
    speeds = {"h200": ["20.0", "40.0", "80.0"], "h100": ["15.0", "30.0", "60.0"]}[line]
    assert [any(f"Interactivity p50 {speed}" in each for speed in speeds) for each in walked] == [True] * 4
    assert walked[2] == walked[3], "the end of a line is its end"
    assert page.locator(".bubble").is_visible()
    page.keyboard.press("ArrowDown")
    assert ("h100" if line == "h200" else "h200") in page.evaluate(name)
    page.keyboard.press("End")
    page.keyboard.press("Escape")
    assert page.locator(".bubble").is_hidden()
    target = page.evaluate("document.activeElement.getAttribute('href')")
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => location.pathname === {json.dumps(target)}")


def test_the_whole_page_by_keyboard(visit: Any) -> None:  # noqa: ANN401
    """Everything that can be used is reached by Tab, and focus is never lost on the way."""
    page = visit("/front", R1)
    seen: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        where = page.evaluate(
            "(() => { const a = document.activeElement, at = a.closest('[class]') || a, own = a.getAttribute('class');"
            " return a.tagName + '.' + at.getAttribute('class') + ' ' + own + ' ' + a.textContent.slice(0, 20); })()"
        )
        seen.append(where)
        if where.startswith("BODY"):
            break
    said = "\n".join(seen)
    for part in ("skip", "SELECT", "SUMMARY", "INPUT", "key", "Copy link", "a.", "CSV", "Concurrency"):
        assert part in said, f"{part} is not reached:\n{said}"


def test_chinese_keeps_the_view(visit: Any) -> None:  # noqa: ANN401
    """The language changes words and nothing else of the address; a browser that speaks Chinese gets it unasked."""
    page = visit("/front", {**R1, "target": "50"})
    points = page.locator(".dots a").count()
    before = {key: value for key, value in query(page).items() if key != "lang"}
    page.get_by_role("button", name="中文").click()
    page.wait_for_function("() => document.documentElement.lang === 'zh-Hans'")
    page.wait_for_selector(".dots a")
    assert {key: value for key, value in query(page).items() if key != "lang"} == before
    assert page.locator(".dots a").count() == points
    assert (
        "前沿" in page.locator("nav").inner_text() and "越高越好" in page.locator(".axis-pick.x").inner_text()
    )
    assert "部署" in page.locator(".legend").inner_text()
    assert "中" not in page.locator(".bar-end").inner_text()
    fresh = visit("/", language="zh-CN", wait=".card")
    assert fresh.evaluate("document.documentElement.lang") == "zh-Hans"


def test_table_sorts_by_its_heads(visit: Any) -> None:  # noqa: ANN401
    """Ascending, descending, absent values last both ways; the head says which."""
    page = visit("/front", {**R1, "hardware": "h200"})
    head = page.locator("thead th", has_text="Interactivity")
    place = page.evaluate("th => [...th.parentNode.children].indexOf(th)", head.element_handle())
    for way, expected in (("descending", ["80.0", "40.0", "20.0"]), ("ascending", ["20.0", "40.0", "80.0"])):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == way
        assert [each[place].split(" ")[0] for each in rows(page)] == [*expected, "—"]


def test_png_is_a_picture(visit: Any) -> None:  # noqa: ANN401
    """A PNG of the chart, twice the screen's size."""
    page = visit("/front", R1)
    with page.expect_download() as held:
        page.get_by_role("button", name="PNG").click()
    data = Path(held.value.path()).read_bytes()
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") >= 1000
    assert len(data) > 20_000, "not an empty sheet"
