"""A comparison as a review comment in markdown: verdict, table, differences, and folded away how it was judged."""

from __future__ import annotations

import re
from collections.abc import Sequence

from servemark.analysis.compare_types import JUDGED, CompareView
from servemark.base.messages import text
from servemark.base.printable import one_line
from servemark.cli.compare_view import MARKS, curve_name, difference_rows, left_lines

MAX_ROWS = 12
MAX_CURVES = 4
MAX_CELL = 160
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~@!&$])")


def markdown_text(view: CompareView, problems: Sequence[str] = ()) -> str:
    """The whole comment; names from files cannot make markup, links or mentions in it."""
    lines = [f"### {MARKS[view.verdict]} {escaped(view.headline)}", ""]
    lines.append(f"A: {escaped(view.a_label)}  ")
    lines.append(f"B: {escaped(view.b_label)}" + (f"  \n{escaped(view.common)}" if view.common else ""))
    lines += [f"\n→ {escaped(hint)}" for hint in view.hints]
    if view.metrics:
        lines += ["", *_metrics(view)]
    rows = difference_rows(view)
    if rows and len(view.pairs) > 1:
        lines += ["", *_differences(view)]
    lines += [
        f"- {MARKS[each.verdict]} {escaped(curve_name(each))}: {escaped(each.text)}"
        for each in [each for each in view.curves if each.text][:MAX_CURVES]
    ]
    folded = [
        *view.how,
        *left_lines("A", view.left_a),
        *left_lines("B", view.left_b),
        *(f"! {problem}" for problem in problems),
    ]
    if folded:
        lines += ["", f"<details><summary>{escaped(text('compare.head.how'))}</summary>", ""]
        lines += [f"- {escaped(each)}" for each in folded]
        lines += ["", "</details>"]
    return "\n".join(lines)


def escaped(said: str) -> str:
    """Text on one line that is shown as it is, cut to MAX_CELL letters in the middle of nowhere important."""
    return _SPECIAL.sub(r"\\\1", one_line(said))


def _row(cells: Sequence[str]) -> str:
    return (
        "| "
        + " | ".join(escaped(cell if len(cell) <= MAX_CELL else cell[: MAX_CELL - 1] + "…") for cell in cells)
        + " |"
    )


def _metrics(view: CompareView) -> list[str]:
    several = len(view.pairs) > 1
    heads = [text("compare.head.figure"), text("compare.head.mean" if several else "compare.head.effect")]
    if several:
        heads += [text(f"compare.verdict.{name}") for name in JUDGED]
        rows = [
            [each.label, each.mean_text or "—", *(str(each.counts.get(name, 0)) for name in JUDGED)]
            for each in view.metrics
        ]
    else:
        heads = [text(f"compare.head.{name}") for name in ("figure", "a", "b", "effect", "verdict")]
        rows = [
            [each.label, each.a_text, each.b_text, f"{each.effect_text} ({each.interval_text})" if each.effect_text else "—",
             f"{MARKS[each.verdict]} {each.verdict_text}"]
            for pair in view.pairs
            for each in pair.judged
        ]  # fmt: skip
    return [_row(heads), _row(["---"] * len(heads)).replace("\\", ""), *(_row(row) for row in rows)]


def _differences(view: CompareView) -> list[str]:
    rows = [(pair, each) for pair, each in difference_rows(view) if each.verdict in {"worse", "better"}]
    if not rows:
        return []
    heads = [text(f"compare.head.{name}") for name in ("point", "figure", "a", "b", "effect", "verdict")]
    shown = [
        [pair.label, each.label, each.a_text, each.b_text, f"{each.effect_text} ({each.interval_text})",
         f"{MARKS[each.verdict]} {each.verdict_text}"]
        for pair, each in rows[:MAX_ROWS]
    ]  # fmt: skip
    lines = [_row(heads), _row(["---"] * len(heads)), *(_row(row) for row in shown)]
    more = len(rows) - MAX_ROWS
    return (
        [*lines, "", escaped(text("compare.more_rows", None, count=more)), ""] if more > 0 else [*lines, ""]
    )
