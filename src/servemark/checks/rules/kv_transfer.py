"""KV transfer: fabrics, protocols, device names, and what each end of a transfer must carry."""

from __future__ import annotations

import re
from collections.abc import Iterator

from servemark.catalog.deployment import Connector, Deployment, RoleSpec
from servemark.catalog.fields import nearest
from servemark.checks.example import CONNECTORS, DECODE_KV, NIXL_ONLY, PREFILL_ENV, PREFILL_KV
from servemark.checks.host_memory import hierarchical
from servemark.checks.model import Hit, Related
from servemark.checks.registry import rule
from servemark.checks.rules.kv_cache import PROTOCOLS, offloads
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

_DISAGG, _AGG, _TRT = "recipes/owl/disagg.yaml", "recipes/owl/agg.yaml", "recipes/owl/trt.yaml"
_DEVICE = "device_name: mlx5_0"
NIXL_BACKENDS = (
    "UCX",
    "UCX_MO",
    "LIBFABRIC",
    "GDS",
    "GDS_MT",
    "POSIX",
    "OBJ",
    "HF3FS",
    "Mooncake",
    "GPUNETIO",
    "UCCL",
    "GUSLI",
)
"""Plugins that NIXL ships; another must be installed beside it."""
TRANSFERS = frozenset(
    (
        "NixlConnector",
        "MooncakeConnector",
        "MooncakeLayerwiseConnector",
        "MoRIIOConnector",
        "P2pNcclConnector",
    )
)
"""vLLM connectors that move KV from prefill to decode."""
LMCACHE = frozenset(("LMCacheConnector", "LMCacheConnectorV1", "LMCacheMPConnector"))
_MLX, _EFA = re.compile(r"mlx\d+_"), re.compile(r"(?:rdmap|efa)")
_ADDRESS = re.compile(r"(?:(?:https?|etcd|redis)://\S+|[\w.\-\[\]:]+:\d{1,5})\Z", re.ASCII)
_NIXL_WITH = NIXL_ONLY.replace('"kv_both"}', '"kv_both","kv_connector_extra_config":{"backends":["UCX"]}}')


@rule("KVT551", "error", "recipe", wrong=((_DISAGG, "protocol: rdma", "protocol: efa"),))
def device_names(view: RecipeView) -> Iterator[Hit]:
    """Names of network devices against the protocol: EFA devices are no mlx5 devices, and the other way round."""
    recipe = view.deployment
    store = store_of(recipe)
    config = store_config(store) if store is not None else {}
    names, protocol = config.get("device_name"), config.get("protocol", "rdma")
    if store is None or not isinstance(names, str) or not names.strip():
        return
    place = store_at(recipe, store, "device_name")
    related = (Related(store_at(recipe, store, "protocol"), "checks.rel.protocol", {"value": protocol}),)
    parts = [part.strip() for part in names.split(",")]
    values: dict[str, object] = {"names": names, "protocol": protocol}
    foreign = {"efa": _MLX, "rdma": _EFA}.get(str(protocol))
    wrong = [part for part in parts if foreign is not None and foreign.match(part)]
    if wrong:
        yield Hit(place, {**values, "wrong": ", ".join(wrong)}, related)
    elif "" in parts or len(set(parts)) < len(parts):
        yield Hit(place, values, related, None, "list", "warning")
    elif protocol == "tcp":
        yield Hit(place, values, related, None, "unused", "note")


@rule("KVT552", "error", "recipe", wrong=((_DISAGG, "P2PHANDSHAKE", "P2PHANDSHAK"),))
def metadata_server(view: RecipeView) -> Iterator[Hit]:
    """Where transfer engines find one another: `P2PHANDSHAKE`, an address with a scheme, or host and port."""
    recipe = view.deployment
    store = store_of(recipe)
    value = store_config(store).get("metadata_server") if store is not None else None
    if store is None or value is None or value == "P2PHANDSHAKE":
        return
    if not isinstance(value, str) or not _ADDRESS.match(value.strip()):
        yield Hit(store_at(recipe, store, "metadata_server"), {"value": str(value)})


