"""What a user names to be imported, file by file: a file, a folder, a zip, stdin. Nothing is written outside a spool file.

All of it is untrusted. Links are not followed out of the folder, and a zip is bounded in members, bytes and ratio before
anything of it is read; its members never touch the disk under their own names.
"""

from __future__ import annotations

import lzma
import os
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import disk_error, make_folder
from servemark.results.importers.base import HEAD_BYTES, Given
from servemark.results.importers.own import detect as detect_own
from servemark.results.serialize import MANIFEST_NAME, RESULT_NAME

MAX_FILE_BYTES = 64 * 2**30
MAX_STDIN_BYTES = 8 * 2**30
MAX_MEMBERS = 100_000
MAX_UNPACKED_BYTES = 16 * 2**30
MAX_RATIO = 200
"""Unpacked over packed bytes of a zip member above RATIO_FROM; JSON of results stays below 60."""
RATIO_FROM = 2**24
_DAMAGE = (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, zlib.error, lzma.LZMAError)
"""What reading a damaged member raises, beside OSError."""
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


@dataclass(frozen=True, slots=True)
class Found:
    """One file to import. `open` gives its bytes from the beginning; `beside` the files in its folder by name.
    `folder` is set for the result of a run folder, whose other files are checked before it is taken."""

    name: str
    size: int
    open: Callable[[], BinaryIO]
    beside: Mapping[str, Found] = field(default_factory=dict)
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that was named and is not imported, and why."""

    name: str
    error: ServemarkError


def find(argument: str, spool: Path, stdin: BinaryIO) -> Iterator[Found | Refused]:
    """Every file behind one argument, in a stable order. `-` is stdin, spooled to a nameless file under `spool`.

    Raises ServemarkError (exit code 2) when the argument itself cannot be read.
    """
    if argument == "-":
        yield from _from_stdin(spool, stdin)
        return
    path = Path(argument)
    if not argument:  # an unset variable of a shell, not the folder where it stands
        raise input_error("store.import.not_a_file", path="''")
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise input_error("store.import.unreadable", path=argument, reason=reason) from error
    if stat.S_ISDIR(mode):
        yield from _folder(path)
    elif stat.S_ISREG(mode):
        yield from _run_folder(path.parent) if _of_run(path) else _file(path)
    else:
        raise input_error("store.import.not_a_file", path=argument)


def _of_run(path: Path) -> bool:
    """Whether a file is the result of a run folder of ours: then the files that it lists are checked, however it was
    named. The result.json of another tool may have a manifest.json beside it as well."""
    if path.name != RESULT_NAME or path.is_symlink() or not (path.parent / MANIFEST_NAME).is_file():
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except OSError:
        return False
    return detect_own(Given(str(path), 0, head, lambda: path.open("rb"))) > 0


def _refused(name: str, key: str, **values: object) -> Refused:
    return Refused(
        name, ServemarkError(f"store.import.{key}", Layer.INPUT, exit_code=2, where=None, path=name, **values)
    )


def _file(path: Path, listed: Mapping[str, Path] | None = None) -> Iterator[Found | Refused]:
    """One regular file, or what is in it; `listed` are the files of its folder where they are known."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
        size = path.stat().st_size
    except OSError as error:
        yield _refused(str(path), "unreadable", reason=error.strerror or str(error))
        return
    if size > MAX_FILE_BYTES:
        yield _refused(str(path), "too_large", size=size, limit=MAX_FILE_BYTES)
    elif head in _ZIP:
        yield from _zip(str(path), lambda: path.open("rb"))
    else:
        beside = _Beside(
            {each.name: each for each in _regular(path.parent)} if listed is None else listed, path.name
        )
        yield Found(str(path), size, lambda: path.open("rb"), beside)


class _Beside(Mapping[str, Found]):
    """Files of a folder, looked at only when somebody asks for one."""

    def __init__(self, paths: Mapping[str, Path], without: str = "") -> None:
        self._paths = paths
        self._without = without

    def __getitem__(self, name: str) -> Found:
        if name == self._without:
            raise KeyError(name)
        path = self._paths[name]
        return Found(str(path), path.stat().st_size, lambda: path.open("rb"))

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._paths if name != self._without)

    def __len__(self) -> int:
        return len(self._paths) - (self._without in self._paths)


def _regular(folder: Path) -> list[Path]:
    """Regular files of one folder by name, links left out."""
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(each.path) for each in entries if each.is_file(follow_symlinks=False))
    except OSError:
        return []


def _folder(root: Path) -> Iterator[Found | Refused]:
    """A run folder's result, or every file below a folder; hidden ones and links are left out, links with a word."""
    for here, folders, names in os.walk(root):
        folder = Path(here)
        if MANIFEST_NAME in names:
            folders.clear()
            yield from _run_folder(folder)
            continue
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        listed = {each.name: each for each in _regular(folder)}  # once, not for every file of the folder
        for name in [*folders, *sorted(names)]:
            path = folder / name
            if path.is_symlink():
                yield _refused(str(path), "link")
            elif name in folders or name.startswith("."):
                continue
            elif path.is_file():
                yield from _file(path, listed)
            else:
                yield _refused(str(path), "not_a_file")


