"""Check a suite: read it once, run every rule, give findings in one stable order."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from servemark.base.collector import uncollected
from servemark.base.errors import ServemarkError, input_error
from servemark.catalog.arms import Arm
from servemark.catalog.nodes import Node, Problem
from servemark.catalog.suite import RecipeReading, Suite, read_suite
from servemark.catalog.yaml_nodes import read_bytes
from servemark.checks.changes import Change
from servemark.checks.kept import Blocks, Memory
from servemark.checks.model import SEVERITIES, Finding, Hit, Rule, Scope
from servemark.checks.registry import all_rules, rules_of
from servemark.checks.rules.schema import CODES, finding_of
from servemark.checks.suppress import read_suppressions
from servemark.checks.view import ArmView, EntryView, RecipeView, World

MAX_RELATED = 4
"""Other places that a finding keeps when several entries lead to it."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is checked. `select` and `ignore` are codes, their beginnings, or families."""

    arms: tuple[str, ...] = ()
    """Keys or patterns; () for the whole suite."""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    """Keys that are left after other filters; None for all."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found: findings in order, what was suppressed, and how much was looked at."""

    suite: Suite
    findings: tuple[Finding, ...]
    suppressed: tuple[Finding, ...]
    arms: int
    recipes: int
    rules: int
    read_failed: bool
    """Whether a file could not be taken in whole."""
    unchecked: dict[str, int] = field(default_factory=dict)
    """State of recipes that could not be compared -> entries."""

    def count(self, severity: str) -> int:
        """Findings of one severity."""
        return sum(finding.severity == severity for finding in self.findings)


def chosen(code: str, family: str, names: tuple[str, ...]) -> bool:
    """Whether a code is meant by one of the names."""
    return any(code.startswith(name.upper()) or family == name.lower() for name in names)


def known_choice(names: tuple[str, ...]) -> None:
    """ServemarkError (exit 2) for a name that is no rule's, with the nearest."""
    from servemark.catalog.fields import nearest  # noqa: PLC0415 - only for a mistake

    codes = set(all_rules())
    families = {found.family for found in all_rules().values()}
    for name in names:
        if not any(chosen(code, "", (name,)) for code in codes) and name.lower() not in families:
            near = nearest(name.upper(), codes) or nearest(name.lower(), families)
            key = "checks.no_rule_near" if near else "checks.no_rule"
            raise input_error(key, name=name, near=near)


def check_suite(where: str | Path, wishes: Wishes | None = None) -> Report:
    """Check a suite by path or by the name of a shipped one. ServemarkError (exit 2) when there is no suite."""
    suite, problems = read_suite(where)
    return check_read(suite, problems, wishes or Wishes())


def check_read(suite: Suite, problems: list[Problem], wishes: Wishes, memory: Memory | None = None) -> Report:
    """As `check_suite`, of a suite that is already read with its problems."""
    known_choice((*wishes.select, *wishes.ignore))
    with uncollected():
        world, more = _world(suite, wishes)
        runner = _Runner(world, wishes, memory or Memory())
        findings = [f for problem in (*problems, *more) if (f := finding_of(problem)) is not None]
        findings += runner.run()
        suppressions, wrong = read_suppressions(suite)
        findings += [f for problem in wrong if (f := finding_of(problem)) is not None]
    findings = merged(f for f in findings if _wanted(f, wishes))
    kept, suppressed, notes = suppressions.apply(findings, whole=world.whole and not wishes.select)
    kept = sorted([*kept, *(n for n in notes if _wanted(n, wishes))], key=lambda f: f.order)
    states: dict[str, int] = {}
    for view in runner.views:
        state = view.reading.state
        if state != "read" and not (state == "none" and view.entry.single_node):
            states[state] = states.get(state, 0) + 1
    failed = any(f.code in _UNREADABLE and f.severity == "error" for f in kept)
    return Report(
        suite,
        tuple(kept),
        tuple(suppressed),
        len(world.arms),
        runner.recipes,
        len(all_rules()),
        failed,
        states,
    )


