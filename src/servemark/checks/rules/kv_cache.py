"""KV cache: offload and transfer that the master declares against connectors and stores that the recipe wires."""

from __future__ import annotations

import json
from collections.abc import Iterator

from servemark.catalog.deployment import Deployment, RoleSpec
from servemark.catalog.fields import nearest
from servemark.catalog.kv_and_spec import transfer_engines
from servemark.checks.example import CONNECTORS, NIXL_ONLY, PREFILL_KV, TRT_PREFILL
from servemark.checks.host_memory import hierarchical, store_bytes
from servemark.checks.model import Hit, Related
from servemark.checks.registry import rule
from servemark.checks.view import (
    EntryView,
    RecipeView,
    env_of,
    flag_at,
    node_in,
    store_at,
    store_config,
    store_of,
)

_DISAGG, _TRT = "recipes/owl/disagg.yaml", "recipes/owl/trt.yaml"
PROTOCOLS = frozenset(
    (
        "tcp",
        "rdma",
        "efa",
        "nvmeof",
        "nvlink",
        "nvlink_intra",
        "musa",
        "hip",
        "barex",
        "cxl",
        "ascend",
        "ub",
        "ubshmem",
        "maca",
        "sunrise_link",
        "rpc_only",
    )
)
"""Transports that Mooncake knows; of another it only warns and goes on."""
STORE_KEYS = frozenset(
    (
        "metadata_server",
        "master_server_address",
        "protocol",
        "device_name",
        "device_name_per_gpu",
        "mode",
        "global_segment_size",
        "local_buffer_size",
        "enable_offload",
        "tenant_id",
        "local_hostname",
        "enable_ssd_offload",
        "ssd_offload_path",
        "enable_client_http_server",
        "client_http_port",
    )
)
CONNECTOR_NAMES = frozenset(
    (
        "DecodeBenchConnector",
        "ExampleConnector",
        "FlexKVConnectorV1",
        "LMCacheConnector",
        "LMCacheConnectorV1",
        "LMCacheMPConnector",
        "MoRIIOConnector",
        "MooncakeConnector",
        "MooncakeLayerwiseConnector",
        "MooncakeStoreConnector",
        "MultiConnector",
        "NixlConnector",
        "OffloadingConnector",
        "P2pNcclConnector",
        "SharedStorageConnector",
        "SimpleCPUOffloadConnector",
    )
)
"""KV connectors that vLLM knows by name."""
KV_ROLES = ("kv_producer", "kv_consumer", "kv_both")
_WIRING = {
    "MooncakeStoreConnector": "mooncake",
    "SimpleCPUOffloadConnector": "vllm-simple",
    "OffloadingConnector": "native",
    "LMCacheConnectorV1": "lmcache",
    "LMCacheMPConnector": "lmcache",
    "LMCacheConnector": "lmcache",
}


def offloads(deployment: Deployment) -> list[tuple[str, RoleSpec, str]]:
    """(backend, role, argument that wires it) of everything that keeps KV in host memory."""
    found: list[tuple[str, RoleSpec, str]] = []
    for role in deployment.roles:
        found += [(_WIRING[c.name], role, "kv-transfer-config") for c in role.connectors if c.name in _WIRING]
        if hierarchical(role):
            found.append(("hicache", role, "enable-hierarchical-cache"))
        cache = role.flag("kv-cache-config")
        size = cache.get("host_cache_size") if isinstance(cache, dict) else None
        if isinstance(size, int) and size > 0:
            found.append(("native", role, "kv-cache-config"))
        space = role.flag("kv-offloading-size") or role.flag("swap-space-offload")
        if isinstance(space, (int, float)) and space > 0:
            found.append(("native", role, "kv-offloading-size"))
    return found