def nixl_backends(recipe: Deployment, role: RoleSpec) -> tuple[object, ...] | None:
    """NIXL plugins that a role names; None where it leaves the choice to the engine."""
    for connector in role.connectors:
        named = connector.config.get("backends")
        if connector.name == "NixlConnector" and named is not None:
            return tuple(named) if isinstance(named, list) else (named,)
    if role.flag("disaggregation-transfer-backend") == "nixl":
        value = env_of(recipe, role).get("SGLANG_DISAGGREGATION_NIXL_BACKEND")
        return (value,) if value is not None else None
    return None


def _transfer_at(recipe: Deployment, role: RoleSpec) -> Hit:
    flags = ("kv-transfer-config", "disaggregation-transfer-backend", "cache-transceiver-config")
    return Hit(flag_at(role, *flags), {"role": role.role})


@rule(
    "KVT553",
    "warning",
    "recipe",
    wrong=((_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, _NIXL_WITH.replace("UCX", "LIBFABRICS"))),),
)
def nixl_names(view: RecipeView) -> Iterator[Hit]:
    """NIXL plugins by name, in upper and lower case as NIXL spells them; a text in place of a list is an error."""
    recipe = view.deployment
    for role in recipe.roles:
        named = nixl_backends(recipe, role)
        for name in named or ():
            near = nearest(str(name), NIXL_BACKENDS)
            values: dict[str, object] = {"name": str(name), "near": near or ", ".join(NIXL_BACKENDS)}
            if name not in NIXL_BACKENDS:
                yield Hit(_transfer_at(recipe, role).at, {**values, "role": role.role})
        if named == ():
            yield Hit(_transfer_at(recipe, role).at, {"role": role.role}, (), None, "none", "error")


@rule(
    "KVT554",
    "error",
    "recipe",
    wrong=(
        (_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, _NIXL_WITH)),
        (_DISAGG, DECODE_KV, DECODE_KV.replace(CONNECTORS, _NIXL_WITH.replace("UCX", "LIBFABRIC"))),
    ),
)
def nixl_common(view: RecipeView) -> Iterator[Hit]:
    """Prefill and decode need a NIXL plugin in common."""
    recipe = view.deployment
    prefill, decode = recipe.role("prefill"), recipe.role("decode")
    if prefill is None or decode is None:
        return
    first, second = nixl_backends(recipe, prefill), nixl_backends(recipe, decode)
    if first and second and not set(map(str, first)) & set(map(str, second)):
        said = {"prefill": ", ".join(map(str, first)), "decode": ", ".join(map(str, second))}
        related = (
            Related(_transfer_at(recipe, decode).at, "checks.rel.transfer", {"value": said["decode"]}),
        )
        yield Hit(_transfer_at(recipe, prefill).at, dict(said), related)


