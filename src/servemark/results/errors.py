"""Errors of this room: a file of a run that is missing, damaged, changed or of another time."""

from __future__ import annotations

from pathlib import Path

from servemark.base.errors import Layer, ServemarkError


def bad_file(key: str, path: Path | str, **values: object) -> ServemarkError:
    """`results.<key>` about the file `path`: layer results, exit code 2. `path` may end in ":LINE"."""
    return ServemarkError(f"results.{key}", Layer.RESULTS, exit_code=2, where=None, path=str(path), **values)
