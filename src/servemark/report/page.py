"""One self-contained HTML page from `ReportData`: no network, no build step, everything escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from servemark import __version__
from servemark.analysis.report_types import ReportData
from servemark.base.files import make_folder, write_atomic
from servemark.report import assets
from servemark.report.charts.patterns import patterns
from servemark.report.front_part import front_part
from servemark.report.head_part import definitions, head_part
from servemark.report.origin_part import origin_part, phase_part, trouble_part
from servemark.report.panel_part import accuracy_cards, cache_cards, cache_meanings
from servemark.report.point_part import LIMITS, Limits, point_part
from servemark.report.table_part import table_part
from servemark.report.views import Page
from servemark.report.words import Words, words_in

_HTML_LANG = {"en": "en", "zh": "zh-Hans"}
BYTES_PER_POINT = 50_000
"""Size that a page may have for each of its points; one with fewer than three may be as large as three."""
PLACES = ("front", "table", "cache", "accuracy", "requests", "trouble", "time", "origin", "definitions")
"""Sections in the page's order; their ids, and the keys of their names in the list of places."""


def compose(data: ReportData, limits: Limits, t: Words) -> Page:
    """Everything that the templates need, in finished words."""
    cards, common = cache_cards(data, t)
    return Page(
        title=data.header.title,
        head=head_part(data, t),
        findings=data.findings,
        front=front_part(data, t),
        table=table_part(data, t),
        cache=cards,
        cache_notes=common,
        cache_meanings=cache_meanings(data),
        accuracy=accuracy_cards(data, t),
        points=tuple(point_part(index, point, data, limits, t) for index, point in enumerate(data.points)),
        trouble=trouble_part(data, t),
        phases=phase_part(data, t),
        origin=origin_part(data, t),
        definitions=definitions(data, t),
        places=tuple((place, t(f"report.place.{place}")) for place in PLACES) if data.points else (),
    )


def render_report(data: ReportData, lang: str) -> str:
    """The page as one string. `lang` (`en` or `zh`) words the frame; make `data` in the same language.

    As much of timelines and samples is drawn as keeps the page within `BYTES_PER_POINT` a point.
    """
    room = BYTES_PER_POINT * max(3, len(data.points))
    page = ""
    for limits in LIMITS:
        page = _render(data, limits, lang)
        if len(page.encode("utf-8")) <= room:
            break
    return page


def _render(data: ReportData, limits: Limits, lang: str) -> str:
    t = words_in(lang)
    page = (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=compose(data, limits, t),
            t=t,
            html_lang=_HTML_LANG.get(lang, lang),
            policy=assets.policy(),
            style=assets.style(),
            script=assets.script(),
            patterns=patterns(),
            version=__version__,
        )
    )
    # Half a surrogate pair, which JSON can carry but UTF-8 cannot, is shown as a question mark.
    return page.encode("utf-8", errors="replace").decode("utf-8")


def write_report(data: ReportData, path: Path, lang: str) -> None:
    """Write the page to `path`, whole or not at all; the folder is made when it is missing.

    Raises ServemarkError (layer home) when the disk refuses.
    """
    make_folder(path.parent)
    write_atomic(path, render_report(data, lang).encode("utf-8"))


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("servemark.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
