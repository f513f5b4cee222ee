"""A selection as one file: what it holds, how large it may be, and what it says of what it lacks."""

from __future__ import annotations

import base64
import gzip
import json
import re
import runpy
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from servemark.analysis.selection import parse_selection
from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.cli.main import run_cli
from servemark.web import report_file
from servemark.web.report_file import key_of, write_selection

BROWSER = runpy.run_path(str(Path(__file__).parent / "browser" / "made_store.py"))
MODEL = "deepseek-r1"


def held(page: str) -> dict[str, Any]:
    """The answers that a page has inlined."""
    packed = re.search(r'id="servemark-data"[^>]*>([^<]*)<', page)
    assert packed is not None
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return found


class Cells(HTMLParser):
    """Texts of the table's cells."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A cell begins; nothing foreign may."""
        assert tag not in {"img", "iframe", "object"}, attrs
        self.inside = tag == "td"
        if self.inside:
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        """Its text."""
        if self.inside:
            self.cells[-1] += data


def test_answers_are_named_as_the_page_names_them() -> None:
    """By hand, after encodeURIComponent and the order of names."""
    params = {"model": "a b/c", "empty": "", "y": "ü", "x": "p.50~!*'()"}
    assert key_of("/front", params) == "/api/v1/front?model=a%20b%2Fc&x=p.50~!*'()&y=%C3%BC"
    assert key_of("/facets", {}) == "/api/v1/facets"


def test_it_holds_fronts_points_and_definitions(shared_home: Path) -> None:
    """Five points: all pages, all reasons, the same body as the server's; the note says so."""
    written = write_selection(Home(shared_home), parse_selection(["hardware=b200"]), "en")
    data = held(written.page)
    assert (written.points, written.pages) == (5, 5)
    facets = data["/api/v1/facets"]
    assert facets["default"]["model"] == MODEL and facets["default"]["precision"] is None
    assert [each["points"] for each in facets["models"]] == [5]
    first = facets["default"]
    front = data[key_of("/front", {name: first[name] for name in ("model", "scenario", "x", "y")})]
    assert len(front["columns"]["ref"]) == 5 and "points: 5" in front["notes"][-1]
    for ref in front["columns"]["ref"]:
        view = data[f"/api/v1/points/{ref}"]
        for group in view["groups"]:
            for metric in group["metrics"]:
                for figure in metric["figures"]:
                    assert f"/api/v1/points/{ref}/why/{figure['address']}" in data
    assert data["/api/v1/metrics"]["metrics"] and data["/api/v1/messages"]["lang"] == "en"


def test_it_reads_without_scripts(shared_home: Path) -> None:
    """A table of all points with findings above it, in the language asked for."""
    page = write_selection(Home(shared_home), parse_selection([]), "zh").page
    plain = re.search(r"<noscript>(.*)</noscript>", page, re.DOTALL)
    assert plain is not None
    parser = Cells()
    parser.feed(plain[1])
    assert len(parser.cells) == 5 * 5 and "前沿" in plain[1] and '<html lang="zh-Hans"' in page


def test_hostile_names_stay_text(tmp_path: Path, made: dict[str, Any]) -> None:
    evil = "</script><img src=x onerror=alert(1)>\u2028"
    made["fill_points"](tmp_path / "home", model=evil, hardware=evil, engine=evil, image=evil, run=evil)
    page = write_selection(Home(tmp_path / "home"), parse_selection([]), "en").page
    assert page.count("<script") == 3 and "<img" not in page
    assert evil in json.dumps(held(page), ensure_ascii=False) or "onerror" in json.dumps(held(page))


def test_five_hundred_points_fit_in_400_kb(tmp_path: Path) -> None:
    """The limit that was promised; points without room for a page of their own are counted in the note."""
    home = BROWSER["fill"](tmp_path, many=BROWSER["many"](500))
    written = write_selection(Home(home), parse_selection([]), "en")
    assert len(written.page.encode()) <= 400_000
    assert written.points > 490 and 20 <= written.pages < 490


def test_a_selection_of_nothing_or_too_much_is_refused(
    shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServemarkError) as caught:
        write_selection(Home(shared_home), parse_selection(["model=none"]), "en")
    assert (caught.value.key, caught.value.exit_code) == ("report.selection.empty", 2)
    monkeypatch.setattr(report_file, "MAX_POINTS", 4)
    with pytest.raises(ServemarkError) as caught:
        write_selection(Home(shared_home), parse_selection([]), "en")
    assert caught.value.key == "report.selection.large"


def test_the_verb_writes_the_file(
    shared_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A selection's file, its size and numbers as JSON; words that mix a run and a selection are refused."""
    out = tmp_path / "page.html"
    code = run_cli(["report", "hardware=b200", "--home", str(shared_home), "--out", str(out), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == 0 and said["points"] == 5 and said["bytes"] == out.stat().st_size
    assert run_cli(["report", "hardware=b200", "latest", "--home", str(shared_home)]) == 2
