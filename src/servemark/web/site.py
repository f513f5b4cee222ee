"""What is served: one home with its store, a suite, overlays in memory; and the version of each, which answers hang on.

Every worker thread has a read-only connection of its own, opened again when the file is another one.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from servemark import __version__
from servemark.analysis.front_points import FrontPoints, front_points
from servemark.analysis.front_query import accuracy_results, with_gates
from servemark.analysis.measured import Measured
from servemark.analysis.noise import NoiseModel
from servemark.analysis.rate_cards import CardShelf, shelf, user_rates
from servemark.analysis.selection import Selection, select, store_filter
from servemark.analysis.store_noise import store_noise
from servemark.base.home import Home
from servemark.catalog.layout import shipped_suites
from servemark.store.database import Store
from servemark.store.points import count_points
from servemark.store.raw_files import RawFiles
from servemark.web.depends import Depends
from servemark.web.overlays import Overlays
from servemark.web.problems import Problem
from servemark.web.unofficial import Unofficial

KEPT_POINTS = 60_000
"""Decoded points that are kept for the next question about the same selection; about 3 KB each."""
LOOK_S = 3.0
SWEEPS_S = 10.0
_Stat = tuple[int, int, int]


def file_stat(path: Path | str) -> _Stat:
    """(inode, modification time in ns, bytes) of a file; zeros where there is none or it is empty. An empty write-ahead
    log is as good as none, and comes and goes with readers."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked for every request, with a text that is ready
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


_Held = TypeVar("_Held", bound=Sized)


