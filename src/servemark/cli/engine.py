"""`servemark engine install|list`."""

from __future__ import annotations

import click


@click.group()
def engine() -> None:
    """Engines that servemark can start on this machine."""
