"""Memory: host DRAM that is recorded, allowed and taken, with units and scope said; huge pages; sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from servemark.base.errors import ServemarkError
from servemark.catalog.deployment import Deployment
from servemark.catalog.nodes import Position
from servemark.checks.example import CONNECTORS, PREFILL_ENV, PREFILL_KV
from servemark.checks.host_memory import (
    GB,
    Taken,
    engine_ranks,
    fraction_of,
    recorded_gb,
    said,
    size_reader,
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
    node_in,
    store_at,
    store_config,
    store_of,
)
from servemark.sizing.size_strings import (
    MIB,
    mooncake_cpp_size,
    raw_bytes,
    sglang_hicache_size,
    silently_zero,
)

_DISAGG = "recipes/owl/disagg.yaml"
_PREFILL = "num-worker: 1\n              tp: 8\n              ep: 1"
_UTIL = "dram-utilization: 0.4411"


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
        "whole": whole[0] if whole is not None else "> 1",
        "whole_gb": f"{whole[1] if whole is not None else allocated // GB:,}",
        "useful": useful[0] if useful is not None else "> 1",
        "useful_gb": f"{useful[1] if useful is not None else capacity // GB:,}",
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
        taken, per_node = taken_by(recipe, role), recipe.gpus_per_node
        place = env_at(recipe, role, "GLIBC_TUNABLES") or role.at
        if malloc_pages(env) != 1 or "MC_STORE_USE_HUGEPAGE" in env or taken is None or not per_node:
            continue
        if place in told:
            continue
        told.add(place)
        values = _node_needs(taken, per_node)
        related = (Related(taken.at, "checks.rel.segment", {"value": taken.written}),)
        yield Hit(place, values, related)


def malloc_pages(env: dict[str, str]) -> int | None:
    """`glibc.malloc.hugetlb` of GLIBC_TUNABLES: 0 off, 1 transparent pages, 2 and above reserved pages; None where
    it is not set."""
    for part in env.get("GLIBC_TUNABLES", "").split(":"):
        name, _, value = part.partition("=")
        if name.strip() == "glibc.malloc.hugetlb":
            text = value.strip()
            return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    return None


def _node_needs(taken: Taken, per_node: int) -> dict[str, object]:
    """Pages and registration entries of all ranks of a role on a node, for a message."""
    needs = taken.needs(per_node, taken.workers_on_node(per_node))
    return {
        "pages": f"{needs.pages:,}",
        "reserve": f"{needs.pages_reserved:,}",
        "bytes": said(needs.reserved_bytes),
        "ranks": needs.ranks,
        "rank": said(taken.segment + taken.buffer),
        "small": f"{needs.entries_4k_per_segment:,}",
        "large": f"{needs.entries_2m_per_segment:,}",
        "limit": f"{needs.entry_limit or 0:,}",
        "chunks": needs.chunks_4k,
        "small_nic": f"{needs.entries_4k_per_nic:,}",
        "large_nic": f"{needs.entries_2m_per_nic:,}",
    }


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
    """Store sizes by the rules of their readers. vLLM: a number with KB, MB, GB or B; no TB, no GiB. SGLang's host
    cache: bytes, or a whole number with gb."""
    recipe = view.deployment
    store = store_of(recipe)
    config = store_config(store) if store is not None and recipe.engine == "vllm" else {}
    for name in ("global_segment_size", "local_buffer_size"):
        value = config.get(name)
        if store is None or value is None:
            continue
        try:
            size_reader(recipe)(value)
        except ServemarkError:
            yield Hit(store_at(recipe, store, name), {"name": name, "value": str(value)})
    for role in recipe.roles:
        extra = role.flag("hicache-storage-backend-extra-config")
        value = extra.get("global_segment_size") if isinstance(extra, dict) else None
        if value is None:
            continue
        try:
            sglang_hicache_size(value, role.parallel.tp or 1, role.parallel.pp or 1)
        except ServemarkError:
            place = flag_at(role, "hicache-storage-backend-extra-config")
            yield Hit(place, {"name": "global_segment_size", "value": str(value)}, (), None, "sglang")


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


@rule("MEM310", "warning", "recipe", wrong=((_DISAGG, "protocol: rdma", "protocol: efa"),))
def registration_entries(view: RecipeView) -> Iterator[Hit]:
    """Page-table entries that an EFA segment takes on a NIC against what one buffer may take: at 4 KiB without huge
    pages, at 2 MiB with them."""
    recipe = view.deployment
    store = store_of(recipe)
    if store is None or store_config(store).get("protocol") != "efa":
        return
    told: set[int] = set()
    for role in recipe.roles:
        env = env_of(recipe, role)
        taken, per_node = taken_by(recipe, role), recipe.gpus_per_node
        if taken is None or not per_node or (malloc_pages(env) or 0) > 0 or taken.segment in told:
            continue  # MEM304 tells of transparent pages
        needs = taken.needs(per_node, taken.workers_on_node(per_node))
        limit, huge = needs.entry_limit or 0, "MC_STORE_USE_HUGEPAGE" in env
        related = (Related(taken.at, "checks.rel.segment", {"value": taken.written}),)
        place = store_at(recipe, store, "protocol")
        if huge and needs.entries_2m_per_segment <= limit:
            continue
        told.add(taken.segment)
        values = {**_node_needs(taken, per_node), "role": role.role}
        if huge:
            yield Hit(place, values, related, None, "huge")
        elif needs.needs_huge_pages:
            yield Hit(place, values, related)
        else:
            yield Hit(place, values, related, None, "fits", "note")


_HUGE = PREFILL_ENV.replace('NCCL_CUMEM_ENABLE: "1"', 'MC_STORE_USE_HUGEPAGE: "1"')
_SETUP = "slurm: {time_limit"
_PAGES = re.compile(r"nr_hugepages['\"\s:=]+(\d[\d_]{0,15})")


@rule(
    "MEM311",
    "error",
    "recipe",
    wrong=(
        (_DISAGG, PREFILL_ENV, _HUGE),
        (_DISAGG, _SETUP, f"host_setup: [sysctl -w vm.nr_hugepages=600000]\n{_SETUP}"),
    ),
    right=(
        (_DISAGG, PREFILL_ENV, _HUGE),
        (_DISAGG, _SETUP, f"host_setup: [sysctl -w vm.nr_hugepages=675000]\n{_SETUP}"),
    ),
)
def huge_pages_reserved(view: RecipeView) -> Iterator[Hit]:
    """Huge pages that the recipe reserves against those that a node's ranks take: one too few and the store does not
    start; without headroom, other users of the pool take what it needs."""
    recipe = view.deployment
    per_node = recipe.gpus_per_node
    if store_of(recipe) is None or not per_node:
        return
    stated = _pages_stated(recipe)
    for role in recipe.roles:
        taken, env = taken_by(recipe, role), env_of(recipe, role)
        if taken is None or taken.reader != "mooncake" or "MC_STORE_USE_HUGEPAGE" not in env:
            continue
        values = {**_node_needs(taken, per_node), "role": role.role}
        needs = taken.needs(per_node, taken.workers_on_node(per_node))
        related = (Related(taken.at, "checks.rel.segment", {"value": taken.written}),)
        if stated is None:
            place = env_at(recipe, role, "MC_STORE_USE_HUGEPAGE") or role.at
            yield Hit(place, values, related, None, "unstated", "note")
        elif env.get("MC_STORE_HUGEPAGE_SIZE", "2MB").upper() != "2MB":
            continue  # the kernel's count is of its default size
        elif stated[1] < needs.pages:
            yield Hit(stated[0], {**values, "stated": f"{stated[1]:,}"}, related)
        elif stated[1] < needs.pages_reserved:
            yield Hit(stated[0], {**values, "stated": f"{stated[1]:,}"}, related, None, "close", "warning")


def _pages_stated(recipe: Deployment) -> tuple[Position, int] | None:
    """Where a recipe reserves 2 MiB pages, and how many: `nr_hugepages` in what prepares its hosts."""
    for name in ("host_setup", "setup_script", "environment", "srun_options", "sbatch_directives"):
        waiting = [node_in(recipe.node, name)]
        while waiting:
            node = waiting.pop()
            if node is None:
                continue
            found = _PAGES.search(node.scalar) if isinstance(node.scalar, str) else None
            if found is not None:
                return node.at, int(found.group(1))
            for key, value in (node.entries or {}).items():
                if (
                    key.endswith("nr_hugepages")
                    and str(value.scalar).isascii()
                    and str(value.scalar).isdigit()
                ):
                    return value.at, int(str(value.scalar)[:16])
                waiting.append(value)
            waiting.extend(node.items or ())
    return None


_ENV_SIZES: dict[str, Callable[[object], int]] = {
    "MC_MAX_MR_SIZE": raw_bytes,
    "MC_STORE_LOCAL_HOT_CACHE_SIZE": raw_bytes,
    "MC_CXL_DEV_SIZE": raw_bytes,
    "MC_MMAP_ARENA_POOL_SIZE": mooncake_cpp_size,
}


@rule(
    "MEM312",
    "error",
    "recipe",
    wrong=((_DISAGG, PREFILL_ENV, PREFILL_ENV.replace('NCCL_CUMEM_ENABLE: "1"', "MC_MAX_MR_SIZE: 64GB")),),
    right=((_DISAGG, PREFILL_ENV, PREFILL_ENV.replace("NCCL_CUMEM_ENABLE", "MC_MMAP_ARENA_POOL_SIZE")),),
)
def sizes_in_variables(view: RecipeView) -> Iterator[Hit]:
    """Sizes in Mooncake's variables by their own readers: bare bytes, or a text of which an unknown unit makes 0."""
    recipe = view.deployment
    for role in recipe.roles:
        env = env_of(recipe, role)
        for name, reader in _ENV_SIZES.items():
            value = env.get(name)
            if value is None:
                continue
            place = env_at(recipe, role, name) or role.at
            values: dict[str, object] = {"name": name, "value": value}
            if reader is mooncake_cpp_size and value.strip().lower() == "infinite":
                continue
            try:
                reader(value)
            except ServemarkError as error:
                yield Hit(place, values, (), None, "huge" if error.key == "sizing.size_huge" else None)
            else:
                if reader is mooncake_cpp_size and silently_zero(value):
                    yield Hit(place, values, (), None, "zero")


