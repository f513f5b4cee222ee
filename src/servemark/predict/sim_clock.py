"""The simulated client's timers, moved together by the idle caps as in `replay.timeline`, without waiting."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import Final

from servemark.replay.timeline import IdleCaps

_INF: Final = math.inf
_GRAIN_S: Final = 0.001


class Waiting:
    """Something that waits for a moment. `key_s` is that moment on the clock without the system's moves; infinite when
    it does not wait."""

    __slots__ = ("key_s",)

    def __init__(self) -> None:
        self.key_s = _INF


class IdleTree:
    """What the caps look at of one session tree."""

    __slots__ = ("idle_since_s", "in_flight", "waiting")

    def __init__(self) -> None:
        self.in_flight = 0
        self.idle_since_s: float | None = None
        self.waiting: dict[Waiting, None] = {}


class Clock:
    """Timers in the order of their moments: `timers` holds (moment + `offset_s`, number, what). A cap's move is made at
    the instant at which the gap begins; the real timeline makes the same move 5 ms later."""

    def __init__(self, caps: IdleCaps) -> None:
        self._tree_cap_s = caps.tree_s
        self._system_cap_s = caps.system_s
        self.timers: list[tuple[float, int, Waiting]] = []
        self._order = 0
        self.offset_s = 0.0
        self.in_flight = 0
        self.idle_since_s = 0.0
        self.moves = 0
        self.moved_s = 0.0
        self.capped = caps.tree_s is not None or caps.system_s is not None

    def wait(self, what: Waiting, due_s: float, tree: IdleTree | None) -> None:
        """`what` is next returned by `pop` at its moment, or earlier where a cap moves it."""
        key_s = what.key_s = due_s + self.offset_s
        if tree is not None and self._tree_cap_s is not None:
            tree.waiting[what] = None
        self._order += 1
        heappush(self.timers, (key_s, self._order, what))

    def next_s(self) -> float:
        """The earliest moment; infinite when nothing waits."""
        heap = self.timers
        while heap:
            if heap[0][0] == heap[0][2].key_s:
                return heap[0][0] - self.offset_s
            heappop(heap)  # it was moved since
        return _INF

    def pop(self) -> Waiting:
        """What `next_s` spoke of; it waits no longer."""
        what = heappop(self.timers)[2]
        what.key_s = _INF
        return what

    def clear(self) -> list[Waiting]:
        """Nobody waits any longer; those who did, in order."""
        found = [what for key_s, _, what in sorted(self.timers, key=_place) if key_s == what.key_s]
        for what in found:
            what.key_s = _INF
        self.timers.clear()
        return found

    def judge(self, tree: IdleTree | None, now_s: float) -> None:
        """Shorten the gap that begins now, where there is one and a cap."""
        cap_s = self._tree_cap_s
        if cap_s is not None and tree is not None and not tree.in_flight and tree.waiting:
            if tree.idle_since_s is None:
                tree.idle_since_s = now_s
            earliest_s = min(what.key_s for what in tree.waiting) - self.offset_s
            excess_s = earliest_s - tree.idle_since_s - cap_s
            if excess_s > _GRAIN_S:
                for what in sorted(tree.waiting, key=_key):
                    what.key_s -= excess_s
                    self._order += 1
                    heappush(self.timers, (what.key_s, self._order, what))
                self._note(excess_s)
        cap_s = self._system_cap_s
        if cap_s is not None and not self.in_flight:
            excess_s = self.next_s() - self.idle_since_s - cap_s
            if _GRAIN_S < excess_s < _INF:
                self.offset_s += excess_s
                self._note(excess_s)

    def _note(self, excess_s: float) -> None:
        self.moves += 1
        self.moved_s += excess_s


def _key(what: Waiting) -> float:
    return what.key_s


def _place(entry: tuple[float, int, Waiting]) -> tuple[float, int]:
    return entry[:2]
