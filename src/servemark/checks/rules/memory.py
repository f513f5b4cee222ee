"""Memory: host DRAM that is recorded, allowed and taken, with units and scope said; huge pages; sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from servemark.catalog.nodes import Position
from servemark.checks.example import PREFILL_ENV
from servemark.checks.host_memory import (
    GB,
    GIB,
    HUGE_PAGE,
    MIB,
    Taken,
    fraction_of,
    pages,
    recorded_gb,
    said,
    taken_by,
    utilization_for,
)
from servemark.checks.model import Hit, Related
from servemark.checks.registry import rule
from servemark.checks.view import (
    EntryView,
    RecipeView,
    env_at,
    env_of,
    flag_at,
    store_at,
    store_config,
    store_of,
)

_DISAGG = "recipes/owl/disagg.yaml"
_PREFILL = "num-worker: 1\n              tp: 8\n              ep: 1"
_UTIL = "dram-utilization: 0.4411"
_READABLE = re.compile(r"\d+(?:\.\d+)?\s*(?:[kKmMgG]?[bB])\Z")


def _prefill(view: EntryView) -> Taken | None:
    """What the role takes that the master's figure is about: prefill, or the aggregated workers."""
    recipe = view.deployment
    role = (recipe.role("prefill") or recipe.role("aggregated")) if recipe is not None else None
    return taken_by(recipe, role) if recipe is not None and role is not None else None


@rule("MEM301", "error", wrong=(("masters.yaml", _UTIL, "dram-utilization: 0.75"),))
def recorded(view: EntryView) -> Iterator[Hit]:
    """Host memory that the entry records as allocated against what a prefill worker allocates on a node."""
    recipe, hardware = view.deployment, view.hardware
    taken = _prefill(view)
    if recipe is None or hardware is None or taken is None:
        return
    gb, share = recorded_gb(view.arm, view.entry, hardware), fraction_of(view.arm, view.entry, hardware)
    if gb is None or share is None:
        return
    per_node = hardware.gpus_per_node
    capacity, allocated = taken.capacity(per_node), taken.allocated(per_node)
    if capacity * 0.98 <= (gb + 1) * GB and gb * GB <= allocated * 1.02:
        return
    decode = recipe.role("decode")
    also = taken_by(recipe, decode) if decode is not None else None
    whole, useful = (utilization_for(size, hardware, share) for size in (allocated, capacity))
    values: dict[str, object] = {
        "written": taken.written,
        "rank": said(taken.segment),
        "ranks": taken.ranks_on_node(per_node),
        "capacity": said(capacity),
        "allocated": said(allocated),
        "recorded": f"{gb:,}",
        "ratio": _ratio(gb * GB, allocated),
        "pool_ratio": _ratio(gb * GB, capacity),
        "whole": whole or "> 1",
        "whole_gb": f"{allocated // GB:,}",
        "useful": useful or "> 1",
        "useful_gb": f"{capacity // GB:,}",
        "decode": said(also.allocated(per_node)) if also is not None else said(0),
    }
    place = view.at("dram-utilization")
    scenario = view.entry.scenario
    if scenario is not None:
        entries = scenario.node.entries or {}
        node = entries.get("dram-utilization") or entries.get("dram_utilization")
        place = node.at if node is not None else place
    related = (
        Related(taken.at, f"checks.rel.reads_{taken.reader.replace('-', '_')}", {"value": taken.written}),
        Related(
            hardware.at,
            "checks.rel.node_memory",
            {"value": f"{hardware.available_cpu_dram_mib:,}", "label": view.arm.runner},
        ),
    )
    variant = taken.reader.replace("-", "_")
    kind = "over" if gb * GB > allocated else "under" if useful is not None else "impossible"
    yield Hit(place, values, related, None, f"{variant}_{kind}")


def _ratio(one: int, other: int) -> str:
    value = one / other
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


