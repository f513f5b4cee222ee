"""Secrets: taken from the environment or a file of mode 0600 by name, handed to steps, and never shown.

Values that are known here are blanked in whatever passes through `redact`: log lines in messages, and logs as they
are kept.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from servemark.base.errors import input_error

HIDDEN = "***"
MAX_FILE = 65_536
_SHORTEST = 8
"""A shorter value would blank half of a log."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_SECRET_NAME = re.compile(r"(?i)(TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY)")
_known: set[str] = set()
_lock = threading.Lock()


def load_secrets(
    names: Sequence[str], file: Path | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The named secrets: from the file (`NAME=value` lines) where it has them, else from the environment.

    Every value is remembered for `redact`. Raises ServemarkError (input) for a name that is nowhere, and for a file
    that others may read.
    """
    around = os.environ if environ is None else environ
    in_file = _read(file) if file is not None else {}
    found = {}
    check_names(names)
    for name in names:
        value = in_file.get(name, around.get(name))
        if not value:
            raise input_error("launch.secret_missing", name=name)
        found[name] = value
    remember([*found.values(), *in_file.values()])
    return found


def check_names(names: Sequence[str]) -> None:
    """Raises ServemarkError (input) for what no shell variable can be called."""
    for name in names:
        if not _NAME.match(name):
            raise input_error("launch.env_name", name=repr(name)[:80])


def remember(values: Sequence[str]) -> None:
    """Blank these from now on."""
    with _lock:
        _known.update(value for value in values if len(value) >= _SHORTEST)


def remember_environment(environ: Mapping[str, str] | None = None) -> None:
    """Blank the values of all variables that are named like secrets: engines of this host inherit them."""
    around = os.environ if environ is None else environ
    remember([value for name, value in around.items() if _SECRET_NAME.search(name)])


def redact(text: str) -> str:
    """The text with every known secret blanked, the longest first."""
    with _lock:
        values = sorted(_known, key=len, reverse=True)
    for value in values:
        text = text.replace(value, HIDDEN)
    return text


def redact_bytes(data: bytes) -> bytes:
    """The same for a log as it lies on disk."""
    with _lock:
        values = sorted(_known, key=len, reverse=True)
    for value in values:
        data = data.replace(value.encode("utf-8"), HIDDEN.encode())
    return data


def _read(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_mode & 0o077
                or status.st_uid not in (os.getuid(), 0)
            ):
                raise input_error("launch.secrets_open", path=str(path), mode=f"{status.st_mode & 0o777:04o}")
            data = stream.read(MAX_FILE + 1)
    except OSError as error:
        raise input_error("launch.secrets_unreadable", path=str(path), reason=str(error.strerror)) from error
    if len(data) > MAX_FILE:
        raise input_error("launch.secrets_unreadable", path=str(path), reason=f"> {MAX_FILE} B")
    found = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not _NAME.match(name.strip()):
            raise input_error("launch.secrets_line", path=str(path), line=number)
        found[name.strip()] = value.strip()
    return found
