"""The page of a point and the report in one file, in a real Chromium: what they say, keys, hostile names, no network."""

from __future__ import annotations

import io
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servemark.analysis.selection import parse_selection
from servemark.base.home import Home
from servemark.results.gates.registry import gates_version, judge_all
from servemark.results.importers.registry import importers
from servemark.store.database import Store
from servemark.store.found_files import Found, find
from servemark.store.intake import Intake, take_in
from servemark.store.points import find_points
from servemark.store.raw_files import RawFiles
from servemark.web.report_file import write_selection

# ruff: noqa: ANN401 - pages are playwright's, fixtures come from elsewhere
pytestmark = pytest.mark.browser

RUNS = runpy.run_path(str(Path(__file__).parents[2] / "results" / "make_run.py"))
SELECTION = ["model=deepseek-r1", "scenario=fixed-seq-len:1024/1024"]


def keep_runs(home: Home, folders: list[Path]) -> dict[int | None, str]:
    """Import run folders; refs by concurrency."""
    intake = Intake(RawFiles(home.raw), importers(), judge_all, gates_version())
    with Store.open(home.store) as store:
        for folder in folders:
            for found in find(str(folder / "result.json"), home.raw, io.BytesIO()):
                assert isinstance(found, Found)
                assert take_in(store, intake, found).whole
        return refs(store)


def refs(store: Store, model: str | None = None) -> dict[int | None, str]:
    """Refs by concurrency."""
    return {
        each.concurrency: f"{each.file[:16]}:{each.ordinal}"
        for each in find_points(store, "")
        if model is None or each.model == model
    }


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A home with a line of our own runs, three points with raw records."""
    folder = tmp_path_factory.mktemp("own")
    home = Home(folder / "home")
    found = keep_runs(home, RUNS["make_line"](folder))
    return SimpleNamespace(home=home, refs=found)


@pytest.fixture(scope="module")
def own_site(own: SimpleNamespace, serving: Any) -> Iterator[str]:
    """Its server."""
    with serving(own.home.root) as address:
        yield address


def serious(page: Any) -> list[str]:
    """Findings of axe-core that stop somebody."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    return [
        f"{each['id']}: {[node['target'] for node in each['nodes'][:3]]}"
        for each in axe.run(page).response["violations"]
        if each["impact"] in {"serious", "critical"}
    ]


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Open an address or a file in a context of its own; in the end nothing went wrong."""
    wrong: list[str] = []
    contexts = []

    def refuse(dialog: Any) -> None:
        wrong.append("dialog")
        dialog.dismiss()

    def run(address: str, *, width: int = 1280, scheme: str = "light", **options: Any) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            reduced_motion="reduce",
            locale="en-GB",
            **options,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"page error {error}"))
        page.on("dialog", refuse)
        page.on("console", lambda m: wrong.append(m.text) if m.type in {"error", "warning"} else None)
        start = address.split("#", maxsplit=1)[0].split("?", maxsplit=1)[0].rsplit("/point/", 1)[0]
        page.on(
            "request", lambda r: None if r.url.startswith((start, "data:", "blob:")) else wrong.append(r.url)
        )
        page.goto(address)
        return page

    yield run
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_point_of_ours_shows_all_and_is_open_to_all(
    own: Any, own_site: str, open_page: Any, width: int, scheme: str
) -> None:
    """Figures with their origin, requests by keys, samples, log; no wider than the screen, nothing serious in axe."""
    page = open_page(f"{own_site}/point/{own.refs[4]}", width=width, scheme=scheme)
    page.wait_for_selector(".lanes g.request")
    figure = page.locator("button.figure", has_text="ms").first
    figure.click()
    page.wait_for_selector(".why .pairs")
    assert figure.get_attribute("aria-expanded") == "true"
    assert "requests.jsonl:" in page.locator(".why:not([hidden])").inner_text()
    page.locator(".why:not([hidden]) button").click()
    assert page.evaluate("document.activeElement.className") == "figure"
    page.locator(".lanes g.request[tabindex='0']").focus()
    first = page.locator(".lane-said").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator(".lane-said").inner_text() != first
    assert page.locator(".lanes g.request[tabindex='0']").count() == 1
    page.locator("section.evals button").click()
    page.wait_for_selector(".samples li")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(page) == []


def test_the_line_leads_from_load_to_load(own: Any, own_site: str, open_page: Any) -> None:
    page = open_page(f"{own_site}/point/{own.refs[1]}")
    page.locator("section.line a").last.click()
    page.wait_for_url(f"**/point/{own.refs[4]}")
    page.wait_for_selector("section.line tr.here")
    assert "4" in page.locator("section.line tr.here th").inner_text()


def test_a_point_in_chinese(own: Any, own_site: str, open_page: Any) -> None:
    """Words of the page and of the data are in the reader's language."""
    page = open_page(f"{own_site}/point/{own.refs[2]}?lang=zh")
    page.wait_for_selector("section.figures")
    assert (
        "数值" in page.locator("section.figures h2").inner_text()
        and "web." not in page.locator("main").inner_text()
    )


