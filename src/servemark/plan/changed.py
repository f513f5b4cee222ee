"""What changed since a commit: arms, their entries and their recipes, compared as parsed values.

Comments, order of keys and spelling are no change. The newer side is the working tree as it is, dirty or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from servemark.base.errors import ServemarkError
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.clusters import NO_CLUSTERS, Clusters, Hardware, clusters_of
from servemark.catalog.layout import SUITE_FILE
from servemark.catalog.master import arms_of
from servemark.catalog.nodes import Node, Problem
from servemark.catalog.suite import Suite
from servemark.catalog.yaml_nodes import parse_yaml, read_bytes
from servemark.plan.gitrepo import GitTree
from servemark.plan.rows import Reason, reason

MAX_NAMED = 6


@dataclass(frozen=True, slots=True)
class Base:
    """The suite at a commit, as far as it differs."""

    tree: GitTree
    suite: Suite
    arms: dict[str, Arm]
    clusters: Clusters
    hardware_same: bool
    """Whether the clusters file is the same, byte for byte."""
    _recipes: dict[str, bool] = field(default_factory=dict, repr=False)

    def as_suite(self) -> Suite:
        """The older arms and clusters as a suite, for comparing rows; its recipes are not read."""
        clusters = self.suite.clusters if self.hardware_same else self.clusters
        suite = self.suite
        return Suite(suite.name, suite.root, suite.masters, suite.recipe_roots, self.arms, clusters)

    def why(self, arm: Arm, entry: SearchEntry) -> tuple[Reason, ...] | None:
        """Why an entry has to run again; None when nothing that it runs on has changed."""
        old = self.arms.get(arm.key)
        ref = self.tree.ref
        if old is None:
            return (reason("plan.why.new_arm", ref=ref),)
        reasons: list[Reason] = []
        twin = _twin(entry, old)
        if twin is None:
            reasons.append(reason("plan.why.new_topology", ref=ref))
        fields = _changed_fields(arm, old)
        if fields:
            reasons.append(reason("plan.why.arm_changed", fields=", ".join(fields[:MAX_NAMED]), ref=ref))
        if twin is not None:
            fields = _changed_settings(entry, twin)
            if fields:
                shown = ", ".join(fields[:MAX_NAMED])
                reasons.append(reason("plan.why.entry_changed", fields=shown, ref=ref))
        if self._recipe_changed(entry):
            reasons.append(reason("plan.why.recipe_changed", file=entry.config_file or "", ref=ref))
        if entry.kv_offloading == "dram" and not self.hardware_same and self._hardware_changed(arm):
            reasons.append(reason("plan.why.hardware_changed", runner=arm.runner, ref=ref))
        return tuple(reasons) or None

    def _hardware_changed(self, arm: Arm) -> bool:
        return _facts(self.clusters.hardware.get(arm.runner)) != _facts(
            self.suite.clusters.hardware.get(arm.runner)
        )

    def _recipe_changed(self, entry: SearchEntry) -> bool:
        setting = entry.config_file
        if setting is None:
            return False
        if setting not in self._recipes:
            self._recipes[setting] = self._compare_recipe(entry, setting)
        return self._recipes[setting]

    def _compare_recipe(self, entry: SearchEntry, setting: str) -> bool:
        path = self.suite.recipe_file(entry)
        if path is None:
            return False
        relative = str(path.relative_to(self.suite.root))
        try:
            data = read_bytes(path, setting)
        except ServemarkError:
            return True
        if self.tree.same(relative, data):
            return False
        before = self.tree.read(relative)
        if before is None:
            return True
        old, problems = parse_yaml(before, setting)
        variant = setting.partition(":")[2] or None
        from servemark.catalog.recipe import deployment_of  # noqa: PLC0415 - only where a recipe's bytes changed

        then = deployment_of(old, problems, variant)
        now = self.suite.recipe(entry).deployment
        if then is None or now is None:
            return True
        return then.fingerprint() != now.fingerprint() or then.benchmark.env != now.benchmark.env


def _facts(hardware: Hardware | None) -> tuple[int, int] | None:
    return None if hardware is None else (hardware.available_cpu_dram_mib, hardware.gpus_per_node)


def _twin(entry: SearchEntry, old: Arm) -> SearchEntry | None:
    """The entry of the older arm that is the same topology on the same scenario; of several, the most
    alike."""
    same = [one for one in old.entries if one.shape == entry.shape and _lengths(one) == _lengths(entry)]
    if len(same) < 2:
        return next(iter(same), None)
    now = _plain(entry.node)
    return max(
        same,
        key=lambda one: (
            _plain(one.node) == now,
            one.config_file == entry.config_file,
            one.label == entry.label,
        ),
    )


def _lengths(entry: SearchEntry) -> tuple[object, ...]:
    scenario = entry.scenario
    return (None,) if scenario is None else (scenario.kind, scenario.isl, scenario.osl)


def _changed_fields(arm: Arm, old: Arm) -> list[str]:
    """Names of what differs outside the scenarios."""
    now, then = _plain(arm.node), _plain(old.node)
    names = [name for name in dict.fromkeys([*now, *then]) if name.replace("_", "-") != "scenarios"]
    return [name for name in names if now.get(name) != then.get(name)]


def _changed_settings(entry: SearchEntry, old: SearchEntry) -> list[str]:
    now, then = _plain(entry.node), _plain(old.node)
    names = [name for name in dict.fromkeys([*now, *then]) if now.get(name) != then.get(name)]
    scenario, before = entry.scenario, old.scenario
    if scenario is not None and before is not None and scenario.dram_utilization != before.dram_utilization:
        names.append("dram-utilization")
    return names


def _plain(node: Node | None) -> dict[str, object]:
    found = node.plain() if node is not None else {}
    return found if isinstance(found, dict) else {}


def base_of(suite: Suite, ref: str, problems: list[Problem]) -> Base:
    """The suite at `ref`. What is wrong with the old files is reported as warnings: nobody can mend
    history."""
    tree = GitTree.open(suite.root, ref)
    layout = suite.layout
    masters = list(suite.masters)
    clusters_file = layout.clusters if layout is not None else None
    tree.fetch([path for path in (*masters, clusters_file, SUITE_FILE) if path is not None])
    found: list[Problem] = []
    arms: dict[str, Arm] = {}
    for master in masters:
        path = suite.root / master
        current = path.read_bytes() if path.is_file() else b""
        if current and tree.same(master, current):
            shown = suite.shown(path)
            arms |= {key: arm for key, arm in suite.arms.items() if arm.at.file == shown}
            continue
        data = tree.read(master)
        if data is not None:
            root, wrong = parse_yaml(data, f"{tree.ref}:{master}")
            found += wrong
            arms |= arms_of(root, found)
    clusters = NO_CLUSTERS
    same = True
    if clusters_file is not None:
        data = tree.read(clusters_file)
        path = suite.root / clusters_file
        same = data is not None and path.is_file() and data == path.read_bytes()
        if data is not None and not same:
            root, wrong = parse_yaml(data, f"{tree.ref}:{clusters_file}")
            clusters = clusters_of(root, found + wrong)
    problems += [Problem(p.at, p.key, p.values, "warning") for p in found if p.severity == "error"]
    return Base(tree, suite, arms, clusters, same)
