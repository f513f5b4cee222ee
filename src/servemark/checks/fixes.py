"""Certain fixes as byte-span edits: every other byte of a file stays as it is."""

from __future__ import annotations

import difflib
import re
import stat
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import input_error
from servemark.base.files import write_atomic
from servemark.catalog.nodes import errors_of
from servemark.catalog.yaml_nodes import parse_yaml, read_bytes
from servemark.checks.model import Finding, Fix
from servemark.checks.places import Places

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./:#@+-]*\Z")


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes `start` to `end` of a file become `new`."""

    start: int
    end: int
    new: bytes


@dataclass(frozen=True, slots=True)
class Edited:
    """One file before and after."""

    path: Path
    shown: str
    before: bytes
    after: bytes
    count: int

    def diff(self) -> list[str]:
        """Unified diff lines without line ends, as `patch` reads them: every byte of a changed line is in them."""
        told = []
        for line in difflib.unified_diff(_lines(self.before), _lines(self.after), self.shown, self.shown):
            told += [
                line.removesuffix("\n"),
                *([] if line.endswith("\n") else ["\\ No newline at end of file"]),
            ]
        return told

    def write(self) -> None:
        """Put the new bytes in the file's place, with its permissions. ServemarkError when the file is read-only or
        the disk refuses."""
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if not mode & 0o222:  # a folder that may be written would let it be replaced all the same
            raise input_error("checks.read_only", path=self.shown)
        write_atomic(self.path, self.after, mode)


def _lines(data: bytes) -> list[str]:
    """Lines with their ends; only a newline ends one."""
    *whole, rest = data.decode("utf-8", "surrogateescape").split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def edits_for(findings: Iterable[Finding], places: Places, *, unsafe: bool) -> tuple[list[Edited], int]:
    """(files with their fixes applied in memory, fixes that could not be placed or contradict one another).

    A link is followed to the file that it names; what lies outside of the suite is left alone."""
    wanted: dict[Path, list[Fix]] = defaultdict(list)
    shown: dict[Path, str] = {}
    skipped = 0
    root = places.root.resolve()
    for finding in findings:
        fix = finding.fix
        if fix is None or not (fix.safe or unsafe):
            continue
        path = places.path(fix.at.file).resolve()
        if not path.is_relative_to(root):
            skipped += 1
            continue
        shown.setdefault(path, places.shown(fix.at.file))
        if not any(_same_fix(fix, other) for other in wanted[path]):
            wanted[path].append(fix)
    found = []
    for path, fixes in wanted.items():
        edited, left = _edited(path, shown[path], fixes)
        skipped += left
        if edited is not None:
            found.append(edited)
    return found, skipped


def _same_fix(one: Fix, other: Fix) -> bool:
    """Whether two fixes are one, also where the file has two names."""
    return (one.at.line, one.at.column, one.old, one.new) == (
        other.at.line,
        other.at.column,
        other.old,
        other.new,
    )


def _edited(path: Path, shown: str, fixes: list[Fix]) -> tuple[Edited | None, int]:
    """(one file with its fixes, how many of them could not be made)."""
    data = read_bytes(path, shown)
    spans: dict[int, Edit] = {}
    clash: set[int] = set()
    skipped = 0
    for fix in fixes:
        edit = span_of(data, fix)
        if edit is None:
            skipped += 1
        elif edit.start in spans and spans[edit.start] != edit:
            clash.add(edit.start)
            skipped += 1
        else:
            spans[edit.start] = edit
    kept = [edit for start, edit in sorted(spans.items()) if start not in clash]
    skipped += len(clash)
    after = applied(data, kept)
    if kept and as_meant(data, after, len(kept)):
        return Edited(path, shown, data, after, len(kept)), skipped
    return None, skipped + len(kept)


def applied(data: bytes, edits: list[Edit]) -> bytes:
    """The bytes with the edits made; they do not overlap and are in order."""
    parts, last = [], 0
    for edit in edits:
        parts += [data[last : edit.start], edit.new]
        last = edit.end
    return b"".join([*parts, data[last:]])


def as_meant(before: bytes, after: bytes, edits: int) -> bool:
    """Whether the edits changed as many values as they are, each for one of its kind, and nothing else: no error of
    reading, no other value through an anchor, no text that became a number."""
    (old, old_problems), (new, new_problems) = parse_yaml(before, ""), parse_yaml(after, "")
    if len(errors_of(new_problems)) > len(errors_of(old_problems)):
        return False
    old_nodes, new_nodes = list(old.walk()), list(new.walk())
    if [path for path, _ in old_nodes] != [path for path, _ in new_nodes]:
        return False
    changed = [
        (one, other)
        for (_, one), (_, other) in zip(old_nodes, new_nodes, strict=True)
        if (one.kind, one.scalar) != (other.kind, other.scalar)
    ]
    return len(changed) <= edits and all(one.kind == other.kind for one, other in changed)


def span_of(data: bytes, fix: Fix) -> Edit | None:
    """Where the fix's old text stands in the bytes; None when it is not exactly there, once."""
    lines = data.split(b"\n")
    if not 0 < fix.at.line <= len(lines):
        return None
    offset = sum(len(line) + 1 for line in lines[: fix.at.line - 1])
    try:
        line = lines[fix.at.line - 1].decode("utf-8")
    except UnicodeDecodeError:
        return None
    start = fix.at.column - 1
    quoted = line[start : start + 1] in {"'", '"'}
    begin = start + quoted
    if not line.startswith(fix.old, begin):
        if line.count(fix.old, start) != 1:
            return None
        begin, quoted = line.index(fix.old, start), True
    new = fix.new
    if not quoted and not _PLAIN.match(new):
        new = '"' + new.replace("\\", "\\\\").replace('"', '\\"') + '"'
    first = offset + len(line[:begin].encode())
    return Edit(first, first + len(fix.old.encode()), new.encode())
