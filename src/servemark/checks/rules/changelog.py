"""Changelog: the bytes and entries that a merge tool insists on, checked when the author can still mend them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator

from servemark.catalog.changelog import ChangelogEntry
from servemark.catalog.nodes import Position, Problem
from servemark.checks.changes import FIRST, PLACEHOLDER, Change
from servemark.checks.example import CHANGELOG
from servemark.checks.model import Edit, Fix, Hit, Related
from servemark.checks.registry import rule
from servemark.checks.view import at

_LOG = "changelog.yaml"


_PULL = "https://example.com/acme/suite/pull/"
_FIRST = CHANGELOG.partition("\n\n")[0] + "\n"
"""The example's history: one entry."""
_TWO = CHANGELOG.replace("XXX", f"{_PULL}13")
"""A history of two entries."""
_CORRECTED = _TWO.replace("pull/12", "pull/14")
"""The same with a link corrected."""


def _whole(text: str) -> tuple[Edit, ...]:
    return ((_LOG, "", text),)


def _loose(text: str) -> str:
    """The first description without its quotes: the same value in other bytes."""
    return text.replace('"Add the disaggregated arm."', "Add the disaggregated arm.")


def _byte(change: Change, byte: bytes, variant: str | None = None) -> Iterator[Hit]:
    for number, line in enumerate(change.lines):
        column = line.find(byte)
        if column >= 0:
            yield Hit(change.at(number, column + 1), {"count": change.head.count(byte)}, (), None, variant)
            return


@rule("CHG401", "error", "changelog", wrong=_whole(CHANGELOG.rstrip("\n")))
def final_newline(change: Change) -> Iterator[Hit]:
    """The file ends with a newline."""
    if change.head and not change.head.endswith(b"\n"):
        yield Hit(change.at(len(change.lines) - 1, len(change.lines[-1]) + 1))


@rule("CHG402", "error", "changelog", wrong=_whole(CHANGELOG.replace("disagg\n", "disagg\r\n")))
def carriage_return(change: Change) -> Iterator[Hit]:
    """No carriage return."""
    yield from _byte(change, b"\r")


@rule(
    "CHG403", "error", "changelog", wrong=_whole(CHANGELOG.replace("disaggregated arm", "disaggregated\tarm"))
)
def tab(change: Change) -> Iterator[Hit]:
    """No tab."""
    yield from _byte(change, b"\t")


@rule(
    "CHG404", "error", "changelog", wrong=_whole(CHANGELOG.replace("disaggregated arm", "disaggregated\0arm"))
)
def nul(change: Change) -> Iterator[Hit]:
    """No NUL byte."""
    yield from _byte(change, b"\0")


@rule(
    "CHG405", "error", "changelog", wrong=_whole(CHANGELOG.replace("aggregated arm", "aggregated \udcff arm"))
)
def utf8(change: Change) -> Iterator[Hit]:
    """The bytes are UTF-8."""
    try:
        change.head.decode("utf-8")
    except UnicodeDecodeError as error:
        before = change.head[: error.start]
        line = before.count(b"\n")
        yield Hit(
            change.at(line, error.start - (before.rfind(b"\n") + 1) + 1),
            {"byte": f"0x{change.head[error.start]:02x}"},
        )


_STRUCTURE = {"catalog.duplicate_key": "407", "catalog.not_list": "409", "catalog.not_mapping": "411"}


def _of(change: Change, number: str) -> Iterator[Hit]:
    _ = change.entries
    for problem in change.problems:
        if _number(problem) == number and problem.severity == "error":
            yield Hit(problem.at, {"what": problem.error().what().partition(": ")[2] or problem.key})


def _number(problem: Problem) -> str:
    if problem.key in _STRUCTURE:
        return _STRUCTURE[problem.key]
    name = problem.key.removeprefix("catalog.")
    if name in {"tab", "carriage_return", "bom"}:
        return ""  # told by the rules about bytes
    if "key" in name and name not in {"duplicate_key"}:
        return "408"
    fields = (
        "missing",
        "unknown",
        "wrong",
        "empty",
        "not_one",
        "too_small",
        "append_only",
        "out_of",
        "two_spell",
    )
    return "412" if name.startswith(fields) else "406"


@rule("CHG406", "error", "changelog", wrong=_whole(CHANGELOG.replace("pr-link: XXX", 'pr-link: "XXX')))
def yaml(change: Change) -> Iterator[Hit]:
    """The file is YAML."""
    yield from _of(change, "406")


