"""A size report as a person reads it: the verdict, figures by role and scope with their tags; and as JSON."""

from __future__ import annotations

import shutil

from servemark.base.joined import with_detail, with_head
from servemark.base.messages import text
from servemark.cli.fit_summary import rest_lines, summary_lines
from servemark.cli.text_table import columns_of, padded, shortened_end, wrapped
from servemark.sizing.fit import FitReport, RoleFit
from servemark.sizing.lines import Line, Remark
from servemark.sizing.words import amount, number, verdict_text

MAX_WIDTH = 120
SCOPES = ("model", "rank", "share", "worker", "node", "role", "job", "request", "nic")


def report_lines(report: FitReport, *, explain: bool, details: bool = True) -> list[str]:
    """The report for a terminal: the verdict and its short, then, when asked for, every figure with its tag."""
    width = min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)
    asked = report.asked
    lines = wrapped(asked.title, width, "")
    card = asked.gpu.name.upper() if asked.gpu is not None else text("sizing.view.no_gpu")
    head = text(
        "sizing.view.head", None, model=asked.model.name, precision=asked.precision.name, gpu=card,
        context=f"{asked.context:,}",
    )  # fmt: skip
    lines += wrapped(head, width, "")
    lines += ["", *wrapped(verdict_text(report.verdict), width, "")]
    lines += summary_lines(report, width)
    if not details and not explain:
        for remark in report.remarks:
            if remark.severity != "note":
                lines.append(shortened_end(remark_text(remark), width))
        return lines + rest_lines(report, width)
    return [*lines, "", *_details(report, width, explain=explain)]


def _details(report: FitReport, width: int, *, explain: bool) -> list[str]:
    """Every figure by role and scope, all remarks, and what the tags mean."""
    lines: list[str] = []
    columns = _Columns(width, explain=explain)
    columns.section(text("sizing.view.model"), report.model)
    for made in report.roles:
        columns.role(made)
    if report.job:
        columns.section(text("sizing.view.job"), report.job)
    lines += columns.lines()
    if report.remarks:
        lines.append("")
        for remark in report.remarks:
            lines += wrapped(remark_text(remark), width, "")
    lines += ["", *wrapped(text("sizing.view.tags"), width, "")]
    if not explain:
        lines += wrapped(text("sizing.view.explain"), width, "")
    return lines


class _Columns:
    """Rows gathered first, so that all of them share their widths."""

    def __init__(self, width: int, *, explain: bool) -> None:
        self.width = width
        self.explain = explain
        self.rows: list[tuple[str, Line | None]] = []

    def section(self, title: str, lines: tuple[Line, ...]) -> None:
        """A titled block."""
        self.rows.append((title, None))
        self.rows += [("", line) for line in lines]

    def role(self, made: RoleFit) -> None:
        """A role's block, or that it is as an earlier one's."""
        role = made.role
        title = text(
            "sizing.view.role", None, role=text(f"sizing.role.{role.name}"), workers=role.workers,
            ranks=role.ranks_per_worker, engine=role.engine,
        )  # fmt: skip
        if made.same_as is not None:
            self.rows.append(
                (text("sizing.view.same", None, role=title, other=text(f"sizing.role.{made.same_as}")), None)
            )
            return
        self.section(title, made.lines)

    def lines(self) -> list[str]:
        """Label, scope, figure, tag; below it the formula when it was asked for."""
        cells = [
            (f"  {label_of(line)}", figure(line), tag_text(line)) for _, line in self.rows if line is not None
        ]
        if not cells:
            return []
        label, value, tag_width = (max(columns_of(cell[i]) for cell in cells) for i in (0, 1, 2))
        label = min(label, max(24, self.width - value - tag_width - 4))
        shown: list[str] = []
        for title, line in self.rows:
            if line is None:
                shown += ([""] if shown else []) + wrapped(title, self.width, "")
                continue
            name, value_text, tag = f"  {label_of(line)}", figure(line), tag_text(line)
            first, *more = wrapped(name, label, "") if columns_of(name) > label else [name]
            head = f"  {first.strip()}"
            shown.append(
                f"{padded(head, label, left=True)}  {padded(value_text, value, left=False)}  {tag}".rstrip()
            )
            shown += [f"    {part.strip()}" for part in more]
            if self.explain:
                shown += wrapped(f"= {formula_text(line)}", self.width, " " * 6)
        return shown


