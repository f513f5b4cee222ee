"""Results of a folder that anybody may lay over the official ones by name: what CI measured of a change not let in yet.

`FOLDER/ID.*` is a file of any format that `import` knows. It is read when it is first asked for, in the process of
uploads with its limits, and again when it changed; it enters no store and no front.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from servemark.analysis.measured import Measured
from servemark.web.overlays import Read
from servemark.web.problems import Problem

MAX_BYTES = 64 * 2**20
READ_S = 25.0
"""Shorter than an answer may take."""
KEPT = 16


@dataclass(slots=True)
class Unofficial:
    """The files of one folder, by the part of their name before the first dot. Any thread may ask."""

    folder: Path
    _held: dict[str, tuple[str, tuple[Measured, ...]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def state(self) -> str:
        """Changes when a file comes, goes or is replaced; '' where the folder cannot be read."""
        try:
            return ",".join(sorted(f"{each.name}{_seen(each)}" for each in self.folder.iterdir()))
        except OSError:
            return ""

    def points(self, name: str, lang: str = "en") -> tuple[Measured, ...] | None:
        """The points of one; None when there is no such file. Problem 413 for one too large or too slow to read.

        `name` holds letters and digits alone, as the interface's parameter says.
        """
        if not (name.isascii() and name.isalnum()):
            return None
        file = next(iter(sorted(self.folder.glob(f"{name}.*"))), None)
        if file is None or file.is_symlink() or not file.is_file():
            return None
        with self._lock:
            seen = _seen(file)
            held = self._held.get(name)
            if held is None or held[0] != seen:
                held = (seen, tuple(_read(file, lang).points))
                self._held[name] = held
                while len(self._held) > KEPT:
                    del self._held[next(iter(self._held))]
            return held[1]


def _seen(file: Path) -> str:
    found = file.stat()
    return f"{found.st_mtime_ns}-{found.st_size}"


def _read(file: Path, lang: str) -> Read:
    if file.stat().st_size > MAX_BYTES:
        raise Problem(413, "serve.overlay.large", limit=MAX_BYTES // 2**20)
    argv = [sys.executable, "-m", "servemark.web.overlay_child", str(file), file.name, lang]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=READ_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Problem(413, "serve.overlay.heavy") from error
    if done.returncode != 0:
        raise Problem(413, "serve.overlay.heavy")
    read = pickle.loads(done.stdout)  # noqa: S301 - written by our own child process
    if not isinstance(read, Read):
        raise Problem(500, "serve.fault")
    return read
