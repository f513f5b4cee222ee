"""What somebody who waits for a simulation of a long trace is shown."""

from __future__ import annotations

import pytest

from servemark.cli.simulate_progress import SimulateProgress


class Terminal:
    """Standard error, a terminal or not."""

    def __init__(self, *, tty: bool) -> None:
        self.said = ""
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    def write(self, part: str) -> int:
        self.said += part
        return len(part)

    def flush(self) -> None:
        """Nothing is held back."""


@pytest.mark.parametrize("tty", [True, False])
def test_sessions_are_counted_where_somebody_waits(monkeypatch: pytest.MonkeyPatch, tty: bool) -> None:
    """After a second, at most five times a second, on one line that is wiped; in a pipe nothing at all."""
    there, now = Terminal(tty=tty), [0.0]
    monkeypatch.setattr("sys.stderr", there)
    monkeypatch.setattr("servemark.cli.simulate_progress.time.monotonic", lambda: now[0])
    progress = SimulateProgress()
    for second, done in ((0.5, 1), (1.1, 2000), (1.15, 3000), (1.4, 4000)):
        now[0] = second
        progress(done, 9000, 2 if done == 4000 else 1)
    progress.close()
    told = [str(done) in there.said.replace(",", "") for done in (1000, 2000, 3000, 4000)]
    assert told == ([False, True, False, True] if tty else [False] * 4)
    assert "9,000" in there.said if tty else not there.said
    assert not tty or there.said.endswith("\r\x1b[K")
