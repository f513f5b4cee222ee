"""Which files make a suite: named by its `suite.yaml`, or recognised as the layout of the reference suite."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import input_error
from servemark.base.printable import one_line
from servemark.catalog.fields import Fields, nearest
from servemark.catalog.nodes import Position, Problem
from servemark.catalog.yaml_nodes import read_yaml

SUITE_FILE = "suite.yaml"
_REFERENCE_RECIPES = "benchmarks/multi_node/srt-slurm-recipes"


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
"""A suite's name becomes part of positions and file names."""
MOST_SHOWN = 200
"""Characters of a name that no file system takes, in a message."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths within a suite's folder, as written; None or () where the suite has no such file."""

    name: str
    root: Path
    masters: tuple[str, ...]
    recipe_roots: tuple[str, ...]
    clusters: str | None
    changelog: str | None
    golden: tuple[str, ...]
    """Files of golden acceptance lengths, or folders of them."""
    thresholds: str | None
    priorities: str | None
    aliases: str | None
    at: Position
    """Where `masters` is written; the folder itself for a recognised layout."""


def shipped_suites() -> dict[str, Path]:
    """Suites that come with servemark, by name: from the installed package, else from the source tree."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_suites", package.parents[1] / "suites"):
        if folder.is_dir():
            found = (p for p in sorted(folder.iterdir()) if (p / SUITE_FILE).is_file())
            return {p.name: p for p in found}
    return {}


def suite_here() -> str | None:
    """`.` when the current folder is a suite, which selectors without a suite then mean; else None."""
    return "." if Path(SUITE_FILE).is_file() or any(Path("configs").glob("*-master.yaml")) else None


def suite_root(where: str | Path) -> Path:
    """The folder of a suite named by path or by name. A name is a folder here, one in `suites` here, the current folder
    when it is the suite of that name, else a shipped suite. ServemarkError when there is none."""
    path = Path(where)
    name = str(where)
    if not _could_be(path):
        name = one_line(name)
        if len(name) > MOST_SHOWN:
            name = name[:MOST_SHOWN] + "…"
        raise input_error("catalog.no_suite", suite=name, shipped=", ".join(shipped_suites()))
    if "/" not in name and not path.is_dir():
        near_by = Path("suites", name)
        if (near_by / SUITE_FILE).is_file():
            return near_by.resolve()
        if Path.cwd().name == name and suite_here() is not None:
            return Path.cwd()
        shipped = shipped_suites()
        if name in shipped:
            return shipped[name]
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise input_error("catalog.suite_is_file", path=name)
    shipped = shipped_suites()
    near = nearest(name, shipped)
    which = "catalog.no_suite_near" if near else "catalog.no_suite"
    raise input_error(which, suite=name, near=near, shipped=", ".join(shipped))


def _could_be(path: Path) -> bool:
    """Whether the file system takes the name at all: not one that is too long, or has a NUL in it."""
    try:
        path.exists()
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)  # may be one; said as the disk says it
    return True


def layout_of(root: Path, problems: list[Problem]) -> Layout:
    """The layout of a suite's folder. ServemarkError when the folder is no suite."""
    if (root / SUITE_FILE).exists():
        return _named(root, problems)
    masters = [path.name for path in (root / "configs").glob("*-master.yaml")]
    if not masters:
        raise input_error("catalog.no_suite_file", path=str(root))
    masters.sort(key=lambda name: (name != "nvidia-master.yaml", name))  # the order of the reference plan

    def file(relative: str) -> str | None:
        return relative if (root / relative).is_file() else None

    golden = "golden_al_distribution"
    return Layout(
        name=root.name,
        root=root,
        masters=tuple(f"configs/{name}" for name in masters),
        recipe_roots=(_REFERENCE_RECIPES,) if (root / _REFERENCE_RECIPES).is_dir() else (),
        clusters=file("configs/runners.yaml"),
        changelog=file("perf-changelog.yaml"),
        golden=(golden,) if (root / golden).is_dir() else (),
        thresholds=file("utils/evals/thresholds.yaml"),
        priorities=file("configs/ci-priority.yaml"),
        aliases=None,
        at=Position(root.name, 1, 1),
    )


def _named(root: Path, problems: list[Problem]) -> Layout:
    node, found = read_yaml(root / SUITE_FILE, f"{root.name}/{SUITE_FILE}")
    problems.extend(found)
    fields = Fields(node, problems, SUITE_FILE)
    name = fields.text("name", required=True)
    if name is not None and not NAME.match(name):
        fields.problem(fields.at("name"), "catalog.bad_suite_name", name=name[:80])
        name = None
    fields.text("description")
    masters = fields.texts("masters")
    if fields.get("masters") is None:
        fields.missing("masters")
    layout = Layout(
        name=name or root.name,
        root=root,
        masters=masters,
        recipe_roots=fields.texts("recipe-roots"),
        clusters=fields.text("clusters"),
        changelog=fields.text("changelog"),
        golden=fields.texts("golden-acceptance-lengths"),
        thresholds=fields.text("eval-thresholds"),
        priorities=fields.text("priorities"),
        aliases=fields.text("container-aliases"),
        at=fields.at("masters"),
    )
    fields.no_others()
    return layout
