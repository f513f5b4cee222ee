"""The 27 byte and structure rules about a changelog, and edits that leave history as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.catalog.yaml_nodes import parse_yaml
from servemark.checks.changelog_edit import added, canonicalized, entry_spans, entry_text, resolved
from servemark.checks.changes import Change
from servemark.checks.check import check_change

LINK = "https://example.com/acme/suite/pull/"
ONE = f'- config-keys:\n    - a\n  description:\n    - "One."\n  pr-link: {LINK}1\n'
TWO = f'- config-keys:\n    - b\n  description:\n    - "Two."\n  pr-link: {LINK}2\n'
NEW = '- config-keys:\n    - c\n  description:\n    - "Three."\n  pr-link: XXX\n'
BASE = f"{ONE}\n{TWO}"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def codes(head: str | bytes, base: str | None = BASE, **more: object) -> set[str]:
    """Codes of a change."""
    data = head if isinstance(head, bytes) else head.encode()
    change = Change("log.yaml", data, base.encode() if base is not None else None, **more)  # type: ignore[arg-type]
    return {finding.code for finding in check_change(change)}


CASES: dict[str, str | bytes] = {
    "CHG401": BASE.rstrip("\n"),
    "CHG402": f"{BASE}\n{NEW}".replace("Three.", "Three.\r"),
    "CHG403": f"{BASE}\n{NEW}".replace("Three.", "Three\t."),
    "CHG404": f"{BASE}\n{NEW}".replace("Three.", "Three\0."),
    "CHG405": f"{BASE}\n{NEW}".encode().replace(b"Three", b"\xff"),
    "CHG406": f"{BASE}\n{NEW}".replace('"Three."', '"Three.'),
    "CHG407": f"{BASE}\n{NEW}  pr-link: XXX\n",
    "CHG408": f"{BASE}\n{NEW}  ? [a]\n  : b\n",
    "CHG409": "a: b\n",
    "CHG410": f"{BASE}\n- description:\n    - x\n  config-keys:\n    - c\n  pr-link: XXX\n",
    "CHG411": f"{BASE}\n- text\n",
    "CHG412": f"{BASE}\n{NEW}  other: 1\n",
    "CHG413": ONE,
    "CHG414": f"{BASE}\n{NEW}".replace("One.", "Uno."),
    "CHG415": BASE.replace('"One."', "One."),
    "CHG416": BASE.replace(f"{LINK}1", "https://elsewhere.org/x"),
    "CHG417": f"{BASE}\n{NEW}".replace(f"{LINK}1", f"{LINK}3"),
    "CHG419": f"{BASE}\n{NEW}".replace("XXX", "PRLINK_PLACEHOLDER"),
    "CHG420": f"{BASE}\n{NEW}".replace('"One."', "One."),
    "CHG421": f"{BASE}{NEW}",
    "CHG422": f"{BASE}\n{NEW}\n\n{NEW.replace('Three', 'Four')}",
    "CHG423": f"{BASE}\n{NEW}\n",
    "CHG424": BASE.replace(f"{LINK}1\n", f"{LINK}3\n\n"),
    "CHG425": BASE.replace(f"{LINK}1", f"{LINK}3").replace('"Two."', "Two."),
    "CHG426": BASE.replace(f"{LINK}1", f"{LINK}3").replace('"Two."', "Two."),
    "CHG427": BASE.replace("\n\n", "\n# remark\n"),
}


@pytest.mark.parametrize("code", CASES)
def test_each_rule(code: str) -> None:
    """One change breaks each rule; the same file without the break gives nothing."""
    assert code in codes(CASES[code])
    assert codes(f"{BASE}\n{NEW}") == set()
    assert codes(BASE) == set()


def test_links() -> None:
    """On main a placeholder is an error; another pull request's link is one for this pull request."""
    head = f"{BASE}\n{NEW}"
    assert codes(head, on_main=True) == {"CHG418"}
    assert codes(head, pr=f"{LINK}7") == set()
    assert codes(head.replace("XXX", f"{LINK}XXX"), pr=f"{LINK}7") == set()
    assert codes(head.replace("XXX", f"{LINK}7"), pr=f"{LINK}7") == set()
    assert codes(head.replace("XXX", f"{LINK}8"), pr=f"{LINK}7") == {"CHG419"}
    for name in ("PRLINK_PLACEHOLDER", "xxxx", "TBD", "TODO", "https://example.com/acme/suite/pull/xxxx"):
        assert codes(head.replace("pr-link: XXX", f"pr-link: {name}")) == {"CHG419"}


def test_correction_alone() -> None:
    """Correcting a link is all right."""
    assert codes(BASE.replace(f"{LINK}1", f"{LINK}3")) == set()


def test_keys() -> None:
    """Keys and patterns of new entries against the suite's arms."""
    head = f"{BASE}\n{NEW}"
    assert codes(head, arms=frozenset({"c"})) == set()
    assert codes(head, arms=frozenset({"d"})) == {"CHG431"}
    assert codes(head.replace("- c\n", "- 'c*'\n"), arms=frozenset({"cat"})) == set()
    assert codes(head.replace("- c\n", "- 'c*'\n"), arms=frozenset({"dog"})) == {"CHG431"}


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=60
).filter(str.strip)
KEYS = st.from_regex(r"[a-z][a-z0-9.-]{0,30}", fullmatch=True)


