"""A new arm made from an old one: master entry, recipe and changelog entry, all three or none.

Everything is worked out and checked on a copy first; the suite's own files are only touched at the end, each by an atomic
replacement, the recipe first: whoever is interrupted between two of them has a recipe that no arm names yet.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from servemark.authoring.insertion import Setting, copied_block, with_settings
from servemark.authoring.snapshot import MAX_FILES, MAX_TOTAL, SUFFIXES, Snapshot
from servemark.base.errors import ServemarkError, input_error
from servemark.base.files import disk_error, make_folder, write_atomic
from servemark.catalog.arms import Arm
from servemark.catalog.suite import Suite, read_suite
from servemark.catalog.yaml_nodes import MAX_BYTES, read_bytes
from servemark.checks.changelog_edit import added, entry_text
from servemark.plan.gitrepo import GitTree

RECIPE = "recipe."
"""What keys of a recipe begin with in `--set`."""
CONFIG_FILE = "CONFIG_FILE"
"""The key of the master entry that names the recipe; set, it names the new one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for. `description` are the changelog entry's lines."""

    source: str
    name: str
    settings: tuple[Setting, ...] = ()
    description: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One file of the suite. `before` is None for a new one; `path` is relative to the suite's folder."""

    path: str
    before: bytes | None
    after: bytes


def edits_of(suite: Suite, wanted: Wanted) -> tuple[FileEdit, ...]:
    """The edits, recipes first. ServemarkError (exit 2) for whatever has to be mended first; nothing is written."""
    arm = suite.arm(wanted.source)
    layout = suite.layout
    if layout is None or layout.changelog is None:
        raise input_error("plan.no_changelog", suite=suite.name)
    master = arm.at.file.removeprefix(f"{suite.name}/")
    shown = suite.shown(suite.root / master)
    before = read_bytes(suite.root / master, shown)
    after, _, _ = copied_block(before, shown, arm.key, wanted.name)
    own = [one for one in wanted.settings if not one.key.removeprefix("*.").startswith(RECIPE)]
    named = [one.value for one in own if one.key.rpartition(".")[2] == CONFIG_FILE]
    recipes, moved = _recipes(suite, arm, wanted, named)
    for old, new in moved.items():
        after = _repointed(after, wanted.name, old, new)
    after = with_settings(after, shown, wanted.name, own)
    log = suite.file(layout.changelog, str(layout.at))
    history = read_bytes(log, suite.shown(log))
    said = wanted.description or (f"Add {wanted.name}, made from {arm.key}.",)
    entry = entry_text((wanted.name,), said)
    return (
        *recipes,
        FileEdit(master, before, after),
        FileEdit(str(log.relative_to(suite.root)), history, added(history, entry)),
    )


def _recipes(
    suite: Suite, arm: Arm, wanted: Wanted, named: Sequence[str]
) -> tuple[list[FileEdit], dict[str, str]]:
    """(new recipe files, CONFIG_FILE value -> its new one). Recipes that are not in this suite are named as before.

    `named`: CONFIG_FILE values that were set. One that names a recipe of the suite makes the arm use that recipe as it
    is, one that names none is where the copy goes."""
    files: dict[str, Path] = {}
    for entry in arm.entries:
        path = suite.recipe_file(entry)
        if entry.config_file is not None and path is not None:
            files[entry.config_file.partition(":")[0]] = path
    settings = [
        Setting(
            ("*." if one.key.startswith("*.") else "") + one.key.removeprefix("*.").removeprefix(RECIPE),
            one.value,
        )
        for one in wanted.settings
        if one.key.removeprefix("*.").startswith(RECIPE)
    ]
    if settings and not files:
        raise input_error("authoring.new.no_recipe", arm=arm.key)
    edits, moved = [], {}
    for setting, path in files.items():
        stem = wanted.name if len(files) == 1 else f"{wanted.name}-{path.stem}"
        target = path.with_name(f"{stem}{path.suffix}")
        if named:
            if len(files) > 1 or len(named) > 1:
                raise input_error("authoring.new.many_recipes", arm=arm.key, count=len(files))
            if suite.setting_file(named[0], str(arm.at)) is not None:
                if settings:
                    raise input_error("authoring.new.shared_recipe", path=named[0], name=settings[0].key)
                return [], {}
            target = _beside(suite, setting, path, named[0])
        shown = suite.shown(target)
        if target.exists():
            raise input_error("authoring.new.file_taken", path=shown)
        data = read_bytes(path, suite.shown(path))
        own = [Setting("name", wanted.name)] if _named(suite, path) else []
        edits.append(
            FileEdit(
                str(target.relative_to(suite.root)), None, with_settings(data, shown, None, [*own, *settings])
            )
        )
        moved[setting] = named[0] if named else str(PurePosixPath(setting).with_name(target.name))
    return edits, moved