@rule(
    "KVC501",
    "error",
    wrong=(
        (
            "masters.yaml",
            '            kv-offloading: dram\n            kv-offload-backend: {name: mooncake, version: "0.3.13.post1"}\n',
            "",
        ),
    ),
)
def offload_undeclared(view: EntryView) -> Iterator[Hit]:
    """The recipe keeps KV in host memory and the master says that there is no offload."""
    recipe = view.deployment
    if recipe is None or view.entry.kv_offloading != "none":
        return
    found = offloads(recipe)
    if not found:
        return
    backend, role, flag = found[0]
    related = tuple(
        Related(flag_at(one, argument), "checks.rel.wires", {"backend": name, "role": one.role})
        for name, one, argument in found[:2]
    )
    agentic = view.entry.scenario is None or view.entry.scenario.kind == "agentic-coding"
    values: dict[str, object] = {"backend": backend, "role": role.role, "flag": flag}
    place = view.at("kv-offloading")
    if agentic:
        yield Hit(place, values, related)
    else:
        yield Hit(place, values, related, None, "fixed", "warning")


@rule(
    "KVC502",
    "error",
    wrong=(("recipes/owl/agg.yaml", "enable-hierarchical-cache: true", "enable-hierarchical-cache: false"),),
)
def offload_not_wired(view: EntryView) -> Iterator[Hit]:
    """The master declares offload to host memory and nothing in the recipe does it."""
    recipe = view.deployment
    if recipe is None or view.entry.kv_offloading == "none" or offloads(recipe):
        return
    named = view.entry.kv_offload_backend
    role = recipe.roles[0] if recipe.roles else None
    related = (
        Related(role.at if role else recipe.at, "checks.rel.no_offload", {"role": role.role if role else ""}),
    )
    yield Hit(
        view.at("kv-offloading"), {"backend": named.name if named else "", "engine": recipe.engine}, related
    )


@rule("KVC503", "error", wrong=(("masters.yaml", "{name: hicache}", "{name: lmcache}"),))
def offload_backend(view: EntryView) -> Iterator[Hit]:
    """The backend that the master names against the one that is wired."""
    recipe, named = view.deployment, view.entry.kv_offload_backend
    if recipe is None or named is None:
        return
    found = offloads(recipe)
    names = [name for name, _, _ in found]
    if not found or named.name in names:
        return
    related = tuple(
        Related(flag_at(role, flag), "checks.rel.wires", {"backend": name, "role": role.role})
        for name, role, flag in found[:2]
    )
    known = set(_WIRING.values()) | {"hicache"}
    values: dict[str, object] = {"named": named.name, "wired": ", ".join(dict.fromkeys(names))}
    place = view.at("kv-offload-backend", "name")
    yield Hit(place, values, related, severity=None if named.name in known else "warning")


@rule(
    "KVC504",
    "error",
    wrong=(
        (
            "masters.yaml",
            "kv-p2p-transfer: nixl\n  multinode: true\n  disagg: true\n  scenarios:\n    agentic",
            "kv-p2p-transfer: mooncake\n  multinode: true\n  disagg: true\n  scenarios:\n    agentic",
        ),
    ),
)
def transfer_engine(view: EntryView) -> Iterator[Hit]:
    """The KV transfer engine in the master against the one between the recipe's roles."""
    recipe, named = view.deployment, view.arm.transfer_of(view.entry)
    if recipe is None or named is None:
        return
    if not recipe.kv_transfer:
        # SGLang's own default engine is Mooncake.
        disaggregated = recipe.role("prefill") is not None and recipe.engine == "sglang"
        if disaggregated and named != "mooncake":
            related = (Related(recipe.roles[0].at, "checks.rel.default_transfer", {}),)
            yield Hit(view.at("kv-p2p-transfer"), {"named": named, "wired": "mooncake"}, related)
        return
    if named in recipe.kv_transfer or "default" in recipe.kv_transfer:
        return
    flags = ("kv-transfer-config", "disaggregation-transfer-backend", "cache-transceiver-config")
    role = next((r for r in recipe.roles if any(flag in r.flags for flag in flags)), recipe.roles[0])
    wired = ", ".join(recipe.kv_transfer)
    related = (Related(flag_at(role, *flags), "checks.rel.transfer", {"value": wired}),)
    yield Hit(view.at("kv-p2p-transfer"), {"named": named, "wired": wired}, related)


