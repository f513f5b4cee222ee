"""One node's findings for a terminal: worst first, what was found, what is needed, and how it is mended."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterable

from servemark.base.joined import in_list
from servemark.base.messages import text
from servemark.preflight.finding import VERDICTS, Finding, Verdict
from servemark.preflight.report import Report

MAX_WIDTH = 120


def terminal_width() -> int:
    """Columns to fill: the terminal's, at most 120, at least 40."""
    return max(40, min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH))


def report_lines(report: Report, width: int) -> list[str]:
    """The head, then every finding. Facts that nobody asked about come last, in reading order."""
    needs = report.needs
    head = text(
        "preflight.view.head",
        None,
        subject=text("preflight.view.for", None, node=report.facts.node, arm=needs.arm)
        if needs is not None
        else report.facts.node,
        counts=counts_said(report.counts()),
    )
    lines = [*wrapped(head, width, "", "  "), ""]
    labels = max(columns(text(f"preflight.topic.{f.topic}")) for f in report.findings)
    marks = max(columns(text(f"preflight.verdict.{f.verdict}")) for f in report.findings)
    ordered = sorted(report.findings, key=lambda finding: VERDICTS.index(finding.verdict))
    for finding in ordered:
        lines += finding_lines(finding, width, marks, labels)
    return lines


def counts_said(counts: dict[Verdict, int]) -> str:
    """`1 FAIL, 2 warn, 9 ok`."""
    return in_list(f"{n} {text(f'preflight.verdict.{v}')}" for v, n in counts.items() if n)


def finding_lines(finding: Finding, width: int, marks: int, labels: int) -> list[str]:
    """One finding. Commands are never wrapped, so that they can be copied."""
    mark = padded(text(f"preflight.verdict.{finding.verdict}"), marks)
    label = padded(text(f"preflight.topic.{finding.topic}"), labels)
    start = f"{mark}  {label}  "
    indent = " " * columns(start)
    lines = wrapped(finding.found.said(), width, start, indent)
    words = {part: text(f"preflight.view.{part}") for part in ("needs", "mend")}
    room = max(columns(word) for word in words.values())
    if finding.need is not None:
        lines += wrapped(
            finding.need.said(), width, f"{indent}{padded(words['needs'], room)}  ", indent + " " * (room + 2)
        )
    for why in finding.why:
        lines += wrapped(why.said(), width, indent, indent)
    for number, command in enumerate(finding.commands):
        word = words["mend"] if number == 0 else ""
        lines.append(f"{indent}{padded(word, room)}  {command.line}")
        if command.must_print is not None:
            said = text("preflight.view.print", None, expected=command.must_print)
            lines.append(f"{indent}{' ' * room}  ({said})")
    return lines


def wrapped(said: str, width: int, first: str, rest: str) -> list[str]:
    """Lines no wider than `width` columns, wide characters counted twice."""
    room = width - max(columns(first), columns(rest))
    lines: list[str] = []
    current = ""
    for part in _parts(said):
        if current and columns(current + part.rstrip()) > room:
            lines.append(current.rstrip())
            current = part.lstrip()
        else:
            current += part
    lines.append(current.rstrip())
    return [(first if number == 0 else rest) + line for number, line in enumerate(lines)]


def _parts(said: str) -> Iterable[str]:
    """Pieces after which a line may end: words, and single characters of languages written without blanks."""
    piece = ""
    for letter in said:
        wide = unicodedata.east_asian_width(letter) in "WF"
        opens = wide and unicodedata.category(letter) in {"Po", "Pe"}
        if wide and piece and not opens:
            yield piece
            piece = ""
        piece += letter
        if letter == " ":
            yield piece
            piece = ""
    if piece:
        yield piece


def columns(said: str) -> int:
    """Columns of a text on a terminal: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in said)


def padded(said: str, width: int) -> str:
    """Filled up with blanks on the right."""
    return said + " " * max(0, width - columns(said))
