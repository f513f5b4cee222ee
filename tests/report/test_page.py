"""The page as text: whole, well nested, self-contained, escaped, bounded, in both languages."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest

from servemark.analysis.report_data import build_report_data
from servemark.analysis.report_types import ReportData
from servemark.base.errors import ServemarkError
from servemark.base.messages import catalogue
from servemark.report.page import render_report, write_report

Parse = Callable[[str], Any]
LIMIT = 150_000
"""Bytes of a report of 3 points, 60 requests and 100 judged answers each."""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_size_of_three_points(pages: dict[str, str], lang: str) -> None:
    """A page to send by mail."""
    assert len(pages[lang].encode()) <= LIMIT


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_well_nested_ids_and_references(pages: dict[str, str], parse: Parse, lang: str) -> None:
    """Every id once; every inner link, label and aria reference leads to one that exists."""
    root = parse(pages[lang])
    ids = [node.attrs["id"] for node in root.walk() if "id" in node.attrs]
    assert len(ids) == len(set(ids))
    wanted = {n.attrs["href"][1:] for n in root.walk() if n.attrs.get("href", "").startswith("#")}
    wanted |= {n.attrs["for"] for n in root.walk() if "for" in n.attrs}
    wanted |= {n.attrs["aria-labelledby"] for n in root.walk() if "aria-labelledby" in n.attrs}
    wanted |= {n.attrs["data-row"] for n in root.walk() if "data-row" in n.attrs}
    assert wanted <= set(ids), wanted - set(ids)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_nothing_from_outside(pages: dict[str, str], parse: Parse, lang: str) -> None:
    """No address leads out of the file; the policy allows exactly the style and the script that are in it."""
    root = parse(pages[lang])
    for node in root.walk():
        for name in ("src", "href", "action", "srcset", "poster", "data", "xlink:href", "formaction"):
            if name in node.attrs:
                assert node.attrs[name].startswith(("#", "data:,", "data:text/csv")), (
                    node.tag,
                    node.attrs[name],
                )
        assert not [name for name in node.attrs if name.startswith("on") or name == "style"], node.attrs
        assert node.tag not in {"iframe", "object", "embed", "form", "base", "img", "image", "use"}
    style = root.all("style")[0].text
    assert "@import" not in style and not re.search(r"url\((?!#)", style)
    policy = next(n.attrs["content"] for n in root.all("meta") if "http-equiv" in n.attrs)
    assert policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        (only,) = root.all(tag)
        digest = base64.b64encode(hashlib.sha256(only.text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_structure_for_readers(pages: dict[str, str], parse: Parse, lang: str) -> None:
    """Language, landmarks, one h1, headings that skip no level, scopes, names of drawings and of buttons."""
    root = parse(pages[lang])
    assert root.all("html")[0].attrs["lang"] == {"en": "en", "zh": "zh-Hans"}[lang]
    assert [len(root.all(tag)) for tag in ("header", "nav", "main", "footer", "h1")] == [1, 1, 1, 1, 1]
    levels = [int(n.tag[1]) for n in root.walk() if re.fullmatch(r"h[1-6]", n.tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    assert all("scope" in n.attrs for n in root.all("th"))
    plots = [n for n in root.all("svg") if "plot" in n.attrs.get("class", "").split()]
    assert len(plots) > 10
    assert all(n.attrs.get("aria-label") or n.attrs.get("aria-hidden") == "true" for n in plots)
    assert all(n.attrs.get("aria-label") or n.words().strip() for n in root.all("button"))


def test_every_column_head_leads_to_its_definition(
    pages: dict[str, str], parse: Parse, data: dict[str, ReportData]
) -> None:
    """Each metric of the table is linked, and the glossary holds its formula."""
    root = parse(pages["en"])
    table = next(n for n in root.all("table") if n.attrs.get("class") == "sortable")
    linked = {n.attrs["href"] for n in table.all("thead")[0].all("a")}
    assert linked == {"#def-" + column.address.partition(".")[0] for column in data["en"].columns}
    glossary = next(n for n in root.all("section") if n.attrs["id"] == "definitions").words()
    assert all(column.formula in glossary for column in data["en"].columns)


def test_table_holds_the_numbers_of_the_data(
    pages: dict[str, str], parse: Parse, data: dict[str, ReportData]
) -> None:
    """Cell by cell, in the order of the columns; raw values for sorting are those of the data."""
    root = parse(pages["en"])
    table = next(n for n in root.all("table") if n.attrs.get("class") == "sortable")
    rows = table.all("tbody")[0].all("tr")
    assert len(rows) == len(data["en"].points)
    for row, point in zip(rows, data["en"].points, strict=True):
        shown = [cell.words().replace("(best)", "").strip() for cell in row.all("td")]
        assert shown == [cell.number for cell in point.cells]
        for node, cell in zip(row.all("td"), point.cells, strict=True):
            assert (
                node.attrs["data-v"] == ""
                if cell.value is None
                else float(node.attrs["data-v"]) == pytest.approx(cell.value)
            )


def test_csv_is_the_table_in_stored_units(
    pages: dict[str, str], parse: Parse, data: dict[str, ReportData]
) -> None:
    """A head of addresses, then raw values; CRLF as RFC 4180 asks."""
    link = next(n for n in parse(pages["en"]).all("a") if "download" in n.attrs)
    lines = unquote(link.attrs["href"].partition(",")[2]).split("\r\n")
    assert lines[0].split(",")[4:] == [column.address for column in data["en"].columns]
    first = data["en"].points[0]
    assert lines[1].split(",")[4:] == [repr(cell.value) for cell in first.cells]
    assert lines[-1] == ""


def test_csv_text_cannot_be_a_formula(data: dict[str, ReportData]) -> None:
    """A run id that a spreadsheet would run as a formula gets a quote in front."""
    evil = dataclasses.replace(data["en"].points[0], run_id="=HYPERLINK(1)")
    page = render_report(dataclasses.replace(data["en"], points=(evil,)), "en")
    assert "%27%3DHYPERLINK" in page and "%0A%3DHYPERLINK" not in page


def test_hostile_text_stays_text(hostile: ReportData, parse: Parse, pages: dict[str, str]) -> None:
    """An attack in every text field adds no element and no attribute; templates are not evaluated."""
    page = render_report(hostile, "en")
    root, plain = parse(page), parse(pages["en"])
    assert "<script>alert" not in page and "<img" not in page
    assert page.count("<script>") == page.count("</script>") == 1
    assert page.count("</style>") == 1
    assert page.count("</title>") == len(root.all("title"))
    tags = {n.tag for n in root.walk()}
    assert tags <= {n.tag for n in plain.walk()} | {"wbr"}  # the only one that text may bring, behind a slash
    assert not [n.attrs for n in root.walk() if any(name.startswith("on") for name in n.attrs)]
    assert "49" not in root.all("h1")[0].words() and "{{ 7*7 }}" in root.all("h1")[0].words()


def test_every_text_of_the_data_is_shown(hostile: ReportData, parse: Parse) -> None:
    """The attack is readable, so nothing was dropped: title, model, samples, error details, findings."""
    words = parse(render_report(hostile, "en")).words()
    assert words.count("<script>alert(1)</script>") > 100


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_language_is_whole(pages: dict[str, str], parse: Parse, lang: str) -> None:
    """No key shows through, and the Chinese page holds none of the English frame."""
    words = parse(pages[lang]).all("body")[0].words()
    assert "report." not in words.replace("report.html", "")
    if lang == "zh":
        frame = [
            text
            for key, text in catalogue("en", "report").items()
            if len(text) > 3 and " " in text and "{" not in text
        ]
        assert not [text for text in frame if text in words]


def test_what_went_wrong_lists_problems_and_requests(
    pages: dict[str, str], parse: Parse, data: dict[str, ReportData]
) -> None:
    """Every problem's words, and each failed request with the line of its raw record."""
    section = next(n for n in parse(pages["en"]).all("section") if n.attrs["id"] == "trouble").words()
    assert all(problem.text in section and problem.title in section for problem in data["en"].problems)
    failed = [request for point in data["en"].points for request in point.failed]
    assert failed
    assert all(
        f"requests.jsonl:{request.line}" in section and request.request in section for request in failed
    )


