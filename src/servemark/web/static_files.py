"""Files of the page, in memory and compressed once; served under a name that changes with their content.

The script's modules stay apart on disk and go out as one: a first visit then waits for one answer and not for a chain of
them, and what is one text compresses better. Comments and indentation stay here.
"""

from __future__ import annotations

import gzip
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import ServemarkError
from servemark.report.assets import tight_css
from servemark.report.bundle import join_modules

FOLDER = Path(__file__).parent / "static"
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
SHELL = "index.html"
LOOK_S = 1.0
ENTRY = "app.js"
_PLAIN_SHELL = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>servemark</title></head>'
    '<body><p><a href="/api/v1/openapi.json">/api/v1/openapi.json</a></p></body></html>'
)


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file; `packed` is its gzip."""

    data: bytes
    packed: bytes
    media: str
    etag: str


def _static(data: bytes, media: str) -> StaticFile:
    etag = f'W/"{hashlib.sha256(data).hexdigest()[:24]}"'
    return StaticFile(data, gzip.compress(data, 9, mtime=0), media, etag)


class StaticFiles:
    """All files below a folder by their path. Read when made, and again when one of them has changed (`refresh`)."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._looked = 0.0
        self._seen: dict[str, tuple[int, int]] = {}
        self.files: dict[str, StaticFile] = {}
        self.shell = _static(_PLAIN_SHELL.encode(), TYPES[".html"])
        self.version = ""
        self.refresh()

    def refresh(self) -> None:
        """Read what has changed; looked at once a second at most."""
        now = time.monotonic()
        if self.version and now - self._looked < LOOK_S:
            return
        self._looked = now
        found = {}
        for path in sorted(self._folder.rglob("*")):
            if path.suffix in TYPES and path.is_file():
                stat = path.stat()
                found[path.relative_to(self._folder).as_posix()] = (stat.st_mtime_ns, stat.st_size)
        if found == self._seen and self.version:
            return
        try:
            files = {name: _static(self._bytes(name), TYPES[Path(name).suffix]) for name in found}
        except (OSError, ServemarkError):
            if not self.version:
                raise
            return  # in the middle of an installation: what was served goes on
        self.version = hashlib.sha256("".join(each.etag for each in files.values()).encode()).hexdigest()[:12]
        self.files, self._seen = files, found
        if SHELL in files:
            html = files[SHELL].data.replace(b'"/static/', f'"/static/{self.version}/'.encode())
            self.shell = _static(html, TYPES[".html"])

    def _bytes(self, name: str) -> bytes:
        """What goes out under a name: the entry module with all that it imports, a style sheet without its comments, any
        other file as it is. Raises ServemarkError (layer report) for modules that cannot be joined."""
        if name == ENTRY:
            return join_modules(self._text, ENTRY).encode()
        return (
            tight_css(self._text(name)).encode()
            if name.endswith(".css")
            else (self._folder / name).read_bytes()
        )

    def _text(self, name: str) -> str:
        return (self._folder / name).read_text(encoding="utf-8")

    def find(self, path: str) -> tuple[StaticFile, bool] | None:
        """(a file, whether its address changes with it) by the path after `/static/`. A name that is not in the list is no
        file: nothing is looked up on the disk."""
        version, slash, rest = path.partition("/")
        if slash and version == self.version and rest in self.files:
            return self.files[rest], True
        found = self.files.get(path)
        return (found, False) if found is not None else None