@rule(
    "KVT555",
    "warning",
    "recipe",
    wrong=(
        (_DISAGG, "protocol: rdma\n        device_name: mlx5_0", "protocol: efa"),
        (_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, CONNECTORS.replace(NIXL_ONLY, _NIXL_WITH))),
    ),
    right=(
        (_DISAGG, "protocol: rdma\n        device_name: mlx5_0", "protocol: efa"),
        (
            _DISAGG,
            PREFILL_KV,
            PREFILL_KV.replace(
                CONNECTORS, CONNECTORS.replace(NIXL_ONLY, _NIXL_WITH.replace("UCX", "LIBFABRIC"))
            ),
        ),
    ),
)
def one_fabric(view: RecipeView) -> Iterator[Hit]:
    """The fabric of the store against that of the transfer and of libfabric: a node has one of them."""
    recipe = view.deployment
    store = store_of(recipe)
    protocol = store_config(store).get("protocol", "rdma") if store is not None else None
    if store is None or protocol not in {"efa", "rdma"}:
        return
    place = store_at(recipe, store, "protocol")
    told: set[str] = set()
    for role in recipe.roles:
        env = env_of(recipe, role)
        named = tuple(map(str, nixl_backends(recipe, role) or ()))
        provider, library = env.get("FI_PROVIDER"), env.get("LD_LIBRARY_PATH", "")
        on_efa = provider == "efa" or "/opt/amazon/efa" in library
        values: dict[str, object] = {"protocol": protocol, "role": role.role}
        found: list[tuple[str, dict[str, object], Related]] = []
        if protocol == "efa" and named and "LIBFABRIC" not in named:
            text = ", ".join(named)
            found.append(
                (
                    "",
                    {"other": text},
                    Related(_transfer_at(recipe, role).at, "checks.rel.transfer", {"value": text}),
                )
            )
        if protocol == "efa" and provider is not None and "efa" not in provider.lower():
            where = env_at(recipe, role, "FI_PROVIDER") or role.at
            found.append(
                (
                    "provider",
                    {"other": provider},
                    Related(where, "checks.rel.variable", {"name": "FI_PROVIDER"}),
                )
            )
        if protocol == "rdma" and on_efa:
            name = "FI_PROVIDER" if provider == "efa" else "LD_LIBRARY_PATH"
            where = env_at(recipe, role, name) or role.at
            found.append(("rdma", {"other": name}, Related(where, "checks.rel.variable", {"name": name})))
        for variant, more, related in found:
            if variant not in told:
                told.add(variant)
                yield Hit(place, {**values, **more}, (related,), None, variant or None)


def _mooncake(role: RoleSpec) -> tuple[Connector, object] | None:
    for connector in role.connectors:
        if connector.name.startswith("MooncakeConnector"):
            return connector, connector.config.get("mooncake_protocol")
    return None


_MOONCAKE = (
    '{"kv_connector":"MooncakeConnector","kv_role":"kv_both",'
    '"kv_connector_extra_config":{"mooncake_protocol":"rdma"}}'
)


@rule(
    "KVT556",
    "error",
    "recipe",
    wrong=(
        (_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, _MOONCAKE)),
        (_DISAGG, DECODE_KV, DECODE_KV.replace(CONNECTORS, _MOONCAKE.replace("rdma", "tcp"))),
    ),
)
def transfer_protocol(view: RecipeView) -> Iterator[Hit]:
    """The protocol of vLLM's Mooncake connector: one that Mooncake knows, and the same at both ends."""
    stated: list[tuple[RoleSpec, Connector, str]] = []
    for role in view.deployment.roles:
        found = _mooncake(role)
        if found is None or found[1] is None:
            continue
        connector, value = found
        near = nearest(str(value), PROTOCOLS) or ", ".join(sorted(PROTOCOLS))
        if value not in PROTOCOLS:
            values: dict[str, object] = {"value": str(value), "near": near, "role": role.role}
            yield Hit(connector.at, values, (), None, "unknown")
        else:
            stated.append((role, connector, str(value)))
    for role, connector, value in stated[1:]:
        first = stated[0]
        if value != first[2]:
            related = (Related(first[1].at, "checks.rel.protocol", {"value": first[2]}),)
            values = {"first": first[0].role, "one": first[2], "role": role.role, "other": value}
            yield Hit(connector.at, values, related)


def carries(role: RoleSpec) -> bool:
    """Whether a role has an end of a KV transfer."""
    if any(c.name in TRANSFERS or c.name in LMCACHE for c in role.connectors):
        return True
    cache = role.flag("cache-transceiver-config")
    return isinstance(cache, dict) and bool(cache)


_LMCACHE = NIXL_ONLY.replace("NixlConnector", "LMCacheConnectorV1")


@rule(
    "KVT557",
    "error",
    "recipe",
    wrong=((_DISAGG, PREFILL_KV, PREFILL_KV.replace(f"      kv-transfer-config: '{CONNECTORS}'\n", "")),),
    right=(
        (_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, _LMCACHE)),
        (_DISAGG, DECODE_KV, DECODE_KV.replace(CONNECTORS, _LMCACHE)),
    ),
)
def both_ends(view: RecipeView) -> Iterator[Hit]:
    """A transfer has two ends: prefill and decode both carry a connector, or neither does."""
    recipe = view.deployment
    prefill, decode = recipe.role("prefill"), recipe.role("decode")
    if prefill is None or decode is None or recipe.extras.get("connector") or recipe.engine == "sglang":
        return
    if carries(prefill) == carries(decode):
        return
    with_it, without = (prefill, decode) if carries(prefill) else (decode, prefill)
    related = (Related(_transfer_at(recipe, with_it).at, "checks.rel.end", {"role": with_it.role}),)
    yield Hit(without.at, {"role": without.role, "other": with_it.role}, related)