@rule(
    "MEM313",
    "warning",
    "recipe",
    wrong=(
        (
            _DISAGG,
            PREFILL_ENV,
            PREFILL_ENV.replace('NCCL_CUMEM_ENABLE: "1"', "MC_STORE_HUGEPAGE_SIZE: 512MB"),
        ),
    ),
)
def huge_page_size(view: RecipeView) -> Iterator[Hit]:
    """MC_STORE_HUGEPAGE_SIZE is 2MB or 1GB; anything else is taken as 2MB, and it counts only with the switch."""
    recipe = view.deployment
    for role in recipe.roles:
        env = env_of(recipe, role)
        value = env.get("MC_STORE_HUGEPAGE_SIZE")
        if value is None:
            continue
        place = env_at(recipe, role, "MC_STORE_HUGEPAGE_SIZE") or role.at
        values: dict[str, object] = {"value": value, "role": role.role}
        if value.strip().upper() not in {"2MB", "1GB", "2M", "1G"}:
            yield Hit(place, values)
        elif "MC_STORE_USE_HUGEPAGE" not in env:
            yield Hit(place, values, (), None, "off")


@rule(
    "MEM314",
    "error",
    "recipe",
    wrong=(
        (
            _DISAGG,
            "LD_LIBRARY_PATH: /usr/local/cuda/lib64",
            "LD_LIBRARY_PATH: /usr/local/cuda/lib64\n  GLIBC_TUNABLES: glibc.malloc.hugetlb",
        ),
    ),
)
def tunables_are_readable(view: RecipeView) -> Iterator[Hit]:
    """GLIBC_TUNABLES is `name=value` parted by colons; a part without a value has no effect."""
    recipe = view.deployment
    told: set[Position] = set()
    for role in recipe.roles:
        value = env_of(recipe, role).get("GLIBC_TUNABLES")
        place = env_at(recipe, role, "GLIBC_TUNABLES") or role.at
        if value is None or place in told:
            continue
        told.add(place)
        for part in value.split(":"):
            name, equals, inner = part.partition("=")
            if not equals or not name.strip().startswith("glibc.") or not inner.strip():
                yield Hit(place, {"part": part, "value": value})
                break


