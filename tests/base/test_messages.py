"""Choosing a language and filling a message."""

from __future__ import annotations

import pytest

from servemark.base import messages
from servemark.base.canonical import canonical_json, content_hash
from servemark.base.errors import Layer, ServemarkError


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_chosen", [])
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("value", "lang"), [("zh_CN.UTF-8", "zh"), ("en_US.UTF-8", "en"), ("C", "en"), ("de_DE.UTF-8", "en")]
)
def test_language_follows_the_locale(monkeypatch: pytest.MonkeyPatch, value: str, lang: str) -> None:
    """Chinese for a Chinese locale, English for any other."""
    monkeypatch.setenv("LANG", value)
    assert messages.current_language() == lang


def test_option_wins_over_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """--lang en under a Chinese locale."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    messages.set_language("en")
    assert messages.current_language() == "en"


def test_values_named_like_parameters() -> None:
    """A message may have placeholders named key, lang or path; untrusted braces in values stay as they are."""
    said = messages.text("base.file_failed", "en", path="{x}{0.__class__}", reason="r")
    assert said == "{x}{0.__class__}: r"


def test_unknown_key_is_a_bug() -> None:
    """No message, no guess."""
    with pytest.raises(KeyError):
        messages.text("base.no_such_key")
    assert messages.find_text("base.no_such_key") is None


def test_error_has_position_what_and_next() -> None:
    """file:line:column stands in front."""
    error = ServemarkError("base.disk_full", Layer.HOME, where="a.yaml:3:4", path="/p")
    assert error.what("en").startswith("a.yaml:3:4: no space left")
    assert "--home" in (error.next_step("en") or "")


def test_canonical_json_is_canonical() -> None:
    """Order of keys does not matter; text is not escaped; NaN is refused."""
    assert canonical_json({"b": 1, "a": "é"}) == '{"a":"é","b":1}'
    assert content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json(float("nan"))


def test_values_cannot_steer_a_terminal() -> None:
    """Escapes, direction marks and NUL out of a file are written out; line feeds and other scripts are kept."""
    said = messages.text("base.file_failed", "en", path="a\x1b[31mb\u202ec\x9b", reason="中文\nx\x00")
    assert said == "a\\x1b[31mb\\u202ec\\x9b: 中文\nx\\x00"


@pytest.mark.parametrize("key", ["", "/etc/x.y", "../../x.y", "a" * 5000 + ".b", "\x00.x"])
def test_keys_out_of_files_name_no_path(key: str) -> None:
    """A failure's key comes from a folder that may be anybody's."""
    assert messages.find_text(key) is None
