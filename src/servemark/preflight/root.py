"""Where a host's facts are read from: a folder that stands for `/`, and the programs that may be asked.

Everything read is untrusted: reads are bounded, bytes that are no text are replaced, and what cannot be read is None.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

MAX_READ = 4 << 20
COMMAND_SECONDS = 0.8
"""A program that takes longer is given up: the whole inspection has one second."""


@dataclass(frozen=True, slots=True)
class HostRoot:
    """A host as a folder. `path` is `/` for this host; `programs` is a PATH, or None for this process's own."""

    path: Path = Path("/")
    programs: str | None = None

    @property
    def live(self) -> bool:
        """Whether this is the host we run on, so that its kernel may be asked too."""
        return self.path == Path("/")

    def at(self, where: str) -> Path:
        """A path of the host; `where` is absolute on it."""
        return self.path / where.lstrip("/")

    def text(self, where: str) -> str | None:
        """A file's text, at most `MAX_READ` bytes; None when it cannot be read."""
        try:
            with self.at(where).open("rb") as file:
                return file.read(MAX_READ).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def line(self, where: str) -> str | None:
        """A file's text without the blanks around it; None when it is empty or cannot be read."""
        found = self.text(where)
        return found.strip() or None if found is not None else None

    def number(self, where: str) -> int | None:
        """A file that holds one integer; None for anything else."""
        return integer(self.line(where))

    def names(self, where: str) -> list[str]:
        """Names in a folder, sorted, numbers by value; [] when there is no such folder."""
        try:
            return sorted(os.listdir(self.at(where)), key=_natural)  # noqa: PTH208 - names only
        except OSError:
            return []

    def link(self, where: str) -> str | None:
        """The last part of what a link points to; None when it is no link."""
        try:
            return self.at(where).readlink().name or None
        except OSError:
            return None

    def ask(self, *argv: str) -> tuple[int, str] | None:
        """Exit code and output (both streams) of a program; None when it is missing or takes too long."""
        program = shutil.which(argv[0], path=self.programs)
        if program is None:
            return None
        try:
            child = subprocess.Popen(
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError:
            return None
        try:
            output, _ = child.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # what it started holds the pipe open too
            child.communicate()
            return None
        return child.returncode, output[:MAX_READ].decode("utf-8", "replace")


def integer(text: str | None) -> int | None:
    """A decimal integer of at most 20 digits; None for anything else (`max`, empty, text)."""
    if text is None:
        return None
    body = text.strip()
    digits = body[1:] if body.startswith("-") else body
    return int(body) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


def table(text: str | None) -> dict[str, int]:
    """`name value` or `Name: value kB` lines as integers; values with kB become bytes. {} for None."""
    found: dict[str, int] = {}
    for line in (text or "").splitlines():
        fields = line.replace(":", " ", 1).split()
        value = integer(fields[1]) if len(fields) >= 2 else None
        if value is not None:
            found[fields[0]] = value * 1024 if len(fields) > 2 and fields[2] == "kB" else value
    return found


def chosen(text: str | None) -> str | None:
    """The bracketed word of `always [madvise] never`."""
    _, _, rest = (text or "").partition("[")
    word, closed, _ = rest.partition("]")
    return word if closed and word else None


def _natural(name: str) -> tuple[str, int, str]:
    head = name.rstrip("0123456789")
    tail = name[len(head) :]
    return head, int(tail) if tail and len(tail) < 19 else -1, name
