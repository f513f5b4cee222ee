"""Checking again after an edit: what did not change is not read or judged a second time."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from servemark.catalog.nodes import Problem
from servemark.catalog.suite import Suite, read_suite
from servemark.checks.check import Report, Wishes, check_read
from servemark.checks.kept import Memory

POLL_S = 0.1
CLOCK_TICK_NS = 20_000_000
"""A file system's times may be this much behind the clock."""
Stamp = tuple[int, int, int]


def stamp_of(path: Path) -> Stamp | None:
    """What tells that a file has changed: time, size and inode; None when it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Watcher:
    """A suite under watch."""

    def __init__(self, where: str | Path, wishes: Wishes) -> None:
        self.where = where
        self.wishes = wishes
        self.memory = Memory()
        self._suite: Suite | None = None
        self._problems: list[Problem] = []
        self._stamps: dict[Path, Stamp | None] = {}

    def check(self) -> Report:
        """Check now. ServemarkError when the folder is no suite any more."""
        if self._suite is None:
            return self._first()
        now = self._files()
        before, self._stamps = self._stamps, now
        changed = {path for path in {*now, *before} if now.get(path) != before.get(path)}
        suite = self._suite
        recipes = set(suite.recipe_files())
        gone_or_new = {path for path in changed if (path in now) != (path in before)}
        if gone_or_new or changed - recipes:
            suite, self._problems = read_suite(self.where)
            if not gone_or_new:
                suite = self._with_recipes(suite, changed)
        elif changed:
            suite = self._with_recipes(suite, changed)
        self._suite = suite
        return check_read(suite, self._problems, self.wishes, self.memory)

    def _first(self) -> Report:
        """The first check: all is read. What was written while it read may have been read before or after: its stamp
        is forgotten, so that the next check reads it again."""
        started = time.time_ns() - CLOCK_TICK_NS
        self._suite, self._problems = read_suite(self.where)
        stamps = self._files()
        self._stamps = {
            path: stamp if stamp is None or stamp[0] < started else (0, 0, 0)
            for path, stamp in stamps.items()
        }
        return check_read(self._suite, self._problems, self.wishes, self.memory)

    def _with_recipes(self, suite: Suite, changed: set[Path]) -> Suite:
        """The suite with what the last one had read of recipes that are still the same."""
        old = self._suite
        if old is None:
            return suite
        names = {suite.shown(path) for path in changed}
        readings = {
            setting: reading
            for setting, reading in old._recipes.items()
            if reading.file not in names and not (reading.file is None and reading.problems)
        }
        trees = {path: tree for path, tree in old._trees.items() if path not in changed}
        return replace(suite, _recipes=readings, _trees=trees)

    def _files(self) -> dict[Path, Stamp | None]:
        """Every file that a check may read, with its stamp."""
        suite = self._suite
        root = suite.root if suite is not None else Path(self.where)
        paths: set[Path] = {root / "suite.yaml", root / "checks.yaml"}
        if suite is not None and suite.layout is not None:
            layout = suite.layout
            names = [layout.clusters, layout.changelog, layout.thresholds, layout.aliases, *layout.masters]
            paths |= {root / name for name in names if name}
            for name in layout.golden:
                folder = root / name
                paths |= set(folder.glob("*.yaml")) if folder.is_dir() else {folder}
            paths |= set(suite.recipe_files())
        return {path: stamp_of(path) for path in paths}

    def wait(self) -> None:
        """Come back when something has changed."""
        if not self._stamps or self._suite is None:
            return
        self._stamps = self._files()
        while self._files() == self._stamps:
            time.sleep(POLL_S)