_UNREADABLE = {CODES[name] for name in ("not_yaml", "unreadable", "missing_file", "too_large", "not_regular")}


def _wanted(finding: Finding, wishes: Wishes) -> bool:
    if wishes.select and not chosen(finding.code, finding.family, wishes.select):
        return False
    return not (wishes.ignore and chosen(finding.code, finding.family, wishes.ignore))


def _world(suite: Suite, wishes: Wishes) -> tuple[World, list[Problem]]:
    problems: list[Problem] = []
    arms = _arms(suite, wishes)
    golden = suite.golden(problems)
    thresholds, aliases = suite.thresholds(problems), suite.aliases(problems)
    whole = not wishes.arms and wishes.only is None
    return World(suite, golden, thresholds, aliases, whole, arms), problems


def _arms(suite: Suite, wishes: Wishes) -> tuple[Arm, ...]:
    arms = list(suite.arms.values())
    if wishes.arms:
        kept = []
        for name in wishes.arms:
            found = [arm for arm in arms if arm.key == name or fnmatch.fnmatchcase(arm.key, name)]
            if not found:
                suite.arm(name)  # raises with the nearest key
            kept += [arm for arm in found if arm not in kept]
        arms = [arm for arm in arms if arm in kept]
    if wishes.only is not None:
        arms = [arm for arm in arms if arm.key in wishes.only]
    return tuple(arms)


class _Runner:
    """Runs the rules of each scope over the things that they look at."""

    def __init__(self, world: World, wishes: Wishes, memory: Memory) -> None:
        self.world = world
        self.wishes = wishes
        self.memory = memory
        self.blocks = Blocks(world.suite)
        self.views: list[EntryView] = []
        self.recipes = 0
        self.shared = (world.golden, repr((world.suite.clusters, world.aliases)).encode())
        """What findings of an arm are made from beside the arm and its recipes."""

    def rules(self, scope: Scope) -> list[Rule]:
        """Rules of a scope that were not deselected."""
        return [
            found
            for found in rules_of(scope)
            if (not self.wishes.select or chosen(found.code, found.family, self.wishes.select))
            and not chosen(found.code, found.family, self.wishes.ignore)
        ]

    def run(self) -> list[Finding]:
        """All findings, not yet merged or sorted."""
        entry_rules, arm_rules = self.rules("entry"), self.rules("arm")
        readings: dict[int, tuple[RecipeReading, str]] = {}
        found: list[Finding] = []
        for arm in self.world.arms:
            view = ArmView(self.world, arm)
            self.views += view.entries
            own = tuple(one.reading for one in view.entries)
            for reading in own:
                readings.setdefault(id(reading), (reading, arm.key))

            def judge(view: ArmView = view) -> list[Finding]:
                one = _applied(arm_rules, view, view.arm.key)
                for entry in view.entries:
                    one += _applied(entry_rules, entry, view.arm.key)
                return one

            block = self.blocks.of(arm)
            found += self.memory.of_arm(arm.key, block, arm, (*own, *self.shared), judge)
        recipe_rules = self.rules("recipe")
        for reading, key in readings.values():
            found += self._reading(reading, key, recipe_rules)
        if self.world.whole:
            found += self._orphans(recipe_rules)
            found += self._changelog()
        return found + _applied(self.rules("suite"), self.world, None)

    def _reading(self, reading: RecipeReading, key: str, rules: list[Rule]) -> list[Finding]:
        """What reading a recipe found, and the rules about it."""
        found = [f for p in reading.problems if (f := finding_of(p, key)) is not None]
        deployment = self.world.deployed(reading)
        if deployment is None:
            return found
        self.recipes += 1
        view = RecipeView(self.world, deployment)
        name = ("recipe", reading.setting)
        return found + self.memory.findings(name, (reading,), lambda: _applied(rules, view, key))

    def _orphans(self, rules: list[Rule]) -> list[Finding]:
        """Recipes, and variants of recipes, that no arm names are read and checked for themselves."""
        from servemark.catalog.variants import has_variants, variant_names  # noqa: PLC0415 - arms alone need none

        suite = self.world.suite
        named = {reading.setting for reading in suite.readings()}
        tails = {setting.rpartition("/")[2] for setting in named if setting is not None}
        found: list[Finding] = []
        for path in self.world.recipe_files:
            tree = suite.recipe_tree(path)
            variants: tuple[str | None, ...] = (None,)
            if has_variants(tree[0]):
                used = path in self.world.used_recipes
                listed = variant_names(tree[0]) or (None,)
                variants = tuple(v for v in listed if not (used and f"{path.name}:{v}" in tails))
            elif path in self.world.used_recipes:
                continue
            foreign = tree[0].entries is not None and "apiVersion" in tree[0].entries
            self.recipes += 0 if foreign else len(variants)

            def judge(
                tree: tuple[Node, list[Problem]] = tree,
                variants: tuple[str | None, ...] = () if foreign else variants,
            ) -> list[Finding]:
                return self._unnamed(tree, variants, rules)

            found += self.memory.findings(("orphan", path), (tree[0], repr(variants).encode()), judge)
        return found

    def _unnamed(
        self, tree: tuple[Node, list[Problem]], variants: tuple[str | None, ...], rules: list[Rule]
    ) -> list[Finding]:
        """What is wrong with a file and with those of its variants that no arm names; what several say is said once."""
        from servemark.catalog.recipe import deployment_of  # noqa: PLC0415 - arms alone may need none

        problems = list(tree[1])
        found: list[Finding] = []
        for variant in variants:
            deployment = deployment_of(tree[0], problems, variant)
            if deployment is not None:
                found += _applied(rules, RecipeView(self.world, deployment, used=False), None)
        return merged([*(f for p in problems if (f := finding_of(p)) is not None), *found])

    def _changelog(self) -> list[Finding]:
        layout = self.world.suite.layout
        if layout is None or layout.changelog is None:
            return []
        try:
            path = self.world.suite.file(layout.changelog, str(layout.at))
            shown = self.world.suite.shown(path)
            data = read_bytes(path, shown)
        except ServemarkError as error:
            told = finding_of(Problem(layout.at, error.key, dict(error.values)))
            return [told] if told is not None else []
        arms = self.world.suite.keys
        made_from = (data, repr(sorted(arms)).encode())
        change = Change(shown, data, arms=arms)
        rules = self.rules("changelog")
        return self.memory.findings("changelog", made_from, lambda: _applied(rules, change, None))


