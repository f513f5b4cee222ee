"""Bringing an image into a cache: one importer at a time, to a name that nobody reads, verified, then renamed.

What fails is tried again only when trying again can help: names that do not resolve, TLS, time-outs, 429, 5xx and
checksum errors; never 401, 403, 404 or a full disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import make_folder
from servemark.catalog.cluster_launch import ImageImport
from servemark.checks.images import ImageName
from servemark.launch import failure
from servemark.launch.images import (
    Found,
    ImageCache,
    Record,
    cache_error,
    digest_in,
    measure,
    spelled,
    uri,
    write_record,
)
from servemark.launch.process import start_worker

PARTIAL = ".partial"
_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0
_DIGEST_S = 60.0
_LOG_BYTES = 1 << 18

_NEVER = (
    ("no_space", r"(?i)no space left on device|disk quota exceeded|ENOSPC"),
    (
        "unauthorised",
        r"(?i)\b(401|403)\b(?! bytes)|unauthori[sz]ed|forbidden|access denied|denied: |authentication required",
    ),
    (
        "not_found",
        r"(?i)\b404\b|manifest unknown|name unknown|repository .*not found|manifest .*not found|no such manifest",
    ),
    ("reference", r"(?i)invalid (image )?reference|invalid uri|malformed"),
)
_AGAIN = (
    (
        "dns",
        r"(?i)could not resolve|temporary failure in name resolution|no such host|name or service not known|EAI_AGAIN",
    ),
    ("tls", r"(?i)\bTLS\b|\bSSL\b|certificate|handshake"),
    ("timeout", r"(?i)time[d-]?[ -]?out|deadline exceeded"),
    ("busy", r"(?i)\b429\b|too many requests|rate limit|toomanyrequests"),
    ("server", r"(?i)\b50[0-9]\b|bad gateway|service unavailable|internal server error|gateway time"),
    ("checksum", r"(?i)checksum mismatch|digest mismatch|checksum.*(failed|invalid)|unexpected EOF"),
    (
        "connection",
        r"(?i)connection (reset|refused|closed|aborted)|network is unreachable|no route to host|broken pipe",
    ),
)
"""Kind -> what an importer's log shows. Those that no retry mends are looked for first."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What is told while an import goes on. `kind`: waiting, importing, retry, verifying."""

    kind: str
    attempt: int
    seconds: float
    reason: str = ""


Tell = Callable[[Progress], None]


def failure_kind(log: str) -> tuple[str, bool]:
    """(kind, whether trying again can help) of an importer's failure; `unknown` is not tried again."""
    for table, again in ((_NEVER, False), (_AGAIN, True)):
        for kind, pattern in table:
            if re.search(pattern, log):
                return kind, again
    return "unknown", False


def ensure_image(
    cache: ImageCache,
    image: ImageName,
    how: ImageImport | None,
    *,
    wait_s: float = 7200.0,
    tell: Tell = lambda _: None,
    pause_s: float = _FIRST_PAUSE_S,
) -> Found:
    """The image's file, imported if need be. Many may call at once, on many hosts: one imports, the others wait.

    `wait_s` bounds the wait for another's import; `pause_s` is the first pause before a retry (it doubles, with jitter).
    Raises ServemarkError (layer image).
    """
    found = cache.find(image)
    if found is not None:
        return found
    if how is None:
        raise ServemarkError(
            "launch.image_no_import", Layer.IMAGE, reference=spelled(image), folder=str(cache.folder)
        )
    make_folder(cache.folder)
    target = cache.path_of(image)
    with lock(target, wait_s, tell):
        found = cache.find(image)
        if found is None:
            _remove_partials(target)
            _import(image, how, target, tell, pause_s)
            found = cache.find(image)
    if found is None:
        raise ServemarkError("launch.image_vanished", Layer.IMAGE, path=str(target))
    return found


