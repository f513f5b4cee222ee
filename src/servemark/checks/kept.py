"""What earlier checks of a suite found, kept while what it was made from is the same."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, replace

from servemark.base.errors import ServemarkError
from servemark.catalog.arms import Arm
from servemark.catalog.nodes import Position
from servemark.catalog.suite import Suite
from servemark.catalog.yaml_nodes import read_bytes
from servemark.checks.model import Finding

_BY_VALUE = (bytes, tuple)


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of one arm in its file."""

    file: str
    first: int
    lines: bytes

    @property
    def alone(self) -> bool:
        """Whether the lines say all: no alias can bring in what stands elsewhere in the file."""
        return b"*" not in self.lines

    def holds(self, at: Position) -> bool:
        """Whether a place of the file lies in these lines."""
        return self.first <= at.line <= self.first + self.lines.count(b"\n")


class Blocks:
    """The lines of each arm in its file: equal lines give equal findings, at an equal distance."""

    def __init__(self, suite: Suite) -> None:
        self._files: dict[str, list[bytes]] = {}
        self._starts: dict[str, list[int]] = {}
        self._suite = suite
        for arm in suite.arms.values():
            self._starts.setdefault(arm.at.file, []).append(arm.at.line)

    def of(self, arm: Arm) -> Block:
        """The arm's lines, up to where the next arm's begin; a change of the file's other arms is not in them."""
        file = arm.at.file
        if file not in self._files:
            path = self._suite.root / file.partition("/")[2]
            try:
                self._files[file] = read_bytes(path, file).split(b"\n")
            except ServemarkError:
                self._files[file] = []
            self._starts[file].sort()
        starts = self._starts[file]
        after = bisect.bisect_right(starts, arm.at.line)
        end = starts[after] - 1 if after < len(starts) else None
        return Block(file, arm.at.line, b"\n".join(self._files[file][arm.at.line - 1 : end]).rstrip())


class Memory:
    """What earlier checks of a suite found of things that may not have changed. A value is kept with the objects
    that it was made from: the same objects give the same findings."""

    def __init__(self) -> None:
        self._kept: dict[object, tuple[tuple[object, ...], list[Finding]]] = {}
        self._arms: dict[str, tuple[Block, Arm, tuple[object, ...], list[Finding]]] = {}

    def findings(
        self, name: object, made_from: tuple[object, ...], make: Callable[[], list[Finding]]
    ) -> list[Finding]:
        """The findings kept under a name, if they were made from these very objects; else made now and kept."""
        kept = self._kept.get(name)
        if kept is not None and _same(kept[0], made_from):
            return kept[1]
        found = make()
        self._kept[name] = made_from, found
        return found

    def of_arm(
        self, key: str, block: Block, arm: Arm, beside: tuple[object, ...], make: Callable[[], list[Finding]]
    ) -> list[Finding]:
        """The findings of an arm, kept while its lines and what is beside them stay; lines that only moved move the
        findings with them."""
        kept = self._arms.get(key)
        found = None
        if kept is not None and kept[0].lines == block.lines and _same(kept[2], beside):
            if (
                block.first == kept[0].first
                and block.file == kept[0].file
                and (block.alone or arm == kept[1])
            ):
                found = kept[3]
            elif block.alone and block.file == kept[0].file:
                found = _moved(kept[3], kept[0], block.first - kept[0].first)
        if found is None:
            found = make()
        self._arms[key] = block, arm, beside, found
        return found


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(a is b or (isinstance(a, _BY_VALUE) and a == b) for a, b in pairs)


def _moved(findings: list[Finding], block: Block, by: int) -> list[Finding] | None:
    """The findings with their places in the arm's lines moved; None where a place in the file lies elsewhere, of
    which it is not known how far it moved."""
    places = [
        p for f in findings for p in (f.at, *(r.at for r in f.related), *((f.fix.at,) if f.fix else ()))
    ]
    if any(p.file == block.file and not block.holds(p) for p in places):
        return None

    def there(at: Position) -> Position:
        return Position(at.file, at.line + by, at.column) if at.file == block.file else at

    return [
        replace(
            finding,
            at=there(finding.at),
            related=tuple(replace(one, at=there(one.at)) for one in finding.related),
            fix=replace(finding.fix, at=there(finding.fix.at)) if finding.fix is not None else None,
        )
        for finding in findings
    ]
