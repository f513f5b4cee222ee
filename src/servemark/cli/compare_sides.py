"""What A and B name: files, a git commit's files, a run, the newest at a date, a period, or a selection.

Tried in this order: an existing path, `latest`, `@DATE`, `KEY=VALUE …`, `REF:PATH`, a run of this home, a run of the store.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from servemark.analysis.compare_match import fields_key
from servemark.analysis.measured import Measured, of_stored
from servemark.analysis.noise import NoiseModel, noise_model
from servemark.analysis.selection import KEYS, Selection, matches, parse_selection, select
from servemark.analysis.unstored import Unstored, read_unstored
from servemark.base.errors import ServemarkError, input_error
from servemark.base.home import Home
from servemark.plan.gitrepo import GitTree
from servemark.results.gates.registry import judge_all
from servemark.results.importers.points_file import POINTS_FILE
from servemark.results.importers.registry import importers
from servemark.results.serialize import MANIFEST_NAME, RESULT_NAME
from servemark.runs.folder import find_run, list_runs
from servemark.store.database import Store
from servemark.store.found_files import Found, Refused, find
from servemark.store.points import PointFilter, load_points

MAX_GIT_BYTES = 64_000_000
MAX_GIT_FILES = 2_000
MAX_NOISE_POINTS = 5_000
"""Newest points of a scenario that are asked for repeats."""
_DATE = re.compile(r"@(\d{4}-\d\d-\d\d)?(\.\.)?(\d{4}-\d\d-\d\d)?")


@dataclass(frozen=True, slots=True)
class Side:
    """One side: its points, what it is called, and what could not be read of it. `words` are those of a selection."""

    label: str
    points: tuple[Measured, ...]
    problems: tuple[str, ...] = ()
    words: Mapping[str, tuple[str, ...]] | None = None


def side_of(argument: str, common: Sequence[str], home: Home, hints: Mapping[str, str]) -> Side:
    """The side that one argument names, narrowed by the common words. Raises ServemarkError (exit code 2) where it names
    nothing, or nothing of it is a result."""
    narrow = parse_selection(common)
    if argument and _exists(argument):
        return _of_files(argument, find(argument, home.raw, sys.stdin.buffer), narrow, hints)
    if argument == "latest":
        run = find_run(home.runs, "latest")
        return replace(_of_files(str(run.path), find(str(run.path), home.raw, io.BytesIO()), narrow, hints),
                       label=run.run_id)  # fmt: skip
    if argument.startswith("@"):
        return _of_date(argument, common, home)
    words = argument.split()
    if words and all(word.partition("=")[0] in KEYS and "=" in word for word in words):
        chosen = parse_selection([*words, *common])
        listed = {name: getattr(chosen, name) for name in ("model", "hardware", "engine", "precision")}
        listed |= {"speculation": chosen.speculation, "offload": chosen.offload}
        found = _selected(home, chosen)
        return Side(argument, tuple(found), words=listed)
    if ":" in argument:
        return _of_git(argument, narrow, hints)
    return _of_run(argument, common, home, hints)


def fields_named(a: Side, b: Side) -> tuple[str, ...]:
    """Fields in which two selections name unlike values: what the user compares, without having to say it twice."""
    if a.words is None or b.words is None:
        return ()
    return tuple(
        name
        for name, values in a.words.items()
        if values and b.words[name] and not set(values) & set(b.words[name])
    )


def noise_of(home: Home, a: Side, b: Side) -> NoiseModel:
    """Noise from repeats on both sides, and in the store of other points of the same scenarios."""
    mine = {point.ref for side in (a, b) for point in side.points}
    scenarios = dict.fromkeys(point.scenario for side in (a, b) for point in side.points)
    others: list[Measured] = []
    if home.store.exists():
        with Store.open(home.store, read_only=True) as store:
            for name in scenarios:
                wanted = PointFilter(scenario=name, quarantined=False, limit=MAX_NOISE_POINTS)
                others += [of_stored(each) for each in load_points(store, wanted)]
    return noise_model([point for point in others if point.ref not in mine], a.points, b.points)


def _exists(argument: str) -> bool:
    try:
        return argument == "-" or Path(argument).exists()
    except (OSError, ValueError):
        return False


def _of_files(
    label: str, found: Iterator[Found | Refused], narrow: Selection, hints: Mapping[str, str]
) -> Side:
    read = read_unstored(found, (*importers(), POINTS_FILE), judge_all, hints)
    return _narrowed(label, read, narrow)


def _narrowed(label: str, read: Unstored, narrow: Selection) -> Side:
    problems = list(read.problems)
    if read.faults > len(problems):
        problems.append(f"+{read.faults - len(problems)}")
    if not read.points:
        first = problems[0] if problems else ""
        raise input_error("compare.no_results", side=label, files=read.files, why=first)
    return Side(label, tuple(p for p in read.points if matches(p, narrow)), tuple(problems))


def _selected(home: Home, chosen: Selection) -> list[Measured]:
    if not home.store.exists():
        raise input_error("compare.no_store", home=home.root)
    with Store.open(home.store, read_only=True) as store:
        return select(store, chosen)


def _of_date(argument: str, common: Sequence[str], home: Home) -> Side:
    """`@DATE`: of every series of lines the newest run on or before that day. `@DATE..DATE`: all of that period."""
    read = _DATE.fullmatch(argument)
    if read is None or not (read[1] or read[3]):
        raise input_error("compare.bad_date", side=argument[:40])
    if read[2]:
        chosen = parse_selection([*common, f"date={argument[1:]}", "all=yes"])
        return Side(argument, tuple(_selected(home, chosen)))
    chosen = parse_selection([*common, f"date=..{read[1]}", "all=yes"])
    key = fields_key((), loads=True)
    newest: dict[tuple[str, str], tuple[str, str, str]] = {}
    places = []
    for point in _selected(home, chosen):
        place, age = (point.source, key(point)), (point.at_utc, point.run, point.line_key)
        places.append((place, point))
        if point.status == "complete":
            newest[place] = max(newest.get(place, ("", "", "")), age)
    kept = [point for place, point in places if newest.get(place, ("", "", ""))[2] == point.line_key]
    return Side(argument, tuple(kept))


def _of_git(argument: str, narrow: Selection, hints: Mapping[str, str]) -> Side:
    """The files at a path of a commit, below the folder where we stand or an absolute one."""
    ref, _, name = argument.partition(":")
    path = Path(name)
    base = Path.cwd()
    if path.is_absolute() or ".." in path.parts:
        base = path.parent
        while not base.is_dir():
            base = base.parent
        name = str(path.relative_to(base)) if ".." not in path.parts else path.name
    tree = GitTree.open(base, ref, MAX_GIT_BYTES)
    wanted = "" if name in {"", "."} else str(PurePosixPath(name))
    paths = [
        each for each in sorted(tree.blobs) if not wanted or each == wanted or each.startswith(f"{wanted}/")
    ]
    if not paths:
        raise input_error("compare.not_in_commit", ref=ref, path=name or ".")
    if len(paths) > MAX_GIT_FILES:
        raise input_error("compare.many_files", ref=ref, path=name, count=len(paths), limit=MAX_GIT_FILES)
    read = read_unstored(_blobs(tree, ref, paths), (*importers(), POINTS_FILE), judge_all, hints)
    return _narrowed(argument, read, narrow)


def _blobs(tree: GitTree, ref: str, paths: Sequence[str]) -> Iterator[Found | Refused]:
    """Files of a commit as an import would find them: of a run folder the result, no hidden ones."""
    folders: dict[str, set[str]] = {}
    for path in paths:
        pure = PurePosixPath(path)
        folders.setdefault(str(pure.parent), set()).add(pure.name)
    runs = [folder for folder, names in folders.items() if MANIFEST_NAME in names]
    for path in paths:
        pure = PurePosixPath(path)
        inside = [run for run in runs if run == "." or path.startswith(f"{run}/")]
        if any(part.startswith(".") for part in pure.parts) or (inside and pure.name != RESULT_NAME):
            continue
        try:
            data = tree.read(path) or b""
        except ServemarkError as error:
            yield Refused(f"{ref}:{path}", error)
            continue
        yield Found(f"{ref}:{path}", len(data), partial(io.BytesIO, data))


def _of_run(argument: str, common: Sequence[str], home: Home, hints: Mapping[str, str]) -> Side:
    """A run of this home by its id, or one of the store (its retries and repeats with it)."""
    if list_runs(home.runs, 1):
        try:
            run = find_run(home.runs, argument)
        except ServemarkError as error:
            if error.key != "runs.no_such_run":
                raise
        else:
            found = find(str(run.path), home.raw, io.BytesIO())
            return replace(_of_files(str(run.path), found, parse_selection(common), hints), label=run.run_id)
    if home.store.exists():
        with Store.open(home.store, read_only=True) as store:
            points = select(store, parse_selection([*common, f"run={argument}", "all=yes"]))
        if points:
            return Side(argument, tuple(points))
    raise input_error("compare.no_side", side=argument[:80])
