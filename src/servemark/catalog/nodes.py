"""A parsed file: nodes with the position of everything in them, and the problems that were found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from servemark.base.errors import ServemarkError, input_error
from servemark.catalog.yaml_scalars import Scalar

MAX_PROBLEMS = 1000
"""Problems of one file that are reported; reading it ends soon after."""
MAX_SHOWN = 300
"""Characters of a file's own text that a message repeats."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where something stands; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Node:
    """A scalar, a list or a mapping, and where it begins. A mapping keeps its keys' positions too.

    `partial` is set on the root of a file of which blocks with syntax errors were left out: what is missing
    there may stand in the part that could not be read.
    """

    __slots__ = ("column", "entries", "file", "items", "keys", "line", "partial", "scalar")

    def __init__(self, file: str, line: int, column: int, scalar: Scalar = None) -> None:
        self.file = file
        self.line = line
        self.column = column
        self.scalar = scalar
        self.items: list[Node] | None = None
        self.entries: dict[str, Node] | None = None
        self.keys: dict[str, tuple[int, int]] | None = None
        self.partial = False

    @property
    def at(self) -> Position:
        """Where the value begins; through an alias, where the anchored value stands."""
        return Position(self.file, self.line, self.column)

    def key_at(self, name: str) -> Position:
        """Where a key of this mapping stands; through a merge, where the merged mapping writes it."""
        found = (self.keys or {}).get(name)
        return Position(self.file, *found) if found else self.at

    @property
    def kind(self) -> str:
        """`mapping`, `list`, or the scalar's YAML type name."""
        if self.entries is not None:
            return "mapping"
        if self.items is not None:
            return "list"
        names: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "text"}
        return names.get(type(self.scalar), "null")

    def plain(self) -> object:
        """Dicts, lists and scalars without positions."""
        if self.entries is not None:
            return {key: node.plain() for key, node in self.entries.items()}
        if self.items is not None:
            return [node.plain() for node in self.items]
        return self.scalar

    def walk(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
        """All nodes below and including this one with their paths, depth first."""
        yield path, self
        children = self.entries.items() if self.entries is not None else enumerate(self.items or ())
        for name, child in children:
            yield from child.walk((*path, str(name)))


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a file; `key` names a message. A warning does not make the file unusable."""

    at: Position
    key: str
    values: dict[str, object]
    severity: str = "error"

    def error(self) -> ServemarkError:
        """The same as an exception."""
        return input_error(self.key, where=str(self.at), **self.shown)

    @property
    def shown(self) -> dict[str, object]:
        """The values as a message may show them: texts of a file are cut, and steer no terminal."""
        return {name: _safe(v) if isinstance(v, str) else v for name, v in self.values.items()}


def _safe(text: str) -> str:
    if len(text) > MAX_SHOWN:
        text = f"{text[:MAX_SHOWN]}…"
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def errors_of(problems: list[Problem]) -> list[Problem]:
    """Those that make a file unusable, in the order of their positions within each file."""
    found = [problem for problem in problems if problem.severity == "error"]
    files = list(dict.fromkeys(problem.at.file for problem in found))
    return sorted(found, key=lambda p: (files.index(p.at.file), p.at.line, p.at.column))


def limited(problems: list[Problem]) -> list[Problem]:
    """The problems with those of one file cut after `MAX_PROBLEMS`; a last one says how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return problems
    counts: dict[str, int] = {}
    kept = []
    for problem in problems:
        counts[problem.at.file] = counts.get(problem.at.file, 0) + 1
        if counts[problem.at.file] <= MAX_PROBLEMS:
            kept.append(problem)
    more = {file: count - MAX_PROBLEMS for file, count in counts.items() if count > MAX_PROBLEMS}
    for file, count in more.items():
        last = [problem for problem in kept if problem.at.file == file][-1]
        kept.append(Problem(last.at, "catalog.more_problems", {"count": count}, last.severity))
    return kept


def problems_error(problems: list[Problem]) -> ServemarkError:
    """One error for a file's problems: a single one in full, several counted and listed."""
    if len(problems) == 1:
        return problems[0].error()
    problems = limited(problems)
    lines = "\n".join(f"  {problem.error().what()}" for problem in problems)
    return input_error("catalog.problems", count=len(problems), lines=lines)
