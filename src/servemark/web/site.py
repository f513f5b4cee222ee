"""What is served: one home with its store, a suite, overlays in memory; and the version of each, which answers hang on.

Every worker thread has a read-only connection of its own, opened again when the file is another one.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from servemark import __version__
from servemark.analysis.measured import Measured
from servemark.analysis.selection import Selection, select
from servemark.base.home import Home
from servemark.store.database import Store
from servemark.store.raw_files import RawFiles
from servemark.web.depends import Depends
from servemark.web.overlays import Overlays

KEPT_POINTS = 60_000
"""Decoded points that are kept for the next question about the same selection; about 3 KB each."""
_Stat = tuple[int, int, int]


def file_stat(path: Path) -> _Stat:
    """(inode, modification time in ns, bytes) of a file; zeros where there is none or it is empty. An empty write-ahead
    log is as good as none, and comes and goes with readers."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size) if found.st_size else (0, 0, 0)


def program_version() -> str:
    """Changes with the code and its texts, also between two releases of one version number."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256(__version__.encode())
    for path in sorted((*root.rglob("*.py"), *root.rglob("messages/*/*.json"))):
        found = path.stat()
        digest.update(f"{path.relative_to(root)}:{found.st_size}:{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


class _Selections:
    """Decoded points by (store version, selection), the least recently asked for given up first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[str, Selection], list[Measured]] = OrderedDict()
        self._points = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, Selection]) -> list[Measured] | None:
        """The points; None when they must be read."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: tuple[str, Selection], points: list[Measured]) -> None:
        """Keep them, unless they alone are too many."""
        if len(points) > self._limit:
            return
        with self._lock:
            if key in self._held:
                return
            self._held[key] = points
            self._points += len(points)
            while self._points > self._limit:
                _, gone = self._held.popitem(last=False)
                self._points -= len(gone)


@dataclass(slots=True)
class Site:
    """Everything that endpoints may read. `suite` is the folder of suite files, None where none is served."""

    home: Home
    suite: Path | None = None
    allow_writes: bool = False
    overlays: Overlays = field(default_factory=Overlays)
    program: str = field(default_factory=program_version)
    _local: threading.local = field(default_factory=threading.local)
    _selections: _Selections = field(default_factory=lambda: _Selections(KEPT_POINTS))

    def store_version(self) -> str:
        """Changes with every write to the store and with another file under its name. Two calls of stat."""
        path = self.home.store
        return f"{file_stat(path)}{file_stat(path.with_name(path.name + '-wal'))}"

    def sweeps_version(self) -> str:
        """Changes with every write to the file of sweeps."""
        folder = self.home.sweeps
        return "".join(
            str(file_stat(path)) for path in sorted(folder.glob("*.sqlite*")) if "-shm" not in path.name
        )

    def suite_version(self) -> str:
        """Changes with any file of the suite: name, size, time."""
        if self.suite is None:
            return ""
        digest = hashlib.sha256()
        for folder, _, files in sorted(os.walk(self.suite)):
            for name in sorted(files):
                path = Path(folder, name)
                digest.update(f"{path}{file_stat(path)}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def version(self, depends: Depends) -> str:
        """What an answer hangs on, as text."""
        said = {
            Depends.STORE: self.store_version,
            Depends.SUITE: self.suite_version,
            Depends.SWEEPS: self.sweeps_version,
        }.get(depends)
        return f"{self.program}/{said() if said is not None else ''}"

    def store(self) -> Store:
        """This thread's open store. Raises ServemarkError (layer store) while there is none, or none that this program can
        read."""
        inode = file_stat(self.home.store)[0]
        held: tuple[int, Store] | None = getattr(self._local, "store", None)
        if held is not None and held[0] == inode:
            return held[1]
        if held is not None:
            self._local.store = None
            held[1].close()
        opened = Store.open(self.home.store, read_only=True)
        self._local.store = (inode, opened)
        return opened

    def forget_store(self) -> None:
        """Close this thread's store; after an error of the file the next question opens it again."""
        held: tuple[int, Store] | None = getattr(self._local, "store", None)
        self._local.store = None
        if held is not None:
            held[1].close()

    def select(self, chosen: Selection) -> list[Measured]:
        """Points of the store; a list that others see too, so it is not to be changed."""
        key = (self.store_version(), chosen)
        found = self._selections.get(key)
        if found is None:
            found = select(self.store(), chosen)
            self._selections.put(key, found)
        return found

    def secrets(self) -> Sequence[str]:
        """Folders of this machine that no answer may name."""
        return [str(self.home.root), *([str(self.suite)] if self.suite is not None else [])]


@dataclass(frozen=True, slots=True)
class Context:
    """What one request sees; made in its worker thread."""

    site: Site

    @property
    def home(self) -> Home:
        """The home that is served."""
        return self.site.home

    @property
    def store(self) -> Store:
        """This thread's store."""
        return self.site.store()

    @property
    def raw(self) -> RawFiles:
        """Bytes of imported files."""
        return RawFiles(self.site.home.raw)

    def select(self, chosen: Selection) -> list[Measured]:
        """Points of the store."""
        return self.site.select(chosen)

    def overlay(self, ids: str | None) -> list[Measured]:
        """Points of the overlays with these ids (commas between them); Problem 404 for one that is gone."""
        if not ids:
            return []
        return [point for each in ids.split(",") for point in self.site.overlays.points(each)]
