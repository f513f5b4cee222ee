"""How far a simulation of a long trace is: on standard error, for somebody who waits."""

from __future__ import annotations

import sys
import time

import click

from servemark.base.messages import text

_FIRST_S = 1.0
"""Seconds before anything is said: a short trace is over by then."""
_EVERY_S = 0.2


class SimulateProgress:
    """Counts sessions on one line that `close` wipes; silent where nobody looks on."""

    def __init__(self) -> None:
        self._due_s = time.monotonic() + _FIRST_S if sys.stderr.isatty() else float("inf")
        self._shown = False

    def __call__(self, done: int, total: int, run: int) -> None:
        """So many sessions of all have been played, in this run."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + _EVERY_S
        self._shown = True
        key = "predict.simulate.progress" if run == 1 else "predict.simulate.progress_again"
        click.echo(
            "\r\x1b[K" + text(key, None, done=f"{done:,}", total=f"{total:,}", run=run), err=True, nl=False
        )

    def close(self) -> None:
        """Nothing of it stays."""
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
