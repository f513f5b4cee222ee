"""A comparison in the terminal: the verdict, each figure over all pairs, the differences, curves, what was left out, how it
was judged. Draws a `CompareView`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from servemark.analysis.compare_types import (
    JUDGED,
    CompareView,
    Curve,
    Judged,
    LeftOut,
    Pair,
    Verdict,
)
from servemark.analysis.format import SPACE
from servemark.base.messages import text
from servemark.cli.plot import PlotPoint, front_plot
from servemark.cli.safe_text import Text
from servemark.cli.text_table import columns_of, table, wrapped

MAX_WIDTH = 120
FEW_PAIRS = 4
"""Up to so many pairs every figure is listed; of more only those that differ."""
MAX_ROWS = 20
MAX_CURVES = 6
PLOT_HEIGHT = 10
MARKS: dict[Verdict, str] = {
    "worse": "✗",
    "better": "✓",
    "same": "=",
    "cannot_tell": "?",
    "absent": "—",
    "refused": "≠",
}
STYLES: dict[Verdict, str] = {
    "worse": "red",
    "better": "green",
    "same": "",
    "cannot_tell": "dim",
    "absent": "dim",
    "refused": "yellow",
}


def print_view(view: CompareView, problems: Sequence[str] = (), console: Console | None = None) -> None:
    """Everything, no wider than the terminal."""
    out = console or Console()
    width = min(out.width, MAX_WIDTH)
    _lines(out, f"A  {view.a_label}", width, "dim", "")
    _lines(out, f"B  {view.b_label}", width, "dim", "")
    if view.common:
        _lines(out, view.common, width, "", "")
    out.print()
    _lines(out, f"{MARKS[view.verdict]} {view.headline}", width, f"bold {STYLES[view.verdict]}".strip(), "")
    for hint in view.hints:
        _lines(out, f"→ {hint}", width, "", "")
    if len(view.pairs) > 1:
        out.print()
        _styled(out, _metric_rows(view), width)
    rows = difference_rows(view)
    if rows:
        out.print()
        _styled(out, _difference_table(rows[:MAX_ROWS], len(view.pairs)), width)
        if len(rows) > MAX_ROWS:
            _lines(out, text("compare.more_rows", None, count=len(rows) - MAX_ROWS), width, "dim", "")
    _changes(out, view, width)
    _curves(out, view, width)
    _left(out, view, width)
    for problem in problems:
        _lines(out, f"! {problem}", width, "yellow", "")
    if view.how:
        out.print()
    for said in view.how:
        _lines(out, said, width, "dim", "")


def _lines(out: Console, said: str, width: int, style: str, indent: str) -> None:
    for line in wrapped(said, width, indent):
        out.print(Text(line, style=style), soft_wrap=True)


_Rows = tuple[list[str], list[tuple[Verdict | None, list[str]]], int]
"""Heads, rows with the verdict that colours them, the flexible column."""


def _styled(out: Console, rows: _Rows, width: int) -> None:
    heads, body, flexible = rows
    titles = {number: cells[0] for number, (_, cells) in enumerate(body) if not any(cells[1:])}
    shown = [["", *cells[1:]] if number in titles else cells for number, (_, cells) in enumerate(body)]
    for number, line in enumerate(table(heads, shown, width, flexible), -2):
        if number in titles:
            _lines(out, titles[number], width, "bold", "")
            continue
        verdict = body[number][0] if number >= 0 else None
        style = STYLES[verdict] if verdict else "dim" if number == -1 else ""
        out.print(Text(line, style=style), soft_wrap=True)


def _metric_rows(view: CompareView) -> _Rows:
    heads = [text("compare.head.figure"), text("compare.head.mean")]
    heads += [text(f"compare.verdict.{name}") for name in JUDGED]
    body: list[tuple[Verdict | None, list[str]]] = []
    for each in view.metrics:
        counts = [str(each.counts.get(name, 0) or "·") for name in JUDGED]
        body.append((each.verdict, [each.label, each.mean_text or "—", *counts]))
    return heads, body, 0


def difference_rows(view: CompareView) -> list[tuple[Pair, Judged]]:
    """Every figure of few pairs; of many only those that differ, the surest first."""
    rows = [(pair, judged) for pair in view.pairs for judged in pair.judged]
    if len(view.pairs) <= FEW_PAIRS:
        return rows
    differ = [(pair, judged) for pair, judged in rows if judged.verdict in {"worse", "better"}]
    return sorted(differ, key=lambda row: (row[1].verdict != "worse", row[1].p_adjusted or 0.0))


def _difference_table(rows: Sequence[tuple[Pair, Judged]], pairs: int) -> _Rows:
    """Figures below the configuration that they belong to; of a single pair with their intervals."""
    heads = [text(f"compare.head.{name}") for name in ("figure", "a_b", "effect", "verdict")]
    groups: dict[str, list[Judged]] = {}
    for pair, judged in rows:
        groups.setdefault(pair.label, []).append(judged)
    body: list[tuple[Verdict | None, list[str]]] = []
    for label, figures in groups.items():
        if pairs > 1:
            body.append((None, [label, "", "", ""]))
        for each in figures:
            effect = each.effect_text or each.reason or ""
            if pairs == 1 and each.interval_text:
                effect += f" ({each.interval_text})"
            name = each.label if pairs == 1 else f"  {each.label}"
            body.append(
                (
                    each.verdict,
                    [name, values_text(each), effect, f"{MARKS[each.verdict]} {each.verdict_text}"],
                )
            )
    return heads, body, 0


def values_text(each: Judged) -> str:
    """`405 → 396 tok/s/GPU`: the unit once where it is the same."""
    a, _, unit_a = each.a_text.partition(SPACE)
    _, _, unit_b = each.b_text.partition(SPACE)
    return f"{a if unit_a == unit_b else each.a_text} → {each.b_text}"


def _changes(out: Console, view: CompareView, width: int) -> None:
    """What else differs between the two sides of pairs: image, recipe, versions."""
    counts = Counter((each.label, each.a, each.b) for pair in view.pairs for each in pair.changed)
    if not counts:
        return
    out.print()
    for (label, a, b), count in counts.most_common(FEW_PAIRS):
        key = "compare.change" if count == len(view.pairs) else "compare.change_some"
        _lines(out, text(key, None, label=label, a=a, b=b, count=count), width, "dim", "")


def _curves(out: Console, view: CompareView, width: int) -> None:
    if not view.curves:
        return
    drawn = [each for each in view.curves if each.text]
    out.print()
    if drawn:
        best = max(drawn, key=_worth)
        _plot(out, best, width)
    for each in view.curves[:MAX_CURVES]:
        said = each.text or each.reason or ""
        style = STYLES[each.verdict]
        line = text("compare.curve.row", None, name=curve_name(each), said=said)
        _lines(out, f"{MARKS[each.verdict]} {line}", width, style, "")
    if len(view.curves) > MAX_CURVES:
        _lines(out, text("compare.more_curves", None, count=len(view.curves) - MAX_CURVES), width, "dim", "")


def curve_name(curve: Curve) -> str:
    """`line h100 · vllm`, or `front` alone where all its parts are common."""
    return f"{text(f'compare.curve.{curve.kind}')} {curve.label}".strip()


def _worth(curve: Curve) -> tuple[bool, bool, int]:
    """What makes a curve worth drawing: a difference, one line and not many, points."""
    return curve.verdict in {"worse", "better"}, curve.kind == "line", len(curve.a) + len(curve.b)


def _plot(out: Console, curve: Curve, width: int) -> None:
    points = [
        PlotPoint(each.x, each.y, "" if each.concurrency is None else f"c{each.concurrency}", side == "a")
        for side, some in (("a", curve.a), ("b", curve.b))
        for each in some
        if math.isfinite(each.x) and math.isfinite(each.y)
    ]
    lines = front_plot(points, (), max(24, width - 12), PLOT_HEIGHT)
    if not lines:
        return
    xs, ys = [each.x for each in points], [each.y for each in points]
    _lines(out, curve_name(curve), width, "bold", "")
    _lines(out, f"{curve.y.label} ({curve.y.unit})   ● A   ○ B", width, "dim", "")
    for number, line in enumerate(lines):
        edge = (
            f"{max(ys):>8.4g}" if number == 0 else f"{min(ys):>8.4g}" if number == len(lines) - 1 else " " * 8
        )
        out.print(Text(f"{edge} ┤", style="dim") + Text(line), soft_wrap=True)
    inner = max(24, width - 12)
    low, high = f"{min(xs):.4g}", f"{max(xs):.4g}"
    out.print(Text(" " * 9 + "└" + "─" * inner, style="dim"), soft_wrap=True)
    middle = f"{curve.x.label} ({curve.x.unit})"
    gap = inner - len(low) - len(high)
    before = max(1, (gap - columns_of(middle)) // 2)
    after = max(1, gap - columns_of(middle) - before)
    out.print(Text(f"{'':10}{low}{'':{before}}{middle}{'':{after}}{high}", style="dim"), soft_wrap=True)


def _left(out: Console, view: CompareView, width: int) -> None:
    """Points without a partner, by side and reason."""
    if not view.left_a and not view.left_b:
        return
    out.print()
    for side, some in (("A", view.left_a), ("B", view.left_b)):
        for line in left_lines(side, some):
            _lines(out, line, width, "dim", "")


def left_lines(side: str, some: Sequence[LeftOut]) -> list[str]:
    """One line a reason, with the first few points by name."""
    groups: dict[str, list[LeftOut]] = {}
    for each in some:
        groups.setdefault(each.reason, []).append(each)
    found = []
    for reason, points in groups.items():
        names = ", ".join(dict.fromkeys(each.label for each in points[:2]))
        more = ", …" if len(points) > 2 else ""
        found.append(
            text("compare.left_line", None, side=side, count=len(points), reason=reason, names=names + more)
        )
    return found