@rule(
    "KVT558",
    "error",
    "recipe",
    wrong=((_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, NIXL_ONLY.replace("both", "consumer"))),),
    right=(
        (_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, NIXL_ONLY.replace("both", "producer"))),
        (_DISAGG, DECODE_KV, DECODE_KV.replace(CONNECTORS, NIXL_ONLY.replace("both", "consumer"))),
    ),
)
def directions(view: RecipeView) -> Iterator[Hit]:
    """`kv_role` against the role: prefill produces KV and decode consumes it; a store is filled by someone."""
    recipe = view.deployment
    store_roles: list[tuple[Connector, RoleSpec]] = []
    wrong = {"prefill": "kv_consumer", "decode": "kv_producer"}
    for role in recipe.roles:
        for connector in role.connectors:
            if connector.name == "MooncakeStoreConnector":
                store_roles.append((connector, role))
            elif (
                connector.name in TRANSFERS
                and connector.role is not None
                and connector.role == wrong.get(role.role)
            ):
                values: dict[str, object] = {
                    "name": connector.name,
                    "role": role.role,
                    "value": connector.role,
                }
                yield Hit(connector.at, values)
    stated = {connector.role for connector, _ in store_roles}
    if store_roles and stated == {"kv_consumer"}:
        connector, role = store_roles[0]
        yield Hit(connector.at, {"name": connector.name, "role": role.role}, (), None, "unfilled")


_WITH_LMCACHE = CONNECTORS.replace("MooncakeStoreConnector", "LMCacheConnectorV1")


@rule(
    "KVT559",
    "warning",
    "recipe",
    wrong=(
        (_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, NIXL_ONLY)),
        (_DISAGG, DECODE_KV, DECODE_KV.replace(CONNECTORS, _WITH_LMCACHE)),
    ),
)
def offload_of_prompts(view: RecipeView) -> Iterator[Hit]:
    """Offload to host memory that only decode has: prompts are computed by prefill, which keeps none of them."""
    recipe = view.deployment
    prefill, decode = recipe.role("prefill"), recipe.role("decode")
    if prefill is None or decode is None:
        return
    found = offloads(recipe)
    if not found or any(role is prefill for _, role, _ in found) or found[0][0] == "mooncake":
        return  # KVC512 tells of a shared store
    backend, role, flag = found[0]
    yield Hit(flag_at(role, flag), {"backend": backend, "role": role.role, "other": prefill.role})


@rule(
    "KVT560",
    "error",
    "recipe",
    wrong=((_DISAGG, PREFILL_ENV, PREFILL_ENV.replace('NCCL_CUMEM_ENABLE: "1"', "MOONCAKE_PROTOCOL: tcp")),),
    right=((_DISAGG, PREFILL_ENV, PREFILL_ENV.replace('NCCL_CUMEM_ENABLE: "1"', "MOONCAKE_PROTOCOL: rdma")),),
)
def variables_repeat(view: RecipeView) -> Iterator[Hit]:
    """A variable that states a store option a second time, with another value; the configuration file counts."""
    recipe = view.deployment
    store = store_of(recipe)
    config = store_config(store) if store is not None else {}
    for role in recipe.roles if store is not None else ():
        env = env_of(recipe, role)
        for name, option in _VARIABLES:
            value, other = env.get(name), config.get(option)
            if store is None or value is None or other is None or value == str(other):
                continue
            place = env_at(recipe, role, name) or role.at
            related = (
                Related(store_at(recipe, store, option), "checks.rel.flag", {"name": option, "value": other}),
            )
            values: dict[str, object] = {"name": name, "value": value, "option": option, "other": str(other)}
            yield Hit(place, values, related)


