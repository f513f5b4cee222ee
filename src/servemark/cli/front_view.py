"""A front in the terminal: what is looked at, a small plot, the points on the front, what they say."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

from rich.console import Console
from rich.text import Text as RichText

from servemark.analysis.axes import AxisInfo
from servemark.analysis.format import Display, significant
from servemark.analysis.front_types import FrontView
from servemark.analysis.labels import display_of
from servemark.analysis.stretches import stretches
from servemark.analysis.workload_names import named
from servemark.base.messages import text
from servemark.base.printable import printable
from servemark.cli.safe_text import Text
from servemark.cli.scatter import Mark, scales, scatter
from servemark.cli.text_table import columns_of, padded, shortened, wrapped
from servemark.metrics.address import parse
from servemark.metrics.registry import Better

FEW = 3
"""Reasons that are told in full where no point can stand on a front."""
PLOT_HEIGHT = 14
PLOT_WIDTH = 96
EDGE = 9
COLOURS = ("blue", "dark_orange", "green", "magenta", "cyan", "red", "yellow")
"""One a series, in turn; its letter says the same without colour."""
HEAD_WIDTH = 13
"""Columns of a heading before it breaks."""
NARROWEST = 18
"""Columns that a name keeps on a narrow terminal."""
ENOUGH = 36
"""Columns of a configuration before further columns are given room."""


def print_front(view: FrontView, *, all_lines: bool, plot: bool) -> None:
    """Everything on stdout. Width is the terminal's, 80 where there is none."""
    console = Console(highlight=False, soft_wrap=True)
    width = max(console.width, 40)
    if view.selection is not None and view.selection.words():
        words = text(
            "front.cli.selected", None, words=named(" ".join(view.selection.words()), view.workloads)
        )
        for line in wrapped(printable(words), width, ""):
            console.print(Text(line, "bold"))
    for badge in view.badges:
        console.print(Text(f"! {badge}", "bold yellow"))
    axes = text("front.cli.axes", None, x=_axis(view.x), y=_axis(view.y))
    for line in wrapped(axes, width, ""):
        console.print(Text(line, "dim"))
    letters = _letters(view)
    if plot:
        _plot(console, view, letters, min(width, PLOT_WIDTH))
    if view.groups and view.groups[0].on:
        console.print()
        _legend(console, view, letters, width)
        _front_table(console, view, letters, width)
    if all_lines:
        _lines(console, view, letters, width)
    console.print()
    for sentence in view.findings:
        _sentence(console, "•", sentence, width, "")
    if not all_lines and not (view.groups and view.groups[0].on):
        _kept_off(console, view, width)
    for sentence in view.notes:
        _sentence(console, "!", sentence, width, "yellow")
    listed = len(view.rows) if all_lines else len(view.groups[0].on) if view.groups else 0
    if listed < len(view.rows):
        console.print(Text(text("front.cli.more", None, more=len(view.rows) - listed), "dim"))


def _kept_off(console: Console, view: FrontView, width: int) -> None:
    """Where nothing stands on a front: why in full, and where to ask further."""
    off = [row for row in view.rows if row.reason is not None]
    for reason in list(dict.fromkeys(row.reason for row in off if row.reason is not None))[:FEW]:
        _sentence(console, "✗", view.reasons[reason], width, "red")
    if off:
        console.print(Text(text("front.cli.ask", None, ref=off[0].ref), "dim"))


def _axis(info: AxisInfo) -> str:
    better = text(f"metrics.better.{info.better}")
    return text("front.cli.axis", None, label=info.label, unit=info.unit, better=better)


def _sentence(console: Console, mark: str, sentence: str, width: int, style: str) -> None:
    first, *rest = wrapped(sentence, width - 2, "") or [""]
    console.print(Text(f"{mark} {first}", style))
    for line in rest:
        console.print(Text(f"  {line.strip()}", style))


def _letters(view: FrontView) -> dict[int, str]:
    """One letter a series that stands on the main front, in the order of the series."""
    holders = sorted(
        {view.lines[view.rows[row].line].series for row in view.groups[0].on} if view.groups else ()
    )
    return {
        place: (ascii_lowercase + ascii_lowercase.upper() + "?" * len(holders))[n]
        for n, place in enumerate(holders)
    }


