"""Everything about one point of the store on one page: configuration, provenance, verdict, figures, evals, its line, its
history, its files. Nothing is computed here but what `metrics.figures` reads; `point_why` says where a figure comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from servemark.analysis.bench_records import has_bench_records
from servemark.analysis.figure_words import (
    GROUPS,
    STATISTICS,
    definition_of,
    formula_of,
    group_of,
    label_of,
    metric_label,
    split,
    text_of,
    unit_of,
)
from servemark.analysis.format import one as one_figure
from servemark.analysis.format import significant
from servemark.analysis.measured import FILE_PREFIX, series_key
from servemark.analysis.panels import provenance_rows
from servemark.analysis.point_types import (
    EvalView,
    Fact,
    FigureView,
    FileView,
    GateView,
    GroupView,
    MetricView,
    PointTable,
    PointView,
    TableColumn,
    TableRow,
)
from servemark.analysis.point_why import all_gates, find_figure, find_stored, said, short_name
from servemark.analysis.point_words import facts_of, load_of, roles_of, subtitle_of, title_of
from servemark.analysis.prediction_view import prediction_view
from servemark.analysis.run_place import folder_files, run_folder_of
from servemark.base.messages import text
from servemark.base.printable import one_line
from servemark.metrics.registry import METRICS, Better
from servemark.results.gates.base import GateFinding, Severity
from servemark.results.gates.words import next_step, sentence, title, why
from servemark.results.point import Eval, Figure, Point
from servemark.store.database import Store
from servemark.store.import_types import SourceFile
from servemark.store.imports import find_source
from servemark.store.points import PointFilter, StoredPoint, count_points, findings_of, load_points
from servemark.store.raw_files import RawFiles

MAX_ROWS = 60
"""Other points in one of the small tables."""
MAX_JUDGED = 2000
"""Points of a run that are judged again to tell what passed; of a larger run only what was found when it came is told."""
TABLE_FIGURES = (
    "total_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_gpu",
    "output_tokens_per_s",
    "interactivity.p50",
    "ttft_s.p50",
    "ttft_s.p99",
    "e2el_s.p50",
)
HEADLINE = (
    ("total_tokens_per_s_per_gpu", "output_tokens_per_s_per_gpu", "output_tokens_per_s"),
    ("interactivity.p50", "interactivity.p90"),
    ("ttft_s.p90", "ttft_s.p99", "ttft_s.p50"),
    ("e2el_s.p50", "e2el_s.p90"),
)
"""Of each row the first that is there."""
DERIVED = (
    *(f"interactivity.{each}" for each in ("p50", "p75", "p90", "p95", "p99", "min", "max")),
    "total_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_gpu",
    "input_tokens_per_s_per_gpu",
    "total_tokens_per_s",
    "output_tokens_per_s",
    "requests_per_s",
)
"""Figures that are shown although sources rarely state them: each is made of stated ones and says so."""


def point_view(
    store: Store,
    raw: RawFiles,
    name: str,
    lang: str | None = None,
    *,
    runs: Path | None = None,
    all_findings: bool = True,
) -> PointView:
    """The point that `name` (a ref or a point key) names. `runs` is the folder of this home's runs, where the raw records of
    our own points lie. Without `all_findings` only what gates found fault with when they judged it is told, which reads
    no other point of its run.

    Raises ServemarkError (exit code 2) when there is no such point.
    """
    one = find_stored(store, name)
    source = find_source(store, one.file)
    assert source is not None  # noqa: S101 - a row's file is held by a foreign key
    point = one.point()
    folder = run_folder_of(source, one, runs)
    around = PointFilter(source=one.source, run=one.run, superseded=True)
    judged_now = all_findings and count_points(store, around) <= MAX_JUDGED
    found = all_gates(store, one) if judged_now else findings_of(store, one.id)
    provenance = provenance_rows(point.declared, point.observed)
    differing = sum(row.agree is False for row in provenance)
    return PointView(
        ref=ref_of(one),
        point_key=one.point_key,
        line_key=one.line_key,
        series_key=series_key(point.identity),
        title=title_of(point.identity, lang),
        subtitle=subtitle_of(point.identity, lang),
        official=True,
        verdict=str(one.verdict),
        verdict_text=text(f"analysis.verdict.{one.verdict}", lang),
        standing=_standing(one, point, lang),
        facts=facts_of(point, source, one, lang),
        roles=roles_of(point.identity, lang),
        provenance=provenance,
        differing=differing,
        provenance_text=_provenance_text(point, differing, lang),
        gates=gate_views(found, lang),
        passed=tuple(title(each.gate, lang) for each in found if each.severity is Severity.OK),
        skipped=tuple(
            (title(each.gate, lang), _safe(sentence, each, lang))
            for each in found
            if each.severity is Severity.SKIPPED
        ),
        groups=groups_of(point, lang),
        headline=_headline(point, lang),
        prediction=prediction_view(store, one.id, one.model, lang),
        evals=_evals(store, one, point, lang),
        siblings=_siblings(store, one, lang),
        history=_history(store, one, point, lang),
        files=_files(source, raw, folder, lang),
        url=web_link(point.execution.url),
        front=_front_query(one, point),
        has_requests=folder is not None or has_bench_records(source, one),
        has_samples=folder is not None,
        notes=tuple(one_line(each) for each in point.notes),
    )


def ref_of(one: StoredPoint) -> str:
    """`FILE:ORDINAL`."""
    return f"{one.file[:FILE_PREFIX]}:{one.ordinal}"


def web_link(url: str | None) -> str | None:
    """An address that a page may link to: http and https alone, so that no file makes a page run anything."""
    return url if url is not None and url.startswith(("https://", "http://")) and len(url) < 2000 else None


def _standing(one: StoredPoint, point: Point, lang: str | None) -> tuple[str, ...]:
    told = []
    if not one.current:
        told.append("superseded")
    if point.status == "partial":
        told.append("partial")
    if one.current and not one.latest:
        told.append("not_latest")
    return tuple(text(f"analysis.point.standing.{each}", lang) for each in told)


def _provenance_text(point: Point, differing: int, lang: str | None) -> str:
    if not point.observed:
        return text("analysis.point.provenance.nothing_observed", lang)
    if differing:
        return text("analysis.point.provenance.differs", lang, count=differing)
    return text("analysis.point.provenance.agrees", lang)


def _safe(speak: Callable[[GateFinding, str | None], str | None], each: GateFinding, lang: str | None) -> str:
    """A gate's words; its bare values where another version wrote them."""
    try:
        return speak(each, lang) or ""
    except (KeyError, IndexError, ValueError, AttributeError, TypeError):
        return said(f"gate.{each.gate}", each.values, lang)


