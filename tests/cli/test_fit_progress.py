"""What somebody who waits for a large fit is shown."""

from __future__ import annotations

import pytest

from servemark.cli.fit_progress import FitProgress


class Terminal:
    """Standard error that is a terminal."""

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


@pytest.mark.parametrize(("tty", "points", "told"), [(True, 2750, 1), (False, 2750, 0), (True, 20, 0)])
def test_the_reason_is_said_once_where_somebody_waits(
    monkeypatch: pytest.MonkeyPatch, tty: bool, points: int, told: int
) -> None:
    """Once on a terminal and for many points, then parts on a line that is wiped at the end; else nothing."""
    there = Terminal(tty=tty)
    monkeypatch.setattr("sys.stderr", there)
    progress = FitProgress()
    for done in range(4):
        progress(done, 3, points)
    assert there.said.count("2,750") == told
    assert ("2/3" in there.said) == bool(told)
    assert not told or there.said.endswith("\x1b[K")