_SIMPLE = (
    '{"kv_connector":"SimpleCPUOffloadConnector","kv_role":"kv_both",'
    '"kv_connector_extra_config":{"cpu_bytes_to_use":SIZE,"cpu_bytes_to_use_per_rank":137438953472}}'
)


@rule(
    "MEM315",
    "warning",
    "recipe",
    wrong=((_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, _SIMPLE.replace("SIZE", "549755813888"))),),
    right=((_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, _SIMPLE.replace("SIZE", "1099511627776"))),),
)
def one_size_of_offload(view: RecipeView) -> Iterator[Hit]:
    """A connector's size of all ranks of an engine against its size per rank, where it states both."""
    for role in view.deployment.roles:
        for connector in role.connectors:
            whole = connector.config.get("cpu_bytes_to_use")
            each = connector.config.get("cpu_bytes_to_use_per_rank")
            ranks = engine_ranks(role)
            if not isinstance(whole, int) or not isinstance(each, int):
                continue
            if whole not in {each * ranks, each * role.gpus}:
                values: dict[str, object] = {
                    "whole": f"{whole:,}",
                    "each": f"{each:,}",
                    "ranks": ranks,
                    "product": f"{each * ranks:,}",
                    "name": connector.name,
                }
                yield Hit(connector.at, values)
