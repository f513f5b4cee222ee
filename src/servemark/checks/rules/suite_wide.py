"""Suite: what no single file shows: orphans, unknown clusters, the same work twice, missing thresholds,
conventions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from servemark.catalog.fields import nearest
from servemark.catalog.nodes import Position
from servemark.checks.example import AGG, DATA_PARALLEL, TWICE, TWO_MEANINGS
from servemark.checks.model import Hit, Related
from servemark.checks.registry import rule
from servemark.checks.view import ArmView, EntryView, World, at

_CONC = re.compile(r"(?<![a-z0-9])c(\d{1,5})(?![a-z0-9])")
_CLUSTER = "labels:\n  cluster:h9-lab: [h9-lab_00, h9-lab_01]\n"


@rule("SUI801", "note", "suite", wrong=(("recipes/owl/unused.yaml", "", "name: nobody\n"),))
def orphans(world: World) -> Iterator[Hit]:
    """Recipe files that no arm names."""
    if world.whole:
        for path in world.recipe_files:
            if path not in world.used_recipes:
                yield Hit(Position(world.suite.shown(path), 1, 1), {})


@rule(
    "SUI802",
    "note",
    "suite",
    wrong=(("clusters.yaml", _CLUSTER, f"{_CLUSTER}  cluster:h8-lab: [h8-lab_00]\n"),),
)
def unused_clusters(world: World) -> Iterator[Hit]:
    """Cluster labels that no arm uses."""
    clusters = world.suite.clusters
    if world.whole and clusters.file is not None:
        used = {arm.runner for arm in world.suite.arms.values()}
        for label in clusters.labels:
            if label not in used:
                yield Hit(world.label_at(label), {"label": label})


@rule(
    "SUI803",
    "error",
    "arm",
    wrong=(
        (
            "masters.yaml",
            "framework: dynamo-trt\n  runner: cluster:h9-lab",
            "framework: dynamo-trt\n  runner: h9-lab",
        ),
    ),
)
def unknown_cluster(view: ArmView) -> Iterator[Hit]:
    """A runner label that the clusters file does not list: no machine ever takes the work."""
    clusters = view.world.suite.clusters
    label = view.arm.runner
    if clusters.file is None or label in clusters.labels:
        return
    near = f"cluster:{label}" if f"cluster:{label}" in clusters.labels else nearest(label, clusters.labels)
    values: dict[str, object] = {"label": label, "file": clusters.file, "near": near}
    related = (Related(view.world.label_at(near), "checks.rel.label", {"label": near}),) if near else ()
    yield Hit(view.at("runner"), values, related, None, "near" if near else None)


@rule("SUI804", "warning", "suite", wrong=(("masters.yaml", "", TWICE),))
def same_work(world: World) -> Iterator[Hit]:
    """Two entries that run exactly the same deployment at the same concurrency."""
    alike: dict[tuple[object, ...], list[EntryView]] = defaultdict(list)
    for view in world.entries():
        work = _work(view)
        for first in alike[work]:
            both = sorted(set(first.entry.concurrencies) & set(view.entry.concurrencies))
            if both and _same_recipe(first, view):
                related = (Related(first.entry.at, "checks.rel.same_work", {"arm": first.arm.key}),)
                values: dict[str, object] = {
                    "other": first.arm.key,
                    "concurrencies": ", ".join(map(str, both)),
                }
                yield Hit(view.entry.at, values, related)
                break
        alike[work].append(view)


def _same_recipe(one: EntryView, other: EntryView) -> bool:
    if one.entry.config_file == other.entry.config_file:
        return True
    first, second = one.deployment, other.deployment
    return first is not None and second is not None and first.fingerprint() == second.fingerprint()


def _work(view: EntryView) -> tuple[object, ...]:
    arm, entry = view.arm, view.entry
    scenario = entry.scenario
    blocks = tuple(
        (
            b.num_worker,
            b.shape,
            b.hardware,
            tuple(sorted((n, v) for n, v in b.settings if n != "CONFIG_FILE")),
        )
        for b in (entry.prefill, entry.decode)
    )
    backend, router = entry.kv_offload_backend, arm.router_of(entry)
    return (
        arm.image,
        arm.model,
        arm.precision,
        arm.framework,
        arm.runner,
        arm.disagg,
        arm.transfer_of(entry),
        entry.spec_decoding,
        entry.kv_offloading,
        backend and (backend.name, backend.version),
        router and (router.name, router.version),
        blocks,
        scenario and (scenario.kind, scenario.isl, scenario.osl, scenario.dram_utilization),
    )


@rule(
    "SUI805",
    "warning",
    "suite",
    wrong=(("thresholds.yaml", "models:\n  owl2: {gsm8k: 0.93}", "models:\n  owl3: {gsm8k: 0.93}"),),
)
def no_threshold(world: World) -> Iterator[Hit]:
    """Models without an eval threshold of their own: the default for all models judges them."""
    if world.thresholds is None:
        return
    told = set()
    for arm in world.arms:
        if arm.model_prefix not in world.thresholds.models and arm.model_prefix not in told:
            told.add(arm.model_prefix)
            default = ", ".join(f"{task} {score:g}" for task, score in world.thresholds.default.items())
            yield Hit(
                at(arm.node, "model-prefix", other=arm.at), {"prefix": arm.model_prefix, "default": default}
            )


@rule(
    "SUI806",
    "note",
    wrong=(("masters.yaml", "CONFIG_FILE=recipes/owl/trt.yaml", "CONFIG_FILE=recipes/owl/elsewhere.yaml"),),
)
def recipe_elsewhere(view: EntryView) -> Iterator[Hit]:
    """A recipe that is not in this suite: nothing of it was checked."""
    reading = view.reading
    if reading.state == "elsewhere":
        yield Hit(view.setting_at("CONFIG_FILE"), {"path": reading.setting})
    elif reading.state == "foreign":
        yield Hit(view.setting_at("CONFIG_FILE"), {"path": reading.setting}, (), None, "foreign")


@rule(
    "SUI807",
    "note",
    "arm",
    wrong=(
        (
            "masters.yaml",
            '              additional-settings:\n                - "CONFIG_FILE=recipes/owl/agg.yaml"\n',
            "",
        ),
    ),
)
def no_recipe(view: ArmView) -> Iterator[Hit]:
    """A multi-node arm that names no recipe: a script launches it, and what it runs cannot be compared."""
    without = [one for one in view.entries if one.reading.state == "none" and not one.entry.single_node]
    if without:
        yield Hit(without[0].entry.at, {"count": len(without)})


@rule(
    "SUI808",
    "warning",
    "arm",
    wrong=(
        (
            "masters.yaml",
            "model-prefix: owl2\n  precision: fp8\n  framework: dynamo-trt",
            "model-prefix: owl9\n  precision: fp8\n  framework: dynamo-trt",
        ),
    ),
)
def prefixes(view: ArmView) -> Iterator[Hit]:
    """One model under two prefixes: filters, thresholds and history part them."""
    for other in view.world.suite.arms.values():
        if other.key == view.arm.key:
            return
        if other.model == view.arm.model and other.model_prefix != view.arm.model_prefix:
            related = (
                Related(
                    at(other.node, "model-prefix", other=other.at),
                    "checks.rel.prefix",
                    {"value": other.model_prefix},
                ),
            )
            values: dict[str, object] = {
                "model": view.arm.model,
                "prefix": view.arm.model_prefix,
                "other": other.model_prefix,
            }
            yield Hit(view.at("model-prefix"), values, related)
            return


@rule(
    "SUI809",
    "note",
    "suite",
    wrong=(("masters.yaml", "", TWO_MEANINGS), ("recipes/owl/dep.yaml", "", DATA_PARALLEL)),
)
def conventions(world: World) -> Iterator[Hit]:
    """Which of the two meanings of `tp` an arm follows where data parallel attention makes them differ."""
    found: dict[str, dict[str, EntryView]] = defaultdict(dict)
    for view in world.entries():
        for _, block, role in view.pairs:
            dp, tp = role.parallel.dp or 1, role.parallel.tp
            if view.deployment is not None and view.deployment.engine == "vllm" and dp > 1 and tp is not None:
                meaning = "argument" if block.tp == tp else "gpus" if block.tp == tp * dp else ""
                if meaning:
                    found[view.arm.model_prefix].setdefault(meaning, view)
    for prefix, meanings in found.items():
        if len(meanings) == 2:
            one, other = meanings["argument"], meanings["gpus"]
            related = (
                Related(other.block_at("prefill", "tp"), "checks.rel.tp_gpus", {"arm": other.arm.key}),
            )
            yield Hit(
                one.block_at("prefill", "tp"),
                {"prefix": prefix, "one": one.arm.key, "other": other.arm.key},
                related,
            )


@rule(
    "SUI810",
    "warning",
    wrong=(("masters.yaml", "owl/agg.yaml", "owl/agg-c16.yaml"), ("recipes/owl/agg-c16.yaml", "", AGG)),
)
def name_says_concurrency(view: EntryView) -> Iterator[Hit]:
    """Concurrencies that a recipe's file name spells (`-c16`) against the entry's."""
    setting = view.entry.config_file
    if setting is None or view.deployment is None:
        return
    stem = setting.partition(":")[0].rpartition("/")[2]
    named = {int(value) for value in _CONC.findall(stem)}
    if named and not named & set(view.entry.concurrencies):
        related = (Related(view.setting_at("CONFIG_FILE"), "checks.rel.file_name", {"value": stem}),)
        said = ", ".join(map(str, view.entry.concurrencies))
        values: dict[str, object] = {"named": ", ".join(map(str, sorted(named))), "listed": said}
        yield Hit(view.at("conc-list"), values, related)
