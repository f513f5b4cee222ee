"""Positions as a reader can open them, and the source line of each with the width of what stands there."""

from __future__ import annotations

import os
from pathlib import Path

from servemark.base.errors import ServemarkError
from servemark.catalog.nodes import Position
from servemark.catalog.suite import Suite
from servemark.catalog.yaml_nodes import read_bytes


class Places:
    """Files of a suite by the names that positions carry; lines are read once."""

    def __init__(self, root: Path, name: str | None = None) -> None:
        self.root = root
        self.name = name or root.name
        self._lines: dict[str, list[str]] = {}

    @classmethod
    def of(cls, suite: Suite) -> Places:
        """For a suite's positions, which begin with its name."""
        return cls(suite.root, suite.name)

    def path(self, file: str) -> Path:
        """The file on disk."""
        first, _, rest = file.partition("/")
        inside = self.root / rest
        return inside if first == self.name and rest else Path(file)

    def shown(self, file: str) -> str:
        """As a reader here can open it: below the current folder, else whole."""
        path = self.path(file)
        try:
            near = os.path.relpath(path)
        except ValueError:  # another drive
            return str(path)
        return near if not near.startswith("..") else str(path)

    def line(self, at: Position) -> str | None:
        """The text of a line without its end; None when it is not there."""
        lines = self._lines.get(at.file)
        if lines is None:
            try:
                data = read_bytes(self.path(at.file), at.file)  # a pipe or a device is refused, never read
                lines = data.decode("utf-8", "replace").split("\n")
            except ServemarkError:
                lines = []
            self._lines[at.file] = lines
        return lines[at.line - 1].rstrip("\r") if 0 < at.line <= len(lines) else None


def token_length(line: str, start: int) -> int:
    """Characters of the YAML value (or key) that begins at `start`."""
    if start >= len(line):
        return 1
    first = line[start]
    if first in "\"'":
        end = line.find(first, start + 1)
        return (end - start + 1) if end > 0 else len(line) - start
    if first in "{[":
        return 1
    flow = "{" in line[:start] or "[" in line[:start]
    end = start
    while end < len(line):
        if line.startswith((" #", ": "), end) or (flow and line[end] in ",}]"):
            break
        end += 1
    return max(len(line[start:end].rstrip().rstrip(":")), 1)
