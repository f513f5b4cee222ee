"""Many nodes as one table: what differs first, then what all have in common, then where to look."""

from __future__ import annotations

from servemark.base.messages import text
from servemark.cli.preflight_view import columns, padded, wrapped
from servemark.preflight.merge import Merged, Row


def merge_lines(merged: Merged, width: int) -> list[str]:
    """A head, rows that differ, rows that agree, failed findings, and the odd nodes."""
    nodes = merged.nodes
    differing = [row for row in merged.rows if row.odd]
    alike = [row for row in merged.rows if not row.odd]
    arm = nodes[0].arm
    subject = text("preflight.merge.nodes", None, count=len(nodes))
    if arm is not None:
        subject = text("preflight.view.for", None, node=subject, arm=arm)
    head = text(
        "preflight.merge.head",
        None,
        subject=subject,
        alike=len(alike),
        differing=len(differing),
    )
    lines = wrapped(head, width, "", "  ")
    if differing:
        lines += ["", text("preflight.merge.differing"), *_table(differing, len(nodes), width)]
    if alike:
        lines += ["", text("preflight.merge.alike")]
        lines += wrapped("; ".join(f"{_name(row)} {row.common}" for row in alike), width, "  ", "  ")
    lines += _failed(merged, width)
    return [*lines, "", *_odd(merged, width)]


def _name(row: Row) -> str:
    return text(f"preflight.merge.fact.{row.fact}")


def _table(rows: list[Row], total: int, width: int) -> list[str]:
    """Fact, what most have, who differs and how."""
    names = [_name(row) for row in rows]
    commons = [
        text("preflight.merge.common", None, value=row.common, count=row.agreeing, total=total)
        if row.common is not None
        else text("preflight.merge.no_majority")
        for row in rows
    ]
    first = max(columns(name) for name in names)
    second = min(max(columns(one) for one in commons), max(16, (width - first) // 2 - 4))
    lines = []
    for name, common, row in zip(names, commons, rows, strict=True):
        odd = ", ".join(f"{node} {value}" for node, value in row.odd.items())
        left = wrapped(common, second, "", "")
        right = wrapped(odd, width - first - second - 6, "", "")
        for number in range(max(len(left), len(right))):
            label = padded(name if number == 0 else "", first)
            middle = padded(left[number] if number < len(left) else "", second)
            tail = right[number] if number < len(right) else ""
            lines.append(f"  {label}  {middle}  {tail}".rstrip())
    return lines


def _failed(merged: Merged, width: int) -> list[str]:
    """Nodes that fail in the same topics share a line."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node in merged.nodes:
        if node.failed_topics:
            groups.setdefault(node.failed_topics, []).append(node.name)
    lines = []
    for topics, names in groups.items():
        said = ", ".join(text(f"preflight.topic.{topic}") for topic in topics)
        line = text("preflight.merge.failed", None, node=", ".join(names), topics=said)
        lines += wrapped(line, width, "  ", "    ")
    return ["", text("preflight.merge.failing"), *lines] if lines else []


def _odd(merged: Merged, width: int) -> list[str]:
    odd = merged.odd
    if not odd:
        undecided = any(row.common is None for row in merged.rows)
        return wrapped(
            text("preflight.merge.undecided" if undecided else "preflight.merge.none_odd"), width, "", ""
        )
    lines = []
    for node, facts in odd.items():
        said = ", ".join(text(f"preflight.merge.fact.{fact}") for fact in facts)
        lines += wrapped(text("preflight.merge.look", None, node=node, facts=said), width, "", "  ")
    return lines
