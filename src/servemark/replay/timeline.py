"""Everything that a replay waits for: due times that may be moved together when nobody is served.

Recorded think times can hold hours in which nothing happens. A cap shortens such a gap without changing the
order or the distances of what comes after it: when nothing is in flight, all waiting timers of one tree (or
of the whole system) are moved earlier by the same amount. Every move is kept in `shifts`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

SETTLE_S: Final = 0.005
"""After the last reply, streams get this long to say when they go on before a gap is judged."""

_LONGEST_SLEEP_S: Final = 3600.0
_GRAIN_S: Final = 0.001
"""Gaps that exceed their cap by less are left alone: after a move the gap is the cap, up to rounding."""


@dataclass(frozen=True, slots=True)
class IdleShift:
    """One move: at `at_s` (client's clock) `timers` waiting timers came `shift_s` seconds earlier. `tree` is
    None for the whole system."""

    at_s: float
    shift_s: float
    scope: Literal["tree", "system"]
    tree: str | None
    timers: int


@dataclass(frozen=True, slots=True)
class IdleCaps:
    """Longest gap without anything in flight, in seconds, within one tree and in the whole system; None: no
    cap."""

    tree_s: float | None = None
    system_s: float | None = None


class Timer:
    """One stream that waits. `due_s` may have moved by the time the wait is over."""

    __slots__ = ("_handle", "_woken", "due_s", "tree")

    def __init__(self, due_s: float, tree: str | None) -> None:
        self.due_s = due_s
        self.tree = tree
        self._woken: asyncio.Future[None] | None = None
        self._handle: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Let the waiting stream look at the clock and at the stop signal again."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Until woken or, at the earliest, so many seconds from now."""
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        # The loop's timers have a grain of 1 ms: asking for less would wake early and spin.
        grain_s = min(math.ceil(seconds * 1000) / 1000, _LONGEST_SLEEP_S)
        self._handle = loop.call_later(grain_s, self.wake)
        try:
            await self._woken
        finally:
            self._handle.cancel()
            self._woken = None


class Timeline:
    """The waiting timers and the requests in flight of one event loop, by tree.

    `on_idle` replaces the system cap's own move: it is told (idle since, earliest due) when nothing of this
    process is in flight, so that several processes can be moved alike; `on_busy` when that is over.
    """

    def __init__(
        self, now_s: Callable[[], float], stopped: Callable[[], bool], caps: IdleCaps | None = None
    ) -> None:
        self._now_s = now_s
        self._stopped = stopped
        self._caps = caps or IdleCaps()
        self._timers: dict[str | None, set[Timer]] = {}
        self._in_flight: dict[str | None, int] = {}
        self._idle_since_s: dict[str | None, float] = {}
        self._all_in_flight = 0
        self._all_idle_since_s = now_s()
        self._told_idle = False
        self._pending: set[str | None] = set()
        self.shifts: list[IdleShift] = []
        self.on_idle: Callable[[float, float], None] | None = None
        self.on_busy: Callable[[], None] | None = None

    async def until(self, due_s: float, tree: str | None = None) -> float:
        """Wait until the moment has come, never less, or until a stop; returns the due time after all moves."""
        left_s = due_s - self._now_s()
        if left_s <= 0 or self._stopped():
            return due_s
        timer = Timer(due_s, tree)
        self._timers.setdefault(tree, set()).add(timer)
        self._judge_soon(tree)
        try:
            while not self._stopped() and (left_s := timer.due_s - self._now_s()) > 0:
                await timer.sleep(left_s)
        finally:
            waiting = self._timers[tree]
            waiting.discard(timer)
            if not waiting:
                del self._timers[tree]
        return timer.due_s

    def wake_all(self) -> None:
        """A stop was asked for: nobody needs to wait any longer."""
        for timer in self._waiting():
            timer.wake()

    def begin(self, tree: str | None) -> None:
        """A request of this tree is in flight."""
        self._in_flight[tree] = self._in_flight.get(tree, 0) + 1
        self._all_in_flight += 1
        if self._told_idle and self.on_busy is not None:
            self._told_idle = False
            self.on_busy()

    def end(self, tree: str | None) -> None:
        """It has ended."""
        left = self._in_flight[tree] - 1
        self._all_in_flight -= 1
        now_s = self._now_s()
        if self._all_in_flight == 0:
            self._all_idle_since_s = now_s
        if left:
            self._in_flight[tree] = left
        else:
            del self._in_flight[tree]
            self._idle_since_s[tree] = now_s
        self._judge_soon(tree)

    def forget(self, tree: str) -> None:
        """The tree has drained."""
        self._idle_since_s.pop(tree, None)

    def shift_all(self, shift_s: float) -> None:
        """Move every waiting timer of this process."""
        timers = list(self._waiting())
        self._move(timers, shift_s)
        self.shifts.append(IdleShift(self._now_s(), shift_s, "system", None, len(timers)))

    def _waiting(self) -> list[Timer]:
        return [timer for timers in self._timers.values() for timer in timers]

    def _judge_soon(self, tree: str | None) -> None:
        if self._caps.tree_s is None and self._caps.system_s is None:
            return
        if tree in self._pending:
            return
        self._pending.add(tree)
        asyncio.get_running_loop().call_later(SETTLE_S, self._judge, tree)

    def _judge(self, tree: str | None) -> None:
        self._pending.discard(tree)
        if self._stopped():
            return
        cap_s = self._caps.tree_s
        timers = self._timers.get(tree)
        if cap_s is not None and tree is not None and timers and tree not in self._in_flight:
            since_s = self._idle_since_s.setdefault(tree, self._now_s())
            earliest_s = min(timer.due_s for timer in timers)
            if earliest_s - since_s > cap_s + _GRAIN_S:
                shift_s = earliest_s - since_s - cap_s
                self._move(list(timers), shift_s)
                self.shifts.append(IdleShift(self._now_s(), shift_s, "tree", tree, len(timers)))
        self._judge_system()

    def _judge_system(self) -> None:
        cap_s = self._caps.system_s
        if cap_s is None or self._all_in_flight or not self._timers:
            return
        earliest_s = min(timer.due_s for timer in self._waiting())
        if self.on_idle is not None:
            self._told_idle = True
            self.on_idle(self._all_idle_since_s, earliest_s)
        elif earliest_s - self._all_idle_since_s > cap_s + _GRAIN_S:
            self.shift_all(earliest_s - self._all_idle_since_s - cap_s)

    @staticmethod
    def _move(timers: list[Timer], shift_s: float) -> None:
        for timer in timers:
            timer.due_s -= shift_s
            timer.wake()