def label_of(line: Line) -> str:
    """What the figure is, with its scope."""
    return with_detail(text(f"sizing.line.{line.name}"), text(f"sizing.scope.{line.scope}"))


def figure(line: Line) -> str:
    """The figure with its unit: bytes in GiB and GB side by side, small ones in bytes."""
    return amount(line.value, line.unit)


def tag_text(line: Line) -> str:
    """`exact`, `declared`, `assumed ± 4.00 GiB`, `measured (estimate 1.2 % high)`."""
    if line.tag == "measured":
        off = line.off
        if off is None:
            return text("sizing.tag.measured")
        return text("sizing.tag.measured_off", None, off=f"{off * 100:+.2f} %")
    if line.margin is not None and line.tag == "assumed":
        return text("sizing.tag.assumed", None, margin=_margin(line))
    return text("sizing.tag.assumed_bare") if line.tag == "assumed" else text(f"sizing.tag.{line.tag}")


def _margin(line: Line) -> str:
    """The half-width in the line's larger unit alone."""
    margin = line.margin or 0.0
    if line.unit == "bytes":
        return amount(margin, "bytes").partition(" = ")[0]
    if line.unit == "seconds":
        return amount(margin, "seconds")
    return f"{margin:,.0f}" if margin >= 1 else f"{margin:,.1f}"


def formula_text(line: Line) -> str:
    """The formula with its numbers, and who says what is declared or measured."""
    values = {name: number(value) for name, value in line.formula.items()}
    said = text(f"sizing.line.{line.name}.formula", None, **values) if values else ""
    if line.tag == "measured" and line.source:
        before = "" if line.replaced is None else amount(line.replaced, line.unit)
        key = "sizing.view.measured" if before else "sizing.view.measured_alone"
        return text(key, None, source=line.source, estimate=before, formula=said)
    return said


def remark_text(remark: Remark) -> str:
    """A remark with its severity in front."""
    values = {}
    for name, value in remark.values.items():
        big = name in {"allocated", "budget"} and isinstance(value, (int, float))
        values[name] = amount(float(str(value)), "bytes") if big else number(value)
        if name == "role":
            values[name] = text(f"sizing.role.{value}")
        if name in {"least", "most"}:
            unit = "bytes" if remark.name.endswith("_bytes") else "tokens"
            values[name] = amount(float(str(value)), unit)
        if name in {"least_rank", "most_rank"}:
            values[name] = str(value) or "—"
        if name == "ratio" and isinstance(value, float):
            values[name] = f"{value:.2f}"
    said = text(f"sizing.remark.{remark.name}", None, **values)
    return with_head(text(f"sizing.severity.{remark.severity}"), said)


def report_plain(report: FitReport) -> dict[str, object]:
    """The report for machines: values in bytes, tokens, seconds; keys are stable."""
    asked = report.asked
    return {
        "target": asked.title,
        "model": asked.model.name,
        "precision": asked.precision.name,
        "gpu": asked.gpu.name if asked.gpu is not None else None,
        "context_tokens": asked.context,
        "verdict": {
            "kind": report.verdict.kind,
            "scope": report.verdict.scope or None,
            "missing_bytes": report.verdict.missing or None,
            "message": verdict_text(report.verdict),
        },
        "model_lines": [_plain(line) for line in report.model],
        "roles": [
            {"role": made.role.name, "same_as": made.same_as, "lines": [_plain(line) for line in made.lines]}
            for made in report.roles
        ],
        "job_lines": [_plain(line) for line in report.job],
        "remarks": [
            {"code": remark.name, "severity": remark.severity, "message": remark_text(remark)}
            for remark in report.remarks
        ],
    }


def _plain(line: Line) -> dict[str, object]:
    return {
        "name": line.name,
        "scope": line.scope,
        "value": line.value,
        "unit": line.unit,
        "tag": line.tag,
        "margin": line.margin,
        "formula": formula_text(line),
        "source": line.source,
        "estimate": line.replaced,
        "estimate_off": line.off,
    }
