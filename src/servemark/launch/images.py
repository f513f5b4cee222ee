"""Container images as squash files in a cluster's cache: one name an image however it is spelled, imported once.

A file is `KEY.sqsh`; beside it stands `KEY.sqsh.json`, its record: reference, digest, size and SHA-256 of a full read.
Only the record proves a file: a squash file with a hole in its middle still lists all its names. What lies there
without a record was put there by somebody else; it is found under any spelling, and never removed by us.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import sha256_file, write_atomic
from servemark.checks.images import ImageName, parse_image

SCHEMA = 1
SUFFIX = ".sqsh"
_MAGIC = b"hsqs"
_SUPERBLOCK = 96
_BYTES_USED_AT = 40
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_MAX_RECORD = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a squash file. `size` in bytes; `imported_at` in seconds since 1970; `digest` None: unknown."""

    reference: str
    digest: str | None
    sha256: str
    size: int
    imported_at: float
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class CachedImage:
    """One squash file of a cache. `record` None: put there by somebody else."""

    path: Path
    size: int
    record: Record | None


@dataclass(frozen=True, slots=True)
class Found:
    """The file for a reference. `other_spelling`: it lies there under a name made from another spelling."""

    image: CachedImage
    other_spelling: bool


def canonical_image(written: str) -> ImageName:
    """The image behind a spelling: Docker Hub's `library/` written out, `latest` where neither tag nor digest is.

    ServemarkError (input) for a path, a bare alias or what is no reference.
    """
    found = parse_image(written)
    if found is None and re.fullmatch(r"[a-z0-9][a-z0-9._-]*", written.strip()):
        found = ImageName("docker.io", written.strip(), None, None)  # `ubuntu`
    if found is None or not _sound(found):
        raise input_error("launch.image_reference", reference=written[:200])
    repository = found.repository
    registry = (
        "docker.io"
        if found.registry in ("index.docker.io", "registry-1.docker.io")
        else found.registry.lower()
    )
    if registry == "docker.io" and "/" not in repository:
        repository = f"library/{repository}"
    tag = found.tag if found.tag or found.digest else "latest"
    return ImageName(registry, repository, tag, found.digest)


