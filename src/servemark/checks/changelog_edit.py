"""Edits of a changelog that leave every byte of history as it is: add, canonicalize, resolve."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from servemark.base.errors import input_error
from servemark.catalog.nodes import errors_of
from servemark.catalog.yaml_nodes import parse_yaml
from servemark.checks.changes import FIRST, PLACEHOLDER, Change

_LINK = re.compile(rb"^  pr-link:[ ]*(\S.*?)[ ]*$", re.MULTILINE)
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.*?/-]*\Z")
_ADDRESS = re.compile(r"https?://[^\s/]+/\S+/\d+\Z")


def _scalar(value: str) -> str:
    """A text as YAML: plain where that is safe, else in double quotes."""
    if _SAFE.match(value) and not re.fullmatch(r"(?i)true|false|yes|no|on|off|null|[\d_.]+(?:e\d+)?", value):
        return value
    return json.dumps(value, ensure_ascii=False)


def entry_text(
    keys: Sequence[str],
    description: Sequence[str],
    *,
    link: str = PLACEHOLDER,
    scenarios: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> bytes:
    """One entry as the changelog's other entries are written."""
    lines = ["- config-keys:", *(f"    - {_scalar(key)}" for key in keys)]
    if scenarios:
        lines += ["  scenario-type:", *(f"    - {name}" for name in scenarios)]
    lines += [f"  {flag}: true" for flag in flags]
    lines += ["  description:", *(f"    - {json.dumps(one, ensure_ascii=False)}" for one in description)]
    return ("\n".join([*lines, f"  pr-link: {link}"]) + "\n").encode()


def added(base: bytes, entry: bytes) -> bytes:
    """The changelog with an entry at its end. ServemarkError (exit 2) when the file does not end as one must, so
    that adding would change history."""
    if not base:
        return entry
    if not base.endswith(b"\n") or base.endswith(b"\n\n") or b"\r" in base:
        raise input_error("checks.changelog.bad_end")
    return base + b"\n" + entry


def is_link(value: str) -> bool:
    """Whether a text is the address of a pull or merge request."""
    return bool(_ADDRESS.match(value))


def canonicalized(
    data: bytes, pr: str, base: bytes | None = None, upto: bytes | None = None
) -> tuple[bytes, int]:
    """(the changelog with placeholders of new entries replaced by the address, their number). Without a base all
    entries after the last finished link are new; entries that `upto` does not have yet belong to somebody else. Lines
    other than `  pr-link:` are not touched."""
    if not is_link(pr):
        raise input_error("checks.changelog.bad_address", value=pr)
    change = Change("changelog", data, base)
    first = change.new_entries[0].at.line - 1 if change.new_entries else len(change.lines)
    offset = sum(len(line) + 1 for line in change.lines[:first])
    end = len(data)
    if upto is not None and len(entry_spans(upto)) < len(change.starts):
        line_after = change.starts[len(entry_spans(upto))]
        end = max(offset, sum(len(line) + 1 for line in change.lines[:line_after]))
    count = 0

    def replaced(match: re.Match[bytes]) -> bytes:
        nonlocal count
        value = match.group(1).strip(b"\"'").decode("utf-8", "replace")
        if not change.placeholder(value):
            return match.group(0)
        count += 1
        whole, start = match.group(0), match.start(1) - match.start(0)
        return whole[:start] + pr.encode() + whole[start + len(match.group(1)) :]

    return data[:offset] + _LINK.sub(replaced, data[offset:end]) + data[end:], count


def entry_spans(data: bytes) -> list[bytes]:
    """The bytes of each entry, without the blank lines between them."""
    lines = data.split(b"\n")
    starts = [n for n, line in enumerate(lines) if line.startswith(FIRST)]
    ends = [*starts[1:], len(lines)] if starts else []
    return [b"\n".join(lines[a:b]).rstrip(b"\n ") + b"\n" for a, b in zip(starts, ends, strict=True)]


def _signature(span: bytes) -> str:
    root, _ = parse_yaml(span, "entry")
    found = root.plain()
    entry = found[0] if isinstance(found, list) and found else found
    return (
        repr({k: v for k, v in entry.items() if k != "pr-link"}) if isinstance(entry, dict) else repr(entry)
    )


def resolved(base: bytes, main: bytes, branch: bytes, pr: str | None = None) -> tuple[bytes, int]:
    """(main's bytes, then this branch's own entries; their number). Three ways: `base` is what both grew from.

    ServemarkError (exit 2): the branch changed history, a side is no changelog, or nothing is left to add.
    """
    for name, data in (("base", base), ("main", main), ("branch", branch)):
        root, problems = parse_yaml(data, name)
        if errors_of(problems) or (data.strip() and root.items is None):
            raise input_error("checks.changelog.unreadable_side", side=name)
        if len(entry_spans(data)) != len(root.items or ()):
            raise input_error("checks.changelog.unreadable_side", side=name)
    if not branch.startswith(base):
        raise input_error("checks.changelog.changed_history")
    own = entry_spans(branch)[len(entry_spans(base)) :]
    there = {_signature(span) for span in entry_spans(main)}
    own = [span for span in own if _signature(span) not in there]
    if not own:
        raise input_error("checks.changelog.nothing_left")
    result = main
    for span in own:
        result = added(result, span)
    return (canonicalized(result, pr, main)[0] if pr else result), len(own)


def checked_address(value: str) -> str:
    """The address itself. ServemarkError (exit 2) when it is none."""
    if not is_link(value):
        raise input_error("checks.changelog.bad_address", value=value)
    return value