def _run_folder(folder: Path) -> Iterator[Found | Refused]:
    result = folder / RESULT_NAME
    if not result.is_file() or result.is_symlink():
        yield _refused(str(folder), "run_without_result")
        return
    beside = _Beside({each.name: each for each in _regular(folder) if each != result})
    yield Found(str(result), result.stat().st_size, lambda: result.open("rb"), beside, folder)


def _zip(name: str, again: Callable[[], BinaryIO]) -> Iterator[Found | Refused]:
    """Members of a zip that are regular, inside, and within bounds."""
    try:
        with again() as stream, zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError) as error:
        yield _refused(name, "bad_zip", reason=str(error))
        return
    total = sum(each.file_size for each in members)
    if len(members) > MAX_MEMBERS or total > MAX_UNPACKED_BYTES:
        yield _refused(name, "zip_too_large", members=len(members), size=total, limit=MAX_UNPACKED_BYTES)
        return
    good: dict[str, Found] = {}
    for member in sorted(members, key=lambda each: each.filename):
        shown = f"{name}!{member.filename}"
        if member.is_dir() or any(
            part.startswith(".") and part != ".." for part in PurePosixPath(member.filename).parts
        ):
            continue
        key = _member_fault(member, good)
        if key is not None:
            yield _refused(shown, key, size=member.file_size, limit=MAX_RATIO)
            continue
        good[member.filename] = Found(shown, member.file_size, _opener(again, member.filename))
    yield from _members(name, good)


def _members(name: str, good: dict[str, Found]) -> Iterator[Found | Refused]:
    """Files of a zip with what lies beside them; of a run folder only the result."""
    by_folder: dict[str, dict[str, Found]] = {}
    for member, found in good.items():
        pure = PurePosixPath(member)
        by_folder.setdefault(str(pure.parent), {})[pure.name] = found
    runs = {folder for folder, inside in by_folder.items() if MANIFEST_NAME in inside}
    for folder, inside in by_folder.items():
        if folder in runs and RESULT_NAME not in inside:
            yield _refused(f"{name}!{folder}", "run_without_result")
        if folder not in runs and any(str(up) in runs for up in PurePosixPath(folder).parents):
            continue  # logs of a run
        for one, found in inside.items():
            if folder in runs and one != RESULT_NAME:
                continue
            try:
                with found.open() as stream:
                    head = stream.read(4)
            except OSError as error:
                yield _refused(found.name, "unreadable", reason=error.strerror or str(error))
                continue
            if head in _ZIP:
                yield _refused(found.name, "nested_zip")
                continue
            beside = {other: each for other, each in inside.items() if other != one}
            yield Found(found.name, found.size, found.open, beside)


def _member_fault(member: zipfile.ZipInfo, seen: Mapping[str, object]) -> str | None:
    pure = PurePosixPath(member.filename)
    if pure.is_absolute() or ".." in pure.parts or "\\" in member.filename or "\0" in member.orig_filename:
        return "zip_outside"
    if member.filename in seen:
        return "zip_twice"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "link"
    if member.flag_bits & 1:
        return "zip_encrypted"
    if member.file_size > RATIO_FROM and member.file_size > MAX_RATIO * max(1, member.compress_size):
        return "zip_bomb"
    return None


def _opener(again: Callable[[], BinaryIO], member: str) -> Callable[[], BinaryIO]:
    def opened() -> BinaryIO:
        stream = again()
        try:
            archive = zipfile.ZipFile(stream)
            inner = archive.open(member)
        except BaseException as error:  # an open handle must not outlive the failure
            stream.close()
            if isinstance(error, _DAMAGE):
                raise OSError(str(error)) from error
            raise
        return cast("BinaryIO", _Closing(inner, (archive, stream)))

    return opened


class _Closing:
    """A stream that closes what it was opened from as well; damage in a zip reads as OSError."""

    def __init__(self, inner: IO[bytes], outer: Sequence[zipfile.ZipFile | BinaryIO]) -> None:
        self._inner = inner
        self._outer = outer

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        try:
            return self._inner.read(size)
        except _DAMAGE as error:
            raise OSError(str(error)) from error

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._inner
        except _DAMAGE as error:
            raise OSError(str(error)) from error

    def __enter__(self) -> _Closing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the member, the archive and the file below."""
        self._inner.close()
        for each in self._outer:
            each.close()


def _from_stdin(spool: Path, stdin: BinaryIO) -> Iterator[Found | Refused]:
    make_folder(spool)
    try:
        with tempfile.NamedTemporaryFile(dir=spool, prefix=".", suffix=".tmp") as held:
            size = 0
            while block := stdin.read(2**20):
                size += len(block)
                if size > MAX_STDIN_BYTES:
                    raise input_error("store.import.too_large", path="-", size=size, limit=MAX_STDIN_BYTES)
                held.write(block)
            held.flush()
            path = Path(held.name)
            with path.open("rb") as stream:
                head = stream.read(4)
            if head in _ZIP:
                yield from _zip("-", lambda: path.open("rb"))
            else:
                yield Found("-", size, lambda: path.open("rb"))
    except OSError as error:
        raise disk_error(error, spool) from error


def damaged(name: str, error: Exception) -> ServemarkError:
    """A file whose bytes cannot be read to their end."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return ServemarkError("store.import.unreadable", Layer.RESULTS, exit_code=2, path=name, reason=reason)