def gate_views(found: Iterable[GateFinding], lang: str | None) -> tuple[GateView, ...]:
    """What gates found fault with, quarantines first."""
    bad = [each for each in found if each.severity in (Severity.QUARANTINE, Severity.WARNING)]
    bad.sort(key=lambda each: each.severity is not Severity.QUARANTINE)
    return tuple(
        GateView(
            gate=each.gate,
            severity=str(each.severity),
            title=_title(each.gate, lang),
            sentence=_safe(sentence, each, lang),
            next=_safe(next_step, each, lang) or None,
            why=_why(each.gate, lang),
        )
        for each in bad
    )


def _title(gate: str, lang: str | None) -> str:
    try:
        return title(gate, lang)
    except KeyError:
        return one_line(gate)


def _why(gate: str, lang: str | None) -> str:
    try:
        return why(gate, lang)
    except KeyError:
        return ""


def groups_of(point: Point, lang: str | None) -> tuple[GroupView, ...]:
    """All figures of the point by group and metric; groups without any are left out."""
    by_metric: dict[str, dict[str, tuple[Figure, bool]]] = {}
    for address, figure in point.figures.items():
        by_metric.setdefault(_metric_key(address), {})[address] = (figure, True)
    for address in DERIVED:
        key = _metric_key(address)
        if address not in by_metric.get(key, {}):
            found = find_figure(point, address)
            if found.figure is not None:
                by_metric.setdefault(key, {})[address] = (found.figure, False)
    order = list(METRICS)
    names = sorted(
        by_metric, key=lambda key: (order.index(split(key)[0]) if split(key)[0] in METRICS else 999, key)
    )
    groups: dict[str, list[MetricView]] = {}
    for key in names:
        groups.setdefault(group_of(split(key)[0]), []).append(_metric_view(key, by_metric[key], lang))
    return tuple(
        GroupView(name, text(f"analysis.group.{name}", lang), tuple(groups[name]))
        for name in GROUPS
        if name in groups
    )