def test_nothing_wrong_is_said_plainly(data: dict[str, ReportData]) -> None:
    """Without problems and failed requests the section says so."""
    points = tuple(dataclasses.replace(p, failed=(), failed_total=0) for p in data["en"].points)
    page = render_report(dataclasses.replace(data["en"], points=points, problems=()), "en")
    assert catalogue("en", "report")["report.trouble.none"] in page
    assert catalogue("en", "report")["report.status.complete"] in page


def test_samples_are_bounded_and_counted(
    data: dict[str, ReportData], parse: Parse, pages: dict[str, str]
) -> None:
    """At most 20 answers a task and point; the rest is counted in words; right and wrong are both there."""
    tables = [n for n in parse(pages["en"]).all("table") if n.attrs.get("class") == "samples"]
    assert len(tables) == 3
    assert all(0 < len(t.all("tbody")[0].all("tr")) <= 20 for t in tables)
    assert all("right" in t.words() and "wrong" in t.words() for t in tables)
    assert "of 100 items" in pages["en"]


def _render(folders: list[Path], lang: str = "en") -> str:
    return render_report(build_report_data(folders, lang), lang)


def test_many_requests_stay_small(make_run: ModuleType, tmp_path: Path, parse: Parse) -> None:
    """2,000 requests in one point: the drawing is cut, a note says by how much, the page stays small."""
    page = _render([make_run.make_point(tmp_path, 4, sessions=400, turns=5)])
    assert len(page.encode()) <= LIMIT
    bars = next(n for n in parse(page).all("svg") if "lanes" in n.attrs.get("class", "").split()).all("g")
    assert 200 <= len(bars) <= 250
    assert "Drawn are the first 240 requests; 1760 later ones" in page


