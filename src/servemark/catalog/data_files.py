"""Data files that come with servemark (models, hardware): where they lie, and values with their sources.

Every value is written `{value: V, source: NAME}` with an optional `band` (relative uncertainty); NAME is a key
of the file's `sources:` mapping, or `assumed`, which needs a band.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from servemark.base.errors import input_error
from servemark.catalog.architecture import Origin
from servemark.catalog.fields import Fields, nearest
from servemark.catalog.nodes import Node, Problem, errors_of, problems_error
from servemark.catalog.yaml_nodes import read_yaml

_HEAD = re.compile(r"^(name|repository|aliases):[ \t]*(.*)$", re.MULTILINE)
_PART = re.compile(r"[^\[\],\s\"']+")


def data_folder(name: str) -> Path:
    """The folder `name` of the installed package, else of the source tree."""
    package = Path(__file__).resolve().parents[1]
    inside = package / f"_{name}"
    return inside if inside.is_dir() else package.parents[1] / name


@cache
def names_in(folder: Path) -> dict[str, Path]:
    """Every name a data file goes by, in lower case -> the file. Read from the files' first lines only, so
    that a look-up parses one file and not all of them."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.yaml")):
        head = path.read_text(encoding="utf-8")[:8000]
        for match in _HEAD.finditer(head):
            for name in _PART.findall(match.group(2)):
                found.setdefault(name.lower(), path)
    return found


def find_file(folder: Path, wanted: str) -> Path | None:
    """The file that goes by a name, compared without case; None when there is none."""
    return names_in(folder).get(wanted.strip().lower())


def nearest_name(folder: Path, wanted: str) -> str | None:
    """The known name most like `wanted`; None when none is alike."""
    return nearest(wanted.strip().lower(), names_in(folder))


def read_data(path: Path) -> Node:
    """The tree of a data file; ServemarkError (exit 2) listing everything wrong with its text."""
    root, problems = read_yaml(path, path.name)
    wrong = errors_of(problems)
    if wrong:
        raise problems_error(wrong)
    return root


class Values:
    """A cursor over a mapping of sourced values; collects problems, and the origin of each value by its path."""

    def __init__(
        self, fields: Fields, path: str, sources: dict[str, str], origins: dict[str, Origin]
    ) -> None:
        self.fields = fields
        self.path = path
        self.sources = sources
        self.origins = origins

    def value(self, name: str, default: int | float | bool | None = None) -> int | float | bool | None:
        """One sourced value, `default` where the file is silent. A number is finite and not negative."""
        inner = self.fields.mapping(name, name)
        if inner is None:
            return default
        return self.read(inner, name)

    def read(self, inner: Fields, name: str) -> int | float | bool | None:
        """The value in its mapping; whatever else is asked of that mapping must be asked before."""
        node = inner.get("value")
        if node is None:
            inner.missing("value")
            return None
        source = inner.text("source", required=True)
        band = inner.number("band")
        inner.asked.add("where")
        inner.no_others()
        raw = node.scalar
        if not isinstance(raw, (bool, int, float)) or (not isinstance(raw, bool) and not 0 <= raw < 1 << 60):
            inner.problem(node.at, "catalog.data_number", field=name, value=str(node.plain())[:60])
            return None
        if source is not None and source != "assumed" and source not in self.sources:
            near = nearest(source, self.sources)
            inner.problem(inner.at("source"), "catalog.data_source", source=source[:60], near=near or "—")
        if source == "assumed" and band is None:
            inner.problem(inner.at("source"), "catalog.data_band", field=name)
        if source is not None:
            self.origins[f"{self.path}{name}"] = Origin(source, band)
        return raw

    def integer(self, name: str, default: int = 0, *, least: int = 0) -> int:
        """A whole number of at least `least`."""
        found = self.value(name)
        if found is None:
            return default
        if isinstance(found, bool) or int(found) != found or found < least:
            self.fields.problem(self.fields.at(name), "catalog.data_number", field=name, value=found)
            return default
        return int(found)

    def required(self, name: str, *, least: int = 1) -> int:
        """As `integer`; its absence is a problem."""
        if self.fields.get(name) is None:
            self.fields.missing(name)
        return self.integer(name, least, least=least)

    def figures(self, name: str) -> tuple[tuple[float, Origin, str | None], ...]:
        """A list of what several sources say of one thing: (value, origin, where it holds)."""
        found = []
        for index, node in enumerate(self.fields.items(name)):
            inner = Fields(node, self.fields.problems, name)
            where = inner.text("where")
            value = self.read(inner, f"{name}[{index}]")
            origin = self.origins.get(f"{self.path}{name}[{index}]")
            if value is not None and origin is not None:
                found.append((float(value), origin, where))
        return tuple(found)


def sources_of(top: Fields) -> dict[str, str]:
    """The file's `sources:` mapping of short names to what they stand for."""
    found = top.mapping("sources", "sources", required=True)
    names = list(found.node.entries or {}) if found else []
    return {name: found.text(name) or "" for name in names} if found else {}


def unknown_name(key: str, folder: Path, wanted: str, listed: list[str]) -> Exception:
    """The error for a name that no file goes by: nearest name first, then all of them, and how to add one."""
    near = nearest_name(folder, wanted)
    return input_error(f"{key}_near" if near else key, name=wanted[:120], near=near, known=", ".join(listed))


def checked(problems: list[Problem]) -> None:
    """Raise for collected problems, all of them at once."""
    wrong = errors_of(problems)
    if wrong:
        raise problems_error(wrong)
