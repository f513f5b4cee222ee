"""Fixtures of the report's tests: real run folders on disk, read and drawn by the real functions."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from servemark.analysis.report_data import build_report_data
from servemark.analysis.report_types import ReportData
from servemark.report.page import render_report

VOID = frozenset({"wbr", "meta", "link", "input", "br"})


@pytest.fixture(scope="session")
def make_run() -> ModuleType:
    """The generator of synthetic run folders."""
    path = Path(__file__).resolve().parents[1] / "results" / "make_run.py"
    spec = importlib.util.spec_from_file_location("report_make_run", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def folders(make_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three points of one line: 60 requests each, 100 judged answers each, some failures."""
    made: list[Path] = make_run.make_line(tmp_path_factory.mktemp("line"))
    return made


@pytest.fixture(scope="session")
def data(folders: list[Path]) -> dict[str, ReportData]:
    """The three points as data, in both languages."""
    return {lang: build_report_data(folders, lang) for lang in ("en", "zh")}


@pytest.fixture(scope="session")
def pages(data: dict[str, ReportData]) -> dict[str, str]:
    """The three points as pages."""
    return {lang: render_report(data[lang], lang) for lang in ("en", "zh")}


class Node:
    """An element with its attributes, children and text."""

    def __init__(self, tag: str, attrs: dict[str, str], parent: Node | None) -> None:
        self.tag, self.attrs, self.parent = tag, attrs, parent
        self.children: list[Node] = []
        self.text = ""

    def walk(self) -> Iterator[Node]:
        """This element and all below it, in the page's order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def all(self, tag: str) -> list[Node]:
        """All elements of one name below."""
        return [node for node in self.walk() if node.tag == tag]

    def words(self) -> str:
        """All text below, joined."""
        return "".join(node.text for node in self.walk())


class Strict(HTMLParser):
    """Builds a tree and fails on anything that a browser would have to repair."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("#root", {}, None)
        self.here = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element; the same attribute twice is a fault."""
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> at {self.getpos()} repeats an attribute: {names}"
        node = Node(tag, {name: value or "" for name, value in attrs}, self.here)
        self.here.children.append(node)
        if tag not in VOID:
            self.here = node

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """`<rect/>`: only inside a drawing."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close exactly the element that is open."""
        assert self.here.tag == tag, f"</{tag}> at {self.getpos()} closes <{self.here.tag}>"
        assert self.here.parent is not None
        self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        """Text."""
        self.here.text += data


@pytest.fixture(scope="session")
def parse() -> Callable[[str], Node]:
    """A page's tree; fails for a page that is not well nested."""

    def run(page: str) -> Node:
        parser = Strict()
        parser.feed(page)
        parser.close()
        assert parser.here is parser.root, f"<{parser.here.tag}> is never closed"
        return parser.root

    return run


HOSTILE = (
    '<script>alert(1)</script>"onload="alert(2)" onmouseover=\'alert(3)\'></style></title>'
    "<img src=x onerror=alert(4)>"
    "{{ 7*7 }}\u2028&lt;b&gt;javascript:alert(5)--><!-- ]]> \ud800\x00 =1+1"
)
KEPT = frozenset({"status", "outcome", "level", "lang", "file"})
"""Fields that hold one of a few words, checked where they are read."""


def poison(value: Any, name: str = "") -> Any:  # noqa: ANN401 - any field of any class
    """The same value with HOSTILE at the end of every text in it, however deep."""
    if isinstance(value, str):
        return value if name in KEPT or type(value) is not str else value + HOSTILE
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: poison(getattr(value, f.name), f.name) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    if isinstance(value, tuple):
        return tuple(poison(each, name) for each in value)
    if isinstance(value, dict):
        return {poison(key): poison(each, name) for key, each in value.items()}
    return value


@pytest.fixture(scope="session")
def hostile(data: dict[str, ReportData]) -> ReportData:
    """The three points with an attack in every text field."""
    poisoned: ReportData = poison(data["en"])
    return poisoned
