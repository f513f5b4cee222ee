"""Files that a reader dropped on the page: their points are held in memory for a while, and in no store."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from servemark.analysis.measured import Measured
from servemark.base.printable import one_line
from servemark.web.problems import Problem

TTL_S = 6 * 3600.0
MAX_OVERLAYS = 64
MAX_POINTS = 100_000
MAX_PROBLEMS = 50
CPU_S = 60
"""Processor time that reading one upload may take."""


@dataclass(slots=True)
class Read:
    """What an upload held: points with what gates say of them, the files that gave some, and what is wrong with others, in
    words."""

    points: list[Measured] = field(default_factory=list)
    files: list[dict[str, object]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    stored: bool = False

    def problem(self, said: str) -> None:
        """Note one; of very many the first."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(one_line(said))


@dataclass(frozen=True, slots=True)
class Overlay:
    """Points of one upload. `name` is what the reader calls it."""

    id: str
    name: str
    points: tuple[Measured, ...]
    until: float


@dataclass(slots=True)
class Overlays:
    """All of them; the one that ends first goes when there are too many or too many points. Any thread may ask."""

    now: Callable[[], float] = time.monotonic
    ttl_s: float = TTL_S
    max_points: int = MAX_POINTS
    _changes: int = 0
    _held: OrderedDict[str, Overlay] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, points: Sequence[Measured], into: str | None = None) -> Overlay:
        """Hold points under a new id that nobody can guess, or add them to an overlay that is here. Problem 413 for more
        than all may hold together, 404 for an overlay that is not here."""
        with self._lock:
            self._expire()
            self._changes += 1
            old = self._held.pop(into, None) if into is not None else None
            if into is not None and old is None:
                raise Problem(404, "serve.overlay.gone", name=into[:40])
            all_points = (*(old.points if old is not None else ()), *points)
            if len(all_points) > self.max_points:
                if old is not None:
                    self._held[old.id] = old
                raise Problem(413, "serve.overlay.points", limit=self.max_points)
            made = Overlay(
                old.id if old is not None else secrets.token_hex(12),
                old.name if old is not None else name,
                all_points,
                self.now() + self.ttl_s,
            )
            self._held[made.id] = made
            while len(self._held) > MAX_OVERLAYS or self._count() > self.max_points:
                self._held.popitem(last=False)
        return made

    def points(self, overlay_id: str) -> tuple[Measured, ...]:
        """Problem 404 for one that is not, or no longer, here."""
        with self._lock:
            self._expire()
            found = self._held.get(overlay_id)
        if found is None:
            raise Problem(404, "serve.overlay.gone", name=overlay_id[:40])
        return found.points

    def remove(self, overlay_id: str) -> bool:
        """Whether it was here."""
        with self._lock:
            self._changes += 1
            return self._held.pop(overlay_id, None) is not None

    def state(self) -> str:
        """Changes with every overlay that comes, grows or goes."""
        with self._lock:
            self._expire()
            return str(self._changes)

    def _expire(self) -> None:
        now = self.now()
        while self._held and next(iter(self._held.values())).until <= now:
            self._held.popitem(last=False)
            self._changes += 1

    def _count(self) -> int:
        return sum(len(each.points) for each in self._held.values())
