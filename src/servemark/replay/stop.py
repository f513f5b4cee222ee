"""How a replay is asked to end early: `drain` sends nothing new, `now` also gives up what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Literal

StopMode = Literal["drain", "now"]


class StopSignal:
    """One per replay. May be requested from the event loop, a signal handler or another thread, any number of
    times; it only ever gets stricter.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt a request in its own thread
        self._mode: StopMode | None = None
        self._reason: str | None = None
        self._watchers: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    @property
    def mode(self) -> StopMode | None:
        """What was asked for so far; None means go on."""
        return self._mode

    @property
    def reason(self) -> str | None:
        """Why, in the words of whoever asked for the mode that holds."""
        return self._reason

    def request(self, mode: StopMode, reason: str) -> None:
        """Ask for an end. Asking for less than what was asked before changes nothing."""
        with self._lock:
            if self._mode in ("now", mode):
                return
            self._mode, self._reason = mode, reason
            watchers = list(self._watchers)
        for loop, callback in watchers:
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody is left to tell
                loop.call_soon_threadsafe(callback)

    @contextlib.contextmanager
    def watched(self, callback: Callable[[], None]) -> Iterator[None]:
        """Within this block `callback` is called in the running event loop at each change of mode."""
        watcher = (asyncio.get_running_loop(), callback)
        with self._lock:
            self._watchers.append(watcher)
        try:
            if self._mode is not None:
                callback()
            yield
        finally:
            with self._lock:
                self._watchers.remove(watcher)