class _Selections(Generic[_Held]):
    """Points by (store version, what was asked for), the least recently asked for given up first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[str, Hashable], _Held] = OrderedDict()
        self._points = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, Hashable]) -> _Held | None:
        """The points; None when they must be read."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: tuple[str, Hashable], points: _Held) -> None:
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
    unofficial: Unofficial | None = None
    """Files that may be laid over by name, besides what readers dropped on the page."""
    program: str = field(default_factory=program_version)
    _local: threading.local = field(default_factory=threading.local)
    _files: tuple[str, str, str] = field(init=False)
    _suite_seen: tuple[float, str] = (0.0, "")
    _noise: tuple[str, NoiseModel] | None = None
    _cards: tuple[str, CardShelf] | None = None
    _noise_lock: threading.Lock = field(default_factory=threading.Lock)
    _selections: _Selections[list[Measured]] = field(default_factory=lambda: _Selections(KEPT_POINTS))
    _fronts: _Selections[FrontPoints] = field(default_factory=lambda: _Selections(KEPT_POINTS))
    """Mostly the very points that `_selections` holds."""

    def __post_init__(self) -> None:
        """Paths that are looked at for every request, as texts."""
        self._files = (
            str(self.home.store),
            f"{self.home.store}-wal",
            str(user_rates(self.home.root)),
        )

    def overlay(self, name: str) -> tuple[Measured, ...]:
        """Points of a file of the unofficial folder, or of an upload; Problem 404 when there is none by this name."""
        found = self.unofficial.points(name) if self.unofficial is not None else None
        return found if found is not None else self.overlays.points(name)

    def overlay_state(self) -> str:
        """Changes with every overlay that comes, grows or goes."""
        return self.overlays.state() + (self.unofficial.state() if self.unofficial is not None else "")

    def store_version(self) -> str:
        """Changes with every write to the store, with another file under its name, and with a rate card of this home. Two
        or three calls of stat."""
        main, wal, rates = self._files
        cards = (
            "".join(str(file_stat(each)) for each in sorted(Path(rates).glob("*.yaml")))
            if file_stat(rates)[0]
            else ""
        )
        return f"{file_stat(main)}{file_stat(wal)}{cards}"

    def sweeps_version(self) -> str:
        """Changes with every write to the file of sweeps, and every few seconds: who holds a sweep, and how long it will
        last, is written nowhere."""
        folder = self.home.sweeps
        beat = int(time.time() / SWEEPS_S) if folder.is_dir() else 0
        return f"{beat}" + "".join(
            str(file_stat(path)) for path in sorted(folder.glob("*.sqlite*")) if "-shm" not in path.name
        )

    def home_version(self) -> str:
        """Changes with the store and the sweeps, and every few seconds: what is within run folders is not looked at."""
        return f"{int(time.time() / SWEEPS_S)}{self.store_version()}{self.sweeps_version()}"

    def suite_version(self) -> str:
        """Changes with any file of a suite: name, size, time. Looked at every `LOOK_S` at most."""
        seen, found = self._suite_seen
        if found and time.monotonic() - seen < LOOK_S:
            return found
        digest = hashlib.sha256()
        for root in self.suites():
            for folder, folders, files in os.walk(root):
                folders[:] = sorted(each for each in folders if not each.startswith("."))
                for name in sorted(files):
                    path = Path(folder, name)
                    digest.update(f"{path}{file_stat(path)}\n".encode("utf-8", "surrogateescape"))
        self._suite_seen = (time.monotonic(), digest.hexdigest())
        return self._suite_seen[1]

    def store_and_suite_version(self) -> str:
        """Changes with either."""
        return f"{self.store_version()}/{self.suite_version()}"

    def version(self, depends: Depends) -> str:
        """What an answer hangs on, as text."""
        said = {
            Depends.STORE: self.store_version,
            Depends.SUITE: self.suite_version,
            Depends.SWEEPS: self.sweeps_version,
            Depends.HOME: self.home_version,
            Depends.STORE_AND_SUITE: self.store_and_suite_version,
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
            self.check_size(chosen)
            found = select(self.store(), chosen)
            self._selections.put(key, found)
        return found

    def check_size(self, chosen: Selection) -> None:
        """Problem 400 for a selection that the store cannot narrow down to `KEPT_POINTS`; counted, nothing is decoded."""
        points = count_points(self.store(), store_filter(chosen))
        if points > KEPT_POINTS:
            raise Problem(400, "serve.many_points", points=points, limit=KEPT_POINTS)

    def for_front(self, chosen: Selection, limit: int) -> FrontPoints:
        """See `Context.for_front`."""
        version = self.store_version()
        ready = self._fronts.get((version, chosen))
        if ready is None:
            found = self.select(chosen)
            if len(found) > limit:
                raise Problem(400, "serve.many_points", points=len(found), limit=limit)
            ready = front_points(with_gates(self.store(), found), self._evals(version, found))
            self._fronts.put((version, chosen), ready)
        return ready

    def _evals(self, version: str, points: Sequence[Measured]) -> list[Measured]:
        """Accuracy results of the models of these points; one list for all selections of the same models."""
        key = (version, frozenset(point.identity.model for point in points))
        found = self._selections.get(key)
        if found is None:
            found = accuracy_results(self.store(), points)
            self._selections.put(key, found)
        return found

    def suites(self) -> list[Path]:
        """The suite that is served, else those that come with servemark."""
        return [self.suite] if self.suite is not None else list(shipped_suites().values())

    def noise(self) -> NoiseModel:
        """What repeats in the whole store show, by source and kind of scenario."""
        version = self.store_version()
        with self._noise_lock:
            held = self._noise
            if held is None or held[0] != version:
                held = self._noise = (version, store_noise(self.store()).pooled())
        return held[1]

    def cards(self) -> CardShelf:
        """Rate cards at hand, read when one of this home has changed."""
        version = self.store_version()
        held = self._cards
        if held is None or held[0] != version:
            held = self._cards = (version, shelf(self.home.root))
        return held[1]

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

    def for_front(self, chosen: Selection, limit: int) -> FrontPoints:
        """The same with what gates said of quarantined ones and the accuracy results that speak for them, made ready for
        any axes. Problem 400 for more points than `limit`."""
        return self.site.for_front(chosen, limit)

    def check_size(self, chosen: Selection) -> None:
        """Problem 400 for a selection of every run that is too large to be decoded."""
        self.site.check_size(replace(chosen, latest=False))

    def noise(self) -> NoiseModel:
        """How far figures vary when they are measured again."""
        return self.site.noise()

    def overlay(self, ids: str | None) -> list[Measured]:
        """Points of the overlays with these ids (commas between them); Problem 404 for one that is gone."""
        return [point for each in (ids or "").split(",") if each for point in self.site.overlay(each)]
