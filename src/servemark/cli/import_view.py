"""What an import says of each file: one line, then a line a reason."""

from __future__ import annotations

from servemark.base.messages import find_text, text
from servemark.base.printable import one_line, printable
from servemark.results.measured_power import PowerTold
from servemark.store.import_types import ReasonCount
from servemark.store.intake import FileReport
from servemark.store.reasons import reason_text

MAX_REASONS = 8


def report_lines(report: FileReport, *, dry: bool) -> list[str]:
    """For a person."""
    name = one_line(report.name)
    if report.error is not None:
        lines = [text("cli.import.refused", None, name=name, what=printable(report.error.what()))]
        next_step = report.error.next_step()
        return [*lines, "  " + text("cli.next", None, step=next_step)] if next_step else lines
    kept = report.kept
    if kept is None:
        return []
    counts = ", ".join(
        text(f"cli.import.rows.{status}", None, rows=kept.rows[status])
        for status in ("mapped", "superseded", "unmapped", "invalid")
        if kept.rows.get(status)
    ) or text("cli.import.rows.none")
    outcome = "dry" if dry else kept.outcome
    what = report.importer or text("cli.import.unknown")
    lines = [text(f"cli.import.line.{outcome}", None, name=name, format=what, counts=counts)]
    if kept.changed:
        lines.append("  " + text("cli.import.changed", None, **kept.changed))
    lines += _power(report.power)
    doubted = {each: count for each, count in kept.verdicts.items() if each != "valid"}
    if doubted:
        said = ", ".join(
            text(f"cli.import.verdict.{each}", None, points=count) for each, count in sorted(doubted.items())
        )
        lines.append("  " + said)
    for each in kept.reasons[:MAX_REASONS]:
        lines += _reason(each)
    if len(kept.reasons) > MAX_REASONS:
        left = kept.reasons[MAX_REASONS:]
        more = text("cli.import.more_reasons", None, reasons=len(left), rows=sum(each.rows for each in left))
        lines.append("  " + more)
    return lines


def _power(told: PowerTold) -> list[str]:
    """How many points got energy from power samples, and why others did not."""
    lines = [text("cli.import.power", None, points=told.points)] if told.points else []
    for error, points in list(told.refused.values())[:MAX_REASONS]:
        lines.append(text("cli.import.no_power", None, points=points, what=printable(error.what())))
        next_step = error.next_step()
        lines += ["  " + text("cli.next", None, step=printable(next_step))] if next_step else []
    return ["  " + line for line in lines]


def _reason(each: ReasonCount) -> list[str]:
    """Why rows are no points, and what to do about it where there is something to do."""
    status = text(f"cli.import.status.{each.status}")
    lines = [f"  {each.rows} {status}: {reason_text(each.reason, each.values)}"]
    next_step = (
        reason_text(f"{each.reason}.next", each.values) if find_text(f"{each.reason}.next", None) else ""
    )
    return [*lines, "    " + text("cli.next", None, step=next_step)] if next_step else lines


def report_json(report: FileReport) -> dict[str, object]:
    """For a machine: file, sha256, format, outcome, rows, verdicts, changed, reasons, error."""
    kept = report.kept
    error = report.error
    return {
        "file": report.name,
        "sha256": report.sha256 or None,
        "format": report.importer or None,
        "outcome": kept.outcome if kept is not None else "refused",
        "rows": kept.rows if kept is not None else {},
        "verdicts": kept.verdicts if kept is not None else {},
        "changed": kept.changed if kept is not None else {},
        "reasons": [
            {"status": each.status, "reason": each.reason, "values": each.values, "rows": each.rows}
            for each in (kept.reasons if kept is not None else ())
        ],
        "power": {
            "points": report.power.points,
            "refused": [
                {"key": why.key, "what": why.what(), "points": points}
                for why, points in report.power.refused.values()
            ],
        },
        "error": None if error is None else {"key": error.key, "what": error.what()},
    }
