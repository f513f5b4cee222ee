"""A suite: a folder of arms. `suite.yaml` names its files; shipped suites are found by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import ServemarkError, input_error
from servemark.catalog.deployment import Deployment
from servemark.catalog.fields import Fields, nearest
from servemark.catalog.master import Arm, SearchEntry, read_master
from servemark.catalog.recipe import read_recipe
from servemark.catalog.yaml_nodes import Problem, read_yaml

SUITE_FILE = "suite.yaml"


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite's files and arms. Recipes are read when asked for."""

    name: str
    root: Path
    masters: tuple[str, ...]
    recipe_roots: tuple[str, ...]
    arms: dict[str, Arm]

    def arm(self, key: str) -> Arm:
        """One arm by its key; ServemarkError with the nearest key when there is none."""
        found = self.arms.get(key)
        if found is None:
            near = nearest(key, self.arms)
            which = "catalog.no_arm_near" if near else "catalog.no_arm"
            raise input_error(which, arm=key, suite=self.name, near=near, arms=", ".join(self.arms))
        return found

    def deployment(self, arm: Arm, entry: SearchEntry) -> Deployment:
        """The deployment that an entry's CONFIG_FILE names. Raises ServemarkError listing every problem."""
        setting = entry.prefill.setting("CONFIG_FILE")
        if setting is None:
            raise input_error("catalog.no_recipe", where=str(entry.at), arm=arm.key)
        path = self._recipe_path(setting.partition(":")[0], str(entry.prefill.at))
        problems: list[Problem] = []
        found = read_recipe(path, self.shown(path), problems)
        if found is None or problems:
            raise problems_error(problems)
        return found

    def file(self, relative: str, where: str) -> Path:
        """A file of the suite by its path in it; ServemarkError when missing or outside of the suite."""
        path = (self.root / relative).resolve()
        if not path.is_relative_to(self.root.resolve()):
            raise input_error("catalog.escapes", where=where, path=relative, suite=self.name)
        if not path.is_file():
            raise input_error("catalog.missing_in_suite", where=where, path=relative, suite=self.name)
        return path

    def shown(self, path: Path) -> str:
        """A path as positions show it: relative to the suite's parent, so that it begins with its name."""
        try:
            return f"{self.name}/{path.resolve().relative_to(self.root.resolve())}"
        except ValueError:
            return str(path)

    def _recipe_path(self, setting: str, where: str) -> Path:
        tail = setting.removeprefix("recipes/")
        for root in self.recipe_roots:
            path = (self.root / root / tail).resolve()
            if not path.is_relative_to(self.root.resolve()):
                raise input_error("catalog.escapes", where=where, path=setting, suite=self.name)
            if path.is_file():
                return path
        roots = ", ".join(self.recipe_roots)
        raise input_error("catalog.recipe_elsewhere", where=where, path=setting, roots=roots)


def problems_error(problems: list[Problem]) -> ServemarkError:
    """One error for a file's problems: the first in full, the others counted and listed below it."""
    first = problems[0]
    if len(problems) == 1:
        return first.error()
    lines = "\n".join(f"  {problem.error().what()}" for problem in problems)
    return input_error("catalog.problems", count=len(problems), lines=lines)


def shipped_suites() -> dict[str, Path]:
    """Suites that come with servemark, by name: from the installed package, else from the source tree."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_suites", package.parents[1] / "suites"):
        if folder.is_dir():
            found = (p for p in sorted(folder.iterdir()) if (p / SUITE_FILE).is_file())
            return {p.name: p for p in found}
    return {}


def load_suite(where: str | Path) -> Suite:
    """Load a suite by path or by the name of a shipped one.

    Raises ServemarkError (exit 2) naming every problem of its files with file:line:column.
    """
    root = _suite_root(where)
    problems: list[Problem] = []
    name = root.name
    node, found = read_yaml(root / SUITE_FILE, f"{name}/{SUITE_FILE}")
    problems.extend(found)
    fields = Fields(node, problems, SUITE_FILE)
    fields.text("name", required=True)
    fields.text("description")
    masters = tuple(str(v) for v in fields.each("masters", str, "text", bool))
    roots = tuple(str(v) for v in fields.each("recipe-roots", str, "text", bool))
    fields.text("clusters")
    fields.no_others()
    if problems:
        raise problems_error(problems)
    suite = Suite(name, root, masters, roots, {})
    arms: dict[str, Arm] = {}
    for master in masters:
        path = suite.file(master, f"{name}/{SUITE_FILE}:{fields.at('masters').line}:1")
        for key, arm in read_master(path, suite.shown(path), problems).items():
            if key in arms:
                problems.append(
                    Problem(arm.at, "catalog.arm_twice", {"key": key, "other": str(arms[key].at)})
                )
            arms[key] = arm
    if problems:
        raise problems_error(problems)
    return Suite(name, root, masters, roots, arms)


def _suite_root(where: str | Path) -> Path:
    shipped = shipped_suites()
    if str(where) in shipped:
        return shipped[str(where)]
    path = Path(where)
    if path.is_dir():
        if not (path / SUITE_FILE).is_file():
            raise input_error("catalog.no_suite_file", path=str(where))
        return path.resolve()
    names = ", ".join(shipped)
    near = nearest(str(where), shipped)
    which = "catalog.no_suite_near" if near else "catalog.no_suite"
    raise input_error(which, suite=str(where), near=near, shipped=names)
