"""Ctrl-C and SIGTERM as a flag that phases ask, so that every phase ends in its own orderly way."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from servemark.base.errors import Layer, ServemarkError


class Interrupts:
    """While active (context manager), SIGINT, SIGTERM and SIGHUP (unless it was ignored before, as under `nohup`) are noted
    instead of killing the process.

    A second signal asks for haste: no reply in flight is waited for.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.event = threading.Event()
        self.count = 0
        self.name = ""
        self._old: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        for number in self.SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # `nohup`: the terminal's end is not to be the run's
            self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)  # type: ignore[arg-type]
        self._old.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.name = signal.Signals(number).name
        self.event.set()

    @property
    def requested(self) -> bool:
        """True once a signal came."""
        return self.event.is_set()

    def error(self) -> ServemarkError:
        """What to raise when a phase ends because of a signal; exit code 130 for Ctrl-C, 143 for SIGTERM."""
        code = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}.get(self.name, 130)
        return ServemarkError("runs.interrupted", Layer.INTERRUPT, exit_code=code, signal=self.name)

    def check(self) -> None:
        """Raise when a signal came."""
        if self.requested:
            raise self.error()