@rule(
    "CHG407",
    "error",
    "changelog",
    wrong=_whole(CHANGELOG.replace("  pr-link: XXX", "  pr-link: XXX\n  pr-link: XXX")),
)
def duplicate_key(change: Change) -> Iterator[Hit]:
    """No key stands twice in an entry."""
    yield from _of(change, "407")


@rule(
    "CHG408",
    "error",
    "changelog",
    wrong=_whole(CHANGELOG.replace("  pr-link: XXX", "  pr-link: XXX\n  ? [a]\n  : b")),
)
def key_kind(change: Change) -> Iterator[Hit]:
    """Keys are texts."""
    yield from _of(change, "408")


@rule("CHG409", "error", "changelog", wrong=_whole("entries: none\n"))
def root(change: Change) -> Iterator[Hit]:
    """The file is a list of entries."""
    yield from _of(change, "409")


@rule(
    "CHG410",
    "error",
    "changelog",
    wrong=_whole(CHANGELOG + '\n- description:\n    - "x"\n  config-keys:\n    - a\n  pr-link: XXX\n'),
)
def first_key(change: Change) -> Iterator[Hit]:
    """Every entry begins with `- config-keys:` at the start of a line."""
    items = change.tree.items or []
    if len(change.starts) == len(items):
        return
    starts = {number + 1 for number in change.starts}
    wrong = next((item for item in items if item.line not in starts), None)
    place = wrong.at if wrong is not None else change.at(change.starts[-1] if change.starts else 0)
    yield Hit(place, {"lines": len(change.starts), "entries": len(items)})


@rule("CHG411", "error", "changelog", wrong=_whole(CHANGELOG + "\n- just a text\n"))
def entry_kind(change: Change) -> Iterator[Hit]:
    """Every entry is a mapping."""
    yield from _of(change, "411")


@rule(
    "CHG412",
    "error",
    "changelog",
    wrong=_whole(CHANGELOG.replace("  pr-link: XXX", "  pr-link: XXX\n  all-evals: maybe")),
)
def schema(change: Change) -> Iterator[Hit]:
    """Every entry has the fields that it must have and no others."""
    yield from _of(change, "412")


@rule("CHG413", "error", "changelog", base=_TWO, right=_whole(_TWO), wrong=_whole(_FIRST))
def deleted(change: Change) -> Iterator[Hit]:
    """No entry is deleted."""
    if change.base is not None and len(change.head_plain) < len(change.base_entries):
        lost = len(change.base_entries) - len(change.head_plain)
        yield Hit(change.at(max(len(change.lines) - 2, 0)), {"count": lost})


@rule(
    "CHG414",
    "error",
    "changelog",
    base=_FIRST,
    wrong=_whole(CHANGELOG.replace("Add the disaggregated", "Add a disaggregated")),
)
def changed(change: Change) -> Iterator[Hit]:
    """History keeps its values, links apart."""
    corrected = {index for index, _, _ in change.corrections}
    shrunk = len(change.head_plain) < len(change.base_entries)
    for index, old, new in change.changed_history if not shrunk else ():
        if index not in corrected:
            names = sorted(str(k) for k in {**_map(old), **_map(new)} if _map(old).get(k) != _map(new).get(k))
            yield Hit(
                change.at(change.entry_line(index)),
                {"number": index + 1, "fields": ", ".join(names)},
            )


def _map(value: object) -> dict[object, object]:
    return value if isinstance(value, dict) else {}


@rule("CHG415", "error", "changelog", base=_FIRST, right=_whole(_FIRST), wrong=_whole(_loose(_FIRST)))
def reformatted(change: Change) -> Iterator[Hit]:
    """History keeps its bytes where its values are the same."""
    base = change.base
    if (
        base is None
        or change.appended
        or change.inserted is not None
        or change.changed_history
        or len(change.head_plain) < len(change.base_entries)
    ):
        return
    line = _first_difference(base, change.head)
    if line < base.count(b"\n"):
        yield Hit(change.at(line))


def _first_difference(base: bytes, head: bytes) -> int:
    old, new = base.split(b"\n"), head.split(b"\n")
    for number, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return number
    return min(len(old), len(new))


@rule(
    "CHG416",
    "error",
    "changelog",
    base=_FIRST,
    right=_whole(_FIRST.replace("/12", "/13")),
    wrong=_whole(_FIRST.replace(f"{_PULL}12", "https://example.com/other/13")),
)
def corrected_link(change: Change) -> Iterator[Hit]:
    """A corrected link is a finished one."""
    for index, _, new in change.corrections:
        if not change.canonical(new):
            yield Hit(
                change.at(change.entry_line(index)), {"link": new, "prefix": change.prefix or ".../pull/"}
            )


