"""Certain fixes as byte-span edits: every other byte of a file stays as it is."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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
        """Unified diff lines, without line ends."""
        old, new = (side.decode("utf-8", "replace").splitlines() for side in (self.before, self.after))
        return list(difflib.unified_diff(old, new, self.shown, self.shown, lineterm=""))

    def write(self) -> None:
        """Put the new bytes in the file's place. ServemarkError when the disk refuses."""
        write_atomic(self.path, self.after)


def edits_for(findings: Iterable[Finding], places: Places, *, unsafe: bool) -> tuple[list[Edited], int]:
    """(files with their fixes applied in memory, fixes that could not be placed or contradict one another)."""
    wanted: dict[str, list[Fix]] = defaultdict(list)
    for finding in findings:
        fix = finding.fix
        if fix is not None and (fix.safe or unsafe) and fix not in wanted[fix.at.file]:
            wanted[fix.at.file].append(fix)
    found, skipped = [], 0
    for file, fixes in wanted.items():
        path = places.path(file)
        data = read_bytes(path, places.shown(file))
        spans: dict[int, Edit] = {}
        clash: set[int] = set()
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
        if kept and not _breaks(data, after, file):
            found.append(Edited(path, places.shown(file), data, after, len(kept)))
        elif kept:
            skipped += len(kept)
    return found, skipped


def applied(data: bytes, edits: list[Edit]) -> bytes:
    """The bytes with the edits made; they do not overlap and are in order."""
    parts, last = [], 0
    for edit in edits:
        parts += [data[last : edit.start], edit.new]
        last = edit.end
    return b"".join([*parts, data[last:]])


def _breaks(before: bytes, after: bytes, shown: str) -> bool:
    """Whether the edited file has errors of reading that it did not have."""
    _, old = parse_yaml(before, shown)
    _, new = parse_yaml(after, shown)
    return len(errors_of(new)) > len(errors_of(old))


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
