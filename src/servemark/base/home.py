"""Where things are kept: one folder (`--home`, SERVEMARK_HOME or ./servemark-data) and nowhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_HOME = "servemark-data"


@dataclass(frozen=True, slots=True)
class Home:
    """Paths below one home folder. Making one creates nothing."""

    root: Path

    @classmethod
    def resolve(cls, option: str | None = None) -> Home:
        """`option` (the --home flag) wins over SERVEMARK_HOME, which wins over ./servemark-data."""
        chosen = option or os.environ.get("SERVEMARK_HOME") or DEFAULT_HOME
        return cls(Path(chosen).expanduser().resolve())

    @property
    def runs(self) -> Path:
        """One folder a run."""
        return self.root / "runs"

    @property
    def store(self) -> Path:
        """The SQLite file."""
        return self.root / "store.sqlite"

    @property
    def reports(self) -> Path:
        """Single-file HTML reports."""
        return self.root / "reports"

    @property
    def cache(self) -> Path:
        """May be deleted at any time."""
        return self.root / "cache"