def test_hostile_names_are_text_on_a_points_page(serve: str, home: Path, made: Any, open_page: Any) -> None:
    with Store.open(Home(home).store, read_only=True) as store:
        evil = [
            p for p in find_points(store, "") if "<img" in p.model or "<img" in p.run or "<img" in p.engine
        ]
    if not evil:
        pytest.skip("the made store has no point with a hostile name")
    page = open_page(f"{serve}/point/{evil[0].file[:16]}:{evil[0].ordinal}")
    page.wait_for_selector("section.figures")
    assert page.locator("main img").count() == 0 and "<img" in page.locator("main").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_the_report_opens_from_disk_without_any_network(
    home: Path,
    tmp_path: Path,
    open_page: Any,
    width: int,
    scheme: str,
) -> None:
    """Fronts, then a point by its mark, then back; the address says where; nobody is asked for anything."""
    path = tmp_path / "report.html"
    path.write_text(write_selection(Home(home), parse_selection(SELECTION), "en").page, encoding="utf-8")
    page = open_page(path.as_uri(), width=width, scheme=scheme, offline=True)
    page.wait_for_selector(".chart .dots a")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(page) == []
    page.locator(".chart a[tabindex='0']").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("section.figures")
    assert "#/point/" in page.url
    page.locator("button.figure").first.click()
    page.wait_for_selector(".why .pairs")
    assert serious(page) == []
    page.go_back()
    page.wait_for_selector(".chart .dots a")


def test_a_report_of_our_runs_holds_their_requests(own: Any, tmp_path: Path, open_page: Any) -> None:
    path = tmp_path / "own.html"
    path.write_text(write_selection(own.home, parse_selection([]), "zh").page, encoding="utf-8")
    page = open_page(f"{path.as_uri()}#/point/{own.refs[4]}", offline=True)
    page.wait_for_selector(".lanes g.request")
    assert page.locator(".hist").count() >= 5


def test_a_report_reads_without_scripts(home: Path, tmp_path: Path, open_page: Any) -> None:
    path = tmp_path / "report.html"
    path.write_text(write_selection(Home(home), parse_selection(SELECTION), "en").page, encoding="utf-8")
    page = open_page(path.as_uri(), java_script_enabled=False, offline=True)
    assert page.locator("tbody tr").count() >= 18 and page.locator(".findings li").count() >= 1


def test_hostile_names_in_a_report(home: Path, made: Any, tmp_path: Path, open_page: Any) -> None:
    """The models of the made store whose names are attacks."""
    path = tmp_path / "report.html"
    path.write_text(
        write_selection(Home(home), parse_selection([f"model={made.HOSTILE}"]), "en").page, encoding="utf-8"
    )
    page = open_page(path.as_uri(), offline=True)
    page.wait_for_selector(".chart .dots a, .empty")
    assert page.locator("img").count() == 0