def _metric_key(address: str) -> str:
    """A metric's id; of accuracy each task is one of its own."""
    return address if address.startswith("eval_score.") else split(address)[0]


def _metric_view(key: str, figures: Mapping[str, tuple[Figure, bool]], lang: str | None) -> MetricView:
    name = split(key)[0]
    metric = METRICS.get(name)
    own = metric.definition_id if metric is not None else None
    told = dict.fromkeys(one_line(figure.definition) for figure, stated in figures.values() if stated)
    ordered = sorted(figures, key=_place)
    return MetricView(
        id=one_line(key),
        label=label_of(key, lang) if key != name else metric_label(name, lang),
        unit=unit_of(key),
        better=str((metric.better if metric is not None else Better.NEITHER).value),
        definition=definition_of(name, lang),
        formula=formula_of(name, lang),
        defined_by=tuple(each for each in told if each and each != own)[:4],
        figures=tuple(_figure_view(address, *figures[address]) for address in ordered),
    )


def _figure_view(address: str, figure: Figure, stated: bool) -> FigureView:
    shown = text_of(address, figure.value)
    return FigureView(one_line(address), one_line(split(address)[1]), figure.value, shown, stated)


def _place(address: str) -> tuple[int, str]:
    statistic = split(address)[1]
    return (STATISTICS.index(statistic) if statistic in STATISTICS else len(STATISTICS)), statistic


def _headline(point: Point, lang: str | None) -> tuple[Fact, ...]:
    found = []
    for choices in HEADLINE:
        for address in choices:
            figure = find_figure(point, address).figure
            if figure is not None:
                found.append(Fact(address, label_of(address, lang), text_of(address, figure.value)))
                break
    return tuple(found)


def _evals(store: Store, one: StoredPoint, point: Point, lang: str | None) -> tuple[EvalView, ...]:
    """Its own scores, then those of eval points of the same run and configuration."""
    found = [_eval(each, None, lang) for each in point.evals]
    same = PointFilter(
        source=one.source,
        run=one.run,
        model=one.model,
        hardware=one.hardware,
        engine=one.engine,
        precision=one.precision,
    )
    mine = point.identity
    for other in load_points(store, same):
        if other.id == one.id or not other.scenario.startswith("eval"):
            continue
        identity = other.identity()
        if identity.topology == mine.topology and identity.speculation == mine.speculation:
            found += [_eval(each, ref_of(other), lang) for each in other.point().evals]
    return tuple(found[:MAX_ROWS])


def _eval(each: Eval, ref: str | None, lang: str | None) -> EvalView:
    error = "" if each.stderr is None else f" ± {significant(100 * each.stderr)}"
    items = "" if each.n is None else " " + text("analysis.point.items", lang, n=each.n)
    score = one_figure(each.score, "share")
    return EvalView(
        one_line(each.task),
        one_line(each.metric),
        each.score,
        score + error + items,
        each.passed,
        each.n,
        ref,
    )


def _siblings(store: Store, one: StoredPoint, lang: str | None) -> PointTable:
    """The line: the same configuration in the same run at its other loads."""
    wanted = PointFilter(source=one.source, run=one.run, config_key=one.config_key)
    line = [each for each in load_points(store, wanted) if each.line_key == one.line_key]
    if all(each.id != one.id for each in line):
        line.append(one)
    line.sort(key=lambda each: (each.concurrency is None, each.concurrency or 0, each.id))
    return _table(line, one, lang, lambda _: "")


