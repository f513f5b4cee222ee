"""Master files: one entry an arm, in the reference master format (kebab-case or snake_case names)."""

from __future__ import annotations

from pathlib import Path

from servemark.catalog.arms import Arm, Component, Scenario, SearchEntry, WorkerBlock
from servemark.catalog.fields import Fields
from servemark.catalog.nodes import MAX_PROBLEMS, Node, Position, Problem
from servemark.catalog.search_space import read_component, read_entry
from servemark.catalog.yaml_nodes import read_yaml

__all__ = ["Arm", "Component", "Scenario", "SearchEntry", "WorkerBlock", "arms_of", "read_master"]


def read_master(
    path: Path, shown: str, problems: list[Problem], faulty: set[str] | None = None
) -> dict[str, Arm]:
    """Read all arms of one master file; entries with errors (collected) are left out, their keys join `faulty`."""
    root, found = read_yaml(path, shown)
    problems.extend(found)
    arms = arms_of(root, problems)
    if faulty is not None:
        faulty.update((root.entries or {}).keys() - arms.keys())
    return arms


def arms_of(root: Node, problems: list[Problem]) -> dict[str, Arm]:
    """The arms of a master file that is already a tree."""
    if root.entries is None:
        if not root.partial:
            problems.append(
                Problem(root.at, "catalog.not_mapping", {"what": "master file", "kind": root.kind})
            )
        return {}
    arms: dict[str, Arm] = {}
    before = len(problems)
    for key, node in root.entries.items():
        if len(problems) - before > MAX_PROBLEMS:
            problems.append(Problem(root.key_at(key), "catalog.not_read_further", {"limit": MAX_PROBLEMS}))
            break
        at = root.key_at(key)
        if "*" in key:
            problems.append(Problem(at, "catalog.star_in_key", {"name": key}))
        found: list[Problem] = []
        arm = _arm(key, node, at, found)
        problems.extend(found)
        if arm is not None and not any(problem.severity == "error" for problem in found):
            arms[key] = arm
    return arms


def _arm(key: str, node: Node, at: Position, problems: list[Problem]) -> Arm | None:
    fields = Fields(node, problems, f"arm {key}")
    if node.entries is None:
        return None
    names = ("image", "model", "model-prefix", "precision", "framework", "runner")
    texts = {name: fields.text(name, required=True) for name in names}
    multinode = fields.boolean("multinode", required=True)
    disagg = bool(fields.boolean("disagg"))
    router = read_component(fields, "router", version_required=True)
    transfer = fields.text("kv-p2p-transfer")
    entries = _scenarios(fields, bool(multinode), texts["runner"])
    fields.no_others()
    if not multinode:
        for name, wrong in (("disagg", disagg), ("kv-p2p-transfer", transfer is not None)):
            if wrong:
                fields.problem(fields.at(name), "catalog.multinode_only", field=name)
    _check_scopes(fields, router, transfer, entries, disagg=disagg and bool(multinode))
    if not entries or any(value is None for value in texts.values()):
        return None
    return Arm(
        key=key,
        image=str(texts["image"]),
        model=str(texts["model"]),
        model_prefix=str(texts["model-prefix"]),
        precision=str(texts["precision"]),
        framework=str(texts["framework"]),
        runner=str(texts["runner"]),
        disagg=disagg,
        entries=_labelled(entries),
        at=at,
        multinode=bool(multinode),
        router=router,
        kv_p2p_transfer=transfer,
        node=node,
    )


def _scenarios(fields: Fields, multinode: bool, runner: str | None) -> list[SearchEntry]:
    scenarios = fields.mapping("scenarios", "scenarios", required=True)
    if scenarios is None:
        return []
    entries: list[SearchEntry] = []
    fixed = scenarios.items("fixed-seq-len")
    agentic = scenarios.items("agentic-coding")
    for item in fixed:
        inner = Fields(item, fields.problems, "fixed-seq-len item")
        isl = inner.integer("isl", minimum=1, required=True)
        osl = inner.integer("osl", minimum=1, required=True)
        entries += _search_space(inner, Scenario("fixed-seq-len", isl, osl, None, item), multinode)
    for item in agentic:
        inner = Fields(item, fields.problems, "agentic-coding item")
        share = inner.number("dram-utilization")
        if share is not None and not 0 < share <= 1:
            at = inner.at("dram-utilization")
            inner.problem(at, "catalog.out_of_range", field="dram-utilization", value=share)
            share = None
        entries += _search_space(inner, Scenario("agentic-coding", None, None, share, item), multinode)
    scenarios.no_others()
    if not fixed and not agentic:
        scenarios.problem(scenarios.node.at, "catalog.no_scenario")
    if agentic and runner is not None and not runner.startswith("cluster:"):
        fields.problem(fields.at("runner"), "catalog.agentic_runner", runner=runner)
    return entries


def _search_space(item: Fields, scenario: Scenario, multinode: bool) -> list[SearchEntry]:
    found = []
    nodes = item.items("search-space", required=True)
    if not nodes and item.get("search-space") is not None:
        item.problem(item.at("search-space"), "catalog.empty_list", field="search-space")
    for node in nodes:
        entry = read_entry(Fields(node, item.problems, "search-space entry"), scenario, multinode)
        if entry is not None:
            found.append(entry)
    item.no_others()
    return found


def _check_scopes(
    fields: Fields,
    router: Component | None,
    transfer: str | None,
    entries: list[SearchEntry],
    *,
    disagg: bool,
) -> None:
    """Router and KV transfer stand once: for the whole arm, or in search-space entries; disagg needs a
    transfer."""
    for entry in entries:
        if router is not None and entry.router is not None:
            fields.problem(entry.router.at, "catalog.both_scopes", field="router", other=str(router.at))
        if transfer is not None and entry.kv_p2p_transfer is not None and entry.node is not None:
            other = str(fields.at("kv-p2p-transfer"))
            at = Fields(entry.node, [], "").at("kv-p2p-transfer")
            fields.problem(at, "catalog.both_scopes", field="kv-p2p-transfer", other=other)
    if disagg and transfer is None:
        for entry in entries:
            if entry.kv_p2p_transfer is None:
                fields.problem(entry.at, "catalog.no_transfer")


def _labelled(entries: list[SearchEntry]) -> tuple[SearchEntry, ...]:
    """Names distinct within the arm. The first of several alike keeps the plain name, so that adding an entry
    at the end renames nothing; later ones add the stem of their recipe, or their number."""
    from dataclasses import replace  # noqa: PLC0415 - kept off modules that only need the types

    several = len({entry.scenario.name for entry in entries if entry.scenario}) > 1
    taken: set[str] = set()
    labelled = []
    for entry in entries:
        scenario = f"{entry.scenario.name}-" if several and entry.scenario else ""
        label = base = f"{scenario}{entry.shape}"
        if label in taken and entry.config_file:
            file, _, variant = entry.config_file.partition(":")
            stem = file.rpartition("/")[2].removesuffix(".yaml")
            label = base = f"{base}+{stem}" + (f"+{variant}" if variant else "")
        number = 2
        while label in taken:
            label, number = f"{base}+{number}", number + 1
        taken.add(label)
        labelled.append(replace(entry, label=label))
    return tuple(labelled)
