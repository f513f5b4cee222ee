"""Bytes of imported files, kept by their SHA-256 and compressed: `raw/ab/cdef….gz`. Any gzip reader opens them.

A blob appears under its name only when whole and on the disk. It is checked against its name whenever it is read.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import disk_error, make_folder

BLOCK = 2**20
LEVEL = 1
"""Fast: JSON shrinks about tenfold already, and compression would otherwise be most of an import's time."""


class RawFiles:
    """The folder of raw bytes. Any number of processes may use it at once: a blob's name is its content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        """Where a blob lies, or would."""
        return self.folder / sha256[:2] / f"{sha256[2:]}.gz"

    def has(self, sha256: str) -> bool:
        """Whether a blob is here; its content is not looked at."""
        return self.path(sha256).is_file()

    def keep(self, stream: BinaryIO, wanted: str | None = None) -> tuple[str, int]:
        """Keep all bytes of a stream, block by block; returns their SHA-256 and their number.

        Raises ServemarkError (layer home) when the disk refuses, ValueError for bytes that do not have the SHA-256 that
        is `wanted`; nothing is left then.
        """
        make_folder(self.folder)
        temporary: str | None = None
        try:
            handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=self.folder)
            digest, size = hashlib.sha256(), 0
            with os.fdopen(handle, "wb") as out:
                with gzip.GzipFile(
                    filename="", mode="wb", fileobj=out, compresslevel=LEVEL, mtime=0
                ) as packed:
                    while block := stream.read(BLOCK):
                        digest.update(block)
                        size += len(block)
                        packed.write(block)
                out.flush()
                os.fsync(out.fileno())
            sha256 = digest.hexdigest()
            if wanted not in (None, sha256):
                raise ValueError(f"raw {wanted} is {sha256}")
            final = self.path(sha256)
            make_folder(final.parent)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(final)
            temporary = None
            return sha256, size
        except OSError as error:
            raise disk_error(error, self.folder) from error
        finally:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()

    def open(self, sha256: str) -> BinaryIO:
        """The bytes as a stream, after a first pass over them found that they are what the name says.

        Raises ServemarkError (layer store): `store.raw_missing`, `store.raw_changed`.
        """
        found = self.check(sha256)
        if found != "ok":
            raise ServemarkError(
                f"store.raw_{found}", Layer.STORE, path=str(self.path(sha256)), sha256=sha256[:16]
            )
        return self.opened(sha256)

    def opened(self, sha256: str) -> BinaryIO:
        """The same without the first pass, for bytes that were kept or checked a moment ago."""
        try:
            return cast("BinaryIO", gzip.open(self.path(sha256), "rb"))
        except OSError as error:
            raise disk_error(error, self.path(sha256)) from error

    def check(self, sha256: str) -> str:
        """`ok`, `missing`, or `changed` for a blob that cannot be read or is other bytes."""
        digest = hashlib.sha256()
        try:
            with gzip.open(self.path(sha256), "rb") as stream:
                while block := stream.read(BLOCK):
                    digest.update(block)
        except FileNotFoundError:
            return "missing"
        except (OSError, EOFError, zlib.error):
            return "changed"
        return "ok" if digest.hexdigest() == sha256 else "changed"

    def all(self) -> Iterator[tuple[str, Path]]:
        """(SHA-256, path) of every blob here, by name."""
        if not self.folder.is_dir():
            return
        for path in sorted(self.folder.glob("[0-9a-f][0-9a-f]/*.gz")):
            yield path.parent.name + path.name.removesuffix(".gz"), path

    def leftovers(self) -> list[Path]:
        """Temporary files of importers that were killed; one that is being written now looks the same."""
        return sorted(self.folder.glob(".*.tmp")) if self.folder.is_dir() else []
