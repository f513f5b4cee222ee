"""What an answer hangs on."""

from __future__ import annotations

from enum import StrEnum


class Depends(StrEnum):
    """What must change before an answer does."""

    PROGRAM = "program"
    STORE = "store"
    SUITE = "suite"
    SWEEPS = "sweeps"
    STORE_AND_SUITE = "store and suite"
    HOME = "home"
    """The store, the sweeps and the run folders; looked at again every few seconds."""
    NOTHING = "nothing"
    """Made anew each time."""