def test_long_samples_are_shortened(data: dict[str, ReportData], parse: Parse) -> None:
    """Texts of 12,000 bytes in every sample: shortened until the page fits, and the count still said."""
    long = "长" * 4000

    def wordy(point: Any) -> Any:  # noqa: ANN401 - a PointView
        evals = tuple(
            dataclasses.replace(
                e,
                samples=tuple(
                    dataclasses.replace(s, prompt=long, reply=long, expected=long) for s in e.samples
                ),
            )
            for e in point.evals
        )
        return dataclasses.replace(point, evals=evals)

    page = render_report(dataclasses.replace(data["zh"], points=tuple(map(wordy, data["zh"].points))), "zh")
    parse(page)
    assert len(page.encode()) <= LIMIT
    assert "共 100 题" in page and "…" in page


def test_one_request(make_run: ModuleType, tmp_path: Path, parse: Parse) -> None:
    """All percentiles coincide; the page still parses and draws one bar."""
    page = _render([make_run.make_point(tmp_path, 1, sessions=1, turns=1)])
    parse(page)
    assert "p50 · p90 · p99" in page


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_point_at_all(make_run: ModuleType, tmp_path: Path, parse: Parse, lang: str) -> None:
    """All runs failed, or none was given: the page says what went wrong and draws no empty chart."""
    failed = [make_run.make_failed(tmp_path, concurrency) for concurrency in (1, 2)]
    for folders in (failed, []):
        page = _render(folders, lang)
        root = parse(page)
        assert not [n for n in root.all("svg") if "plot" in n.attrs.get("class", "").split()]
        assert catalogue(lang, "report")["report.status.none"] in page
        assert [n.attrs["id"] for n in root.all("section")] == ["trouble"]


@pytest.mark.parametrize("name", ["requests.jsonl", "evals.json", "manifest.json", "result.json"])
@pytest.mark.parametrize("keep", [None, 0, 0.5])
def test_damaged_folder(
    make_run: ModuleType, tmp_path: Path, parse: Parse, name: str, keep: float | None
) -> None:
    """A file of a run folder gone, empty or cut in half: still a page, which says what is missing."""
    folder = make_run.make_point(tmp_path, 2, sessions=3, turns=2)
    path = folder / name
    if keep is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    for lang in ("en", "zh"):
        page = _render([folder], lang)
        parse(page)
        assert catalogue(lang, "report")["report.level.error"] in page


def test_absent_figures(data: dict[str, ReportData], parse: Parse) -> None:
    """Absent cells show a dash with the reason, sort last by an empty value, and draw no mark."""
    first, *rest = data["en"].points
    cells = tuple(
        dataclasses.replace(c, value=None, number="—", text="—", absent_because="because", best=False)
        for c in first.cells
    )
    shares = tuple(
        dataclasses.replace(s, value=None, text="—", absent_because="why") for s in first.cache.entries
    )
    bare = dataclasses.replace(
        first,
        cells=cells,
        cache=dataclasses.replace(first.cache, entries=shares, agrees=None),
        histograms=(),
        evals=(),
    )
    root = parse(render_report(dataclasses.replace(data["en"], points=(bare, *rest)), "en"))
    row = next(n for n in root.all("tr") if n.attrs.get("id") == "row-0")
    assert all(c.attrs["data-v"] == "" and c.attrs["title"] == "because" for c in row.all("td"))
    assert len([n for n in root.all("rect") if n.attrs.get("class") == "track none"]) == len(shares)


def test_names_of_any_length(data: dict[str, ReportData], parse: Parse) -> None:
    """A name of 4,000 characters does not break the page."""
    header = dataclasses.replace(data["en"].header, arm="a" * 4000, model="m" * 4000)
    root = parse(render_report(dataclasses.replace(data["en"], header=header), "en"))
    assert root.all("h1")[0].attrs["class"] == "long"


def test_write_is_whole_or_not_at_all(data: dict[str, ReportData], tmp_path: Path) -> None:
    """The folder is made; what is there is replaced; a refusal of the disk is an expected error."""
    path = tmp_path / "new" / "report.html"
    write_report(data["en"], path, "en")
    before = path.read_bytes()
    assert before.startswith(b"<!doctype html>") and before.rstrip().endswith(b"</html>")
    write_report(data["zh"], path, "zh")
    assert path.read_bytes() != before
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(ServemarkError):
        write_report(data["en"], blocked / "report.html", "en")
    assert blocked.read_text() == "x"


def test_same_data_same_bytes(folders: list[Path]) -> None:
    """No clock and no chance in the page."""
    assert _render(folders) == _render(folders)


@pytest.mark.parametrize(("lang", "said"), [("en", "random weights"), ("zh", "随机权重")])
def test_random_weights_stand_at_the_title(data: dict[str, ReportData], lang: str, said: str) -> None:
    """Before the facts, and not there where weights are the model's own."""
    made = data[lang]
    assert said not in render_report(made, lang)
    page = render_report(
        dataclasses.replace(made, header=dataclasses.replace(made.header, weights="dummy")), lang
    )
    assert page.index("</h1>") < page.index(said) < page.index('class="facts"')