_VARIABLES = (
    ("MOONCAKE_PROTOCOL", "protocol"),
    ("MOONCAKE_DEVICE", "device_name"),
    ("MOONCAKE_GLOBAL_SEGMENT_SIZE", "global_segment_size"),
    ("MOONCAKE_LOCAL_BUFFER_SIZE", "local_buffer_size"),
    ("MOONCAKE_TE_META_DATA_SERVER", "metadata_server"),
)


@rule(
    "KVT561",
    "error",
    "recipe",
    wrong=(
        (
            _AGG,
            "hicache-size: 150",
            "hicache-size: 150\n      disaggregation-mode: decode",
        ),
    ),
)
def disaggregation_mode(view: RecipeView) -> Iterator[Hit]:
    """SGLang's disaggregation mode against the role that it is given to."""
    recipe = view.deployment
    if recipe.engine != "sglang":
        return
    for role in recipe.roles:
        mode = role.flag("disaggregation-mode")
        wanted = {"aggregated": "null"}.get(role.role, role.role)
        if mode is not None and str(mode) != wanted:
            values: dict[str, object] = {"role": role.role, "mode": str(mode), "wanted": wanted}
            yield Hit(flag_at(role, "disaggregation-mode"), values)


@rule(
    "KVT562",
    "warning",
    "recipe",
    wrong=((_DISAGG, PREFILL_ENV, PREFILL_ENV.replace("NCCL_CUMEM_ENABLE", "MC_FORCE_TCP")),),
)
def forced_tcp(view: RecipeView) -> Iterator[Hit]:
    """MC_FORCE_TCP beside a protocol that is not TCP."""
    recipe = view.deployment
    store = store_of(recipe)
    protocol = store_config(store).get("protocol", "rdma") if store is not None else None
    if store is None or protocol == "tcp":
        return
    for role in recipe.roles:
        value = env_of(recipe, role).get("MC_FORCE_TCP")
        if value is not None and value.strip().lower() in {"1", "true", "on", "yes"}:
            place = env_at(recipe, role, "MC_FORCE_TCP") or role.at
            where = store_at(recipe, store, "protocol")
            related = (Related(where, "checks.rel.protocol", {"value": protocol}),)
            yield Hit(place, {"value": value, "protocol": protocol, "role": role.role}, related)


@rule(
    "KVT563",
    "warning",
    "recipe",
    wrong=(
        (
            _TRT,
            "moe_expert_parallel_size: 4\n",
            "moe_expert_parallel_size: 4\n"
            "      kv_cache_config: {enable_block_reuse: false, host_cache_size: 137438953472}\n",
        ),
    ),
)
def host_cache_reuse(view: RecipeView) -> Iterator[Hit]:
    """TensorRT-LLM's host cache keeps blocks for reuse: with reuse off nothing comes back from it. Its second cache
    manager also parks requests there, and is left alone."""
    for role in view.deployment.roles:
        cache = role.flag("kv-cache-config")
        if not isinstance(cache, dict) or cache.get("use_kv_cache_manager_v2") is True:
            continue
        size = cache.get("host_cache_size")
        if isinstance(size, int) and size > 0 and cache.get("enable_block_reuse") is False:
            yield Hit(flag_at(role, "kv-cache-config"), {"role": role.role, "size": f"{size:,}"})


@rule(
    "KVT564",
    "warning",
    wrong=(
        (
            "masters.yaml",
            '{name: mooncake, version: "0.3.13.post1"}',
            "{name: lmcache}",
        ),
        (_DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, NIXL_ONLY)),
        (_DISAGG, DECODE_KV, DECODE_KV.replace(CONNECTORS, _WITH_LMCACHE)),
    ),
)
def recorded_of_decode(view: EntryView) -> Iterator[Hit]:
    """Offload that is declared and that only decode does: the recorded memory is a prefill worker's."""
    recipe = view.deployment
    if recipe is None or view.entry.kv_offloading == "none" or recipe.role("prefill") is None:
        return
    found = offloads(recipe)
    if found and all(role.role == "decode" for _, role, _ in found):
        backend, role, flag = found[0]
        related = (Related(flag_at(role, flag), "checks.rel.wires", {"backend": backend, "role": role.role}),)
        yield Hit(view.at("kv-offloading"), {"backend": backend}, related)


