"""Reading typed fields out of nodes: every problem of a file is collected, with position and nearest name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from servemark.catalog.nodes import Node, Position, Problem


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None when none is alike."""
    import difflib  # noqa: PLC0415 - only for a mistake

    found = difflib.get_close_matches(name[:200], list(known), n=1, cutoff=0.6)
    return found[0] if found else None


class Fields:
    """A cursor over one mapping. Wrong or missing fields add a problem and give the default."""

    def __init__(self, node: Node, problems: list[Problem], what: str) -> None:
        self.node = node
        self.problems = problems
        self.what = what
        self.asked: set[str] = set()
        if node.entries is None and not node.partial:
            self.problem(node.at, "catalog.not_mapping", what=what, kind=node.kind)

    def problem(self, at: Position, key: str, /, **values: object) -> None:
        """Note an error at a position."""
        self.problems.append(Problem(at, key, values))

    def warning(self, at: Position, key: str, /, **values: object) -> None:
        """Note something suspicious that leaves the file usable."""
        self.problems.append(Problem(at, key, values, "warning"))

    def get(self, name: str) -> Node | None:
        """The field's node under its kebab-case or snake_case spelling; a null counts as absent."""
        entries = self.node.entries or {}
        self.asked.add(name)
        found = entries.get(name)
        if "-" in name:
            other = name.replace("-", "_")
            self.asked.add(other)
            if other in entries:
                if found is not None:
                    self.problem(self.node.key_at(other), "catalog.two_spellings", field=name, other=other)
                else:
                    found = entries[other]
        if found is None or (found.scalar is None and found.entries is None and found.items is None):
            return None
        return found

    def stated(self, name: str) -> bool:
        """Whether the field is written at all, with null or otherwise."""
        entries = self.node.entries or {}
        return name in entries or name.replace("-", "_") in entries

    def at(self, name: str) -> Position:
        """Where the field's value stands, else where the mapping begins."""
        entries = self.node.entries or {}
        found = entries.get(name) or entries.get(name.replace("-", "_"))
        return found.at if found is not None else self.node.at

    def missing(self, name: str) -> None:
        """Note that a required field is absent (not in a mapping of which parts could not be read)."""
        if not self.node.partial and self.node.entries is not None:
            self.problem(self.node.at, "catalog.missing_field", field=name, what=self.what)

    def _typed(self, name: str, kind: type | tuple[type, ...], said: str, required: bool) -> Node | None:
        found = self.get(name)
        if found is None:
            if required:
                self.missing(name)
            return None
        if not isinstance(found.scalar, kind) or (isinstance(found.scalar, bool) and kind is not bool):
            self.problem(found.at, "catalog.wrong_type", field=name, expected=said, kind=found.kind)
            return None
        return found

    def out_of_bounds(self, node: Node, name: str, value: int, *, minimum: int) -> None:
        """Note that an integer is below `minimum`, or else too large."""
        if value < minimum:
            self.problem(node.at, "catalog.too_small", field=name, value=_short(value), minimum=minimum)
        else:
            self.problem(node.at, "catalog.out_of_range", field=name, value=_short(value))

    def text(self, name: str, *, required: bool = False) -> str | None:
        """A non-empty text; numbers are not taken for texts (write quotes)."""
        found = self._typed(name, str, "text", required)
        if found is not None and not str(found.scalar).strip():
            self.problem(found.at, "catalog.empty_text", field=name)
            return None
        return str(found.scalar) if found else None

    def integer(self, name: str, *, minimum: int, required: bool = False, below: int = 1 << 53) -> int | None:
        """An integer of at least `minimum` (`8.0` is not an integer) and below `below`."""
        found = self._typed(name, int, "integer", required)
        if found is None or not isinstance(found.scalar, int):
            return None
        if found.scalar < minimum:
            self.problem(found.at, "catalog.too_small", field=name, value=found.scalar, minimum=minimum)
            return None
        if found.scalar >= below:
            self.problem(found.at, "catalog.out_of_range", field=name, value=_short(found.scalar))
            return None
        return found.scalar

    def number(self, name: str) -> float | None:
        """A finite integer or float."""
        found = self._typed(name, (int, float), "number", False)
        if found is None or not isinstance(found.scalar, (int, float)):
            return None
        try:
            value = float(found.scalar)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            self.problem(found.at, "catalog.out_of_range", field=name, value=_short(found.scalar))
            return None
        return value

    def boolean(self, name: str, *, required: bool = False) -> bool | None:
        """true or false in any YAML 1.1 spelling."""
        found = self._typed(name, bool, "boolean", required)
        return bool(found.scalar) if found else None

    def choice(self, name: str, allowed: tuple[str, ...], *, required: bool = False) -> str | None:
        """One of a few texts, with the nearest one named when it is none of them."""
        found = self._typed(name, str, "text", required)
        if found is None:
            return None
        value = str(found.scalar)
        if value not in allowed:
            self.problem(found.at, "catalog.not_one_of", field=name, value=value, allowed=", ".join(allowed))
            return None
        return value

    def mapping(self, name: str, what: str, *, required: bool = False) -> Fields | None:
        """A nested mapping, or None when absent or of another kind."""
        found = self.get(name)
        if found is None:
            if required:
                self.missing(name)
            return None
        if found.entries is None:
            self.problem(found.at, "catalog.wrong_type", field=name, expected="mapping", kind=found.kind)
            return None
        return Fields(found, self.problems, what)

    def items(self, name: str, *, required: bool = False) -> list[Node]:
        """The nodes of a list; [] when absent or of another kind."""
        found = self.get(name)
        if found is None:
            if required:
                self.missing(name)
            return []
        if found.items is None:
            self.problem(found.at, "catalog.wrong_type", field=name, expected="list", kind=found.kind)
            return []
        return found.items

    def each(self, name: str, kind: type, said: str, accept: Callable[[object], bool]) -> tuple[object, ...]:
        """A list of scalars of one kind that `accept` likes; others are problems."""
        values: list[object] = []
        for item in self.items(name):
            value = item.scalar
            if (
                not isinstance(value, kind)
                or (isinstance(value, bool) and kind is not bool)
                or not accept(value)
            ):
                self.problem(item.at, "catalog.wrong_type", field=name, expected=said, kind=item.kind)
            else:
                values.append(value)
        return tuple(values)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of non-empty texts."""
        return tuple(str(value) for value in self.each(name, str, "non-empty text", bool))

    def scalars(self, name: str) -> dict[str, object]:
        """A mapping of names to plain values (engine arguments): nested values are kept as they are."""
        found = self.mapping(name, name)
        if found is None or found.node.entries is None:
            return {}
        return {key: value.plain() for key, value in found.node.entries.items()}

    def no_others(self, also: Iterable[str] = (), *, lenient: bool = False) -> None:
        """Every key that was not asked for is a problem; call last.

        With `lenient` (formats that other programs own and extend) a name like no known one is a warning
        only.
        """
        entries = self.node.entries or {}
        if self.asked.issuperset(entries):
            return
        known = self.asked | set(also)
        for key in entries:
            if key not in known:
                near = nearest(key, known)
                which = "catalog.unknown_field_near" if near else "catalog.unknown_field"
                note = self.warning if lenient and near is None else self.problem
                note(self.node.key_at(key), which, field=key[:200], what=self.what, near=near)


def _short(value: float) -> str:
    """A number as text that fits a message."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1}…"
    return str(value)
