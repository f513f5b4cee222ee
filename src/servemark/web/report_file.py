"""A selection as one HTML file: the pages that `serve` shows, with the answers that they ask for inlined.

Answers are made by the endpoints themselves, so the file shows what the server would. It holds the fronts of the selection,
the pages of its points and every definition, as far as there is room; what is not inside is said on the page.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from servemark.analysis.axes import axis_info
from servemark.analysis.bench_records import bench_request_view
from servemark.analysis.columnar import columnar
from servemark.analysis.eligible import EVAL
from servemark.analysis.format import display
from servemark.analysis.front_types import FrontView
from servemark.analysis.measured import Measured
from servemark.analysis.point_types import PointTable
from servemark.analysis.point_view import point_view
from servemark.analysis.point_why import figure_why
from servemark.analysis.request_view import request_view, samples_view
from servemark.analysis.selection import Selection
from servemark.analysis.workload_names import named, workload_names
from servemark.base.errors import ServemarkError, input_error
from servemark.base.home import Home
from servemark.base.messages import catalogue, text
from servemark.metrics.address import parse
from servemark.report.bundle import Parts, PlainTable, join_modules, one_page, only_pages
from servemark.store.raw_files import RawFiles
from servemark.web.api import metrics
from servemark.web.api.base import PREFIX, Query
from servemark.web.api.front import MAX_POINTS, view_of
from servemark.web.problems import Problem
from servemark.web.site import Context, Site
from servemark.web.static_files import FOLDER

PAGES = ("front", "metrics", "point")
PAIRS = (
    ("", ""),
    ("ttft_s.p90", ""),
    ("e2el_s.p50", ""),
    ("interactivity.p50", "output_tokens_per_s_per_gpu"),
    ("ttft_s.p99", ""),
    ("interactivity.p90", ""),
)
"""Axes in the order of their use; empty: the data's own first choice."""
DATA_BYTES = 225_000
"""Room for inlined answers (as base64) of up to 500 points; each point more brings `BYTES_PER_POINT`."""
BYTES_PER_POINT = 450
FREE_POINTS = 500
MAX_GROUPS = 12
"""Pairs of model and scenario, those with the most points first."""
PLAIN_ROWS = 500
"""Rows of the table for readers without scripts."""
UNESCAPED = "!~*'()"
"""What encodeURIComponent leaves as it is, beside letters, digits, `-`, `_` and `.`."""
_COMPACT = msgspec.json.Encoder(enc_hook=str)


@dataclass(frozen=True, slots=True)
class Written:
    """What went into a file: points in its fronts, of which so many have pages of their own, and axes beside the first."""

    page: str
    points: int
    pages: int
    pairs: int