def _style(letters: dict[int, str], place: int) -> str:
    order = list(letters).index(place) if place in letters else 0
    return f"bold {COLOURS[order % len(COLOURS)]}" if place in letters else "dim"


def _plot(console: Console, view: FrontView, letters: dict[int, str], width: int) -> None:
    """Points of the main group; nothing where there are fewer than two."""
    of = [view.lines[row.line].series for row in view.rows]
    held = set(view.groups[0].on) if view.groups else set()
    shown_x, shown_y = _displays(view)
    marks, places = [], {}
    for number, row in enumerate(view.rows):
        if (
            row.reason is None
            and row.x is not None
            and row.y is not None
            and view.series[of[number]].group == 0
        ):
            letter = letters.get(of[number], "·") if row.official else "✕"
            marks.append(
                Mark(
                    row.x * shown_x.factor, row.y * shown_y.factor, letter, number in held or not row.official
                )
            )
            places[letter] = of[number]
    if len(marks) < 2:
        return
    path = [(x * shown_x.factor, y * shown_y.factor) for x, y in view.groups[0].path]
    inner = width - EDGE - 2
    x_scale, y_scale = scales(marks)
    console.print()
    rows = scatter(marks, path, inner, PLOT_HEIGHT)
    for number, cells in enumerate(rows):
        edge = {0: significant(y_scale.high), PLOT_HEIGHT - 1: significant(y_scale.low)}.get(number, "")
        line = RichText(f"{edge:>{EDGE}} ┤", "dim")
        for cell in cells:
            style = (
                _style(letters, places[cell.letter])
                if cell.kind == "front" and cell.letter in places
                else "dim"
            )
            line.append(cell.letter, style)
        line.rstrip()
        console.print(line)
    console.print(Text(" " * (EDGE + 1) + "└" + "─" * inner, "dim"))
    low, high = significant(x_scale.low), significant(x_scale.high)
    unit = shown_x.unit
    tail = f"{high} {unit}".rstrip()
    console.print(Text(" " * (EDGE + 2) + low + tail.rjust(max(1, inner - len(low))), "dim"))


def _legend(console: Console, view: FrontView, letters: dict[int, str], width: int) -> None:
    """Which letter is which series, and how much of the front's range it holds."""
    on = [(view.lines[view.rows[row].line].series, view.rows[row].x or 0.0) for row in view.groups[0].on]
    spans = stretches(on, Better(view.x.better))
    whole = spans[-1][2] - spans[0][1]
    for place, letter in letters.items():
        held = sum(high - low for series, low, high in spans if series == place)
        share = text("front.cli.share", None, percent=_percent(held / whole)) if whole > 0 else ""
        name = shortened(printable(view.series[place].label), max(NARROWEST, width - 5 - columns_of(share)))
        line = Text(letter, _style(letters, place)) + Text(f"  {name}") + Text(f"  {share}", "dim")
        line.rstrip()
        console.print(line)
    console.print()


def _percent(share: float) -> str:
    return str(round(100 * share)) if share >= 0.005 else "<1"


def _displays(view: FrontView) -> tuple[Display, Display]:
    """How the values of each axis are written, all alike."""
    x = display_of(parse(view.x.address), [row.x for row in view.rows])
    return x, display_of(parse(view.y.address), [row.y for row in view.rows])


def _front_table(console: Console, view: FrontView, letters: dict[int, str], width: int) -> None:
    """The points on the main front, the best in x last."""
    _table(console, view, letters, list(view.groups[0].on), width)


def _lines(console: Console, view: FrontView, letters: dict[int, str], width: int) -> None:
    """Every row, by line."""
    for line in view.lines:
        console.print()
        series = view.series[line.series]
        said = text(
            "front.cli.line",
            None,
            series=series.label,
            configuration=line.label,
            run=line.run,
            date=line.date or "—",
        )
        for part in wrapped(said, width, ""):
            console.print(Text(part, "bold"))
        if not series.official:
            console.print(Text(text("front.cli.unofficial"), "yellow"))
        _table(console, view, letters, list(line.points), width, named=False)
        for reason in dict.fromkeys(view.rows[row].reason for row in line.points):
            if reason is not None:
                _sentence(console, "✗", view.reasons[reason], width, "red")