@rule(
    "KVC505",
    "note",
    wrong=(
        (
            "recipes/owl/trt.yaml",
            TRT_PREFILL,
            TRT_PREFILL.replace("NIXL", "DEFAULT"),
        ),
        (
            "recipes/owl/trt.yaml",
            "max_batch_size: 256\n      cache_transceiver_config: {backend: NIXL}",
            "max_batch_size: 256",
        ),
    ),
)
def transfer_unknown(view: EntryView) -> Iterator[Hit]:
    """A transfer engine that the recipe leaves to the engine's or launcher's default."""
    recipe, named = view.deployment, view.arm.transfer_of(view.entry)
    if recipe is None or named is None or recipe.role("decode") is None:
        return
    if (
        recipe.frontend is not None
        and recipe.frontend.type == "servemark-pd"
        and store_of(recipe) is not None
    ):
        return  # slot files pass through the store that the recipe names
    if "default" in recipe.kv_transfer or (not recipe.kv_transfer and recipe.engine != "sglang"):
        connector = recipe.extras.get("connector")
        if isinstance(connector, str) and connector == named:
            return
        role = recipe.roles[0]
        where = flag_at(role, "cache-transceiver-config", "kv-transfer-config")
        yield Hit(
            view.at("kv-p2p-transfer"),
            {"named": named, "engine": recipe.engine},
            (Related(where, "checks.rel.default_transfer_role", {"role": role.role}),),
        )


@rule("KVC506", "error", "recipe", wrong=((_DISAGG, "protocol: rdma", "protocol: rmda"),))
def store_protocol(view: RecipeView) -> Iterator[Hit]:
    """The store's transport: an unknown one is only warned of, and start-up fails later or falls back."""
    recipe = view.deployment
    store = store_of(recipe)
    value = store_config(store).get("protocol") if store is not None else None
    if store is not None and isinstance(value, str) and value not in PROTOCOLS:
        near = nearest(value, PROTOCOLS)
        yield Hit(
            store_at(recipe, store, "protocol"),
            {"value": value, "near": near or ", ".join(sorted(PROTOCOLS))},
        )


@rule("KVC507", "warning", "recipe", wrong=((_DISAGG, "local_buffer_size: 4GB", "local_bufer_size: 4GB"),))
def store_keys(view: RecipeView) -> Iterator[Hit]:
    """Options of the store that its reader does not know: it ignores them without a word."""
    recipe = view.deployment
    store = store_of(recipe)
    for name in store_config(store) if store is not None else ():
        if store is not None and name not in STORE_KEYS:
            near = nearest(name, STORE_KEYS)
            values: dict[str, object] = {"name": name, "near": near}
            yield Hit(store_at(recipe, store, name), values, (), None, "near" if near else None)


@rule("KVC508", "error", "recipe", wrong=((_DISAGG, "mode: embedded", "mode: standalone-store"),))
def store_mode(view: RecipeView) -> Iterator[Hit]:
    """Segment size against the store's mode: embedded ranks must give memory, standalone ones must not."""
    recipe = view.deployment
    store = store_of(recipe)
    if store is None:
        return
    config, size = store_config(store), store_bytes(recipe, store, "global_segment_size")
    mode = config.get("mode", "embedded")
    place = store_at(recipe, store, "mode")
    if mode not in {"embedded", "standalone-store"}:
        yield Hit(
            place, {"mode": str(mode), "size": str(config.get("global_segment_size"))}, (), None, "unknown"
        )
    elif size is not None and (mode == "embedded") != (size > 0):
        where = store_at(recipe, store, "global_segment_size")
        related = (Related(where, "checks.rel.segment", {"value": str(config.get("global_segment_size"))}),)
        yield Hit(place, {"mode": str(mode), "size": str(config.get("global_segment_size"))}, related)


@rule("KVC509", "warning", "recipe", wrong=((_DISAGG, "protocol: rdma", "protocol: efa"),))
def efa_library(view: RecipeView) -> Iterator[Hit]:
    """EFA needs its own libfabric before any other on LD_LIBRARY_PATH."""
    recipe = view.deployment
    store = store_of(recipe)
    uses = store is not None and store_config(store).get("protocol") == "efa"
    for role in recipe.roles:
        backends = [c.config.get("backends") for c in role.connectors]
        fabric = any(isinstance(b, list) and "LIBFABRIC" in b for b in backends)
        if not uses and not fabric:
            continue
        path = env_of(recipe, role).get("LD_LIBRARY_PATH", "")
        if not any(part.startswith("/opt/amazon/efa/") for part in path.split(":")):
            where = node_in(recipe.node, "environment", "LD_LIBRARY_PATH")
            place = where.at if where is not None else role.at
            yield Hit(place, {"role": role.role, "path": path})


