"""A suite: a folder of arms, with its clusters, recipes, changelog and the files that it is checked by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from servemark.base.collector import uncollected
from servemark.base.errors import ServemarkError, input_error
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.changelog import ChangelogEntry, entries_of
from servemark.catalog.clusters import NO_CLUSTERS, Clusters, clusters_of
from servemark.catalog.fields import nearest
from servemark.catalog.layout import SUITE_FILE, Layout, layout_of, shipped_suites, suite_root
from servemark.catalog.master import read_master
from servemark.catalog.nodes import Node, Position, Problem, errors_of, problems_error
from servemark.catalog.priorities import Priorities, priorities_of
from servemark.catalog.references import GoldenLength, Thresholds, aliases_of, golden_of, thresholds_of
from servemark.catalog.yaml_nodes import read_yaml

if TYPE_CHECKING:
    from servemark.catalog.deployment import Deployment

__all__ = [
    "SUITE_FILE",
    "RecipeReading",
    "Suite",
    "load_suite",
    "problems_error",
    "read_suite",
    "shipped_suites",
]

T = TypeVar("T")
RecipeState = Literal["read", "faulty", "elsewhere", "none", "foreign"]


@dataclass(frozen=True, slots=True)
class RecipeReading:
    """What became of an entry's recipe.

    `read`: the deployment is there. `faulty`: it stands in the suite and has errors. `elsewhere`: CONFIG_FILE
    names a file that is not in this suite. `foreign`: the file is here, in a format that is not read. `none`:
    the entry names no recipe (it is launched by a script).
    """

    state: RecipeState
    setting: str | None
    deployment: Deployment | None
    problems: tuple[Problem, ...]
    file: str | None = None


NO_RECIPE = RecipeReading("none", None, None, ())


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite's files and arms. Recipes and side files are read when asked for, each once."""

    name: str
    root: Path
    masters: tuple[str, ...]
    recipe_roots: tuple[str, ...]
    arms: dict[str, Arm]
    clusters: Clusters = NO_CLUSTERS
    layout: Layout | None = None
    faulty: frozenset[str] = frozenset()
    """Keys of masters whose entries have errors, so that they are no arms."""
    _recipes: dict[str, RecipeReading] = field(default_factory=dict, compare=False, repr=False)
    _folders: dict[Path, Path] = field(default_factory=dict, compare=False, repr=False)
    _trees: dict[Path, tuple[Node, list[Problem]]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def keys(self) -> frozenset[str]:
        """Of all entries of the masters, faulty ones too: what a changelog may name."""
        return self.faulty.union(self.arms)

    def arm(self, key: str) -> Arm:
        """One arm by its key; ServemarkError with the nearest key when there is none."""
        found = self.arms.get(key)
        if found is None:
            near = nearest(key, self.arms)
            which = "catalog.no_arm_near" if near else "catalog.no_arm"
            shown = list(self.arms)[:12]
            listed = ", ".join(shown) + (f", … ({len(self.arms)})" if len(self.arms) > len(shown) else "")
            first = next(iter(self.arms), "")
            raise input_error(which, arm=key, suite=self.name, near=near, arms=listed, first=first)
        return found

    def deployment(self, arm: Arm, entry: SearchEntry) -> Deployment:
        """The deployment that an entry's CONFIG_FILE names. Raises ServemarkError listing every error."""
        reading = self.recipe(entry)
        where = str(entry.prefill.at)
        if reading.deployment is not None:
            return reading.deployment
        if reading.state == "none":
            raise input_error("catalog.no_recipe", where=str(entry.at), arm=arm.key)
        if reading.state == "elsewhere":
            roots = ", ".join(self.recipe_roots) or "—"
            raise input_error("catalog.recipe_elsewhere", where=where, path=reading.setting, roots=roots)
        if reading.state == "foreign":
            raise input_error("catalog.recipe_foreign", where=where, path=reading.setting)
        raise problems_error(errors_of(list(reading.problems)))

    def recipe(self, entry: SearchEntry) -> RecipeReading:
        """What became of an entry's recipe; never raises."""
        setting = entry.config_file
        if setting is None:
            return NO_RECIPE
        return self.reading(setting, entry.prefill.at)

    def reading(self, setting: str, at: Position) -> RecipeReading:
        """What became of the recipe that a CONFIG_FILE value names; each is read once."""
        if setting not in self._recipes:
            self._recipes[setting] = self._read_recipe(setting, at)
        return self._recipes[setting]

    def readings(self) -> tuple[RecipeReading, ...]:
        """All that have been read so far."""
        return tuple(self._recipes.values())

    def recipe_file(self, entry: SearchEntry) -> Path | None:
        """Where an entry's recipe lies; None when it names none or none in this suite."""
        if entry.config_file is None:
            return None
        return self.setting_file(entry.config_file, str(entry.prefill.at))

    def setting_file(self, setting: str, where: str) -> Path | None:
        """Where the file of a CONFIG_FILE value lies; None when it is not in this suite."""
        try:
            return self._recipe_path(setting.partition(":")[0], where)
        except ServemarkError:
            return None

    def recipe_files(self) -> tuple[Path, ...]:
        """Every YAML file below the recipe roots, sorted."""
        found: list[Path] = []
        for root in self.recipe_roots:
            found += sorted((self.root / root).rglob("*.yaml"))
        return tuple(found)

    def recipe_tree(self, path: Path) -> tuple[Node, list[Problem]]:
        """A recipe file's tree with what is wrong with its text; read once."""
        found = self._trees.get(path)
        if found is None:
            try:
                found = read_yaml(path, self.shown(path))
            except ServemarkError as error:
                found = _unreadable(self.shown(path), error)
            self._trees[path] = found
        return found

    def _read_recipe(self, setting: str, where: Position) -> RecipeReading:
        from servemark.catalog.recipe import deployment_of, shape_of  # noqa: PLC0415 - plans of masters need none
        from servemark.catalog.variants import has_variants  # noqa: PLC0415

        file, _, variant = setting.partition(":")
        try:
            path = self._recipe_path(file, str(where))
        except ServemarkError as error:
            return RecipeReading("faulty", setting, None, (_as_problem(error, where),))
        if path is None:
            return RecipeReading("elsewhere", setting, None, ())
        root, found = self.recipe_tree(path)
        problems = list(found)
        shown = self.shown(path)
        if root.entries is not None and "apiVersion" in root.entries:
            return RecipeReading("foreign", setting, None, tuple(problems), shown)
        if root.partial and shape_of(root) is None and not has_variants(root):
            return RecipeReading("faulty", setting, None, tuple(problems), shown)
        deployment = deployment_of(root, problems, variant or None)
        faulty = deployment is None or bool(errors_of(problems))
        state: RecipeState = "faulty" if faulty else "read"
        return RecipeReading(state, setting, None if faulty else deployment, tuple(problems), shown)

    def file(self, relative: str, where: str) -> Path:
        """A file of the suite by its path in it; ServemarkError when missing or outside of the suite."""
        path = self._inside(relative, where)
        if path.is_dir():
            raise input_error("catalog.is_folder", where=where, path=relative)
        if not path.exists():
            raise input_error("catalog.missing_in_suite", where=where, path=relative, suite=self.name)
        return path

    def shown(self, path: Path) -> str:
        """A path as positions show it: relative to the suite's parent, so that it begins with its name."""
        try:
            return f"{self.name}/{path.relative_to(self.root)}"
        except ValueError:
            return str(path)

    def changelog(self, problems: list[Problem]) -> tuple[ChangelogEntry, ...]:
        """The changelog's entries; () when the suite has none."""
        return self._side(self.layout.changelog if self.layout else None, entries_of, problems) or ()

    def priorities(self, problems: list[Problem]) -> Priorities | None:
        """The suite's own priority file."""
        return self._side(self.layout.priorities if self.layout else None, priorities_of, problems)

    def thresholds(self, problems: list[Problem]) -> Thresholds | None:
        """Eval thresholds."""
        return self._side(self.layout.thresholds if self.layout else None, thresholds_of, problems)

    def aliases(self, problems: list[Problem]) -> dict[str, str]:
        """Container aliases; {} when the suite states none."""
        return self._side(self.layout.aliases if self.layout else None, aliases_of, problems) or {}

    def golden(self, problems: list[Problem]) -> tuple[GoldenLength, ...]:
        """Golden acceptance lengths of all files that the suite names."""
        found: list[GoldenLength] = []
        for name in self.layout.golden if self.layout else ():
            folder = self.root / name
            names = [name]
            if folder.is_dir():
                names = [str(p.relative_to(self.root)) for p in sorted(folder.glob("*.yaml"))]
            for relative in names:
                found += self._side(relative, golden_of, problems) or ()
        return tuple(found)

    def _side(
        self, relative: str | None, read: Callable[[Node, list[Problem]], T], problems: list[Problem]
    ) -> T | None:
        if relative is None:
            return None
        at = self.layout.at if self.layout else Position(self.name, 1, 1)
        try:
            path = self.file(relative, str(at))
            root, found = read_yaml(path, self.shown(path))
        except ServemarkError as error:
            problems.append(_as_problem(error, at))
            return None
        problems.extend(found)
        return read(root, problems)

    def _inside(self, relative: str, where: str) -> Path:
        """The path below the suite's folder; ServemarkError when it, or a link on its way, leads out."""
        path = self.root / relative
        try:
            folder = self._folders.get(path.parent)
            if folder is None:
                folder = self._folders[path.parent] = path.parent.resolve()
            path = (
                (folder / path.name).resolve()
                if path.is_symlink() or path.name == ".."
                else folder / path.name
            )
            inside = path.is_relative_to(self.root)
        except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL in the name
            inside = False
        if not inside:
            raise input_error("catalog.escapes", where=where, path=relative[:200], suite=self.name)
        return path

    def _recipe_path(self, setting: str, where: str) -> Path | None:
        """`recipes/REST` lies below a recipe root; a path with folders may also be the suite's own; a bare
        name may stand in any folder beside the recipe roots. None when it is not in this suite."""
        tail = setting.removeprefix("recipes/")
        names = [f"{root}/{tail}" for root in self.recipe_roots]
        if not setting.startswith("recipes/"):
            names.append(setting)
        if "/" not in setting:
            for root in self.recipe_roots:
                above = (self.root / root).parent
                if above.is_dir():
                    names += [
                        f"{folder.relative_to(self.root)}/{tail}"
                        for folder in sorted(above.iterdir())
                        if folder.is_dir()
                    ]
        for name in names:
            path = self._inside(name, where)
            if path.is_file():
                return path
        return None


def _as_problem(error: ServemarkError, at: Position) -> Problem:
    """The same with the error's own place where it has one, else `at`."""
    file, _, place = (error.where or "").partition(":")
    line, _, column = place.partition(":")
    if line.isdigit() and column.isdigit():
        at = Position(file, int(line), int(column))
    return Problem(at, error.key, dict(error.values))


def _unreadable(shown: str, error: ServemarkError) -> tuple[Node, list[Problem]]:
    node = Node(shown, 1, 1)
    node.partial = True
    return node, [_as_problem(error, node.at)]


def read_suite(where: str | Path) -> tuple[Suite, list[Problem]]:
    """Read a suite's masters and clusters with everything that is wrong with them; faulty arms are left out.

    Raises ServemarkError (exit 2) only when there is no suite.
    """
    with uncollected():  # trees hold no cycles while they are built
        root = suite_root(where)
        problems: list[Problem] = []
        layout = layout_of(root, problems)
        suite = Suite(layout.name, root, layout.masters, layout.recipe_roots, {}, NO_CLUSTERS, layout)
        arms: dict[str, Arm] = {}
        faulty: set[str] = set()
        for master in layout.masters:
            try:
                path = suite.file(master, str(layout.at))
                found = read_master(path, suite.shown(path), problems, faulty)
            except ServemarkError as error:
                problems.append(_as_problem(error, layout.at))
                continue
            for key, arm in found.items():
                if key in arms:
                    values: dict[str, object] = {"name": key, "other": str(arms[key].at)}
                    problems.append(Problem(arm.at, "catalog.arm_twice", values))
                else:
                    arms[key] = arm
        clusters = suite._side(layout.clusters, clusters_of, problems) or NO_CLUSTERS
        made = Suite(
            layout.name, root, layout.masters, layout.recipe_roots, arms, clusters, layout,
            frozenset(faulty - arms.keys()),
        )  # fmt: skip
        return made, problems


def load_suite(where: str | Path) -> Suite:
    """Load a suite by path or by the name of a shipped one.

    Raises ServemarkError (exit 2) naming every error of its files with file:line:column.
    """
    suite, problems = read_suite(where)
    found = errors_of(problems)
    if found:
        raise problems_error(found)
    return suite