def _sound(image: ImageName) -> bool:
    parts = (
        (image.registry, r"[A-Za-z0-9.-]+(:\d{1,5})?"),
        (image.repository, r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"),
        (image.tag, r"\w[\w.-]{0,127}"),
        (image.digest, r"sha256:[0-9a-f]{64}"),
    )
    return all(text is None or re.fullmatch(pattern, text, re.ASCII) for text, pattern in parts)


def spelled(image: ImageName) -> str:
    """`registry/repository[:tag][@digest]`."""
    tag = f":{image.tag}" if image.tag else ""
    return f"{image.registry}/{image.repository}{tag}{f'@{image.digest}' if image.digest else ''}"


def uri(image: ImageName) -> str:
    """What importers take: `docker://REGISTRY#repository:tag`; `#` parts the registry for old and new ones alike."""
    tag = f":{image.tag}" if image.tag else ""
    digest = f"@{image.digest}" if image.digest else ""
    registry = "" if image.registry == "docker.io" else f"{image.registry}#"
    return f"docker://{registry}{image.repository}{'' if digest else tag}{digest}"


def cache_key(image: ImageName) -> str:
    """The file's name without suffix: readable, and told apart by a hash of the canonical spelling."""
    written = spelled(image)
    readable = re.sub(r"[^A-Za-z0-9.-]", "_", written.partition("@sha256:")[0])[:150]
    return f"{readable}-{hashlib.sha256(written.encode()).hexdigest()[:12]}"


def foreign_keys(image: ImageName) -> set[str]:
    """Names that other tools give the same image, folded: every way to spell it with its marks turned into `_`."""
    names = [image.repository, f"{image.registry}/{image.repository}"]
    if image.registry == "docker.io":
        short = image.repository.removeprefix("library/")
        names += [short, f"docker.io/{short}", f"registry-1.docker.io/{image.repository}"]
        names += [f"index.docker.io/{image.repository}"]
    else:
        names.remove(image.repository)  # another registry's image of that name is another image
    ends = [f":{image.tag}" if image.tag else "", f"@{image.digest}" if image.digest else ""]
    tails = {"".join(ends), *([ends[0]] if ends[0] and not ends[1] else []), *([ends[1]] if ends[1] else [])}
    found = {fold(f"{name}{tail}") for name in names for tail in tails}
    return found | {fold(f"docker://{name}{tail}") for name in names for tail in tails}


def fold(name: str) -> str:
    """A name without what spellings differ in: all marks one `_`, small letters."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


class ImageCache:
    """The squash files of one folder. Holds nothing in memory, so many processes may use one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path_of(self, image: ImageName) -> Path:
        """Where our own file of an image lies or would lie."""
        return self.folder / f"{cache_key(image)}{SUFFIX}"

    def all(self) -> list[CachedImage]:
        """Every squash file, by name. ServemarkError (image) when the folder cannot be read."""
        try:
            paths = sorted(
                p for p in self.folder.iterdir() if p.suffix == SUFFIX and not p.name.startswith(".")
            )
            return [
                CachedImage(path, path.stat().st_size, read_record(path)) for path in paths if path.is_file()
            ]
        except OSError as error:
            raise cache_error(self.folder, error) from error

    def find(self, image: ImageName) -> Found | None:
        """The file of an image: ours, else one that another tool named after some spelling of it; None: there is none."""
        own = self.path_of(image)
        if own.is_file():
            record, size = read_record(own), own.stat().st_size
            # One of the wrong length is as good as none: the next import replaces it.
            if record is not None and record.reference == spelled(image) and record.size == size:
                return Found(CachedImage(own, size, record), False)
        if not self.folder.is_dir():
            return None
        keys = foreign_keys(image)
        for one in self.all():
            known = (
                one.record.reference == spelled(image)
                if one.record is not None
                else fold(one.path.stem) in keys
            )
            if known and one.path != own:
                return Found(one, True)
        return None


def record_path(path: Path) -> Path:
    """Where the record of a squash file lies."""
    return path.with_name(f"{path.name}.json")


def read_record(path: Path) -> Record | None:
    """The record of a squash file; None when there is none or it is no record of ours."""
    file = record_path(path)
    try:
        if file.stat().st_size > _MAX_RECORD:
            return None
        body = json.loads(file.read_bytes())
        found = Record(**body)
        sound = (
            isinstance(found.reference, str) and isinstance(found.sha256, str) and isinstance(found.size, int)
        )
        return found if sound and found.schema == SCHEMA else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def write_record(path: Path, record: Record) -> None:
    """Beside the squash file, whole or not at all."""
    write_atomic(record_path(path), json.dumps(asdict(record), ensure_ascii=False, indent=1).encode() + b"\n")


def measure(path: Path, reference: str, digest: str | None, imported_at: float) -> Record:
    """Read all of a file: its record. ServemarkError (image) for what is no whole squash file."""
    damaged = squash_damage(path)
    if damaged is not None:
        raise ServemarkError("launch.image_damaged", Layer.IMAGE, path=str(path), reason=damaged)
    try:
        size = path.stat().st_size
        return Record(reference, digest, sha256_file(path), size, imported_at)
    except OSError as error:
        raise cache_error(path, error) from error


def squash_damage(path: Path) -> str | None:
    """What is wrong with a file's head or length; None when it may be whole (only a full read can tell)."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_SUPERBLOCK)
            size = stream.seek(0, 2)
    except OSError as error:
        return error.strerror or "?"
    if len(head) < _SUPERBLOCK or not head.startswith(_MAGIC):
        return "no squashfs superblock"
    (used,) = struct.unpack_from("<Q", head, _BYTES_USED_AT)
    return f"{size} < {used} bytes" if size < used else None


def digest_in(text: str) -> str | None:
    """The first `sha256:…` word of a command's output."""
    return next((word for word in text.split() if _DIGEST.match(word)), None)


def cache_error(path: Path, error: OSError) -> ServemarkError:
    """The error for a cache that cannot be read or written."""
    reason = error.strerror or str(error)
    return ServemarkError("launch.image_cache", Layer.IMAGE, path=str(path), reason=reason)


def remove(path: Path) -> None:
    """Remove a file and its record; what is not there is no error."""
    for one in (record_path(path), path):
        with contextlib.suppress(FileNotFoundError):
            one.unlink()
