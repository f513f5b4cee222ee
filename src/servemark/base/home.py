"""Where things are kept: one folder (`--home`, SERVEMARK_HOME or ./servemark-data) and nowhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import input_error

DEFAULT_HOME = "servemark-data"


@dataclass(frozen=True, slots=True)
class Home:
    """Paths below one home folder. Making one creates nothing."""

    root: Path

    @classmethod
    def resolve(cls, option: str | None = None) -> Home:
        """`option` (the --home flag) wins over SERVEMARK_HOME, which wins over ./servemark-data."""
        chosen = option or os.environ.get("SERVEMARK_HOME") or DEFAULT_HOME
        try:
            root = Path(chosen).expanduser().resolve()
            if root.exists() and not root.is_dir():
                raise input_error("base.home_is_file", path=str(root))
        except (OSError, RuntimeError, ValueError) as error:
            raise input_error("base.bad_home", path=chosen, reason=str(error)) from error
        return cls(root)

    @property
    def runs(self) -> Path:
        """One folder a run."""
        return self.root / "runs"

    @property
    def store(self) -> Path:
        """The SQLite file."""
        return self.root / "store.sqlite"

    @property
    def raw(self) -> Path:
        """Bytes of everything imported, by their SHA-256, compressed."""
        return self.root / "raw"

    @property
    def sweeps(self) -> Path:
        """Sweeps: their states in one SQLite file, and one folder a sweep."""
        return self.root / "sweeps"

    @property
    def reports(self) -> Path:
        """Single-file HTML reports."""
        return self.root / "reports"

    @property
    def cache(self) -> Path:
        """May be deleted at any time."""
        return self.root / "cache"
