"""The search for cycles of objects that nobody holds any more, and when it is put off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles while very many small objects are made that hold none: it would be a tenth of the time of a
    simulation, and half of that of an import."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