def _applied(rules: list[Rule], view: object, arm: str | None) -> list[Finding]:
    """The findings of rules about one thing."""
    return [finding_from(one, hit, arm) for one in rules for hit in one.check(view)]


def check_change(change: Change) -> list[Finding]:
    """The changelog rules over one change, in order."""
    with uncollected():
        found = _applied(rules_of("changelog"), change, None)
    return sorted(merged(found), key=lambda f: f.order)


def finding_from(one: Rule, hit: Hit, arm: str | None) -> Finding:
    """A rule's hit as a finding."""
    key = f"{one.key}.{hit.variant}" if hit.variant else one.key
    severity = hit.severity or one.severity
    return Finding(one.code, one.family, severity, key, hit.at, hit.values, arm, hit.related, hit.fix)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that say the same of the same place are one, with the other places of all of them."""
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        first = kept.setdefault(finding.identity, finding)
        if first is not finding and len(first.related) < MAX_RELATED:
            seen = {related.at for related in first.related}
            more = tuple(related for related in finding.related if related.at not in seen)
            if more:
                related = (*first.related, *more)[:MAX_RELATED]
                kept[finding.identity] = replace(first, related=related)
    return list(kept.values())


def by_severity(findings: Iterable[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    """(severity, findings) from errors to notes, without empty ones."""
    listed = list(findings)
    for severity in SEVERITIES:
        some = [finding for finding in listed if finding.severity == severity]
        if some:
            yield severity, some
