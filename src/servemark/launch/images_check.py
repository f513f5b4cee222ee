"""A cache looked at as a whole: is every file what its record says, and what may be removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from servemark.base.errors import ServemarkError
from servemark.launch.images import (
    SUFFIX,
    CachedImage,
    ImageCache,
    Record,
    cache_error,
    measure,
    remove,
    squash_damage,
    write_record,
)
from servemark.launch.images_import import PARTIAL

_FRESH_S = 3600.0
"""A partial file younger than this may be another host's import, whose lock a file system may not show us."""


class State(StrEnum):
    """What a check of one file found."""

    GOOD = "good"
    CORRUPT = "corrupt"
    UNRECORDED = "unrecorded"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Checked:
    """One file and its state; `reason` is empty for a good one."""

    image: CachedImage
    state: State
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Removable:
    """A file that may go: why (`partial`, `record`, `lock`, `corrupt`, `unused`), and its size in bytes."""

    path: Path
    why: str
    size: int


def check(image: CachedImage) -> Checked:
    """Read all of one file and compare with its record."""
    damaged = squash_damage(image.path)
    if image.record is None:
        return Checked(image, State.DAMAGED if damaged else State.UNRECORDED, damaged or "")
    if image.size != image.record.size:
        return Checked(image, State.CORRUPT, f"{image.size} != {image.record.size} bytes")
    try:
        now = measure(image.path, image.record.reference, image.record.digest, image.record.imported_at)
    except ServemarkError as error:
        return Checked(image, State.CORRUPT, str(error.values.get("reason", "")))
    if now.sha256 != image.record.sha256:
        return Checked(image, State.CORRUPT, f"sha256 {now.sha256[:12]} != {image.record.sha256[:12]}")
    return Checked(image, State.GOOD)


def check_all(cache: ImageCache) -> Iterator[Checked]:
    """Every file in turn; each is read as a whole."""
    for image in cache.all():
        yield check(image)


def adopt(image: CachedImage, reference: str) -> Record:
    """Record a file that somebody else put there: from now on a change of it is noticed. Its digest is not known."""
    found = measure(image.path, reference, None, time.time())
    write_record(image.path, found)
    return found


def removable(cache: ImageCache, *, unused_days: float | None = None) -> list[Removable]:
    """What nobody needs: leftovers of dead imports, records without a file, corrupt files of ours; with
    `unused_days` also good ones of ours that nobody has read for so long. Files of others and locked ones stay."""
    found: list[Removable] = []
    now = time.time()
    try:
        names = sorted(cache.folder.iterdir())
        for path in names:
            why = _leftover(path, now)
            if why is not None:
                found.append(Removable(path, why, path.stat().st_size))
    except OSError as error:
        raise cache_error(cache.folder, error) from error
    for image in cache.all():
        if image.record is None or _locked(image.path):
            continue
        why = "corrupt" if check(image).state is State.CORRUPT else None
        if why is None and unused_days is not None:
            stat = image.path.stat()
            if now - max(stat.st_atime, stat.st_mtime) > unused_days * 86400:
                why = "unused"
        if why is not None:
            found.append(Removable(image.path, why, image.size))
    return found


def _leftover(path: Path, now: float) -> str | None:
    name = path.name
    if name.startswith(".") and f"{SUFFIX}." in name:
        target = path.with_name(name[1:].partition(f"{SUFFIX}.")[0] + SUFFIX)
        if _locked(target):
            return None
        if name.endswith(".lock"):
            return "lock"
        old = now - path.stat().st_mtime > _FRESH_S
        return "partial" if name.endswith((PARTIAL, ".import.log", ".digest")) and old else None
    if name.endswith(f"{SUFFIX}.json") and not path.with_suffix("").exists():
        return None if _locked(path.with_suffix("")) else "record"
    return None


def _locked(target: Path) -> bool:
    """Whether somebody imports that file now."""
    path = target.with_name(f".{target.name}.lock")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def prune(items: list[Removable]) -> None:
    """Remove them. ServemarkError (image) when the disk refuses."""
    for item in items:
        try:
            if item.why in ("corrupt", "unused"):
                remove(item.path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    item.path.unlink()
        except OSError as error:
            raise cache_error(item.path, error) from error
