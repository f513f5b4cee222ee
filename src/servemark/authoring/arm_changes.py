"""Which arms a change adds, alters and removes, compared as parsed values: comments and spelling are no change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from servemark.authoring.settings import SettingChange, changed_settings
from servemark.authoring.snapshot import Snapshot
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.nodes import Node
from servemark.catalog.suite import Suite

Kind = Literal["added", "changed", "removed"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One value of a master entry. A side is None where it is absent; `topology` is None for the arm's own fields."""

    topology: str | None
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class RecipeChange:
    """One recipe that an arm runs and that differs. `state` says why a side could not be read, None when both were."""

    setting: str
    settings: tuple[SettingChange, ...]
    state: str | None = None


@dataclass(frozen=True, slots=True)
class ArmChange:
    """One arm. `arm` is the newer one, for a removed arm the older."""

    kind: Kind
    arm: Arm
    topologies_added: tuple[str, ...] = ()
    topologies_removed: tuple[str, ...] = ()
    fields: tuple[FieldChange, ...] = ()
    recipes: tuple[RecipeChange, ...] = ()
    before: Arm | None = field(default=None, repr=False)

    @property
    def key(self) -> str:
        """The arm's key."""
        return self.arm.key


def arm_changes(base: Snapshot, head: Snapshot) -> tuple[ArmChange, ...]:
    """Added, changed, removed arms, each group in the order of its files."""
    old: Mapping[str, Arm] = base.suite.arms if base.suite is not None else {}
    new: Mapping[str, Arm] = head.suite.arms if head.suite is not None else {}
    found = [ArmChange("added", arm) for key, arm in new.items() if key not in old]
    if base.suite is not None and head.suite is not None:
        recipes = _Recipes(base, head, base.suite, head.suite)
        for key, arm in new.items():
            if key in old:
                change = _changed(old[key], arm, recipes)
                if change is not None:
                    found.append(change)
    found += [ArmChange("removed", arm) for key, arm in old.items() if key not in new]
    return tuple(found)


def _changed(old: Arm, new: Arm, recipes: _Recipes) -> ArmChange | None:
    before, after = _by_topology(old), _by_topology(new)
    fields = list(_differences(None, _own(old), _own(new)))
    told: dict[str, RecipeChange] = {}
    for name, entry in after.items():
        twin = before.get(name)
        if twin is None:
            continue
        fields += _differences(name, _facts(twin), _facts(entry))
        change = recipes.change(twin, entry)
        if change is not None:
            told.setdefault(change.setting, change)
    added = tuple(name for name in after if name not in before)
    removed = tuple(name for name in before if name not in after)
    if not (fields or told or added or removed):
        return None
    return ArmChange("changed", new, added, removed, tuple(fields), tuple(told.values()), old)


class _Recipes:
    """Compares recipes of the two sides; a file whose blob is the same is not read."""

    def __init__(self, base: Snapshot, head: Snapshot, old: Suite, new: Suite) -> None:
        self.base, self.head, self.old, self.new = base, head, old, new
        self.known: dict[tuple[str, str], RecipeChange | None] = {}

    def change(self, twin: SearchEntry, entry: SearchEntry) -> RecipeChange | None:
        """What differs between the recipes of two entries; None for nothing, or where none is named."""
        before, after = twin.config_file, entry.config_file
        if before is None or after is None:
            return None
        pair = (before, after)
        if pair not in self.known:
            self.known[pair] = self._compare(twin, entry, before, after)
        return self.known[pair]

    def _compare(self, twin: SearchEntry, entry: SearchEntry, before: str, after: str) -> RecipeChange | None:
        blobs = [
            side.tree.blobs.get(str(path.relative_to(suite.root))) if path is not None else None
            for side, suite, path in (
                (self.base, self.old, self.old.recipe_file(twin)),
                (self.head, self.new, self.new.recipe_file(entry)),
            )
        ]
        if before == after and blobs[0] == blobs[1]:
            return None
        one, other = self.old.recipe(twin), self.new.recipe(entry)
        if one.deployment is None or other.deployment is None:
            state = other.state if other.deployment is None else one.state
            return RecipeChange(after, (), state)
        settings = changed_settings(one.deployment, other.deployment)
        return RecipeChange(after, settings) if settings else None


def _by_topology(arm: Arm) -> dict[str, SearchEntry]:
    """Entries by scenario and topology, which are distinct within an arm."""
    return {topology_of(entry): entry for entry in arm.entries}


def topology_of(entry: SearchEntry) -> str:
    """`1k1k 1p1d-tp8-tp8`: the scenario's name and the topology's."""
    scenario = entry.scenario.name if entry.scenario is not None else "agentic"
    return f"{scenario} {entry.topology}"


def _own(arm: Arm) -> dict[str, str]:
    """The arm's own fields, scenarios left out."""
    return dict(_flat(arm.node, ("scenarios",)))


def _facts(entry: SearchEntry) -> dict[str, str]:
    found = dict(
        _flat(entry.node, ("conc-list", "conc-start", "conc-end", "conc_list", "conc_start", "conc_end"))
    )
    found["concurrencies"] = ", ".join(str(value) for value in entry.concurrencies)
    scenario = entry.scenario
    if scenario is not None and scenario.dram_utilization is not None:
        found["dram-utilization"] = str(scenario.dram_utilization)
    return found


def _flat(node: Node | None, without: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Dotted names and values; `KEY=VALUE` texts of a list are named by their key."""
    if node is None:
        return
    for path, one in node.walk():
        if not path or path[0] in without or one.entries is not None or one.items is not None:
            continue
        said = "null" if one.scalar is None else str(one.scalar)
        key, equals, value = said.partition("=")
        if equals and path[-1].isdigit():
            yield ".".join((*path[:-1], key)), value
        else:
            yield ".".join(path), said


def _differences(
    topology: str | None, old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[FieldChange]:
    for name in dict.fromkeys([*new, *old]):
        if old.get(name) != new.get(name):
            yield FieldChange(topology, name, old.get(name), new.get(name))
