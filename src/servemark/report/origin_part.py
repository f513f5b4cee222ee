"""Where the figures come from, where the time went, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable

from servemark.analysis.format import ABSENT, group, one
from servemark.analysis.report_types import FailedRequest, PointView, Problem, ProvenanceRow, ReportData
from servemark.report.charts.bars import PhasePart as Drawn
from servemark.report.charts.bars import phase_bar
from servemark.report.views import (
    FailedLine,
    OriginPart,
    OriginTable,
    PhasePart,
    PhaseRow,
    Trouble,
    TroublePart,
)
from servemark.report.words import Words, capital, clip, listed

SLOTS = (
    ("launch", "allocate", "preflight", "images"),
    ("ready", "services", "workers", "router", "health"),
    ("warmup",),
    ("replay",),
    ("evals",),
    ("collect",),
)
"""Phases in the order of the legend's tones, those of one tone together; others share the last one."""
MAX_FAILED = 30
MAX_DETAIL_CHARS = 400


def origin_part(data: ReportData, t: Words) -> OriginPart:
    """Declared beside observed, one table for points that say the same; identifiers; files and hashes."""
    same: dict[tuple[ProvenanceRow, ...], list[PointView]] = {}
    for point in data.points:
        same.setdefault(point.provenance, []).append(point)
    tables = tuple(
        OriginTable(
            title="" if len(same) == 1 else capital(_places((point.load for point in members), t)),
            rows=tuple(_fact(row, t) for row in rows if row.declared is not None),
            more=tuple((row.field, row.observed or ABSENT) for row in rows if row.declared is None),
        )
        for rows, members in same.items()
    )
    ids = tuple(
        (
            capital(p.label),
            p.run_id,
            p.row.point_id,
            p.row.series_id,
            t("report.span.iso", start=p.row.started_utc, end=p.row.finished_utc),
        )
        for p in data.points
    )
    files = tuple(
        (capital(point.label), name, _bytes(facts.get("bytes")), str(facts.get("sha256") or ABSENT))
        for point in data.points
        for name, facts in point.row.files.items()
    )
    return OriginPart(tables, ids, files)


def _bytes(value: object) -> str:
    return group(str(value)) if isinstance(value, int) else ABSENT


def _fact(row: ProvenanceRow, t: Words) -> tuple[str, str, str, str, str]:
    mark = {True: "agree", False: "differ", None: "unseen"}[row.agree]
    return row.field, row.declared or ABSENT, row.observed or ABSENT, mark, t(f"report.origin.{mark}")


def phase_part(data: ReportData, t: Words) -> PhasePart:
    """A bar for each point, all on the scale of the longest, and the seconds in a table below them."""
    names: dict[str, str] = {}
    for point in data.points:
        for phase in point.phases:
            names.setdefault(phase.id, phase.label)
    longest = max((sum(p.seconds for p in point.phases) for point in data.points), default=0.0)
    rows = tuple(_phases(point, tuple(names), longest, t) for point in data.points if point.phases)
    return PhasePart(tuple((label, _slot(name)) for name, label in names.items()), rows)


def _slot(name: str) -> int:
    return next((slot for slot, names in enumerate(SLOTS) if name in names), len(SLOTS))


def _phases(point: PointView, names: tuple[str, ...], longest: float, t: Words) -> PhaseRow:
    drawn, at = [], 0.0
    seconds = {phase.id: phase.seconds for phase in point.phases}
    for phase in point.phases:
        share = phase.seconds / longest if longest > 0 else 0.0
        drawn.append(Drawn(at, at + share, f"{phase.label}: {one(phase.seconds, 's')}", _slot(phase.id)))
        at += share
    said = listed(t, (part.tip for part in drawn))
    cells = tuple(one(seconds.get(name), "s") for name in names)
    return PhaseRow(capital(point.label), phase_bar(drawn, f"{point.label}: {said}"), cells)


def trouble_part(data: ReportData, t: Words) -> TroublePart:
    """Problems of one kind together, gravest first as the data has them, then the failed requests."""
    kinds: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in data.problems:
        kinds.setdefault((problem.level, problem.code, problem.title), []).append(problem)
    items = tuple(
        Trouble(
            level=level,
            word=t(f"report.level.{level}"),
            title=title,
            lines=_lines(members, t),
            next_steps=tuple(dict.fromkeys(p.next_step for p in members if p.next_step)),
        )
        for (level, _, title), members in kinds.items()
    )
    failed = [(point.label, request) for point in data.points for request in point.failed]
    total = sum(point.failed_total for point in data.points)
    shown = failed[:MAX_FAILED]
    note = t("report.failed.more", shown=len(shown), total=total) if total > len(shown) else ""
    lines = tuple(_failed(label, request, t) for label, request in shown)
    return TroublePart(items, lines, note, calm=not items and not total)


def _lines(members: list[Problem], t: Words) -> tuple[tuple[str, str], ...]:
    """(where, what was seen), places of which the same is said joined."""
    same: dict[str, list[Problem]] = {}
    for problem in members:
        same.setdefault(problem.text, []).append(problem)
    return tuple(
        (capital(_places((str(p.concurrency) for p in problems if p.concurrency is not None), t)), words)
        for words, problems in same.items()
    )


def _places(loads: Iterable[str], t: Words) -> str:
    """`concurrency 1, 2, 4`; empty for none."""
    numbers = listed(t, dict.fromkeys(loads))
    return t("report.where", n=numbers) if numbers else ""


def _failed(label: str, request: FailedRequest, t: Words) -> FailedLine:
    detail = " · ".join(part for part in (request.kind, request.detail) if part)
    return FailedLine(
        point=capital(label),
        request=request.request,
        at=one(request.at_s, "s"),
        outcome=t(f"report.outcome.{request.outcome}"),
        status=str(request.http_status) if request.http_status is not None else ABSENT,
        detail=clip(detail, MAX_DETAIL_CHARS) or ABSENT,
        source=f"requests.jsonl:{request.line}",
    )
