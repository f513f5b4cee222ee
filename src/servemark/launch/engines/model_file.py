"""The hash of a model file: part of what a point is, so it is always known, and never computed twice."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import sha256_file

_Key = tuple[str, int, int]
_known: dict[_Key, Future[str]] = {}
_lock = threading.Lock()


def start_hashing(path: Path) -> Future[str]:
    """SHA-256 (hex) of a file as it is now, computed in the background while its engine loads.

    Remembered in this process by (path, size, modification time in ns). A file that cannot be read gives a
    ServemarkError (layer model), at once or from `.result()`. Hashing frees the interpreter lock: about 0.1 s
    for 100 MB on one core.
    """
    key = _key(path)
    with _lock:
        found = _known.get(key)
        if found is not None:
            return found
        future: Future[str] = Future()
        _known[key] = future
    threading.Thread(target=_hash, args=(path, key, future), name="model-sha256", daemon=True).start()
    return future


def model_sha256(path: Path) -> str:
    """The hash, waiting for it where it is still being computed."""
    return start_hashing(path).result()


def _hash(path: Path, key: _Key, future: Future[str]) -> None:
    try:
        digest = sha256_file(path)
        if _key(path) != key:
            raise ServemarkError("launch.model_changed", Layer.MODEL, path=str(path))
    except (OSError, ServemarkError) as error:
        with _lock:
            _known.pop(key, None)
        future.set_exception(error if isinstance(error, ServemarkError) else _unreadable(path, error))
        return
    future.set_result(digest)


def _key(path: Path) -> _Key:
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return (str(path.absolute()), found.st_size, found.st_mtime_ns)


def _unreadable(path: Path, error: OSError) -> ServemarkError:
    return ServemarkError(
        "launch.model_unreadable", Layer.MODEL, path=str(path), reason=error.strerror or str(error)
    )