@given(st.lists(KEYS, min_size=1, max_size=3), st.lists(TEXTS, min_size=1, max_size=3))
def test_added_entry_is_right(keys: list[str], said: list[str]) -> None:
    """Whatever is added: history's bytes stay, no rule is broken, values are read back as given."""
    head = added(BASE.encode(), entry_text(keys, said))
    assert head.startswith(BASE.encode())
    assert codes(head) <= {"CHG403"}  # a tab can only come from a description
    root, problems = parse_yaml(head, "log")
    assert not problems and root.items is not None
    entry = root.items[-1].plain()
    assert isinstance(entry, dict)
    assert entry["config-keys"] == keys and entry["description"] == said


@given(st.integers(1, 10**6), st.booleans())
def test_canonicalize_changes_links_only(number: int, whole: bool) -> None:
    """Only the placeholder's bytes change, also when history mentions placeholders."""
    history = BASE.replace("One.", "pr-link: XXX")
    placeholder = f"{LINK}XXX" if whole else "XXX"
    head = f"{history}\n{NEW}".replace("pr-link: XXX\n", f"pr-link: {placeholder}\n")
    after, count = canonicalized(head.encode(), f"{LINK}{number}", history.encode())
    assert count == 1
    assert after == head.encode().replace(
        f"  pr-link: {placeholder}\n".encode(), f"  pr-link: {LINK}{number}\n".encode()
    )
    assert canonicalized(after, f"{LINK}{number}", history.encode()) == (after, 0)


def test_resolve() -> None:
    """Main's bytes first, then what the branch alone adds, in its order, each once."""
    main = f"{BASE}\n{NEW.replace('Three', 'Theirs').replace('XXX', LINK + '5')}"
    mine = NEW.replace("Three", "Mine")
    result, count = resolved(BASE.encode(), main.encode(), f"{BASE}\n{mine}".encode())
    assert count == 1 and result == f"{main}\n{mine}".encode()
    linked, _ = resolved(BASE.encode(), main.encode(), f"{BASE}\n{mine}".encode(), f"{LINK}6")
    assert linked == f"{main}\n{mine.replace('XXX', LINK + '6')}".encode()
    with pytest.raises(ServemarkError, match="already on main"):
        resolved(BASE.encode(), result, f"{BASE}\n{mine}".encode())
    with pytest.raises(ServemarkError, match="changed history"):
        resolved(BASE.encode(), main.encode(), f"{BASE}\n{mine}".replace("One.", "Uno.").encode())


@pytest.mark.parametrize("end", ["", "\n\n", "\r\n"])
def test_nothing_is_added_to_a_broken_end(end: str) -> None:
    """A file that does not end as it must is not mended silently."""
    with pytest.raises(ServemarkError):
        added(BASE.rstrip("\n").encode() + end.encode(), NEW.encode())


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    """Any bytes as head or base give findings, never an exception."""
    codes(data)
    check_change(Change("log", BASE.encode() + data, data))
    entry_spans(data)


@pytest.mark.corpus
def test_real_pairs() -> None:
    """Five real changes: four append and break no rule; the fourth puts an entry in the midst of history."""
    import gzip

    folders = sorted((DATA / "changelog-pairs").glob("*")) if DATA.is_dir() else []
    if not folders:
        pytest.skip("the real changes are not on this machine")
    for folder in folders:
        sides = {
            path.name.partition(".")[0]: gzip.decompress(path.read_bytes()) for path in folder.glob("*.gz")
        }
        base, head = (next(sides[k] for k in sides if name in k) for name in ("base", "head"))
        found = check_change(Change(folder.name, head, base))
        errors = {f.code for f in found if f.severity == "error"}
        assert errors == ({"CHG420"} if folder.name == "4" else set()), [f.message() for f in found]


def test_canonicalize_leaves_entries_of_others() -> None:
    """Another request merged meanwhile: its entry keeps its placeholder, whichever of the two is linked first."""
    entry = '- config-keys:\n    - {}\n  description:\n    - "x"\n  pr-link: {}\n'
    base = entry.format("a", f"{LINK}1")
    mine = f"{base}\n{entry.format('b', 'XXX')}"
    both = f"{mine}\n{entry.format('c', 'XXX')}"
    after, count = canonicalized(both.encode(), f"{LINK}2", base.encode(), mine.encode())
    assert (after.decode(), count) == (both.replace("XXX", f"{LINK}2", 1), 1)
    other, count = canonicalized(both.encode(), f"{LINK}3", mine.encode(), both.encode())
    assert (other.decode(), count) == (f"{mine}\n{entry.format('c', f'{LINK}3')}", 1)
    assert canonicalized(other, f"{LINK}2", base.encode(), mine.encode())[1] == 1