@rule("CHG417", "error", "changelog", base=_FIRST, wrong=_whole(CHANGELOG.replace("/12", "/14")))
def mixed(change: Change) -> Iterator[Hit]:
    """Corrections of links and additions do not go together."""
    if change.corrections and len(change.head_plain) > len(change.base_entries):
        yield Hit(change.at(change.entry_line(change.corrections[0][0])), {"count": len(change.corrections)})


@rule("CHG418", "error", "changelog", base=_FIRST, on_main=True, right=_whole(_TWO), wrong=_whole(CHANGELOG))
def link_on_main(change: Change) -> Iterator[Hit]:
    """On the main branch a new entry's link is a finished one."""
    if change.on_main:
        for entry in change.new_entries:
            if not change.canonical(entry.pr_link):
                yield Hit(_link_at(entry), {"link": entry.pr_link})


def _link_at(entry: ChangelogEntry) -> Position:
    return at(entry.node, "pr-link", other=entry.at)


@rule(
    "CHG419",
    "error",
    "changelog",
    wrong=_whole(CHANGELOG.replace("pr-link: XXX", "pr-link: PRLINK_PLACEHOLDER")),
)
def link(change: Change) -> Iterator[Hit]:
    """A new entry's link is this pull request's, or the placeholder."""
    if change.on_main:
        return
    for entry in change.new_entries:
        value = entry.pr_link
        if change.placeholder(value) or value == change.pr or (change.pr is None and change.canonical(value)):
            continue
        place = _link_at(entry)
        values: dict[str, object] = {
            "link": value,
            "placeholder": PLACEHOLDER,
            "prefix": change.prefix or "…/pull/",
        }
        if change.pr is not None and change.canonical(value):
            yield Hit(place, values | {"pr": change.pr}, (), Fix(place, value, change.pr), "other_pr")
        elif re.search(r"placeholder|x{2,}|todo|tbd|pending|pr[-_ ]?link|<|\{", value, re.IGNORECASE):
            yield Hit(place, values, (), Fix(place, value, PLACEHOLDER), "placeholder")
        else:
            yield Hit(place, values)


@rule("CHG420", "error", "changelog", base=_FIRST, wrong=_whole(_loose(CHANGELOG)))
def history_bytes(change: Change) -> Iterator[Hit]:
    """With additions the head begins with the base, byte for byte."""
    if change.base is None or change.appended or change.corrections:
        return
    if len(change.head_plain) > len(change.base_entries) or change.changed_history:
        yield Hit(change.at(_first_difference(change.base, change.head)))


@rule("CHG421", "error", "changelog", base=_FIRST, wrong=_whole(CHANGELOG.replace("\n\n", "\n")))
def separated(change: Change) -> Iterator[Hit]:
    """An addition is parted from history by exactly one blank line and begins with `- config-keys:`."""
    if change.base is None or not change.appended or len(change.head) == len(change.base) or not change.base:
        return
    added = change.head[len(change.base) :]
    if not added.startswith(b"\n" + FIRST):
        line = change.base.count(b"\n")
        blank = len(added) - len(added.lstrip(b"\n"))
        yield Hit(change.at(line), {"blank": blank})


@rule("CHG422", "error", "changelog", wrong=_whole(CHANGELOG.replace("12\n\n-", "12\n\n\n-")))
def between(change: Change) -> Iterator[Hit]:
    """New entries are parted by exactly one blank line; history stays as it is."""
    first = change.base.count(b"\n") + 1 if change.base is not None and change.appended else 0
    new = {entry.at.line - 1 for entry in change.new_entries}
    for number in change.starts[1:]:
        blank = 0
        while number - 1 - blank >= 0 and not change.lines[number - 1 - blank].strip():
            blank += 1
        before = change.lines[number - 1 - blank].lstrip()
        if number > first and number in new and blank != 1 and not before.startswith(b"#"):
            yield Hit(change.at(number), {"blank": blank})


@rule("CHG423", "error", "changelog", wrong=_whole(CHANGELOG + "\n"))
def one_final_newline(change: Change) -> Iterator[Hit]:
    """The last entry ends with one newline."""
    if change.head.endswith(b"\n\n"):
        yield Hit(
            change.at(len(change.lines) - 2), {"count": len(change.head) - len(change.head.rstrip(b"\n"))}
        )


def _changed_lines(change: Change) -> list[int]:
    old, new = (change.base or b"").split(b"\n"), change.lines
    return [n for n, (one, other) in enumerate(zip(old, new, strict=False)) if one != other]


