"""Message catalogues: `<lang>/<room>.json`, flat `{key: text}`; a key begins with its room's name.

Texts use `str.format` placeholders. Both languages hold the same keys and placeholders (a test checks it).
A catalogue is read only when one of its keys is asked for, so that `--version` reads none.
"""

from __future__ import annotations

import json
import locale
import os
import re
from functools import cache
from pathlib import Path

from servemark.base.printable import one_line, printable

LANGUAGES = ("en", "zh")
_ROOM = re.compile(r"[a-z_]{1,40}\Z")
_chosen: list[str] = []


def set_language(lang: str | None) -> None:
    """Fix the language for this process; None goes back to the locale's."""
    _chosen.clear()
    if lang is not None:
        _chosen.append(lang)


def current_language() -> str:
    """`en` or `zh`: what was chosen, else what the locale asks for, else English."""
    if _chosen:
        return _chosen[0]
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    guess = locale.getlocale()[0] or ""
    return "zh" if guess.lower().startswith(("zh", "chinese")) else "en"


@cache
def catalogue(lang: str, room: str) -> dict[str, str]:
    """All messages of one room in one language; empty when the room has none."""
    path = Path(__file__).parent / lang / f"{room}.json"  # importlib.resources costs 10 ms of imports
    if not path.is_file():
        return {}
    loaded: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def text(key: str, lang: str | None = None, /, **values: object) -> str:
    """The message for `key`; English when the language lacks it; KeyError for a key nobody wrote."""
    found = find_text(key, lang, **values)
    if found is None:
        raise KeyError(f"no message {key!r} in the catalogues")
    return found


def find_text(key: str, lang: str | None = None, /, **values: object) -> str | None:
    """As `text`, but None for a key nobody wrote."""
    room = key.split(".", 1)[0]
    if not _ROOM.match(room):
        return None  # a key out of a file may try to name a path
    chosen = lang or current_language()
    found = catalogue(chosen, room).get(key)
    if found is None:
        found = catalogue("en", room).get(key)
    if found is None:
        return None
    if not values:
        return found
    return found.format(**{name: _safe(name, value) for name, value in values.items()})


_NAMES = frozenset({"path", "name", "names", "file", "folder", "home", "log"})
"""Placeholders for names of files: a name with a line feed must not look like a line of ours."""


def _safe(placeholder: str, value: object) -> object:
    """Values may come from anywhere; what steers a terminal is written out."""
    if isinstance(value, Path):
        return one_line(str(value))
    if not isinstance(value, str):
        return value
    return one_line(value) if placeholder in _NAMES else printable(value)