@rule("KVC510", "error", "recipe", wrong=((_DISAGG, "enable_offload: false", "enable_offload: true"),))
def store_offload(view: RecipeView) -> Iterator[Hit]:
    """`enable_offload` (to disk) of the store against the connector's."""
    recipe = view.deployment
    store = store_of(recipe)
    mine = store_config(store).get("enable_offload") if store is not None else None
    if store is None or not isinstance(mine, bool):
        return
    for role in recipe.roles:
        for connector in role.connectors:
            other = connector.config.get("enable_offload")
            if connector.name == "MooncakeStoreConnector" and isinstance(other, bool) and other != mine:
                related = (
                    Related(
                        connector.at, "checks.rel.connector_offload", {"value": other, "role": role.role}
                    ),
                )
                yield Hit(
                    store_at(recipe, store, "enable_offload"), {"store": mine, "connector": other}, related
                )


@rule(
    "KVC511",
    "error",
    "recipe",
    wrong=((_DISAGG, "name: store\n    type: mooncake-master", "name: store\n    type: other-master"),),
)
def connector_without_store(view: RecipeView) -> Iterator[Hit]:
    """A store connector and a store need each other."""
    recipe = view.deployment
    store = store_of(recipe)
    users = [
        role for role in recipe.roles if any(c.name == "MooncakeStoreConnector" for c in role.connectors)
    ]
    hicache = [role for role in recipe.roles if role.flag("hicache-storage-backend") == "mooncake"]
    if users and store is None:
        path = env_of(recipe, users[0])
        if not any(name.startswith("MOONCAKE_") for name in path):
            yield Hit(flag_at(users[0], "kv-transfer-config"), {"role": users[0].role})
    elif recipe.frontend is not None and recipe.frontend.type == "servemark-pd":
        return  # its workers' agents carry slot files through the store, without a connector of the engine
    elif store is not None and not users and not hicache:
        yield Hit(store.at, {"role": ""}, (), None, "unused", "warning")


@rule(
    "KVC512",
    "warning",
    "recipe",
    wrong=(
        (
            _DISAGG,
            PREFILL_KV,
            PREFILL_KV.replace(CONNECTORS, NIXL_ONLY),
        ),
    ),
)
def role_coverage(view: RecipeView) -> Iterator[Hit]:
    """Offload that only one of two roles has, where the store is shared: the other neither reads nor fills it."""
    recipe = view.deployment
    users = {
        role.role for role in recipe.roles if any(c.name == "MooncakeStoreConnector" for c in role.connectors)
    }
    if users == {"decode"} and len(recipe.roles) > 1:
        decode = recipe.role("decode")
        if decode is not None:
            yield Hit(flag_at(decode, "kv-transfer-config"), {"role": "decode", "other": "prefill"})


@rule(
    "KVC513",
    "error",
    "recipe",
    wrong=(
        (
            _DISAGG,
            'speculative-config: \'{"method":"mtp","num_speculative_tokens":3}\'\n  decode',
            'speculative-config: \'{"method":"mtp","num_speculative_tokens":3\'\n  decode',
        ),
    ),
)
def json_arguments(view: RecipeView) -> Iterator[Hit]:
    """Arguments that engines read as JSON and that do not parse."""
    for role in view.deployment.roles:
        for argument in role.flags.values():
            text = argument.value
            if isinstance(text, str) and text.lstrip().startswith(("{", "[")):
                try:
                    json.loads(text)
                except (ValueError, RecursionError) as error:
                    column = getattr(error, "colno", 1)
                    yield Hit(
                        argument.at,
                        {
                            "name": argument.spelled,
                            "reason": getattr(error, "msg", str(error)),
                            "column": column,
                        },
                    )