def _beside(suite: Suite, old: str, path: Path, wanted: str) -> Path:
    """Where the recipe that `wanted` names has to lie, told from where `old` lies. ServemarkError for a place that the
    setting would not be found at."""
    root = str(path).removesuffix(old) if str(path).endswith(old) else None
    root = str(path).removesuffix(old.removeprefix("recipes/")) if root is None else root
    tail = wanted if str(path).endswith(old) else wanted.removeprefix("recipes/")
    target = Path(root) / tail
    inside = ".." not in PurePosixPath(wanted).parts and not wanted.startswith("/")
    if not inside or target.suffix not in {".yaml", ".yml"} or not target.is_relative_to(suite.root):
        raise input_error("authoring.new.recipe_place", path=wanted[:200], like=old)
    return target


def _named(suite: Suite, path: Path) -> bool:
    """Whether a recipe has a name of its own at its top."""
    entries = suite.recipe_tree(path)[0].entries or {}
    return "name" in entries and isinstance(entries["name"].scalar, str)


def _repointed(data: bytes, name: str, old: str, new: str) -> bytes:
    """The master with CONFIG_FILE values of the new arm alone led to its own recipe."""
    start = data.index(b"\n" + name.encode() + b":") + 1 if not data.startswith(name.encode() + b":") else 0
    end = start
    for line in data[start:].splitlines(keepends=True)[1:]:
        if line.strip() and not line.startswith((b" ", b"#", b"\t", b"-")):
            break
        end += len(line)
    end += len(data[start:].splitlines(keepends=True)[0])
    block = data[start:end]
    pointed = re.compile(re.escape(f"CONFIG_FILE={old}".encode()) + rb"(?=[\s\"':,\]}]|$)")
    return (
        data[:start] + pointed.sub(f"CONFIG_FILE={new}".encode().replace(b"\\", b"\\\\"), block) + data[end:]
    )


@contextlib.contextmanager
def staged(suite: Suite, edits: Sequence[FileEdit], place: Path) -> Iterator[tuple[Snapshot, Snapshot]]:
    """(the suite as it is, the suite with the edits), copied below a folder that the caller removes."""
    yield (
        _copy(suite, (), place / "base" / suite.root.name, "working-tree"),
        _copy(suite, edits, place / "head" / suite.root.name, "new-arm"),
    )


def _copy(suite: Suite, edits: Sequence[FileEdit], root: Path, ref: str) -> Snapshot:
    files = dict(_files(suite.root))
    files |= {edit.path: edit.after for edit in edits}
    blobs, read = {}, {}
    for path, data in files.items():
        place = root / path
        make_folder(place.parent)
        try:
            place.write_bytes(data)
        except OSError as error:
            raise disk_error(error, place) from error
        name = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        blobs[path], read[name] = name, data
    tree = GitTree(root, ref, "", blobs, "sha1", MAX_BYTES, read)
    found, problems = read_suite(root)
    return Snapshot(ref, tree, found, problems)


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    """What a suite is read from, below its folder; links, hidden folders and large files are left out."""
    count = total = 0
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder) / name
            if path.suffix not in SUFFIXES or not stat.S_ISREG(path.lstat().st_mode):
                continue
            size = path.stat().st_size
            if size > MAX_BYTES:
                continue
            count, total = count + 1, total + size
            if count > MAX_FILES or total > MAX_TOTAL:
                raise input_error(
                    "authoring.too_much", ref=str(root), files=count, mib=total >> 20, most=MAX_FILES,
                    most_mib=MAX_TOTAL >> 20,
                )  # fmt: skip
            yield str(path.relative_to(root)), path.read_bytes()


def write_all(root: Path, edits: Sequence[FileEdit]) -> None:
    """Write every file or none: what was written before a failure is put back. ServemarkError when a file changed since
    it was read, is read-only, or the disk refuses."""
    for edit in edits:
        path = root / edit.path
        now = path.read_bytes() if path.is_file() else None
        if now != edit.before:
            raise input_error("authoring.new.changed_since", path=edit.path)
        if now is not None and not stat.S_IMODE(path.stat().st_mode) & 0o222:
            raise input_error("checks.read_only", path=edit.path)
    done: list[FileEdit] = []
    made: list[Path] = []
    try:
        for edit in edits:
            done.append(edit)
            path = root / edit.path
            mode = stat.S_IMODE(path.stat().st_mode) if edit.before is not None else 0o644
            made += [one for one in path.parents if not one.exists()]  # the inmost first
            make_folder(path.parent)
            write_atomic(path, edit.after, mode)
    except (ServemarkError, KeyboardInterrupt) as error:
        for edit in reversed(done):
            path = root / edit.path
            with contextlib.suppress(OSError, ServemarkError):
                if edit.before is None:
                    path.unlink(missing_ok=True)
                elif path.read_bytes() != edit.before:
                    write_atomic(path, edit.before, stat.S_IMODE(path.stat().st_mode))
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, ServemarkError):  # its advice is about a home, and this is a suite
            raise input_error("authoring.new.not_written", reason=error.what()) from error
        raise
