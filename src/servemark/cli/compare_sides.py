"""What A and B name: files, a git commit's files, a run, the newest at a date, a period, or a selection.

Tried in this order: an existing path, `latest`, `@DATE`, `KEY=VALUE …`, `REF:PATH`, a run of this home, a run of the store.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath

from servemark.analysis.compare_sides import Side, in_words, side_in_words
from servemark.analysis.measured import Measured
from servemark.analysis.noise import NoiseModel, noise_model
from servemark.analysis.selection import Selection, matches, parse_selection, select
from servemark.analysis.store_noise import store_noise
from servemark.analysis.unstored import Unstored, read_unstored
from servemark.base.errors import ServemarkError, input_error
from servemark.base.home import Home
from servemark.plan.gitrepo import GitTree
from servemark.results.serialize import MANIFEST_NAME, RESULT_NAME
from servemark.runs.folder import find_line, find_run, list_runs
from servemark.store.database import Store
from servemark.store.found_files import Found, Refused, find
from servemark.store.intake import Intake

MAX_GIT_BYTES = 64_000_000
MAX_GIT_FILES = 2_000


def side_of(argument: str, common: Sequence[str], home: Home, intake: Intake) -> Side:
    """The side that one argument names, narrowed by the common words. Raises ServemarkError (exit code 2) where it names
    nothing, or nothing of it is a result."""
    narrow = parse_selection(common)
    if not argument.strip():  # an unset variable of a script must not mean the whole store
        raise input_error("compare.no_side", side=argument[:80])
    if _exists(argument):
        return _of_files(argument, find(argument, home.raw, sys.stdin.buffer), narrow, intake)
    if argument == "latest":
        return _of_line(argument, home, narrow, intake)
    if in_words(argument):
        return side_in_words(argument, common, partial(_selected, home))
    if ":" in argument:
        return _of_git(argument, narrow, intake)
    return _of_run(argument, common, home, intake)


def noise_of(home: Home, a: Side, b: Side) -> NoiseModel:
    """Noise from repeats on both sides, and from those of the store."""
    if not home.store.exists():
        return noise_model([]).apart(a.points, b.points)
    with Store.open(home.store, read_only=True) as store:
        return store_noise(store).apart(a.points, b.points)


def _exists(argument: str) -> bool:
    try:
        return argument == "-" or Path(argument).exists()
    except (OSError, ValueError):
        return False


def _of_files(label: str, found: Iterator[Found | Refused], narrow: Selection, intake: Intake) -> Side:
    read = read_unstored(found, intake)
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


def _of_git(argument: str, narrow: Selection, intake: Intake) -> Side:
    """The files at a path of a commit, below the folder where we stand or an absolute one."""
    ref, _, name = argument.partition(":")
    path = Path(name)
    base = Path.cwd()
    if path.is_absolute() or ".." in path.parts:
        base = path.parent
        while not base.is_dir():
            base = base.parent
        name = str(path.relative_to(base)) if ".." not in path.parts else path.name
    tree = _tree(base, ref, argument)
    wanted = "" if name in {"", "."} else str(PurePosixPath(name))
    paths = [
        each for each in sorted(tree.blobs) if not wanted or each == wanted or each.startswith(f"{wanted}/")
    ]
    if not paths:
        raise input_error("compare.not_in_commit", ref=ref, path=name or ".")
    if len(paths) > MAX_GIT_FILES:
        raise input_error("compare.many_files", ref=ref, path=name, count=len(paths), limit=MAX_GIT_FILES)
    read = read_unstored(_blobs(tree, ref, paths), intake)
    return _narrowed(argument, read, narrow)


def _tree(base: Path, ref: str, argument: str) -> GitTree:
    """The commit's files below a folder. ServemarkError (exit 2) that says which of path and folder is in no repository."""
    try:
        return GitTree.open(base, ref, MAX_GIT_BYTES)
    except ServemarkError as error:
        if error.key != "plan.no_repository":
            raise
        key = "compare.no_repository" if base == Path.cwd() else "compare.outside"
        raise input_error(key, side=argument[:200], ref=ref[:80], folder=str(base.resolve())[:200]) from None


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


def _of_line(name: str, home: Home, narrow: Selection, intake: Intake) -> Side:
    """The runs of one line of this home; of a run that is named in full, that one alone."""
    if (home.runs / name).is_dir():
        run = find_run(home.runs, name)
        line, folders = run.run_id, [run.path]
    else:
        line, folders = find_line(home.runs, name)
    found = chain.from_iterable(find(str(folder), home.raw, io.BytesIO()) for folder in folders)
    return _of_files(line, found, narrow, intake)


def _of_run(argument: str, common: Sequence[str], home: Home, intake: Intake) -> Side:
    """A line or a run of this home by its id, or a run of the store (its retries and repeats with it)."""
    if list_runs(home.runs, 1):
        try:
            return _of_line(argument, home, parse_selection(common), intake)
        except ServemarkError as error:
            if error.key != "runs.no_such_run":
                raise
    if home.store.exists():
        with Store.open(home.store, read_only=True) as store:
            points = select(store, parse_selection([*common, f"run={argument}", "all=yes"]))
        if points:
            return Side(argument, tuple(points))
    raise input_error("compare.no_side", side=argument[:80])
