"""The page in a real Chromium: no request, no error, no sideways scroll, keyboard, picker, sorting, with and
without scripts, light and dark, from a phone to a desk."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from servemark.analysis.report_types import ReportData
from servemark.report.page import render_report, write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
Scheme = Literal["light", "dark"]
Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of this file."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture(scope="session")
def files(
    pages: dict[str, str], hostile: ReportData, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The pages on disk by name."""
    folder = tmp_path_factory.mktemp("pages")
    for name, page in {**pages, "hostile": render_report(hostile, "en")}.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture
def visit(browser: Browser, files: dict[str, Path]) -> Iterator[Open]:
    """Open a page in a fresh context; in the end there was no other request, no error and no dialog."""
    contexts: list[Any] = []
    seen: list[str] = []

    def refuse(dialog: Dialog) -> None:
        seen.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def run(
        name: str, width: int = 1280, scheme: Scheme = "light", *, fragment: str = "", script: bool = True
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=script,
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        address = files[name].as_uri()
        page.on(
            "request", lambda r: None if r.url in (address, "data:,") else seen.append(f"request {r.url}")
        )
        page.on("console", lambda m: seen.append(f"console {m.text}"))
        page.on("pageerror", lambda e: seen.append(f"error {e}"))
        page.on("dialog", refuse)
        page.goto(address + fragment)
        return page

    yield run
    for context in contexts:
        context.close()
    assert seen == []


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_fits_every_width(visit: Open, lang: str, scheme: Scheme, width: int) -> None:
    """Nothing scrolls sideways but tables in their own box, also with every fold open."""
    assert_fits(visit(lang, width, scheme))


@pytest.mark.parametrize("width", [360, 1280])
def test_long_words_fit(visit: Open, width: int) -> None:
    """Texts of any length and without spaces break inside their box or are clipped by their chart's."""
    page = visit("hostile", width)
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def assert_fits(page: Page) -> None:
    """No sideways scroll, and nothing that reaches out of the window, with every fold open."""
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    outside = page.evaluate(
        """() => [...document.querySelectorAll('body *')]
        .filter((e) => !e.closest('.scroll, .places, .skip, .sr'))
        .filter((e) => { const b = e.getBoundingClientRect();
          return b.width && (b.right > innerWidth + 1 || b.left < -1); })
        .map((e) => `${e.tagName} ${e.getAttribute('class')} ${e.textContent.slice(0, 40)}`)"""
    )
    assert outside == []
    clipped = page.evaluate(
        """() => [...document.querySelectorAll('.frame text, .hist-frame text, .lane-frame text')]
        .filter((e) => {
          const t = e.getBoundingClientRect();
          const f = e.closest('.frame, .hist-frame, .lane-frame').getBoundingClientRect();
          return t.width && (t.left < f.left - 1 || t.right > f.right + 1);
        }).map((e) => e.textContent)"""
    )
    assert clipped == []


@pytest.mark.parametrize("width", [360, 1280])
def test_front_labels_do_not_overlap(visit: Open, width: int) -> None:
    """On every pair of axes."""
    page = visit("en", width)
    for choice in range(3):
        page.locator(f"label[for=axis-{choice}]").click()
        boxes = [b for m in page.locator(f".view-{choice} .mark-label").all() if (b := m.bounding_box())]
        assert len(boxes) == 3
        for i, a in enumerate(boxes):
            for b in boxes[i + 1 :]:
                apart = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
                assert apart or a["y"] + a["height"] <= b["y"] + 2 or b["y"] + b["height"] <= a["y"] + 2


def test_contrast_as_drawn(visit: Open) -> None:
    """Every word of the page against the ground that it really stands on: 4.5 to 1, in both schemes."""
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for scheme in schemes:
        page = visit("en", 1280, scheme)
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        weak = page.evaluate(CONTRAST)
        assert weak == []


CONTRAST = """() => {
  const read = (c) => c.match(/[\\d.]+/g).map(Number);
  const lum = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) {
    const c = read(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; }
    return [255, 255, 255]; };
  const weak = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg, script, .skip, .sr')) continue;
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [lum(read(getComputedStyle(e).color)), lum(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) weak.push(`${e.tagName} ${e.className} ${e.textContent.slice(0, 30)}`);
  }
  return [...new Set(weak)];
}"""


def test_hostile_text_does_nothing(visit: Open) -> None:
    """An attack in every text field: no script of its own runs, no element of its own appears."""
    page = visit("hostile")
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    page.locator(".view-0 .mark .dot").first.hover()
    assert "<script>alert(1)</script>" in page.locator("#tip").inner_text()
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("document.images.length") == 0
    names = page.evaluate("[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames())")
    assert not [name for name in names if name.startswith("on")]


def test_one_request_when_served(browser: Browser, files: dict[str, Path]) -> None:
    """Over HTTP the file is the only thing asked for, and the policy stops what a script would try."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        """Serves the folder and keeps what was asked."""

        def log_message(self, format: str, *args: object) -> None:
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(files["en"].parent)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/en.html")
        page.wait_for_timeout(200)
        stopped = page.evaluate("fetch('/zh.html').then(() => 'sent', () => 'stopped')")
        page.evaluate("document.body.append(Object.assign(new Image(), { src: '/zh.html' }))")
        page.evaluate(
            "{ const s = document.createElement('script'); s.text = 'ran = 1'; document.body.append(s); }"
        )
        page.wait_for_timeout(200)
        assert page.evaluate("window.ran") is None
        page.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert stopped == "stopped"
    assert asked == ["/en.html"]


def test_keyboard_reaches_and_walks_the_front(visit: Open, data: dict[str, ReportData]) -> None:
    """Tab comes from the picker to every point; arrows walk; the tip and the row follow; Escape hides."""
    page = visit("en")
    page.locator("#axis-0").focus()
    order = []
    for _ in range(6):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.getAttribute('class')"))
    assert order.count("mark lit") == 3
    page.locator(".view-0 .mark").first.focus()
    page.keyboard.press("ArrowRight")
    point = data["en"].points[1]
    spoken = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert all(cell.text in spoken for cell in point.cells if cell.value is not None)
    assert page.locator("#tip").is_visible()
    assert page.evaluate("document.activeElement.dataset.row") == "row-1"
    assert "lit" in (page.locator("#row-1").get_attribute("class") or "")
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()


def test_timeline_takes_one_tab_stop(visit: Open) -> None:
    """Of 60 bars one takes part in Tab; End goes to the last one, which shows its words."""
    page = visit("en")
    bars = page.locator("#in-0 svg.lanes g[data-tip]")
    assert bars.count() == 60
    assert page.locator("#in-0 svg.lanes g[tabindex='0']").count() == 1
    bars.first.focus()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == bars.last.get_attribute(
        "aria-label"
    )
    assert "TTFT" in page.locator("#tip").inner_text()
    assert page.locator("#in-0 svg.lanes g[tabindex='0']").count() == 1


def test_table_sorts(visit: Open, data: dict[str, ReportData]) -> None:
    """First click ascending, second descending, and the head says so."""
    page = visit("en")
    button = page.locator("table.sortable thead tr:last-child button").nth(1)
    head = page.locator("table.sortable thead tr:last-child th").nth(1)
    expected = sorted(range(3), key=lambda i: data["en"].points[i].cells[0].value or 0.0)
    rows = "[...document.querySelectorAll('table.sortable tbody tr')].map((r) => r.id)"
    button.click()
    assert (page.evaluate(rows), head.get_attribute("aria-sort")) == (
        [f"row-{i}" for i in expected],
        "ascending",
    )
    button.click()
    assert (page.evaluate(rows), head.get_attribute("aria-sort")) == (
        [f"row-{i}" for i in expected[::-1]],
        "descending",
    )


def test_csv_can_be_saved(visit: Open, tmp_path: Path) -> None:
    """The link saves a file although the policy allows nothing."""
    page = visit("en")
    with page.expect_download() as waiting:
        page.locator("a[download]").click()
    saved = tmp_path / "points.csv"
    waiting.value.save_as(saved)
    assert saved.read_text(encoding="utf-8").startswith("run_id,concurrency,arrivals,status,")


@pytest.mark.parametrize("script", [True, False])
def test_axis_picker(visit: Open, script: bool) -> None:
    """One chart at a time, with and without scripts."""
    page = visit("en", script=script)
    for choice in (1, 2, 0):
        page.locator(f"label[for=axis-{choice}]").click()
        shown = [page.locator(f".view-{each}").is_visible() for each in range(3)]
        assert shown == [each == choice for each in range(3)]


def test_without_scripts(visit: Open) -> None:
    """Charts, table, figures and folds are there; a row's link opens the point that it names."""
    page = visit("en", script=False)
    assert page.locator(".view-0 .mark").count() == 3
    assert page.locator("#in-0 svg.lanes rect").count() >= 60
    assert not page.locator("#in-1").is_visible()
    page.locator("#row-1 a").click()
    page.locator("#in-1").wait_for(state="visible")


def test_link_opens_the_fold(visit: Open) -> None:
    """An address that names a point's details shows them."""
    page = visit("en", fragment="#in-2")
    page.locator("#in-2").wait_for(state="visible")


def test_print_shows_what_is_folded(visit: Open) -> None:
    """Before printing every fold opens; the picker's other charts are printed too; the sticky list is not."""
    page = visit("en")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("#in-2").is_visible()
    assert all(page.locator(f".view-{each}").is_visible() for each in range(3))
    assert not page.locator("nav.places").is_visible()


def test_written_file_opens(visit: Open, files: dict[str, Path], data: dict[str, ReportData]) -> None:
    """What `write_report` writes is what was rendered."""
    path = files["en"].with_name("written.html")
    write_report(data["en"], path, "en")
    assert path.read_bytes() == files["en"].read_bytes()