def _history(store: Store, one: StoredPoint, point: Point, lang: str | None) -> PointTable:
    """The same arm at the same load in all runs, the newest first, with what changed in its identity."""
    wanted = PointFilter(
        model=one.model,
        hardware=one.hardware,
        engine=one.engine,
        precision=one.precision,
        scenario=one.scenario,
        superseded=True,
    )
    key = series_key(point.identity)
    found = [
        each
        for each in load_points(store, wanted)
        if each.concurrency == one.concurrency and (each.id == one.id or series_key(each.identity()) == key)
    ]
    found.sort(key=lambda each: (each.at_utc, each.id), reverse=True)
    return _table(found, one, lang, lambda each: _changed(each, one, lang))


def _changed(each: StoredPoint, one: StoredPoint, lang: str | None) -> str:
    notes = [] if each.current else [text("analysis.point.table.superseded", lang)]
    if each.point_key != one.point_key:
        its, mine = each.identity(), one.identity()
        told = [
            text(f"analysis.point.fact.{name}", lang)
            for name in ("image", "engine_version", "model_revision", "recipe_fingerprint")
            if getattr(its, name) != getattr(mine, name)
        ]
        notes.append(text("analysis.point.table.other", lang, what=", ".join(told)))
    return "; ".join(notes)


def _table(
    points: Sequence[StoredPoint], one: StoredPoint, lang: str | None, note: Callable[[StoredPoint], str]
) -> PointTable:
    """At most MAX_ROWS rows, the point itself always among them; only columns that any row fills."""
    shown = list(points[:MAX_ROWS])
    if points and all(each.id != one.id for each in shown):
        shown[-1] = one
    decoded = [each.point() for each in shown]
    values = [[find_figure(point, address).figure for address in TABLE_FIGURES] for point in decoded]
    kept = [i for i in range(len(TABLE_FIGURES)) if any(row[i] is not None for row in values)]
    if 0 in kept:
        kept = [i for i in kept if i not in (1, 2)]  # one throughput says enough here
    columns = tuple(
        TableColumn(TABLE_FIGURES[i], label_of(TABLE_FIGURES[i], lang), unit_of(TABLE_FIGURES[i]))
        for i in kept
    )
    rows = tuple(
        TableRow(
            ref=ref_of(each),
            label=load_of(point.identity, lang),
            run=one_line(each.run),
            date=each.at_utc[:10],
            verdict=str(each.verdict),
            here=each.id == one.id,
            note=note(each),
            values=tuple(_text(TABLE_FIGURES[i], row[i]) for i in kept),
        )
        for each, point, row in zip(shown, decoded, values, strict=True)
    )
    return PointTable(columns, rows, len(points) - len(shown))


def _text(address: str, figure: Figure | None) -> str:
    return text_of(address, None if figure is None else figure.value)


def _files(source: SourceFile, raw: RawFiles, folder: Path | None, lang: str | None) -> tuple[FileView, ...]:
    """The imported file and its siblings, then what else lies in the run's folder."""
    kept: list[tuple[str, str, str, int | None]] = [("source", source.name, source.sha256, source.bytes)]
    kept += [("sibling", name, sha256, None) for name, sha256 in source.siblings]
    found = []
    for role, name, sha256, size in kept:
        state = "kept" if raw.has(sha256) else "missing"
        said_role, said_state = _file_words(role, state, lang)
        found.append(FileView(said_role, one_line(short_name(name)), sha256, size, state, said_state))
    for name, bytes_here in folder_files(folder) if folder is not None else ():
        said_role, said_state = _file_words("folder", "folder", lang)
        found.append(FileView(said_role, one_line(name), None, bytes_here, "folder", said_state))
    return tuple(found)


def _file_words(role: str, state: str, lang: str | None) -> tuple[str, str]:
    return text(f"analysis.point.file.role.{role}", lang), text(f"analysis.point.file.{state}", lang)


def _front_query(one: StoredPoint, point: Point) -> dict[str, str]:
    query = {"model": one.model, "scenario": one.scenario, "precision": one.precision}
    return {name: value for name, value in query.items() if value}