def _table(
    console: Console,
    view: FrontView,
    letters: dict[int, str],
    rows: Sequence[int],
    width: int,
    *,
    named: bool = True,
) -> None:
    """Configuration (where the rows are of several), load, both axes, further columns that fit, date."""
    heads, cells = _cells(view, letters, rows, named)
    heads = _stacked(heads)
    widths = [max(columns_of(each) for each in column) for column in zip(*heads, *cells, strict=True)]
    kept = _fitting(widths, width, named)
    if named:
        rest = sum(widths[i] for i in kept if i != 1) + 2 * (len(kept) - 1)
        widths[1] = min(widths[1], max(NARROWEST, width - rest))
    for head in heads:
        console.print(Text(_row([head[i] for i in kept], [widths[i] for i in kept], named), "dim"))
    for row, line in zip(rows, cells, strict=True):
        place = view.lines[view.rows[row].line].series
        done = _row([line[i] for i in kept], [widths[i] for i in kept], named)
        style = _style(letters, place) if view.rows[row].state == "on" else "dim"
        console.print(Text(done[:1], style) + Text(done[1:], "" if view.rows[row].state == "on" else "dim"))


def _stacked(heads: list[list[str]]) -> list[list[str]]:
    """Headings on as many lines as their words need, the units last, standing on the rows below."""
    names, units = heads
    broken = [[part.strip() for part in wrapped(name, HEAD_WIDTH, "")] for name in names]
    depth = max(len(parts) for parts in broken)
    columns = [
        ["", *parts] if not unit else [*parts, unit] for parts, unit in zip(broken, units, strict=True)
    ]
    columns = [[""] * (depth + 1 - len(parts)) + parts for parts in columns]
    return [list(line) for line in zip(*columns, strict=True)]


def _row(cells: Sequence[str], widths: Sequence[int], named: bool) -> str:
    left = {0, 1} if named else {0}
    done = [
        padded(shortened(cell, w), w, left=i in left)
        for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(done).rstrip()


def _fitting(widths: Sequence[int], width: int, named: bool) -> list[int]:
    """Places of the columns that fit: mark, configuration, load and both axes always, then the others from the left."""
    always = 5 if named else 4
    kept = list(range(always))
    used = sum(widths[:always]) + 2 * (always - 1)
    if named:
        used -= max(0, widths[1] - ENOUGH)
    for place in range(always, len(widths)):
        if used + 2 + widths[place] <= width:
            kept.append(place)
            used += 2 + widths[place]
    return kept


def _further(info: AxisInfo, shown: Display, value: float | None) -> str:
    """A figure of a further column; a deployment on processors alone has no GPU, rather than 0 of them."""
    return text("front.cli.no_gpu") if info.address == "gpus_deployed" and value == 0 else shown.number(value)


def _cells(
    view: FrontView, letters: dict[int, str], rows: Sequence[int], named: bool
) -> tuple[list[list[str]], list[list[str]]]:
    """Two rows of headings (names, units) and a row of cells a point."""
    shown_x, shown_y = _displays(view)
    more = [(info, display_of(parse(info.address), view.values[info.address])) for info in view.more]
    names = [
        "",
        *([text("front.cli.configuration")] if named else []),
        text("front.cli.load"),
        view.x.label,
        view.y.label,
    ]
    heads = [
        [*names, text("front.cli.date"), *(info.label for info, _ in more)],
        [*[""] * (len(names) - 2), shown_x.unit, shown_y.unit, "", *(shown.unit for _, shown in more)],
    ]
    cells = []
    for number in rows:
        row = view.rows[number]
        line = view.lines[row.line]
        cells.append(
            [
                letters.get(line.series, " ")
                if row.state == "on"
                else {"dominated": "·", "beyond": "✕"}.get(row.state, "✗"),
                *([printable(line.label)] if named else []),
                "—" if row.concurrency is None else str(row.concurrency),
                shown_x.number(row.x),
                shown_y.number(row.y),
                line.date or "—",
                *(_further(info, shown, view.values[info.address][number]) for info, shown in more),
            ]
        )
    return heads, cells
