"""Names of engine arguments by version, as read from each engine's own parser (`engines/<name>-<version>.yaml`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from servemark.catalog.engine_args import canonical_name

_FOLDER = Path(__file__).parent / "engines"


@cache
def _names(path: Path) -> frozenset[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return frozenset(canonical_name(line[4:]) for line in lines if line.startswith("  - "))


@cache
def known_names(engine: str, version: str | None) -> tuple[frozenset[str], bool]:
    """(names, whether they are those of exactly this version); all versions' names together for another one."""
    exact = _FOLDER / f"{engine}-{version}.yaml"
    if version is not None and "/" not in version and exact.is_file():
        return _names(exact), True
    every: frozenset[str] = frozenset()
    for path in sorted(_FOLDER.glob(f"{engine}-*.yaml")):
        every |= _names(path)
    return every, False
