"""A suite as a commit holds it, written to a folder of its own: neither a checkout nor the working tree is touched."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from servemark.base.errors import ServemarkError, input_error
from servemark.base.files import disk_error
from servemark.catalog.nodes import Problem
from servemark.catalog.suite import Suite, read_suite
from servemark.catalog.yaml_nodes import MAX_BYTES
from servemark.plan.gitrepo import GitTree, merge_base

SUFFIXES = frozenset({".yaml", ".yml", ".json", ".jsonl"})
"""What a suite is read from; scripts and documents are no part of a review's figures."""
MAX_FILES = 20_000
MAX_TOTAL = 256 << 20
_BATCH = 16 << 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One side of a change. `suite` is None where the commit holds no suite in the folder yet."""

    ref: str
    tree: GitTree
    suite: Suite | None
    problems: list[Problem]
    left_out: tuple[str, ...] = ()
    """Files larger than any that a suite reads."""

    @property
    def commit(self) -> str:
        """Twelve hex digits."""
        return self.tree.commit[:12]


@dataclass(frozen=True, slots=True)
class Range:
    """Two references. `forked`: the older side is the commit that both grew from."""

    base: str
    head: str
    forked: bool


def range_of(said: str) -> Range:
    """`BASE..HEAD`, or `BASE...HEAD` for what HEAD changed since it left BASE. ServemarkError (exit 2) otherwise."""
    dots = "..." if "..." in said else ".."
    base, found, head = said.partition(dots)
    if not found or not base or not head or ".." in head:
        raise input_error("authoring.bad_range", range=said[:120])
    return Range(base, head, dots == "...")


@contextmanager
def snapshots(folder: Path, wanted: Range) -> Iterator[tuple[Snapshot, Snapshot]]:
    """(base, head) of the suite in a folder. The files are gone when the block ends.

    ServemarkError (exit 2): no git, no repository, no such reference, too much to read, or no suite at HEAD."""
    older = merge_base(folder, wanted.base, wanted.head) if wanted.forked else wanted.base
    base, head = GitTree.open(folder, older), GitTree.open(folder, wanted.head)
    with tempfile.TemporaryDirectory(prefix="servemark-review-") as place:
        one = _written(base, wanted.base, Path(place) / "base" / folder.name, required=False)
        yield one, _written(head, wanted.head, Path(place) / "head" / folder.name, required=True)


def _written(tree: GitTree, ref: str, root: Path, *, required: bool) -> Snapshot:
    paths = [path for path in tree.blobs if _wanted(path)]
    sizes = tree.sizes(paths)
    large = tuple(path for path in paths if sizes[path] > MAX_BYTES)
    paths = [path for path in paths if sizes[path] <= MAX_BYTES]
    total = sum(sizes[path] for path in paths)
    if len(paths) > MAX_FILES or total > MAX_TOTAL:
        raise input_error(
            "authoring.too_much", ref=ref, files=len(paths), mib=total >> 20, most=MAX_FILES, most_mib=MAX_TOTAL >> 20
        )  # fmt: skip
    batch: list[str] = []
    size = 0
    try:
        root.mkdir(parents=True)
        for path in paths:
            batch.append(path)
            size += sizes[path]
            if size >= _BATCH:
                _write(tree, root, batch)
                batch, size = [], 0
        _write(tree, root, batch)
    except OSError as error:
        raise disk_error(error, root) from error
    try:
        suite, problems = read_suite(root)
    except ServemarkError:
        if required:
            raise input_error("authoring.no_suite", ref=ref, folder=str(tree.folder)) from None
        return Snapshot(ref, tree, None, [], large)
    return Snapshot(ref, tree, suite, problems, large)


def _wanted(path: str) -> bool:
    """Whether a suite may read a file of this name, and its name leads nowhere else."""
    parts = path.split("/")
    bad = any(part in {"", ".", "..", ".git"} or "\0" in part for part in parts)
    return not bad and PurePosixPath(path).suffix in SUFFIXES


def _write(tree: GitTree, root: Path, paths: list[str]) -> None:
    tree.fetch(paths)
    for path in paths:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(tree.read(path) or b"")
