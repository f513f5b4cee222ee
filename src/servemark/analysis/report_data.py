"""Run folders -> `ReportData`: everything that a report or a terminal view shows, computed here and only
here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from servemark.analysis.columns import axis_choices, column, table
from servemark.analysis.findings import findings
from servemark.analysis.front import candidate_of
from servemark.analysis.histogram import Histogram, histogram
from servemark.analysis.labels import display_of
from servemark.analysis.load import Load
from servemark.analysis.own_verdicts import quarantines
from servemark.analysis.panels import cache_panel, eval_panels, phases, provenance
from servemark.analysis.problems import (
    failed_requests,
    grouped_problems,
    problems,
    quarantine_problem,
    warning_problem,
)
from servemark.analysis.report_types import Cell, Column, Header, PointView, ReportData
from servemark.analysis.run_files import RunFiles, read_run
from servemark.analysis.series import lines
from servemark.analysis.timeline import timeline
from servemark.base.messages import current_language, text
from servemark.metrics.address import Address, parse
from servemark.metrics.registry import METRICS
from servemark.results.gates.words import sentence
from servemark.results.measures import VALUES, only_ok
from servemark.results.row import ResultRow
from servemark.results.serialize import row_to_json

HISTOGRAMS = ("ttft_s", "tpot_s", "e2el_s", "chunk_gap_s")
LOG_RANGE = 10.0
"""A histogram is logarithmic when its p99 is this many times its median: a tail worth seeing."""
SAMPLES = 12

__all__ = ["ReportData", "build_report_data"]


def build_report_data(
    run_folders: Sequence[Path], lang: str | None = None, *, samples: int = SAMPLES
) -> ReportData:
    """Read the given run folders and compute what a report shows, in `lang` (None: the current language).

    `samples` is the number of accuracy samples to keep for each task and point. Damaged, failed and missing
    runs become `problems`; nothing is raised for a folder in whatever condition.
    """
    chosen = lang or current_language()
    runs = [read_run(folder) for folder in run_folders]
    by_id = {run.row.run_id: run for run in runs if run.row is not None}
    grouped = lines(run.row for run in runs if run.row is not None)
    rows = [row for line in grouped for row in line.rows]
    plain = [row_to_json(row) for row in rows]
    judged = quarantines(rows, {name: run.manifest.get("expected") for name, run in by_id.items()})
    axes = axis_choices(plain, chosen, {name: sentence(bad[0], chosen) for name, bad in judged.items()})
    eligible = [_eligible(each) and row.run_id not in judged for row, each in zip(rows, plain, strict=True)]
    columns, cells = table(plain, eligible, chosen)
    points = tuple(
        replace(
            _point(row, json, shown, by_id[row.run_id], samples=samples, lang=chosen),
            quarantined=row.run_id in judged,
        )
        for row, json, shown in zip(rows, plain, cells, strict=True)
    )
    newest = grouped[-1].rows if grouped else ()
    counted = [row for row in newest if row.run_id not in judged] or newest
    doubts = [quarantine_problem(each, row, chosen) for row in rows for each in judged.get(row.run_id, ())]
    found = problems(runs, doubts + [warned for point in points for warned in point.warnings], chosen)
    lost = {each.concurrency for each in found if each.level == "error" and each.concurrency is not None}
    missing = sorted(lost - {row.concurrency for row in newest if row.concurrency is not None})
    outcomes = {row.run_id: by_id[row.run_id].evals for row in newest}
    return ReportData(
        lang=chosen,
        header=_header(rows, runs, chosen),
        findings=tuple(each.text(chosen) for each in findings(counted, missing, outcomes)),
        columns=columns,
        points=points,
        axes=axes,
        problems=found,
        problem_groups=grouped_problems(found),
        definitions=_definitions(columns, chosen),
    )


def _eligible(plain: Mapping[str, object]) -> bool:
    """May this row hold a best value? As for a front, whatever the axes: whole, and few requests failed."""
    reason = candidate_of(plain, parse("requests_ok"), parse("requests_ok")).reason
    return reason is None


def _point(
    row: ResultRow,
    plain: Mapping[str, object],
    cells: tuple[Cell, ...],
    run: RunFiles,
    *,
    samples: int,
    lang: str,
) -> PointView:
    """One point with its panels."""
    records = [record for _, record in run.records]
    failed, failed_total = failed_requests(row, run.records)
    return PointView(
        run_id=row.run_id,
        concurrency=row.concurrency,
        load=Load.of(row).short,
        label=Load.of(row).label(lang),
        status=row.status,
        row=row,
        folder=run.folder.name,
        cells=cells,
        histograms=_histograms(run),
        timeline=timeline(records),
        cache=cache_panel(row, plain, lang),
        evals=eval_panels(row.evals, run.evals, samples, lang),
        provenance=provenance(row),
        failed=failed,
        failed_total=failed_total,
        phases=phases(row, lang),
        warnings=tuple(warning_problem(warned, row, lang) for warned in row.warnings),
    )


def _histograms(run: RunFiles) -> tuple[Histogram, ...]:
    """The standard histograms from the raw records; one that has no value is left out."""
    ok = only_ok(record for _, record in run.records)
    found = []
    for name in HISTOGRAMS:
        values = [value for record in ok for value in VALUES[name](record)]
        made = histogram(name, METRICS[name].unit.value, values)
        if made is not None and made.p50 and made.p99 and made.p99 > LOG_RANGE * made.p50:
            made = histogram(name, METRICS[name].unit.value, values, log=True)
        if made is not None:
            found.append(made)
    return tuple(found)


def _named(value: object) -> str | None:
    return str(value) if value is not None else None


def _header(rows: Sequence[ResultRow], runs: Sequence[RunFiles], lang: str) -> Header:
    """Whose figures these are; from the rows, or from a manifest where no run has a result."""
    first: Mapping[str, object] = row_to_json(rows[-1]) if rows else (runs[0].manifest if runs else {})
    suite, arm = str(first.get("suite", "?")), str(first.get("arm", "?"))
    observed, identity, workload, versions = (
        part if isinstance(part := first.get(name), Mapping) else {}
        for name in ("observed", "identity", "workload", "versions")
    )
    engine = observed.get("engine")
    named = (
        [engine.get("engine"), engine.get("version") or engine.get("build")]
        if isinstance(engine, Mapping)
        else []
    )
    line_ids = {row.line_id for row in rows} or {
        str(run.manifest["line_id"]) for run in runs if "line_id" in run.manifest
    }
    return Header(
        title=arm if arm == suite else text("analysis.header.title", lang, suite=suite, arm=arm),
        suite=suite,
        arm=arm,
        line_ids=tuple(sorted(line_ids)),
        started_utc=min((row.started_utc for row in rows), default=None),
        finished_utc=max((row.finished_utc for row in rows), default=None),
        servemark_version=_named(versions.get("servemark")),
        model=_named(identity.get("model")),
        engine=" ".join(str(part) for part in named if part) or None,
        hardware=_hardware(identity, observed),
        workload=_named(workload.get("name")),
        weights=_named(identity.get("weights")),
    )


def _hardware(identity: Mapping[str, object], observed: Mapping[str, object]) -> str | None:
    """The cluster's label, and the processor that was really there."""
    host = observed.get("host")
    cpu = _named(host.get("cpu_model")) if isinstance(host, Mapping) else None
    named = [part for part in (_named(identity.get("hardware")), cpu) if part]
    return ", ".join(named) or None


def _definitions(columns: Sequence[Column], lang: str) -> tuple[Column, ...]:
    """Every metric that the report shows, once: those of the table, the histograms and the cache panel."""
    shown = dict.fromkeys([each.address.partition(".")[0] for each in columns] + list(HISTOGRAMS))
    found = []
    for name in shown:
        metric = METRICS[name]
        bare = Address(metric)
        found.append(column(bare, display_of(bare, ()), lang))
    return tuple(found)
