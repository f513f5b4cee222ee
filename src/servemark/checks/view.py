"""What rules see: a suite's typed values, one arm, one entry with its recipe, and where each fact stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from servemark.catalog.arms import Arm, SearchEntry, WorkerBlock
from servemark.catalog.clusters import Hardware
from servemark.catalog.deployment import Deployment, RoleSpec, Service
from servemark.catalog.nodes import Node, Position
from servemark.catalog.references import GoldenLength, Thresholds
from servemark.catalog.suite import RecipeReading, Suite


def node_in(node: Node | None, *path: str) -> Node | None:
    """The node below by names (a name's snake_case spelling too); None when it is not there."""
    for name in path:
        entries = (node.entries if node is not None else None) or {}
        node = entries.get(name)
        if node is None and "-" in name:
            node = entries.get(name.replace("-", "_"))
        if node is None:
            return None
    return node


def at(node: Node | None, *path: str, other: Position) -> Position:
    """Where a field's value stands; `other` when it is not written."""
    found = node_in(node, *path)
    return found.at if found is not None else other


@dataclass(frozen=True)
class World:
    """A suite with its side files, read once."""

    suite: Suite
    golden: tuple[GoldenLength, ...] = ()
    thresholds: Thresholds | None = None
    aliases: dict[str, str] = field(default_factory=dict)
    whole: bool = True
    """False when only some arms are looked at: rules about what is missing in the suite stay silent."""
    arms: tuple[Arm, ...] = ()
    mended: dict[str, Deployment | None] = field(default_factory=dict)
    """Setting -> deployment of recipes with doubled keys."""

    def deployment_of(self, setting: str, block: WorkerBlock) -> Deployment | None:
        """The recipe that another setting than CONFIG_FILE names; None when it cannot be read."""
        return self.suite.reading(setting, block.at).deployment

    def deployed(self, reading: RecipeReading) -> Deployment | None:
        """A recipe's deployment; also of one whose only mistake is a key that stands twice: launchers take the
        later value, and the rest of it can be compared all the same."""
        if reading.deployment is not None or reading.state != "faulty" or reading.setting is None:
            return reading.deployment
        if reading.setting not in self.mended:
            errors = [problem for problem in reading.problems if problem.severity == "error"]
            found = None
            if reading.file is not None and all(e.key == "catalog.duplicate_key" for e in errors):
                from servemark.catalog.recipe import deployment_of  # noqa: PLC0415 - rarely needed

                path = self.suite.root / reading.file.partition("/")[2]
                _, _, variant = reading.setting.partition(":")
                found = deployment_of(self.suite.recipe_tree(path)[0], [], variant or None)
            self.mended[reading.setting] = found
        return self.mended[reading.setting]

    @cached_property
    def cluster_node(self) -> Node | None:
        """The tree of the clusters file."""
        layout = self.suite.layout
        if layout is None or layout.clusters is None:
            return None
        return self.suite.recipe_tree(self.suite.root / layout.clusters)[0]

    @cached_property
    def _nodes_by_type(self) -> dict[str, list[Hardware]]:
        found: dict[str, list[Hardware]] = {}
        for label, hardware in self.suite.clusters.hardware.items():
            kind = label.removeprefix("cluster:").partition("-")[0].lower()
            found.setdefault(kind, []).append(hardware)
        return found

    def nodes_with(self, gpu_type: str) -> list[Hardware]:
        """Node facts of every cluster whose label begins with a GPU type."""
        return self._nodes_by_type.get(gpu_type.lower(), [])

    def label_at(self, label: str) -> Position:
        """Where a cluster's label is written."""
        labels = node_in(self.cluster_node, "labels")
        if labels is None:
            return Position(self.suite.clusters.file or self.suite.name, 1, 1)
        return labels.key_at(label)

    @cached_property
    def _flag_counts(self) -> Counter[tuple[str, str]]:
        """(engine, argument) -> recipe files that use it."""
        counts: Counter[tuple[str, str]] = Counter()
        for reading in {id(r): r for r in self.suite.readings()}.values():
            recipe = reading.deployment
            if recipe is not None:
                counts.update({(recipe.engine, flag) for role in recipe.roles for flag in role.flags})
        return counts

    def flag_is_common(self, engine: str, name: str) -> bool:
        """Whether three recipes or more use an argument: then it is no slip of the pen."""
        return self._flag_counts[engine, name] >= 3

    @cached_property
    def recipe_files(self) -> tuple[Path, ...]:
        """Every recipe file of the suite."""
        return self.suite.recipe_files()

    @cached_property
    def used_recipes(self) -> set[Path]:
        """Recipe files that some entry of the suite names."""
        found: set[Path | None] = set()
        for arm in self.suite.arms.values():
            for entry in arm.entries:
                file = self.suite.recipe(entry).file
                found.add(self.suite.root / file.partition("/")[2] if file is not None else None)
                for block in (entry.prefill, entry.decode):
                    found.add(self.path_of(block.setting("EVAL_CONFIG_FILE"), block))
        return {path for path in found if path is not None}

    def path_of(self, setting: str | None, block: WorkerBlock) -> Path | None:
        """Where a CONFIG_FILE value lies in this suite."""
        if setting is None:
            return None
        return self.suite.setting_file(setting, str(block.at))

    def entries(self) -> Iterator[EntryView]:
        """Every entry of the arms that are looked at."""
        for arm in self.arms:
            for entry in arm.entries:
                yield EntryView(self, arm, entry)


@dataclass(frozen=True)
class ArmView:
    """One arm."""

    world: World
    arm: Arm

    def at(self, *path: str) -> Position:
        """Where a field of the master entry stands."""
        return at(self.arm.node, *path, other=self.arm.at)

    @cached_property
    def entries(self) -> tuple[EntryView, ...]:
        """Its entries."""
        return tuple(EntryView(self.world, self.arm, entry) for entry in self.arm.entries)


@dataclass(frozen=True)
class RecipeView:
    """One recipe as it is deployed."""

    world: World
    deployment: Deployment
    used: bool = True
    """False for a file that no arm names."""

    def count_at(self, role: RoleSpec, what: str) -> Position:
        """Where `workers`, `nodes` or `gpus` of a role stand; the role itself when they are not written."""
        return count_at(self.deployment, role, what)


def count_at(deployment: Deployment, role: RoleSpec, what: str) -> Position:
    """As `RecipeView.count_at`."""
    short = "agg" if role.role == "aggregated" else role.role
    if deployment.schema == 2:
        return at(deployment.node, "roles", role.role, what, other=role.at)
    name = f"gpus_per_{short}" if what == "gpus" else f"{short}_{what}"
    found = node_in(deployment.node, "resources", name)
    if found is None and what == "gpus":
        found = node_in(deployment.node, "resources", f"{short}_nodes")
    return found.at if found is not None else role.at


def flag_at(role: RoleSpec, *names: str) -> Position:
    """Where the first of these engine arguments is written; the role itself when none is."""
    for name in names:
        if name in role.flags:
            return role.flags[name].at
    return role.at


def env_at(deployment: Deployment, role: RoleSpec | None, name: str) -> Position | None:
    """Where an environment variable of a role, of all roles, or of a store service is set."""
    places: list[tuple[str, ...]] = []
    if role is not None:
        places = [("roles", role.role, "env", name), ("backend", f"{role.role}_environment", name)]
    places += [("environment", name), ("backend", "mooncake_kv_store", "env", name)]
    for path in places:
        found = node_in(deployment.node, *path)
        if found is not None:
            return found.at
    return None


def env_of(deployment: Deployment, role: RoleSpec) -> dict[str, str]:
    """What a role's processes see of the recipe's environment."""
    return {**deployment.environment, **role.env}


@dataclass(frozen=True)
class EntryView:
    """One search-space entry with the recipe that it runs."""

    world: World
    arm: Arm
    entry: SearchEntry

    @cached_property
    def reading(self) -> RecipeReading:
        """What became of its recipe."""
        return self.world.suite.recipe(self.entry)

    @cached_property
    def deployment(self) -> Deployment | None:
        """The recipe, where it was read."""
        return self.world.deployed(self.reading)

    @cached_property
    def hardware(self) -> Hardware | None:
        """The cluster's node facts."""
        return self.world.suite.clusters.hardware.get(self.arm.runner)

    @property
    def gpus_per_node(self) -> int | None:
        """GPUs of a node: of the cluster, else of the recipe."""
        if self.hardware is not None:
            return self.hardware.gpus_per_node
        return self.deployment.gpus_per_node if self.deployment is not None else None

    @cached_property
    def pairs(self) -> tuple[tuple[str, WorkerBlock, RoleSpec], ...]:
        """(block's name, what the master declares, what the recipe deploys) of roles that both have."""
        if self.deployment is None:
            return ()
        found = []
        first = self.deployment.role("prefill") or self.deployment.role("aggregated")
        decode = self.deployment.role("decode")
        if first is not None:
            found.append(("prefill", self.entry.prefill, first))
        if decode is not None and self.entry.decode.num_worker:
            found.append(("decode", self.entry.decode, decode))
        return tuple(found)

    def at(self, *path: str) -> Position:
        """Where a field of the entry stands, else of the master entry, else the entry."""
        found = node_in(self.entry.node, *path)
        if found is None:
            found = node_in(self.arm.node, *path)
        return found.at if found is not None else self.entry.at

    def block_at(self, name: str, field_name: str) -> Position:
        """Where a field of a worker block stands (of a single-node entry: the entry's)."""
        block = self.entry.prefill if name == "prefill" else self.entry.decode
        return at(block.node, field_name, other=block.at)

    def setting_at(self, name: str) -> Position:
        """Where an additional setting is written."""
        for block in (self.entry.prefill, self.entry.decode):
            listed = node_in(block.node, "additional-settings")
            for item in (listed.items if listed is not None else None) or ():
                if isinstance(item.scalar, str) and item.scalar.startswith(f"{name}="):
                    return item.at
        return self.entry.at

    def setting(self, name: str) -> str | None:
        """An additional setting of either block."""
        return self.entry.prefill.setting(name) or self.entry.decode.setting(name)

    @cached_property
    def store(self) -> Service | None:
        """The Mooncake store service."""
        return store_of(self.deployment) if self.deployment is not None else None


def store_of(deployment: Deployment) -> Service | None:
    """The Mooncake store that a recipe starts; None without one."""
    return next((s for s in deployment.services if s.type == "mooncake-master"), None)


def store_config(service: Service) -> dict[str, object]:
    """Its store configuration as plain values."""
    found = service.options.get("store_config")
    return found if isinstance(found, dict) else {}


def store_at(deployment: Deployment, service: Service, name: str) -> Position:
    """Where an option of the store's configuration stands."""
    found = node_in(deployment.node, "backend", "mooncake_kv_store", "store_config", name)
    if found is None:
        services = node_in(deployment.node, "services")
        for item in (services.items if services is not None else None) or ():
            kind = node_in(item, "type")
            if kind is not None and kind.scalar == service.type:
                found = node_in(item, "options", "store_config", name)
    return found.at if found is not None else service.at
