"""Regular expressions of other people's task files on replies of other people's servers, bounded in length and time.

Python's `re` backtracks: `(a+)+b` needs longer than the sun will shine for forty letters. It looks for signals while it
does, so an interval timer ends it; a task whose pattern ran out of time three times is refused instead of costing that
time for every item.
A timer is the main thread's alone, so elsewhere nothing is searched.
"""

from __future__ import annotations

import re
import signal
import threading
from types import FrameType

from servemark.base.errors import Layer, ServemarkError

MAX_PATTERN = 1000
MAX_TEXT = 4000
"""Characters of a reply that are searched."""
LIMIT_S = 0.1
MAX_TIMEOUTS = 3


class RegexError(ValueError):
    """A pattern that cannot be used; its text says why."""


class _OutOfTimeError(Exception):
    """The timer rang."""


def _ring(number: int, frame: FrameType | None) -> None:
    raise _OutOfTimeError


class BoundedRegex:
    """One pattern. Raises RegexError when it is too long or none."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise RegexError(f"{len(pattern)} > {MAX_PATTERN}")
        try:
            self._compiled = re.compile(pattern)
        except (re.error, OverflowError, RecursionError, MemoryError, ValueError) as error:
            raise RegexError(str(error)[:200]) from None
        self.pattern = pattern
        self.timeouts = 0

    def search(self, text: str) -> re.Match[str] | None:
        """The first match in the first `MAX_TEXT` characters; None also when it took longer than `LIMIT_S`. Raises
        ServemarkError (layer evals) at the third time, and outside of the main thread."""
        if threading.current_thread() is not threading.main_thread():
            raise ServemarkError("evals.regex_thread", Layer.EVALS)
        before = signal.signal(signal.SIGALRM, _ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
            try:
                return self._compiled.search(text[:MAX_TEXT])
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except _OutOfTimeError:
            self.timeouts += 1
        finally:
            signal.signal(signal.SIGALRM, before)
        if self.timeouts >= MAX_TIMEOUTS:
            raise ServemarkError(
                "evals.regex_slow",
                Layer.EVALS,
                pattern=self.pattern[:80],
                limit_s=LIMIT_S,
                times=MAX_TIMEOUTS,
            )
        return None
