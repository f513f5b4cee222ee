"""What holds on every page: access for everyone, hostile names as text, sizes, troubles in words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import servemark.web

pytestmark = pytest.mark.browser

STATIC = Path(servemark.web.__file__).parent / "static"
MESSAGES = Path(servemark.web.__file__).parents[1] / "base" / "messages"
FIRST_LOAD = 60 * 1024
R1 = {"model": "deepseek-r1", "scenario": "fixed-seq-len:1024/1024", "precision": "fp8"}
PAGES = {
    "front": ("/front", ".dots a"),
    "overview": ("/", ".findings.flat, .part .note"),
    "metrics": ("/metrics", ".metric"),
    "sweeps": ("/sweeps", ".empty"),
    "health": ("/health", ".part"),
    "changelog": ("/changelog", ".part"),
}


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(visit: Any, name: str, width: int, scheme: str) -> None:  # noqa: ANN401
    """Rules of axe-core: names, roles, contrast, order. The chart has a point in focus, a filter is open."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    path, drawn = PAGES[name]
    page = visit(
        path, {**R1, "target": "50"} if name == "front" else None, width=width, scheme=scheme, wait=drawn
    )
    if name == "front":
        page.locator(".left-out summary").click()
        page.locator(".axis-pick.y .axis-what summary").click()
        page.locator(".chart a[tabindex='0']").focus()
    found = axe.run(page).response["violations"]
    wrong = [
        f"{each['id']}: {node['html'][:160]} {node['failureSummary'][:300]}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"][:3]
    ]
    assert wrong == []


@pytest.mark.parametrize("width", [1280, 390])
def test_no_sideways_scroll(visit: Any, made: SimpleNamespace, width: int) -> None:  # noqa: ANN401
    """Wide tables scroll in their own box, whatever names hold."""
    for query in (R1, {"model": made.HOSTILE}):
        page = visit("/front", query, width=width)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_hostile_names_are_text(visit: Any, made: SimpleNamespace) -> None:  # noqa: ANN401
    """Names of models, hardware, engines, runs and images with markup in them: shown letter by letter. That no dialog opened
    and nothing was fetched is asked by the fixture."""
    page = visit("/front", {"model": made.HOSTILE})
    assert made.HOSTILE in page.locator("h1").inner_text()
    assert made.HOSTILE in page.locator(".rows tbody").inner_text()
    assert page.locator("main img, main script, main iframe").count() == 0
    assert page.locator("[onerror], [href^='javascript']").count() == 0
    page.locator(".chart a[tabindex='0']").focus()
    assert page.locator(".bubble img").count() == 0
    page.locator(".facet summary").first.click()
    with page.expect_download() as held:
        page.get_by_role("button", name="PNG").click()
    assert "/" not in held.value.suggested_filename and "<" not in held.value.suggested_filename


def test_many_points(visit: Any, made: SimpleNamespace) -> None:  # noqa: ANN401
    """Nearly two thousand points at once, the table shows a hundred until asked."""
    page = visit("/front", {"model": "kimi-k2.5"})
    assert page.locator(".dots a").count() > 1500
    page.wait_for_selector(".rows tbody tr")  # the table comes once the chart is seen
    assert page.locator(".rows tbody tr").count() == 100
    page.locator(".table-more button").click()
    assert page.locator(".rows tbody tr").count() > 1500


def test_one_point_and_none(visit: Any) -> None:  # noqa: ANN401
    """A scenario with one point has a chart of one point; an unknown model has words and a way on."""
    page = visit("/front", {"model": "deepseek-r1", "scenario": "fixed-seq-len:1024/4096"})
    assert page.locator(".dots a").count() == 1
    for tick in page.locator(".chart .tick").all_text_contents():
        assert re.fullmatch(r"[\d\u202f.]+", tick)
    page = visit("/front", {"model": "no-such-model"}, wait=".empty")
    assert page.locator("svg.chart").is_hidden()
    page.locator(".heads select").first.select_option(value="deepseek-r1")
    page.wait_for_selector(".dots a")


def test_a_refusal_is_told_with_what_to_do(visit: Any) -> None:  # noqa: ANN401
    """An axis that is no metric: the server's words, in the reader's language."""
    page = visit("/front", {**R1, "x": "no_such_metric"}, expected="status of 400", wait=".notice.bad")
    assert "no_such_metric" in page.locator(".notice.bad").inner_text()
    assert page.locator(".notice.bad button").is_visible()


def test_an_unknown_page_leads_back(visit: Any) -> None:  # noqa: ANN401
    """The frame stays; a link leads to the first page."""
    page = visit("/metrics", wait=".metric")
    page.evaluate("history.pushState(null, '', '/nowhere'); dispatchEvent(new PopStateEvent('popstate'))")
    page.wait_for_selector("h1:has-text('no such page')")
    page.locator("main a").click()
    page.wait_for_selector(".card")


def test_colours_can_be_chosen(visit: Any) -> None:  # noqa: ANN401
    """Auto, light, dark in turn, remembered over a reload."""
    page = visit("/metrics", wait=".metric", scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.locator(".icon").click()
    page.locator(".icon").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.wait_for_selector(".metric")
    assert page.evaluate(ground) == dark


def test_metrics_can_be_searched(visit: Any) -> None:  # noqa: ANN401
    """The number found is said aloud; the search is in the address."""
    page = visit("/metrics", wait=".metric")
    everything = page.locator(".metric").count()
    page.fill("input[type=search]", "ttft")
    page.wait_for_function(f"() => document.querySelectorAll('.metric').length < {everything}")
    assert page.locator(".metric").count() >= 2
    assert "q=ttft" in page.url
    page.fill("input[type=search]", "zzzz")
    page.wait_for_selector(".empty")


def test_first_load_is_small(visit: Any) -> None:  # noqa: ANN401
    """Bytes over the wire of everything that a first visit fetches but its data: shell, style, script, words."""
    page = visit("/front", R1)
    fetched = page.evaluate(
        "performance.getEntries().filter(e => e.encodedBodySize && !/front|facets/.test(e.name.split('/api/')[1] || ''))"
        ".map(e => [new URL(e.name).pathname, e.encodedBodySize])"
    )
    names = {name.rsplit("/", 1)[-1] for name, _ in fetched}
    assert {"front", "style.css", "app.js", "theme.js", "messages"} <= names
    assert sum(size for _, size in fetched) <= FIRST_LOAD


def test_every_word_is_in_the_catalogue() -> None:
    """Keys that scripts name exist, and no word stands unused."""
    known = set(json.loads((MESSAGES / "en" / "web.json").read_text(encoding="utf-8")))
    source = "\n".join(path.read_text(encoding="utf-8") for path in STATIC.rglob("*.js"))
    source = re.sub(r"^\s*//.*", "", source, flags=re.MULTILINE)
    named = set(re.findall(r'"(web\.[\w.-]+?)"', source))
    begun = tuple(each for each in re.findall(r'"(web\.[\w.-]+\.)"', source))
    named -= set(begun)
    assert {each for each in named if each not in known} == set()
    assert {each for each in known if each not in named and not each.startswith(begun)} == set()


def test_modules_can_be_joined() -> None:
    """What the one-file report relies on: named imports on one line at the top, plain exports, no markup from text."""
    for path in STATIC.rglob("*.js"):
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines():
            if line.startswith(("import", "export")):
                assert re.match(
                    r'import \{ [^}]+ \} from "\.{1,2}/[\w./-]+\.js";$|export (async function|function|const|class) ',
                    line,
                ), line
        assert "innerHTML" not in text and "insertAdjacentHTML" not in text and "eval(" not in text, path
