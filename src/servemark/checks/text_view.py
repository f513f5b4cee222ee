"""Findings for a terminal: message, source line with a caret, the other places, what to do; then a summary."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from servemark.base.messages import text
from servemark.catalog.nodes import Position
from servemark.checks.check import Report, by_severity
from servemark.checks.model import SEVERITIES, Finding
from servemark.checks.places import Places, token_length

Paint = Callable[[str, str], str]
"""(text, role) -> text with colours; roles are the severities, `place`, `faint` and `caret`."""


def plain(said: str, role: str) -> str:
    """No colours."""
    del role
    return said


def width_of(said: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in said)


_PIECE = re.compile(r"\s+|[^\s\u2e80-\uffef]+|.", re.DOTALL)
"""Spaces, a word in narrow letters, or one wide letter."""
_NO_START, _NO_END = "，。；：、！？）》」”％", "（《「“"  # noqa: RUF001 - Chinese punctuation is meant
"""Punctuation that begins, or ends, no line."""


def _pieces(said: str) -> Iterator[str]:
    """What a line may be parted between; punctuation stays with its neighbour."""
    kept = ""
    for piece in _PIECE.findall(said):
        if kept and piece[0] not in _NO_START and kept[-1] not in _NO_END:
            yield kept
            kept = ""
        kept += piece
    if kept:
        yield kept


def wrapped(said: str, width: int, first: str, rest: str) -> list[str]:
    """A text in lines of at most `width` columns. Wide letters count twice and may be parted anywhere but at
    punctuation; a word in narrow letters is parted only where no line could hold it."""
    if width_of(said) == len(said):
        return textwrap.wrap(
            said, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
        )
    lines, line, begun = [], first, False
    for piece in _pieces(said):
        if begun and width_of(line + piece.rstrip()) > width:
            lines.append(line.rstrip())
            line, begun = rest, False
        if not begun and piece.isspace():
            continue
        for letter in piece if width_of(line + piece.rstrip()) > width else (piece,):
            if width_of(line + letter.rstrip()) > width:
                lines.append(line)
                line = rest
            line += letter
        begun = True
    return [*lines, line.rstrip()]


def finding_lines(finding: Finding, places: Places, width: int, paint: Paint) -> Iterator[str]:
    """One finding in full."""
    head = f"{text(f'checks.severity.{finding.severity}')}[{finding.code}]"
    lines = wrapped(f"{head}: {finding.message()}", width, "", "  ")
    yield paint(lines[0][: len(head)], finding.severity) + lines[0][len(head) :]
    yield from lines[1:]
    yield from _excerpt(finding.at, places, width, paint)
    for related in finding.related:
        yield from wrapped(related.note(), width, "  = ", "    ")
        yield from _excerpt(related.at, places, width, paint, "-")
    if finding.arm is not None:
        yield paint(f"  = {text('checks.view.arm', None, arm=finding.arm)}", "faint")
    if finding.fix is not None:
        key = "checks.view.fix" if finding.fix.safe else "checks.view.fix_unsafe"
        yield from wrapped(text(key, None, old=finding.fix.old, new=finding.fix.new), width, "  = ", "    ")
    step = finding.next_step()
    if step:
        yield from wrapped(text("checks.view.next", None, step=step), width, "  = ", "    ")


def _excerpt(at: Position, places: Places, width: int, paint: Paint, mark: str = "^") -> Iterator[str]:
    """The place on a line of its own, whole, so that an editor or a shell can take it; then its source."""
    arrow = "-->" if mark == "^" else ":::"
    yield paint(f"  {arrow} {places.shown(at.file)}:{at.line}:{at.column}", "place")
    yield from _source(at, places, width, paint, mark)


def _source(at: Position, places: Places, width: int, paint: Paint, mark: str) -> Iterator[str]:
    line = places.line(at)
    if line is None or not line.strip():
        return
    gutter = f"{at.line:>6} | "
    room = max(width - len(gutter), 20)
    start = min(max(at.column - 1, 0), len(line))
    length = token_length(line, start)
    line = "".join(c if c.isprintable() else "�" for c in line)
    cut = 0
    if width_of(line) > room and start + min(length, 30) > room - 2:
        cut = max(start - room // 3, 0)
    ahead = line[cut : cut + room + 1]  # no more can be shown, however long the line is
    shown = ("…" if cut else "") + ahead
    while width_of(shown) > room:
        shown = shown[:-2] + "…"
    before = width_of(("…" if cut else "") + line[cut:start])
    carets = max(min(width_of(line[start : start + length]), room - before), 1)
    yield f"{paint(gutter, 'faint')}{shown}"
    yield f"{paint(' ' * 6 + ' | ', 'faint')}{' ' * before}{paint(mark * carets, 'caret')}"


def report_lines(
    report: Report, places: Places, width: int, paint: Paint, *, notes: bool, known: int = 0
) -> Iterator[str]:
    """All findings and the summary; notes only when asked for, else their number by kind."""
    for severity, some in by_severity(report.findings):
        for finding in some if severity != "note" or notes else ():
            yield from finding_lines(finding, places, width, paint)
            yield ""
    yield from summary_lines(report, width, paint, notes=notes, known=known)


def summary_lines(report: Report, width: int, paint: Paint, *, notes: bool, known: int = 0) -> Iterator[str]:
    """Findings by family, notes by kind, and one last line that says it all."""
    if report.findings:
        rows = Counter((finding.family, finding.severity) for finding in report.findings)
        heads = [text(f"checks.severity.{severity}.many") for severity in SEVERITIES]
        yield text("checks.view.families")
        columns = [max(width_of(head), 6) for head in heads]
        first = max(width_of(_family(family)) for family, _ in rows)
        yield "  " + " " * first + "".join(f"  {_right(h, c)}" for h, c in zip(heads, columns, strict=True))
        for family in sorted({family for family, _ in rows}):
            numbers = [str(rows[family, severity] or "·") for severity in SEVERITIES]
            name = _family(family)
            padded = name + " " * (first - width_of(name))
            yield f"  {padded}" + "".join(f"  {_right(n, c)}" for n, c in zip(numbers, columns, strict=True))
        yield ""
    if not notes:
        yield from _notes(report, width)
    if report.suppressed or known:
        yield text("checks.view.hidden", None, suppressed=len(report.suppressed), known=known)
    counts = {severity: report.count(severity) for severity in SEVERITIES}
    key = "checks.view.found" if any(counts.values()) else "checks.view.clean"
    values: dict[str, object] = {"arms": report.arms, "recipes": report.recipes, "rules": report.rules}
    values |= {str(severity): count for severity, count in counts.items()}
    role = next((severity for severity in SEVERITIES if counts[severity]), "faint")
    yield from (paint(line, role) for line in wrapped(text(key, None, **values), width, "", "  "))


def _notes(report: Report, width: int) -> Iterator[str]:
    kinds = Counter(finding.code for finding in report.findings if finding.severity == "note")
    if kinds:
        from servemark.checks.registry import all_rules  # noqa: PLC0415 - all are loaded by now

        yield text("checks.view.notes")
        for code, count in sorted(kinds.items()):
            rule = all_rules().get(code)
            said = rule.summary() if rule is not None else ""
            yield from wrapped(f"{code}  {count:>4}  {said}", width, "  ", " " * 16)
        yield ""


def _family(name: str) -> str:
    return text(f"checks.family.{name.replace('-', '_')}")


def _right(said: str, width: int) -> str:
    return " " * max(width - width_of(said), 0) + said


def codes_lines(codes: Iterable[tuple[str, str, str]], width: int) -> Iterator[str]:
    """(code, severity, summary) as a list."""
    for code, severity, summary in codes:
        yield from wrapped(f"{code}  {severity:<8} {summary}", width, "", " " * 18)
