"""The performance changelog: which arms changed, and what to run for each change. Read only; bytes stay as
they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from servemark.catalog.arms import ScenarioKind
from servemark.catalog.fields import Fields
from servemark.catalog.nodes import MAX_PROBLEMS, Node, Position, Problem
from servemark.catalog.yaml_nodes import parse_yaml

SCENARIOS: tuple[ScenarioKind, ...] = ("fixed-seq-len", "agentic-coding")


@dataclass(frozen=True, slots=True)
class ChangelogEntry:
    """One entry. `scenarios` is None where the entry does not narrow them."""

    config_keys: tuple[str, ...]
    description: tuple[str, ...]
    pr_link: str
    evals_only: bool
    all_evals: bool
    append_only: bool
    eval_min_prefill_ep: int | None
    scenarios: tuple[ScenarioKind, ...] | None
    at: Position
    node: Node = field(compare=False, repr=False)


def entries_of(root: Node, problems: list[Problem]) -> tuple[ChangelogEntry, ...]:
    """The entries of a changelog's tree, in file order; faulty ones are noted as problems and left out."""
    if root.items is None:
        if not root.partial and root.kind != "null":
            problems.append(Problem(root.at, "catalog.not_list", {"what": "changelog", "kind": root.kind}))
        return ()
    found = []
    before = len(problems)
    for node in root.items:
        if len(problems) - before > MAX_PROBLEMS:
            problems.append(Problem(node.at, "catalog.not_read_further", {"limit": MAX_PROBLEMS}))
            break
        found.append(_entry(Fields(node, problems, "changelog entry")))
    return tuple(entry for entry in found if entry is not None)


def _entry(fields: Fields) -> ChangelogEntry | None:
    if fields.node.entries is None:
        return None
    keys = _filled(fields, "config-keys")
    description = _filled(fields, "description")
    link = fields.text("pr-link", required=True)
    flags = {name: bool(fields.boolean(name)) for name in ("evals-only", "all-evals", "append-only")}
    least = fields.integer("eval-min-prefill-ep", minimum=1)
    scenarios: tuple[ScenarioKind, ...] | None = None
    if fields.get("scenario-type") is not None:
        names = fields.texts("scenario-type")
        scenarios = tuple(name for name in SCENARIOS if name in names)
        for item in fields.items("scenario-type"):
            if item.scalar not in SCENARIOS:
                fields.problem(
                    item.at,
                    "catalog.not_one_of",
                    field="scenario-type",
                    value=str(item.plain())[:200],
                    allowed=", ".join(SCENARIOS),
                )
        if not scenarios:
            scenarios = None
    if flags["append-only"] and (flags["evals-only"] or flags["all-evals"] or least is not None):
        fields.problem(fields.at("append-only"), "catalog.append_only_evals")
    fields.no_others()
    if not keys or link is None:
        return None
    return ChangelogEntry(
        config_keys=keys,
        description=description,
        pr_link=link,
        evals_only=flags["evals-only"],
        all_evals=flags["all-evals"],
        append_only=flags["append-only"],
        eval_min_prefill_ep=least,
        scenarios=scenarios,
        at=fields.node.at,
        node=fields.node,
    )


def _filled(fields: Fields, name: str) -> tuple[str, ...]:
    if fields.get(name) is None:
        fields.missing(name)
        return ()
    found = fields.texts(name)
    node = fields.get(name)
    if node is not None and node.items == []:
        fields.problem(node.at, "catalog.empty_list", field=name)
    return found


def additions(base: bytes, head: bytes, shown: str) -> tuple[tuple[ChangelogEntry, ...], list[Problem]]:
    """The entries that `head` adds to `base`, with their positions in `head`.

    History is kept: a head that lacks a line of the base is a problem, whatever else it adds. A base
    without a final newline is completed before comparing.
    """
    old = base.splitlines(keepends=True)
    new = head.splitlines(keepends=True)
    if old and not old[-1].endswith(b"\n"):
        old[-1] += b"\n"
    lost = _first_lost(old, new)
    if lost is not None:
        return (), [Problem(Position(shown, lost + 1, 1), "catalog.history_changed", {})]
    problems: list[Problem] = []
    span = _inserted(old, new)
    if span is not None:
        first, last = span
        root, found = parse_yaml(b"\n" * first + b"".join(new[first:last]), shown)
        entries = entries_of(root, problems)
    else:
        root, found = parse_yaml(head, shown)
        before, _ = parse_yaml(base, shown)
        entries = _not_in(entries_of(root, problems), entries_of(before, []))
    problems[:0] = found
    if not entries and not problems:
        problems.append(Problem(Position(shown, len(new) or 1, 1), "catalog.no_additions", {}))
    return entries, problems


def _first_lost(old: list[bytes], new: list[bytes]) -> int | None:
    """Index in `new` from where a line of `old` is not found any more; None when all are there in order."""
    at = 0
    for line in old:
        start = at
        while at < len(new) and new[at] != line:
            at += 1
        if at == len(new):
            return start
        at += 1
    return None


def _inserted(old: list[bytes], new: list[bytes]) -> tuple[int, int] | None:
    """The one run of lines that was inserted, moved up so that it begins with an entry; None for several
    runs."""
    added = len(new) - len(old)
    first = 0
    while first < len(old) and old[first] == new[first]:
        first += 1
    if old[first:] != new[first + added :]:
        return None
    while (
        added and first > 0 and not new[first].startswith(b"- ") and new[first - 1] == new[first + added - 1]
    ):
        first -= 1
    return first, first + added


def _not_in(
    entries: tuple[ChangelogEntry, ...], before: tuple[ChangelogEntry, ...]
) -> tuple[ChangelogEntry, ...]:
    """Entries beside those of `before`, which stand in the same order."""
    waiting = [entry.node.plain() for entry in before]
    found = []
    for entry in entries:
        if waiting and entry.node.plain() == waiting[0]:
            waiting.pop(0)
        else:
            found.append(entry)
    return tuple(found)
