"""One line in the terminal: table of points, staircase front, findings, problems. Draws `ReportData`."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from servemark.analysis.report_types import AxisChoice, PointView, ProblemGroup, ReportData
from servemark.base.joined import in_list, with_detail, with_head
from servemark.base.messages import text
from servemark.cli.plot import PlotPoint, front_plot
from servemark.cli.safe_text import Text
from servemark.cli.text_table import padded, wrapped

TERMINAL_COLUMNS = {
    "ttft_s.p50": "ttft_p50",
    "ttft_s.p90": "ttft_p90",
    "interactivity.p50": "interactivity_p50",
    "output_tokens_per_s": "output_rate",
    "cache_hit_usage": "cache_hit",
    "eval_score": "accuracy",
}
"""Address (or its part before the task's name) -> key of the short heading that fits a terminal."""
MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", "dim")}


def print_line(console: Console, data: ReportData) -> None:
    """Everything a person wants to know at the end of a run, in one screen."""
    console.print()
    console.print(Text(data.header.title, style="bold"))
    if data.header.weights is not None:
        console.print(Text(f"! {text('front.badge.weights')}", style="bold yellow"))
    facts = [data.header.model, data.header.engine, data.header.hardware]
    console.print(Text(" · ".join(fact for fact in facts if fact), style="dim"))
    console.print(_table(data))
    if data.axes and len(data.points) > 1:
        _front(console, data, data.axes[0])
    for sentence in data.findings:
        for line in wrapped(f"• {sentence}", console.width, ""):
            console.print(Text(line))
    for group in data.problem_groups:
        _problem(console, group)


def _problem(console: Console, group: ProblemGroup) -> None:
    """A doubt once, with the points it concerns; its own figures are in the report."""
    mark, style = MARKS[group.level]
    points = [f"c{p.concurrency}" for p in group.problems if p.concurrency is not None]
    said = group.problems[0].text
    if points:
        said = with_detail(said, in_list(dict.fromkeys(points)))
    first, *more = wrapped(f"{mark} {said}", console.width, "")
    console.print(Text(mark, style=style) + Text(first.removeprefix(mark)))
    for line in more:
        console.print(Text(line))
    if group.next_step:
        for line in wrapped(f"→ {group.next_step}", console.width, "  "):
            console.print(Text(line, style="dim"))


def _table(data: ReportData) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))  # 80 columns
    table.add_column(text("cli.table.concurrency"), justify="right", no_wrap=True, min_width=5)
    table.add_column(text("cli.table.requests"), justify="right", no_wrap=True, min_width=5)
    shown = [(i, column, _heading(column.address)) for i, column in enumerate(data.columns)]
    shown = [each for each in shown if each[2]]
    for _, column, heading in shown:
        unit = f"\n[dim]{column.unit}[/dim]" if column.unit else ""
        table.add_column(f"{heading}{unit}", justify="right", no_wrap=True)
    for point in data.points:
        counts = point.row.counts
        done = f"{counts.ok}/{counts.planned}"
        cells = [
            Text(point.cells[i].number, style="bold green" if point.cells[i].best else "")
            for i, _, _ in shown
        ]
        load = f"{MARKS['error'][0]} {point.load}" if point.quarantined else point.load
        table.add_row(
            Text(load, style="red" if point.quarantined else ""),
            Text(done, style="" if counts.ok == counts.planned else "red"),
            *cells,
        )
    return table


def _heading(address: str) -> str:
    """Short heading of a column, or "" for one that a terminal leaves out."""
    name = TERMINAL_COLUMNS.get(address) or TERMINAL_COLUMNS.get(address.partition(".")[0])
    return text(f"cli.table.{name}") if name else ""


def _front(console: Console, data: ReportData, axis: AxisChoice) -> None:
    by_run = {p.run_id: p.load if p.concurrency is None else f"c{p.load}" for p in data.points}
    on_front = {p.id for p in axis.front.on}
    points = [
        PlotPoint(p.x * axis.x_factor, p.y * axis.y_factor, by_run.get(p.id, "?"), p.id in on_front)
        for p in (*axis.front.on, *axis.front.dominated)
        if p.x is not None and p.y is not None
    ]
    steps = [(x * axis.x_factor, y * axis.y_factor) for x, y in axis.path]
    width = min(64, max(24, console.width - 14))
    lines = front_plot(points, steps, width, 10)
    if not lines:
        return
    ys = [p.y for p in points]
    xs = [p.x for p in points]
    console.print(Text(with_head(with_detail(axis.y_label, axis.y_unit), axis.y_better_text), style="dim"))
    for number, line in enumerate(lines):
        edge = (
            f"{max(ys):>8.3g}" if number == 0 else f"{min(ys):>8.3g}" if number == len(lines) - 1 else " " * 8
        )
        console.print(Text(f"{edge} ┤", style="dim") + Text(line))
    console.print(Text(" " * 9 + "└" + "─" * width, style="dim"))
    low, high = f"{min(xs):.3g}", f"{max(xs):.3g}"
    console.print(Text(f"{'':10}{low}{high:>{max(1, width - len(low))}}", style="dim"))
    label = with_head(with_detail(axis.x_label, axis.x_unit), axis.x_better_text)
    console.print(Text(f"{'':10}{padded(label, width, left=False)}", style="dim"))
    console.print()


def print_point(console: Console, data: ReportData, point: PointView) -> None:
    """All figures of one point, its cache shares, accuracy and phases."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for column, cell in zip(data.columns, point.cells, strict=True):
        table.add_row(
            column.label,
            cell.text if cell.absent_because is None else with_detail(cell.text, cell.absent_because),
        )
    told = {column.label for column in data.columns}
    for entry in point.cache.entries:
        if entry.label not in told:
            table.add_row(entry.label, entry.text)
    for panel in point.evals:
        table.add_row(panel.task, panel.text)
    console.print(table)
    console.print(Text(point.cache.state, style="dim"))
    phases = " · ".join(f"{phase.label} {phase.seconds:.1f} s" for phase in point.phases)
    console.print(Text(phases, style="dim"))