class _Checked(RawFiles):
    """Raw files whose check is remembered: many figures rest on one file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._known: dict[str, str] = {}

    def check(self, sha256: str) -> str:
        """As RawFiles.check, once a file."""
        if sha256 not in self._known:
            self._known[sha256] = super().check(sha256)
        return self._known[sha256]


@dataclass(slots=True)
class _Room:
    """Answers by key, as many as there is room for once they are compressed."""

    limit: int
    data: dict[str, bytes] = field(default_factory=dict)
    _packer: zlib._Compress = field(default_factory=lambda: zlib.compressobj(9))
    _bytes: int = 0

    def put(self, key: str, body: object, *, must: bool = False) -> bool:
        """Whether it found room; with `must` it is taken in any case."""
        plain = _COMPACT.encode(body)
        trial = self._packer.copy()
        size = self._bytes + len(trial.compress(plain)) + len(trial.flush(zlib.Z_SYNC_FLUSH))
        if size * 4 / 3 > self.limit and not must:
            return False
        self._packer, self._bytes = trial, size
        self.data[key] = plain
        return True


def key_of(path: str, params: Mapping[str, str]) -> str:
    """How the page names an answer (`static/api.js` keyOf): pairs in order of their names, no empty ones."""
    pairs = sorted((name, value) for name, value in params.items() if value)
    said = "&".join("=".join(quote(part, safe=UNESCAPED) for part in pair) for pair in pairs)
    return f"{PREFIX}{path}" + (f"?{said}" if said else "")


def write_selection(home: Home, chosen: Selection, lang: str) -> Written:
    """The file of a selection, as text. Raises ServemarkError (exit code 2) when nothing, or too much, is selected."""
    try:
        return _written(home, chosen, lang)
    except Problem as problem:  # what a server would refuse
        values: dict[str, Any] = dict(problem.values)
        raise input_error(problem.key, **values) from problem


def _written(home: Home, chosen: Selection, lang: str) -> Written:
    ctx = Context(Site(home))
    points = [each for each in ctx.select(chosen) if not each.scenario.startswith(f"{EVAL}:")]
    if not points:
        raise input_error("report.selection.empty", selection=" ".join(chosen.words()) or "—")
    if len(points) > MAX_POINTS:
        raise input_error("report.selection.large", points=len(points), limit=MAX_POINTS)
    groups = Counter((each.identity.model, each.scenario) for each in points)
    kept = [group for group, _ in groups.most_common(MAX_GROUPS)]
    room = _Room(DATA_BYTES + BYTES_PER_POINT * max(0, len(points) - FREE_POINTS))
    words = {**catalogue("en", "web"), **catalogue(lang, "web")}
    room.put(key_of("/messages", {}), {"lang": lang, "messages": words}, must=True)
    room.put(key_of("/metrics", {}), metrics.reply(ctx, Query({}, Selection(), lang)), must=True)
    composer = _Composer(ctx, chosen, lang, room, points)
    return composer.written(kept, dict(groups))


@dataclass(slots=True)
class _Composer:
    """Puts together what one file holds."""

    ctx: Context
    chosen: Selection
    lang: str
    room: _Room
    points: list[Measured]
    first: dict[tuple[str, str], FrontView] = field(default_factory=dict)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    pages: int = 0

    def written(self, groups: list[tuple[str, str]], counts: Mapping[tuple[str, str], int]) -> Written:
        """Fronts first, then the points on them with where their figures come from, further axes, and the other points."""
        for group in groups:
            view = self._view(group, "", "")
            self.first[group] = view
        whole = self.first[groups[0]]
        raw = _Checked(self.ctx.home.raw)
        ordered = self._by_standing(groups)
        here = {each.ref for each in self.points}
        fronts = [ref for ref, on in ordered if on]
        for group in groups:  # held back until the notes know what is inside
            self.room.put(self._front_key(group, self.first[group]), columnar(self.first[group]), must=True)
        inside = [ref for ref in fronts if self._page(raw, ref, here)]
        for ref in inside:
            self._whys(raw, ref)
        for x, y in PAIRS[1:]:
            self._pair(groups, x, y)
        for ref in (ref for ref, on in ordered if not on):
            if self._page(raw, ref, here):
                inside.append(ref)
                self._whys(raw, ref, all_figures=False)
        self.pages = len(inside)
        self._finish(groups, counts, whole)
        return Written(self._file(groups, whole), len(self.points), self.pages, len(self.pairs))

    def _view(self, group: tuple[str, str], x: str, y: str) -> FrontView:
        model, scenario = group
        chosen = replace(self.chosen, model=(model,), scenario=(scenario,))
        values = {name: value for name, value in (("x", x), ("y", y)) if value}
        return view_of(self.ctx, Query(values, chosen, self.lang))

    def _front_key(self, group: tuple[str, str], view: FrontView) -> str:
        model, scenario = group
        axes = {"x": view.x.address, "y": view.y.address}
        return key_of("/front", {"model": model, "scenario": scenario, **axes})

    def _by_standing(self, groups: list[tuple[str, str]]) -> list[tuple[str, bool]]:
        rows = [row for group in groups for row in self.first[group].rows]
        return [(row.ref, row.state == "on") for row in sorted(rows, key=lambda row: row.state != "on")]

    def _pair(self, groups: list[tuple[str, str]], x: str, y: str) -> None:
        """Further axes, where the data fill them."""
        for group in groups:
            first = self.first[group]
            axes = (x or first.x.address, y or first.y.address)
            if axes == (first.x.address, first.y.address):
                continue
            view = self._view(group, *axes)
            drawn = sum(row.x is not None and row.y is not None for row in view.rows)
            if drawn * 2 < len(view.rows):
                continue
            key = self._front_key(group, view)
            if key not in self.room.data and self.room.put(key, columnar(view)) and axes not in self.pairs:
                self.pairs.append(axes)

    def _page(self, raw: RawFiles, ref: str, here: set[str]) -> bool:
        """A point's page, with the raw records of our own; False where there was no room."""
        runs = self.ctx.home.runs
        view = point_view(self.ctx.store, raw, ref, self.lang, runs=runs, all_findings=False)
        model, scenario = view.front.get("model", ""), view.front.get("scenario", "")
        slim = replace(
            view,
            front={"model": model, "scenario": scenario},
            history=_within(view.history, here),
            siblings=_within(view.siblings, here),
        )
        if not self.room.put(f"{PREFIX}/points/{ref}", slim):
            return False
        if view.has_requests:
            self._records(ref)
        return True

    def _records(self, ref: str) -> None:
        from servemark.analysis.point_why import find_stored  # noqa: PLC0415 - own runs alone
        from servemark.analysis.run_place import run_folder_of  # noqa: PLC0415
        from servemark.store.imports import find_source  # noqa: PLC0415

        one = find_stored(self.ctx.store, ref)
        source = find_source(self.ctx.store, one.file)
        if source is None:
            return
        folder = run_folder_of(source, one, self.ctx.home.runs)
        try:
            if folder is None:
                listed = bench_request_view(self.ctx.raw, source, one, self.lang)
                if listed is not None:
                    self.room.put(f"{PREFIX}/points/{ref}/requests", listed)
                return
            self.room.put(f"{PREFIX}/points/{ref}/requests", request_view(folder, self.lang))
            self.room.put(f"{PREFIX}/points/{ref}/samples", samples_view(folder, self.lang, 12))
        except ServemarkError:
            return  # damaged records: the point's page says what it can without them

    def _whys(self, raw: RawFiles, ref: str, *, all_figures: bool = True) -> None:
        """Where its figures come from, or those of its headline, as far as there is room; the lines of raw records behind
        the headline alone."""
        body = msgspec.json.decode(self.room.data[f"{PREFIX}/points/{ref}"])
        headline = {each["id"] for each in body["headline"]}
        figures = [
            figure["address"]
            for group in body["groups"]
            for metric in group["metrics"]
            for figure in metric["figures"]
        ]
        figures.sort(key=lambda address: address not in headline)
        for address in figures if all_figures else sorted(headline & set(figures)):
            runs = self.ctx.home.runs if address in headline else None
            why = figure_why(
                self.ctx.store, raw, ref, address, lang=self.lang, runs=runs, records=address in headline
            )
            if not self.room.put(f"{PREFIX}/points/{ref}/why/" + quote(address, safe=UNESCAPED), why):
                return

    def _finish(
        self, groups: list[tuple[str, str]], counts: Mapping[tuple[str, str], int], whole: FrontView
    ) -> None:
        """Choices, and notes on what is not inside."""
        note = text(
            "report.selection.inside",
            self.lang,
            points=len(self.points),
            pages=self.pages,
            pairs=len(self.pairs) + 1,
        )
        for group in groups:
            view = self.first[group]
            body = columnar(replace(view, notes=(*view.notes, note)))
            self.room.data[self._front_key(group, view)] = _COMPACT.encode(body)
        models: dict[str, list[dict[str, object]]] = {}
        names = workload_names(each.identity for each in self.points)
        for model, scenario in groups:
            one = {"id": scenario, "label": named(scenario, names), "points": counts[model, scenario]}
            models.setdefault(model, []).append(one)
        addresses = dict.fromkeys(
            [whole.x.address, whole.y.address, *(each for pair in self.pairs for each in pair)]
        )
        newest = max((each.at_utc for each in self.points), default="")
        body = {
            "models": [
                {"id": model, "points": sum(int(str(each["points"])) for each in found), "scenarios": found}
                for model, found in models.items()
            ],
            "facets": {},
            "metrics": [axis_info(parse(address), self.lang) for address in addresses],
            "default": {
                "model": groups[0][0],
                "scenario": groups[0][1],
                "precision": None,
                "x": whole.x.address,
                "y": whole.y.address,
            },
            "store": {"points": len(self.points), "newest": newest or None, "version": ""},
        }
        self.room.put(key_of("/facets", {}), body, must=True)
        for model, scenario in groups:
            self.room.put(key_of("/facets", {"model": model, "scenario": scenario}), body, must=True)

    def _file(self, groups: list[tuple[str, str]], whole: FrontView) -> str:
        def read(name: str) -> str:
            found = (FOLDER / name).read_text(encoding="utf-8")
            return only_pages(found, PAGES) if name == "pages.js" else found

        model, scenario = groups[0]
        title = f"{model} · {scenario}"
        parts = Parts(
            lang=self.lang,
            title=title,
            before=read("theme.js"),
            script=join_modules(read, "app.js"),
            style=read("style.css"),
            data=self.room.data,
            plain=self._plain(title, groups),
            old=text("report.selection.old", self.lang),
        )
        return one_page(parts)

    def _plain(self, title: str, groups: list[tuple[str, str]]) -> PlainTable:
        whole = self.first[groups[0]]
        rows = [row for group in groups for row in self._rows(self.first[group], len(groups) > 1)]
        heads = [text(f"report.plain.{name}", self.lang) for name in ("series", "load")]
        heads += [_head(whole.x.label, whole.x.unit), _head(whole.y.label, whole.y.unit)]
        heads.append(text("report.plain.state", self.lang))
        note = (
            text("report.plain.note", self.lang, shown=PLAIN_ROWS, total=len(rows))
            if len(rows) > PLAIN_ROWS
            else ""
        )
        return PlainTable(
            title=title,
            findings=tuple(found for group in groups for found in self.first[group].findings),
            heads=tuple(heads),
            rows=tuple(rows[:PLAIN_ROWS]),
            note=note,
            scripts=text("report.plain.scripts", self.lang),
        )

    def _rows(self, view: FrontView, named: bool) -> Iterator[tuple[str, ...]]:
        shown = [display(axis.unit, ()) for axis in (view.x, view.y)]
        for row in sorted(view.rows, key=lambda row: row.state != "on"):
            line = view.lines[row.line]
            series = view.series[line.series]
            label = f"{view.groups[series.group].label} · {series.label}" if named else series.label
            load = "—" if row.concurrency is None else str(row.concurrency)
            reason = "" if row.reason is None else f": {view.reasons[row.reason]}"
            yield (
                label,
                load,
                shown[0].number(row.x),
                shown[1].number(row.y),
                text(f"web.state.{row.state}", self.lang) + reason,
            )


def _head(label: str, unit: str) -> str:
    return f"{label} [{unit}]" if unit else label


def _within(table: PointTable, here: set[str]) -> PointTable:
    """Only the points that this report knows; how many more there are is kept."""
    rows = tuple(row for row in table.rows if row.ref in here or row.here)
    return replace(table, rows=rows, left_out=table.left_out + len(table.rows) - len(rows))


__all__ = ["Written", "key_of", "write_selection"]