@rule(
    "CHG424",
    "error",
    "changelog",
    base=_TWO,
    right=_whole(_CORRECTED),
    wrong=_whole(_CORRECTED.replace("\n\n", "\n\n\n")),
)
def correction_lines(change: Change) -> Iterator[Hit]:
    """A correction of a link neither adds nor deletes lines."""
    if change.base is not None and change.corrections and len(change.head_plain) == len(change.base_entries):
        before, after = change.base.count(b"\n"), change.head.count(b"\n")
        if before != after:
            yield Hit(
                change.at(change.entry_line(change.corrections[0][0])), {"before": before, "after": after}
            )


@rule("CHG425", "error", "changelog", base=_TWO, right=_whole(_CORRECTED), wrong=_whole(_loose(_CORRECTED)))
def correction_place(change: Change) -> Iterator[Hit]:
    """A correction touches lines with `  pr-link:` only."""
    if change.base is None or not change.corrections or change.base.count(b"\n") != change.head.count(b"\n"):
        return
    for number in _changed_lines(change):
        if not change.lines[number].startswith(b"  pr-link:"):
            yield Hit(change.at(number))


@rule(
    "CHG426",
    "error",
    "changelog",
    base=_TWO,
    right=_whole(_CORRECTED),
    wrong=_whole(_CORRECTED.replace(f"{_PULL}13", f'"{_PULL}13"')),
)
def correction_count(change: Change) -> Iterator[Hit]:
    """As many lines change as links are corrected."""
    if change.base is None or not change.corrections or change.base.count(b"\n") != change.head.count(b"\n"):
        return
    lines = _changed_lines(change)
    if len(lines) != len(change.corrections):
        yield Hit(
            change.at(lines[0] if lines else 0), {"lines": len(lines), "links": len(change.corrections)}
        )


@rule(
    "CHG427",
    "error",
    "changelog",
    base=_TWO,
    right=_whole(_TWO),
    wrong=_whole(_TWO.replace("\n\n", "\n# remark\n")),
)
def nothing(change: Change) -> Iterator[Hit]:
    """A change of the file adds an entry or corrects a link."""
    if change.base is None or change.base == change.head:
        return
    if len(change.head_plain) == len(change.base_entries) and not change.changed_history:
        yield Hit(change.at(_first_difference(change.base, change.head)))


@rule("CHG431", "error", "changelog", wrong=_whole(CHANGELOG.replace("sglang-agg\n", "sglang-ag\n")))
def known_keys(change: Change) -> Iterator[Hit]:
    """A new entry names arms of the suite; a pattern matches at least one."""
    from servemark.catalog.fields import nearest  # noqa: PLC0415 - only for a mistake

    if change.arms is None:
        return
    for entry in change.new_entries:
        listed = (entry.node.entries or {}).get("config-keys")
        for item in (listed.items if listed is not None else None) or ():
            key = str(item.scalar)
            if "*" in key:
                if not any(fnmatch.fnmatchcase(arm, key) for arm in change.arms):
                    yield Hit(item.at, {"key": key}, (), None, "pattern")
            elif key not in change.arms:
                near = nearest(key, change.arms)
                yield Hit(item.at, {"key": key, "near": near}, (), None, "near" if near else None)


@rule(
    "CHG432",
    "error",
    "changelog",
    wrong=_whole(
        CHANGELOG.replace("https://example.com/acme/suite/pull/12", "XXX").replace(
            "  pr-link: XXX\n\n", "  append-only: true\n  pr-link: XXX\n\n"
        )
    ),
)
def append_only(change: Change) -> Iterator[Hit]:
    """Append-only entries and others do not go together in one change."""
    marked = [entry for entry in change.new_entries if entry.append_only]
    others = [entry for entry in change.new_entries if not entry.append_only]
    if marked and others:
        related = (Related(others[0].at, "checks.rel.other_entry", {}),)
        yield Hit(marked[0].at, {}, related)


@rule(
    "CHG433",
    "warning",
    "changelog",
    wrong=_whole(
        CHANGELOG.replace("suite/pull/12", "suite/pull/xxxx").replace(
            "pr-link: XXX", "pr-link: https://example.com/acme/suite/pull/13"
        )
    ),
)
def old_links(change: Change) -> Iterator[Hit]:
    """Links in history that were never finished."""
    if change.base is None:
        for entry in change.entries[: change.first_new]:
            if not change.canonical(entry.pr_link):
                yield Hit(_link_at(entry), {"link": entry.pr_link, "prefix": change.prefix or ""})
