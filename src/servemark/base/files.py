"""Files that appear under their final name only when whole, and errors of the disk in plain words."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError

_KEYS = {
    errno.ENOSPC: "base.disk_full",
    errno.EDQUOT: "base.disk_full",
    errno.EROFS: "base.read_only",
    errno.EACCES: "base.no_permission",
    errno.EPERM: "base.no_permission",
    errno.ENOTDIR: "base.not_a_folder",
    errno.EFBIG: "base.file_too_large",
    errno.ENAMETOOLONG: "base.name_too_long",
}


def disk_error(error: OSError, path: Path | str) -> ServemarkError:
    """Turn an OSError about our own files into the message that its user needs."""
    key = _KEYS.get(error.errno or 0, "base.file_failed")
    return ServemarkError(key, Layer.HOME, path=str(path), reason=error.strerror or str(error))


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write `data` so that `path` holds either its old content or all of the new one, also after a power cut.

    Raises ServemarkError (layer home) when the disk refuses; nothing is left beside `path` then.
    """
    temporary: str | None = None
    if path.exists() and not path.is_file():
        raise ServemarkError("base.not_a_file", Layer.HOME, path=str(path))
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
        temporary = None
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def make_folder(path: Path) -> None:
    """Create a folder and its parents; a refusal becomes a ServemarkError (layer home)."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, path) from error


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes; reads in blocks, so size does not matter."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
