"""Both languages hold the same keys and placeholders, and every key that the code names exists."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "servemark"
MESSAGES = SRC / "base" / "messages"
ROOMS = sorted(p.stem for p in (MESSAGES / "en").glob("*.json"))


def load(lang: str, room: str) -> dict[str, str]:
    """One catalogue; a repeated key is an error."""

    def unique(pairs: list[tuple[str, str]]) -> dict[str, str]:
        keys = [k for k, _ in pairs]
        assert len(keys) == len(set(keys)), f"{lang}/{room}: repeated keys"
        return dict(pairs)

    loaded: dict[str, str] = json.loads(
        (MESSAGES / lang / f"{room}.json").read_text(encoding="utf-8"), object_pairs_hook=unique
    )
    return loaded


def placeholders(message: str) -> set[str]:
    """Names in braces."""
    return {name for _, name, _, _ in string.Formatter().parse(message) if name is not None}


def test_same_rooms() -> None:
    """No catalogue in one language only."""
    assert sorted(p.stem for p in (MESSAGES / "zh").glob("*.json")) == ROOMS


@pytest.mark.parametrize("room", ROOMS)
def test_same_keys_and_placeholders(room: str) -> None:
    """A missing key would fall back to English; a missing placeholder would hide a fact."""
    english, chinese = load("en", room), load("zh", room)
    assert set(english) == set(chinese)
    for key, message in english.items():
        assert key.split(".", 1)[0] == room, f"{key} stands in {room}.json"
        assert placeholders(message) == placeholders(chinese[key]), key
        assert message.strip() == message and chinese[key].strip() == chinese[key], key


@pytest.mark.parametrize("room", ROOMS)
def test_chinese_is_chinese(room: str) -> None:
    """A translation without one Chinese character is a forgotten one; units, symbols and formulas are exempt."""
    english, chinese = load("en", room), load("zh", room)
    for key, message in chinese.items():
        words = re.findall(r"[A-Za-z]{3,}", re.sub(r"\{[^}]*\}", "", english[key]))
        if len(words) >= 4 and not key.endswith((".formula", ".examples", ".unit")):
            assert re.search(r"[\u4e00-\u9fff]", message), key


def test_every_key_named_in_code_exists() -> None:
    """String literals that look like a key of a room must be in its catalogue."""
    known = {key for room in ROOMS for key in load("en", room)}
    pattern = re.compile(r'"((?:{})\.[a-z0-9_]+(?:\.[a-z0-9_]+)*)"'.format("|".join(ROOMS)))
    for path in SRC.rglob("*.py"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for key in pattern.findall(line):
                if key.endswith(
                    (".sqlite", ".json", ".jsonl", ".py", ".css", ".js", ".html", ".yaml", ".log", ".j2")
                ):
                    continue
                if re.search(r"\.[0-9]", key):  # a field's path in a JSON file
                    continue
                assert key in known, f"{path.relative_to(SRC)}:{number}: no message {key!r}"