@rule("MEM302", "error", wrong=((_DISAGG, "global_segment_size: 150GB", "global_segment_size: 400GB"),))
def node_is_full(view: EntryView) -> Iterator[Hit]:
    """What all ranks of a role take on a node against the node's host memory."""
    recipe, hardware = view.deployment, view.hardware
    if recipe is None or hardware is None:
        return
    node = hardware.available_cpu_dram_mib * MIB
    per_node = hardware.gpus_per_node
    for role in recipe.roles:
        taken = taken_by(recipe, role)
        if taken is None:
            continue
        workers = taken.workers_on_node(per_node)
        total = taken.allocated(per_node) * workers
        if total > node:
            values: dict[str, object] = {
                "role": role.role,
                "ranks": taken.ranks_on_node(per_node) * workers,
                "total": said(total),
                "node": said(node),
                "rank": said(taken.segment + taken.buffer),
            }
            related = (
                Related(
                    hardware.at,
                    "checks.rel.node_memory",
                    {"value": f"{hardware.available_cpu_dram_mib:,}", "label": view.arm.runner},
                ),
            )
            yield Hit(taken.at, values, related)


@rule(
    "MEM303",
    "error",
    "recipe",
    wrong=(
        (
            _DISAGG,
            PREFILL_ENV,
            PREFILL_ENV.replace('NCCL_CUMEM_ENABLE: "1"', 'MC_STORE_USE_HUGEPAGE: "0"'),
        ),
    ),
)
def huge_page_switch(view: RecipeView) -> Iterator[Hit]:
    """MC_STORE_USE_HUGEPAGE is only tested for being there: `0` and `false` turn it on."""
    recipe = view.deployment
    for role in recipe.roles:
        value = env_of(recipe, role).get("MC_STORE_USE_HUGEPAGE")
        if value is not None and value.strip().lower() in {"0", "false", "off", "no", ""}:
            yield Hit(
                env_at(recipe, role, "MC_STORE_USE_HUGEPAGE") or role.at, {"value": value, "role": role.role}
            )


