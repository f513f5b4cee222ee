"""Who owns a file by a CODEOWNERS file: the last line whose pattern fits decides, as GitHub reads it.

Patterns are those of .gitignore without `!` and `[ ]`: a leading `/` (or one in the middle) anchors at the top, `*` stays
within a folder, `**` crosses folders, and a folder's name means everything below it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where it may stand; the first that is there is read."""
MAX_LINES = 10_000
MAX_PATTERN = 400
MAX_CROSSINGS = 4
"""`**` in one pattern; more would cost too much to match."""


@dataclass(frozen=True, slots=True)
class Owners:
    """One line. `names` are lower case, without the leading @; () takes ownership away."""

    pattern: re.Pattern[str]
    names: tuple[str, ...]
    line: int


def read_codeowners(data: bytes) -> tuple[Owners, ...]:
    """All lines that can be read, in order; others own nothing."""
    found = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines()[:MAX_LINES], 1):
        said = re.sub(r"(^|(?<=\s))#.*", "", line).strip()
        parts = re.split(r"(?<!\\)\s+", said) if said else []
        if (
            not parts
            or parts[0].startswith("!")
            or len(parts[0]) > MAX_PATTERN
            or "[" in parts[0]
            or parts[0].count("**") > MAX_CROSSINGS
        ):
            continue
        names = tuple(name.removeprefix("@").lower() for name in parts[1:])
        found.append(Owners(_pattern(parts[0].replace("\\ ", " ")), names, number))
    return tuple(found)


def owners_of(lines: tuple[Owners, ...], path: str) -> tuple[str, ...]:
    """Names of a file's owners; () when it has none."""
    for one in reversed(lines):
        if one.pattern.match(path):
            return one.names
    return ()


def _pattern(said: str) -> re.Pattern[str]:
    folder = said.endswith("/")
    body = said.strip("/")
    anchored = said.startswith("/") or "/" in body
    parts = []
    position = 0
    while position < len(body):
        if body.startswith("**/", position):
            parts.append("(?:.*/)?")
            position += 3
        elif body.startswith("**", position):
            parts.append(".*")
            position += 2
        else:
            letter = body[position]
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)))
            position += 1
    # `docs/*` means the files of that folder alone, every other pattern also what lies below
    tail = "/.*" if folder else "" if body.endswith("/*") else "(?:/.*)?"
    return re.compile(("" if anchored else "(?:.*/)?") + "".join(parts) + tail + r"\Z", re.DOTALL)