@contextlib.contextmanager
def lock(target: Path, wait_s: float, tell: Tell) -> Iterator[None]:
    """Hold the lock file of a squash file. The kernel frees it when its holder dies, so a crash blocks nobody."""
    path = target.with_name(f".{target.name}.lock")
    begun = time.monotonic()
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise cache_error(path, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have removed the file: then this lock is on a file without a name.
            if _same_file(handle, path):
                break
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                os.close(handle)
                raise cache_error(path, error) from error
        os.close(handle)
        waited = time.monotonic() - begun
        if waited >= wait_s:
            raise ServemarkError("launch.image_locked", Layer.IMAGE, path=str(path), seconds=f"{wait_s:g}")
        tell(Progress("waiting", 0, waited))
        time.sleep(min(0.5, max(0.02, waited / 10)))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(handle)


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def _remove_partials(target: Path) -> None:
    """What an importer that died has left; the lock is ours, so nobody writes there."""
    for path in target.parent.glob(f".{target.name}.*{PARTIAL}"):
        with contextlib.suppress(OSError):
            path.unlink()


def _import(image: ImageName, how: ImageImport, target: Path, tell: Tell, pause_s: float) -> None:
    begun = time.monotonic()
    for attempt in range(1, how.attempts + 1):
        tell(Progress("importing", attempt, time.monotonic() - begun))
        try:
            _once(image, how, target, tell, attempt)
            return
        except ServemarkError as error:
            if error.key != "launch.image_import_again" or attempt == how.attempts:
                raise _final(error, attempt) from None
            reason = str(error.values.get("lines", ""))
        pause = min(_LONGEST_PAUSE_S, pause_s * 2 ** (attempt - 1)) * random.SystemRandom().uniform(0.5, 1.5)
        tell(Progress("retry", attempt, pause, reason))
        time.sleep(pause)


def _final(error: ServemarkError, attempts: int) -> ServemarkError:
    if error.key != "launch.image_import_again":
        return error
    said = {name: error.values.get(name) for name in ("reference", "status", "lines")}
    return ServemarkError(
        "launch.image_import_gave_up", Layer.IMAGE, where=None, exit_code=1, attempts=attempts, **said
    )


def _once(image: ImageName, how: ImageImport, target: Path, tell: Tell, attempt: int) -> None:
    partial = target.with_name(f".{target.name}.{secrets.token_hex(6)}{PARTIAL}")
    log = target.with_name(f".{target.name}.import.log")
    begun = time.monotonic()
    log.unlink(missing_ok=True)
    try:
        text = _run(filled(how.command, image, partial), log, how.timeout_s, image)
        if not partial.is_file():
            raise _failed(image, text + "\nthe importer ended well and wrote no file", "exit 0", again=False)
        tell(Progress("verifying", attempt, time.monotonic() - begun))
        record = _measured(partial, image, how, text)
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        write_record(target, record)
        partial.replace(target)
    except OSError as error:
        raise cache_error(target, error) from error
    finally:
        for path in (partial, log):
            with contextlib.suppress(OSError):
                path.unlink()


def _measured(partial: Path, image: ImageName, how: ImageImport, log: str) -> Record:
    digest = image.digest or digest_in(log)
    if digest is None and how.digest:
        beside = partial.with_suffix(".digest")
        with contextlib.suppress(ServemarkError):
            digest = digest_in(_run(filled(how.digest, image, partial), beside, _DIGEST_S, image))
        beside.unlink(missing_ok=True)
    try:
        return measure(partial, spelled(image), digest, time.time())
    except ServemarkError as error:
        raise _failed(
            image, f"checksum mismatch: {error.values.get('reason')}", "exit 0", again=True
        ) from error


def filled(template: Sequence[str], image: ImageName, output: Path) -> list[str]:
    """The cluster's command with `{uri}`, `{reference}` and `{output}` filled in; nothing else is replaced."""
    values = {"{uri}": uri(image), "{reference}": spelled(image), "{output}": str(output)}
    return [re.sub(r"\{(?:uri|reference|output)\}", lambda m: values[m.group(0)], part) for part in template]


def _run(argv: list[str], log: Path, timeout_s: float, image: ImageName) -> str:
    """Run the importer under a guard, so that it and all it started end with us; its log when it ended well."""
    worker = start_worker(argv, {}, base_url="", log_path=log, work_dir=log.parent)
    try:
        status = worker.wait(timeout_s)
    finally:
        ended = worker.stop(2.0)
    text = worker.log_head(_LOG_BYTES) + "\n" + worker.log_tail(_LOG_BYTES)
    if status is None:
        raise _failed(image, f"{text}\ntimed out after {timeout_s:g} s", str(ended), again=True)
    if status.exit_code != 0:
        kind, again = failure_kind(text)
        raise _failed(image, text, str(status), again=again, kind=kind)
    return text


def _failed(image: ImageName, log: str, status: str, *, again: bool, kind: str = "unknown") -> ServemarkError:
    shown = "\n".join(f"    {line}" for line in failure.relevant_lines(log)) or "    —"
    key = "launch.image_import_again" if again else f"launch.image_import.{kind}"
    return ServemarkError(key, Layer.IMAGE, reference=spelled(image), status=status, lines=shown)
