"""The top of the page: whose figures these are, and whether they are whole."""

from __future__ import annotations

import re

from servemark.analysis.format import ABSENT
from servemark.analysis.problems import QUARANTINE_CODE
from servemark.analysis.report_types import ReportData
from servemark.report.views import Definition, Fact, Head
from servemark.report.words import Words, anchor, listed

_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def head_part(data: ReportData, t: Words) -> Head:
    """Title and facts; a fact that is not known is said to be so, never left out."""
    header = data.header
    unknown = t("report.unknown")
    sources = {row.declared for point in data.points for row in point.provenance if row.field == "hardware"}
    hardware = header.hardware or next((each for each in sorted(filter(None, sources))), None)
    date, span = _when(header.started_utc, header.finished_utc, t)
    tone, status, detail = _status(data, t)
    facts = (
        Fact(t("report.fact.status"), status, detail, tone),
        Fact(t("report.fact.model"), header.model or unknown),
        Fact(t("report.fact.engine"), header.engine or unknown),
        Fact(t("report.fact.hardware"), hardware or unknown),
        Fact(t("report.fact.workload"), header.workload or unknown),
        Fact(t("report.fact.date"), date or unknown, span),
    )
    return Head(
        header.arm,
        header.suite,
        t("report.fact.line", line=listed(t, header.line_ids) or ABSENT),
        facts,
        "" if header.weights is None else t("front.badge.weights"),
    )


def _when(started: str | None, finished: str | None, t: Words) -> tuple[str | None, str]:
    """(date, times of day) from ISO 8601 UTC; what is not of that form is shown as it is."""
    if started is None:
        return None, ""
    end = finished or ""
    if not (_ISO.fullmatch(started) and _ISO.fullmatch(end)):
        return started, end
    until = end[11:16] if end[:10] == started[:10] else end[:16].replace("T", " ")
    return started[:10], t("report.span", start=started[11:16], end=until)


def _status(data: ReportData, t: Words) -> tuple[str, str, str]:
    """(tone, word, smaller words)."""
    count = t("report.status.points", n=len(data.points))
    if not data.points:
        return "bad", t("report.status.none"), ""
    if any(p.level == "error" and not p.code.startswith(QUARANTINE_CODE) for p in data.problems):
        return "bad", t("report.status.gaps"), count
    if any(point.status != "complete" for point in data.points):
        return "warn", t("report.status.partial"), count
    kept_off = sum(point.quarantined for point in data.points)
    if kept_off:
        return "bad", t("report.status.quarantined", n=kept_off), count
    return "good", t("report.status.complete"), count


def definitions(data: ReportData, t: Words) -> tuple[Definition, ...]:
    """The glossary that every column head leads to."""
    return tuple(
        Definition(
            anchor(c.address), c.label, c.unit, t(f"metrics.better.{c.better.value}"), c.definition, c.formula
        )
        for c in data.definitions
    )
