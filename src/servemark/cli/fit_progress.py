"""Why the first question in a large store takes seconds, and how far it is: on standard error, for somebody who waits."""

from __future__ import annotations

import sys

import click

from servemark.base.messages import text

_WORTH_SAYING = 300
"""Points of a fit that is over before anybody has read a line."""


class FitProgress:
    """Says once why, then counts on one line that is wiped at the end; silent where nobody looks on."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, done: int, total: int, points: int) -> None:
        """So many parts of all are done."""
        if points < _WORTH_SAYING or not sys.stderr.isatty():
            return
        if not self._shown:
            click.echo(text("predict.use.fitting", None, points=f"{points:,}"), err=True)
            self._shown = True
        click.echo("\r\x1b[K" + (f"{done}/{total}" if done < total else ""), err=True, nl=False)
