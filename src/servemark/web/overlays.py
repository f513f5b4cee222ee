"""Files that a reader dropped on the page: their points are held in memory for a while, and in no store."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from servemark.analysis.measured import Measured
from servemark.web.problems import Problem

TTL_S = 6 * 3600.0
MAX_OVERLAYS = 64
MAX_POINTS = 100_000
POINT_BYTES = 6 * 1024
"""About what a decoded point takes."""


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
    _held: OrderedDict[str, Overlay] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, points: Sequence[Measured]) -> Overlay:
        """Hold points under a new id that nobody can guess. Problem 413 for more than all may hold together."""
        if len(points) > MAX_POINTS:
            raise Problem(413, "serve.overlay.points", limit=MAX_POINTS)
        made = Overlay(secrets.token_hex(12), name, tuple(points), self.now() + TTL_S)
        with self._lock:
            self._expire()
            self._held[made.id] = made
            while len(self._held) > MAX_OVERLAYS or self._count() > MAX_POINTS:
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
            return self._held.pop(overlay_id, None) is not None

    def _expire(self) -> None:
        now = self.now()
        while self._held and next(iter(self._held.values())).until <= now:
            self._held.popitem(last=False)

    def _count(self) -> int:
        return sum(len(each.points) for each in self._held.values())
