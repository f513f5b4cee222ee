"""The run folder that a point of ours came from, where it is still here and its result is the very file that was imported.

A name out of a store is not trusted: a folder counts only when its `result.json` has the SHA-256 that the store knows, so
no name leads to files that do not belong to the result.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from servemark.results.serialize import MAX_RESULT_BYTES, RESULT_NAME
from servemark.store.import_types import SourceFile
from servemark.store.points import StoredPoint

OWN = "servemark"
MAX_FILES = 200


def run_folder_of(source: SourceFile, one: StoredPoint, runs: Path | None = None) -> Path | None:
    """The folder, by the name that was imported, else by the run's name below `runs`; None when neither is it."""
    if one.source != OWN or Path(source.name).name != RESULT_NAME:
        return None
    parent = Path(source.name).parent
    choices = [parent] if parent.is_absolute() else []
    if runs is not None and parent.name not in ("", "..", "."):
        choices.append(runs / parent.name)
    return next((folder for folder in choices if _holds(folder, one.file)), None)


def _holds(folder: Path, sha256: str) -> bool:
    path = folder / RESULT_NAME
    try:
        if not path.is_file() or path.stat().st_size > MAX_RESULT_BYTES:
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except (OSError, ValueError):
        return False


def folder_files(folder: Path) -> tuple[tuple[str, int], ...]:
    """(name within the folder, bytes) of its files by name; links are left out, so is the lock."""
    found = []
    try:
        for place, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                path = Path(place) / name
                if name in ("lock", RESULT_NAME) or path.is_symlink() or not path.is_file():
                    continue
                found.append((path.relative_to(folder).as_posix(), path.stat().st_size))
                if len(found) >= MAX_FILES:
                    return tuple(found)
    except OSError:
        return tuple(found)
    return tuple(found)