@rule(
    "KVT565",
    "warning",
    "recipe",
    wrong=(
        (
            _AGG,
            "enable-hierarchical-cache: true",
            "hicache-storage-backend: mooncake\n      enable-hierarchical-cache: false",
        ),
    ),
)
def storage_behind_host_cache(view: RecipeView) -> Iterator[Hit]:
    """SGLang's storage back end stands behind its host cache, and is not used without it."""
    for role in view.deployment.roles:
        backend = role.flag("hicache-storage-backend")
        if backend is not None and not hierarchical(role):
            yield Hit(flag_at(role, "hicache-storage-backend"), {"value": str(backend), "role": role.role})


_LM_PREFILL = PREFILL_KV.replace(CONNECTORS, _WITH_LMCACHE)


@rule(
    "KVT566",
    "error",
    "recipe",
    wrong=(
        (_DISAGG, PREFILL_KV, _LM_PREFILL),
        (_DISAGG, PREFILL_ENV, PREFILL_ENV.replace('NCCL_CUMEM_ENABLE: "1"', 'LMCACHE_LOCAL_CPU: "False"')),
    ),
    right=(
        (_DISAGG, PREFILL_KV, _LM_PREFILL),
        (_DISAGG, PREFILL_ENV, PREFILL_ENV.replace('NCCL_CUMEM_ENABLE: "1"', 'LMCACHE_LOCAL_CPU: "True"')),
    ),
)
def lmcache_keeps(view: RecipeView) -> Iterator[Hit]:
    """LMCache without host memory, disk or remote store keeps nothing. Its configuration file, where there is one,
    says where; then nothing can be told."""
    recipe = view.deployment
    for role in recipe.roles:
        env = env_of(recipe, role)
        if not any(c.name in LMCACHE for c in role.connectors) or "LMCACHE_CONFIG_FILE" in env:
            continue
        off = env.get("LMCACHE_LOCAL_CPU", "true").strip().lower() in {"false", "0", "no", "off"}
        elsewhere = ("LMCACHE_LOCAL_DISK", "LMCACHE_REMOTE_URL", "LMCACHE_ENABLE_PD", "LMCACHE_ENABLE_NIXL")
        if off and not any(name in env for name in elsewhere):
            yield Hit(env_at(recipe, role, "LMCACHE_LOCAL_CPU") or role.at, {"role": role.role})


@rule(
    "KVT567",
    "warning",
    "recipe",
    wrong=(
        (_DISAGG, PREFILL_KV, _LM_PREFILL),
        (
            _DISAGG,
            PREFILL_ENV,
            PREFILL_ENV.replace(
                'NCCL_CUMEM_ENABLE: "1"',
                'LMCACHE_CONFIG_FILE: /etc/lmcache.yaml, LMCACHE_MAX_LOCAL_CPU_SIZE: "100"',
            ),
        ),
    ),
)
def lmcache_variables(view: RecipeView) -> Iterator[Hit]:
    """LMCache reads its variables only where it has no configuration file."""
    recipe = view.deployment
    for role in recipe.roles:
        env = env_of(recipe, role)
        ignored = sorted(n for n in env if n.startswith("LMCACHE_") and n not in _LMCACHE_OWN)
        if "LMCACHE_CONFIG_FILE" in env and ignored:
            place = env_at(recipe, role, ignored[0]) or role.at
            yield Hit(place, {"role": role.role, "names": ", ".join(ignored)})


_LMCACHE_OWN = frozenset(("LMCACHE_CONFIG_FILE", "LMCACHE_USE_EXPERIMENTAL", "LMCACHE_LOG_LEVEL"))
"""Read from the environment in any case."""