@rule(
    "KVC514",
    "error",
    "recipe",
    wrong=(
        (
            _DISAGG,
            PREFILL_KV,
            PREFILL_KV.replace(CONNECTORS, NIXL_ONLY.replace("kv_both", "kv_bth")),
        ),
    ),
)
def connector_roles(view: RecipeView) -> Iterator[Hit]:
    """`kv_role` of a connector: one of three words."""
    for role in view.deployment.roles:
        for connector in role.connectors:
            if connector.role is not None and connector.role not in KV_ROLES:
                near = nearest(connector.role, KV_ROLES) or ", ".join(KV_ROLES)
                yield Hit(connector.at, {"value": connector.role, "near": near, "name": connector.name})


@rule(
    "KVC515",
    "warning",
    "recipe",
    wrong=(("recipes/owl/agg.yaml", "      enable-hierarchical-cache: true\n", ""),),
)
def hicache_switch(view: RecipeView) -> Iterator[Hit]:
    """Sizes of SGLang's host cache without the switch that makes them count."""
    for role in view.deployment.roles:
        sizes = [name for name in ("hicache-size", "hicache-ratio") if name in role.flags]
        if sizes and not hierarchical(role):
            yield Hit(flag_at(role, sizes[0]), {"name": sizes[0], "role": role.role})


@rule("KVC516", "error", "recipe", wrong=((_TRT, TRT_PREFILL, TRT_PREFILL.replace("NIXL", "UCX")),))
def one_transfer(view: RecipeView) -> Iterator[Hit]:
    """Prefill and decode move KV with one engine: the two ends of a transfer speak one protocol."""
    prefill, decode = view.deployment.role("prefill"), view.deployment.role("decode")
    if prefill is None or decode is None:
        return
    first, second = (transfer_engines((role,)) for role in (prefill, decode))
    if first and second and not set(first) & set(second):
        flags = ("kv-transfer-config", "disaggregation-transfer-backend", "cache-transceiver-config")
        related = (Related(flag_at(decode, *flags), "checks.rel.transfer", {"value": ", ".join(second)}),)
        yield Hit(
            flag_at(prefill, *flags), {"prefill": ", ".join(first), "decode": ", ".join(second)}, related
        )


@rule(
    "KVC517",
    "warning",
    "recipe",
    wrong=((_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, NIXL_ONLY.replace("Nixl", "Nxil"))),),
)
def connector_names(view: RecipeView) -> Iterator[Hit]:
    """Connectors that vLLM registers; another name must come from a module that the recipe loads."""
    for role in view.deployment.roles:
        for connector in role.connectors:
            if connector.name not in CONNECTOR_NAMES:
                near = nearest(connector.name, CONNECTOR_NAMES) or "-"
                yield Hit(connector.at, {"name": connector.name, "near": near, "role": role.role})


_KV_ROUTER = "args: {router-mode: kv, router-session-affinity-ttl-secs: 900}"


@rule(
    "KVC518",
    "error",
    "recipe",
    wrong=(
        (_DISAGG, _KV_ROUTER, _KV_ROUTER.replace("mode: kv", "mode: kv, kv-cache-block-size: 128")),
        (_DISAGG, "tensor-parallel-size: 8", "tensor-parallel-size: 8\n      block-size: 64"),
    ),
)
def router_blocks(view: RecipeView) -> Iterator[Hit]:
    """Tokens of a block in the router (`kv-cache-block-size`) and in each engine whose caches it knows."""
    front = view.deployment.frontend
    stated = front.args.get("kv-cache-block-size") if front is not None else None
    if front is None or stated is None or front.router_mode != "kv":
        return
    for role in view.deployment.roles:
        if role.role == "decode" and view.deployment.role("prefill") is not None:
            continue  # prefixes are looked for in prefill
        name = "page-size" if view.deployment.engine == "sglang" else "block-size"
        engine = role.flag(name)
        if engine is not None and str(engine).strip() != str(stated.value).strip():
            related = (Related(flag_at(role, name), "checks.rel.flag", {"name": name, "value": engine}),)
            yield Hit(stated.at, {"front": stated.value, "engine": engine, "role": role.role}, related)