@rule(
    "MEM304",
    "warning",
    "recipe",
    wrong=(
        (
            _DISAGG,
            "LD_LIBRARY_PATH: /usr/local/cuda/lib64",
            "LD_LIBRARY_PATH: /opt/amazon/efa/lib\n  GLIBC_TUNABLES: glibc.malloc.hugetlb=1",
        ),
        (_DISAGG, "protocol: rdma", "protocol: efa"),
    ),
)
def transparent_pages(view: RecipeView) -> Iterator[Hit]:
    """An EFA segment that gets its huge pages from GLIBC_TUNABLES: registration stalls on fragmented nodes."""
    recipe = view.deployment
    store = store_of(recipe)
    if store is None or store_config(store).get("protocol") != "efa":
        return
    told: set[Position] = set()
    for role in recipe.roles:
        env = env_of(recipe, role)
        tuned = "hugetlb" in env.get("GLIBC_TUNABLES", "")
        place = (env_at(recipe, role, "GLIBC_TUNABLES") if tuned else None) or store_at(
            recipe, store, "protocol"
        )
        taken, per_node = taken_by(recipe, role), recipe.gpus_per_node
        if "MC_STORE_USE_HUGEPAGE" in env or taken is None or not per_node or place in told:
            continue
        told.add(place)
        workers = taken.workers_on_node(per_node)
        count = pages(taken, per_node) * workers
        spare = max(-(-count * 107 // 100), count + 11 * GIB // HUGE_PAGE)
        values: dict[str, object] = {
            "pages": f"{count:,}",
            "reserve": f"{spare:,}",
            "bytes": said(spare * HUGE_PAGE),
            "ranks": taken.ranks_on_node(per_node) * workers,
            "rank": said(taken.segment + taken.buffer),
        }
        related = (Related(taken.at, "checks.rel.segment", {"value": taken.written}),)
        yield Hit(place, values, related, None, None if tuned else "untuned")


@rule("MEM305", "note", wrong=(("recipes/owl/agg.yaml", "hicache-size: 150", "hicache-ratio: 2.0"),))
def pool_follows_gpu(view: EntryView) -> Iterator[Hit]:
    """A host pool whose size follows from the GPU's pool when the engine starts: nothing to compare."""
    recipe, hardware = view.deployment, view.hardware
    if recipe is None or view.entry.kv_offloading == "none" or hardware is None:
        return
    role = recipe.role("prefill") or recipe.role("aggregated")
    if role is None or taken_by(recipe, role) is not None:
        return
    gb = recorded_gb(view.arm, view.entry, hardware)
    if gb is not None:
        where = flag_at(role, "hicache-ratio", "kv-transfer-config")
        yield Hit(
            view.at("kv-offloading"),
            {"recorded": f"{gb:,}", "role": role.role},
            (Related(where, "checks.rel.pool", {}),),
        )


@rule(
    "MEM306",
    "error",
    "recipe",
    wrong=((_DISAGG, "global_segment_size: 150GB", "global_segment_size: 150GiB"),),
)
def size_is_readable(view: RecipeView) -> Iterator[Hit]:
    """Store sizes by the rules of vLLM's reader: a number with KB, MB, GB or B; no TB, no GiB."""
    recipe = view.deployment
    store = store_of(recipe)
    if store is None or recipe.engine != "vllm":
        return
    config = store_config(store)
    for name in ("global_segment_size", "local_buffer_size"):
        value = config.get(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            continue
        if not isinstance(value, str) or not _READABLE.match(value.strip()):
            yield Hit(store_at(recipe, store, name), {"name": name, "value": str(value)})


@rule(
    "MEM307",
    "note",
    wrong=(
        (
            "masters.yaml",
            "kv-offloading: dram\n            kv-offload-backend: {name: hicache}",
            "kv-offloading: none",
        ),
        ("recipes/owl/agg.yaml", "      enable-hierarchical-cache: true\n      hicache-size: 150\n", ""),
    ),
)
def inert_budget(view: EntryView) -> Iterator[Hit]:
    """A DRAM budget that no entry of its scenario uses."""
    scenario = view.entry.scenario
    if scenario is None or scenario.dram_utilization is None:
        return
    if any(e.kv_offloading == "dram" for e in view.arm.entries if e.scenario is scenario):
        return
    entries = scenario.node.entries or {}
    node = entries.get("dram-utilization") or entries.get("dram_utilization")
    place: Position = node.at if node is not None else view.entry.at
    yield Hit(place, {"value": scenario.dram_utilization})


@rule(
    "MEM308",
    "note",
    wrong=(
        (
            "clusters.yaml",
            "hardware:\n  cluster:h9-lab: {available-cpu-dram-mib: 3_000_000, gpus-per-node: 8}\n",
            "",
        ),
    ),
)
def memory_unknown(view: EntryView) -> Iterator[Hit]:
    """Offload on a cluster whose host memory the suite does not state."""
    if view.entry.kv_offloading == "dram" and view.hardware is None:
        yield Hit(view.at("runner"), {"runner": view.arm.runner})


@rule("MEM309", "error", wrong=(("masters.yaml", _PREFILL, _PREFILL.replace("tp: 8", "tp: 3")),))
def share_divides(view: EntryView) -> Iterator[Hit]:
    """A prefill worker whose GPUs neither fill whole nodes nor divide one: its share of a node is undefined."""
    hardware = view.hardware
    if view.entry.kv_offloading != "dram" or hardware is None:
        return
    if fraction_of(view.arm, view.entry, hardware) is None:
        values: dict[str, object] = {"gpus": view.entry.prefill.gpus, "per_node": hardware.gpus_per_node}
        yield Hit(view.block_at("prefill", "tp"), values)
