"""Host memory of a role's KV tier, read by the rules of whoever reads it: per rank or a total, 2^30 or 10^9.

| tier | setting | counts | unit |
|---|---|---|---|
| Mooncake store, vLLM and our own P/D pairs | global_segment_size | each rank | GB is 2^30 |
| Mooncake store, SGLang | the same name | total over TP x PP | gb is 2^30 |
| SGLang HiCache | --hicache-size | each rank | 10^9 |
| SGLang HiCache | --hicache-ratio | each rank, times its device pool | |
| vLLM SimpleCPU, Offloading | cpu_bytes_to_use | total over TP x PP x PCP | bytes |
| vLLM SimpleCPU | cpu_bytes_to_use_per_rank | each rank, before the total | bytes |
| vLLM | --kv-offloading-size | total over TP x PP x PCP | GiB |
| LMCache | max_local_cpu_size | each rank | 2^30 |
| TensorRT-LLM | kv_cache_config.host_cache_size | each rank | bytes |

Sources: vLLM 07d682b and its tests of --kv-offloading-size, SGLang 0.5.13 to 0.5.23, LMCache 0.3, TensorRT-LLM 1.3's
KVCacheManagerV2 (every rank reads the size for itself).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from servemark.base.errors import ServemarkError, input_error
from servemark.catalog.deployment import Connector, Deployment, RoleSpec, Service
from servemark.sizing.host import EVICTION, STORE_DEFAULT, WATERMARK, StoreSizes
from servemark.sizing.lines import Remark
from servemark.sizing.size_strings import (
    GIB,
    MAX_BYTES,
    raw_bytes,
    sglang_hicache_size,
    sglang_host_pool_size,
    vllm_size,
)

HICACHE_RATIO = 2.0
"""SGLang's default: the host pool is twice the device's."""
LMCACHE_DEFAULT_GIB = 5.0
OFFLOADERS = ("OffloadingConnector", "SimpleCPUOffloadConnector")
LMCACHE = ("LMCacheConnectorV1", "LMCacheConnector")
PD_FRONTEND = "servemark-pd"
"""Each llama.cpp worker behind it is a client of the store, with a segment of its own in its process."""
_ENVIRONMENT = {
    "MOONCAKE_GLOBAL_SEGMENT_SIZE": "global_segment_size",
    "MOONCAKE_LOCAL_BUFFER_SIZE": "local_buffer_size",
    "MOONCAKE_PROTOCOL": "protocol",
}


def store_of(deployment: Deployment, role: RoleSpec, remarks: list[Remark]) -> StoreSizes | None:
    """What each rank of a role holds in host memory; None without a tier, or where its size is elsewhere (a remark
    says so). ServemarkError (exit 2) for a size that its reader refuses."""
    if deployment.engine == "sglang":
        return _hicache(deployment, role, remarks)
    if deployment.engine == "trtllm":
        return _trt_host_cache(role, remarks)
    own = deployment.frontend is not None and deployment.frontend.type == PD_FRONTEND
    if any(connector.name == "MooncakeStoreConnector" for connector in role.connectors) or (
        own and store_service(deployment) is not None and role.role != "aggregated"
    ):
        return _mooncake(deployment, role, remarks)
    for connector in role.connectors:
        if connector.name in OFFLOADERS:
            return _offload(connector, role, remarks)
        if connector.name in LMCACHE:
            return _lmcache(deployment, connector, role, remarks)
        if connector.name == "LMCacheMPConnector":
            remarks.append(Remark("store_elsewhere", "warning", {"store": connector.name, "role": role.role}))
    return _kv_offloading(role)


def store_service(deployment: Deployment) -> Service | None:
    """The service that a store's settings stand at."""
    return next((one for one in deployment.services if one.type == "mooncake-master"), None)


def store_settings(deployment: Deployment, role: RoleSpec) -> dict[str, object]:
    """The store's settings: the service's, the environment's over them, then the role's own arguments."""
    service = store_service(deployment)
    stated = service.options.get("store_config") if service is not None else None
    config: dict[str, object] = dict(stated) if isinstance(stated, dict) else {}
    environment = {**deployment.environment, **role.env}
    config.update({field: environment[name] for name, field in _ENVIRONMENT.items() if name in environment})
    extra = role.flag("hicache-storage-backend-extra-config")
    if deployment.engine == "sglang" and isinstance(extra, dict):
        config.update({str(key): value for key, value in extra.items()})
    return config


def _mooncake(deployment: Deployment, role: RoleSpec, remarks: list[Remark]) -> StoreSizes | None:
    service, config = store_service(deployment), store_settings(deployment, role)
    if not config:
        remarks.append(Remark("store_unconfigured", "warning", {"role": role.role}))
        return None
    where = str(service.at if service is not None else role.at)
    embedded = str(config.get("mode", "embedded")) == "embedded"
    if not embedded:
        remarks.append(Remark("store_standalone", "note", {"role": role.role}))
    arguments = service.args if service is not None else {}
    flags = {name: _number(argument.value) for name, argument in arguments.items()}
    watermark = flags.get("eviction-high-watermark-ratio")
    return StoreSizes(
        kind="mooncake",
        segment_bytes=_size(config, "global_segment_size", where) if embedded else 0,
        buffer_bytes=_size(config, "local_buffer_size", where),
        protocol=str(config.get("protocol", "rdma")).lower(),
        watermark=watermark if watermark is not None else WATERMARK,
        eviction=flags.get("eviction-ratio") or EVICTION,
        watermark_stated=watermark is not None,
        segment_text=str(config.get("global_segment_size", "4GB"))[:60],
        buffer_text=str(config.get("local_buffer_size", "4GB"))[:60],
        huge_pages="MC_STORE_USE_HUGEPAGE" in {**deployment.environment, **role.env},
    )


def _size(config: Mapping[str, object], name: str, where: str) -> int:
    value = config.get(name)
    if value is None:
        return STORE_DEFAULT
    return _positive(_placed(vllm_size, value, where), name, value, where)


def _placed(read: Callable[[object], int], value: object, where: str) -> int:
    """What a reader makes of a size; its refusal with the place of the role or service."""
    try:
        return read(value)
    except ServemarkError as error:
        raise input_error(error.key, where=where, **error.values) from None


def _ratio(role: RoleSpec, where: str) -> float:
    value = role.flag("hicache-ratio")
    if value is None:
        return HICACHE_RATIO
    ratio = _number(value)
    if ratio is None or not 0 < ratio < 1000:
        raise input_error("sizing.not_positive", where=where, name="hicache-ratio", value=str(value)[:60])
    return ratio


def _positive(found: int, name: str, value: object, where: str) -> int:
    if found <= 0:
        raise input_error("sizing.not_positive", where=where, name=name, value=str(value)[:60])
    return found


def _hicache(deployment: Deployment, role: RoleSpec, remarks: list[Remark]) -> StoreSizes | None:
    """HiCache's own pool on every rank, and the segment of a Mooncake store behind it."""
    if not role.flag("enable-hierarchical-cache"):
        return None
    sizes, where = role.parallel, str(role.at)
    pool = role.flag("hicache-size")
    host = 0 if pool is None or str(pool) == "0" else _placed(sglang_host_pool_size, pool, where)
    ratio = 0.0 if host else _ratio(role, where)
    stored = role.flag("hicache-storage-backend")
    config = store_settings(deployment, role)
    text = config.get("global_segment_size") if stored is None or stored == "mooncake" else None
    segment = 0
    if text is not None:
        segment = _placed(lambda value: sglang_hicache_size(value, sizes.tp or 1, sizes.pp or 1), text, where)
    if stored == "mooncake" and text is None:
        remarks.append(Remark("store_unconfigured", "warning", {"role": role.role}))
    return StoreSizes(
        kind="hicache",
        segment_bytes=segment,
        buffer_bytes=host,
        protocol=str(config.get("protocol", "rdma")).lower() if segment else "tcp",
        segment_text=str(text)[:60] if segment else "",
        buffer_text=str(pool)[:60] if host else "",
        reader="sglang-store",
        buffer_reader="hicache",
        ratio=ratio,
    )


def _offload(connector: Connector, role: RoleSpec, remarks: list[Remark]) -> StoreSizes | None:
    """cpu_bytes_to_use is a total over the engine's ranks; cpu_bytes_to_use_per_rank goes before it."""
    config = connector.config
    each, total = config.get("cpu_bytes_to_use_per_rank"), config.get("cpu_bytes_to_use")
    where = str(role.at)
    if each is not None:
        found, text, reader = _placed(raw_bytes, each, where), str(each), "offload-rank"
    elif total is not None:
        found, text, reader = _placed(raw_bytes, total, where) // _ranks(role), str(total), "offload"
    else:
        remarks.append(Remark("store_unread", "warning", {"store": connector.name, "role": role.role}))
        return None
    _positive(found, "cpu_bytes_to_use", text, where)
    return _private("offload", found, text, reader)


def _kv_offloading(role: RoleSpec) -> StoreSizes | None:
    """--kv-offloading-size: GiB over the engine's ranks, for vLLM's own tier and for LMCache alike."""
    value = role.flag("kv-offloading-size")
    if value is None:
        return None
    size = _number(value)
    if size is None or not math.isfinite(size) or not 0 < size * GIB < MAX_BYTES:
        raise input_error(
            "sizing.not_positive", where=str(role.at), name="kv-offloading-size", value=str(value)[:60]
        )
    return _private("offload", int(size * GIB) // _ranks(role), str(value)[:60], "kv-offloading-size")


def _lmcache(
    deployment: Deployment, connector: Connector, role: RoleSpec, remarks: list[Remark]
) -> StoreSizes | None:
    """max_local_cpu_size is GiB of every worker process. With MLA one rank's copy may be kept alone: said."""
    environment = {**deployment.environment, **role.env}
    config = connector.config
    value = config.get("lmcache.max_local_cpu_size", environment.get("LMCACHE_MAX_LOCAL_CPU_SIZE"))
    if "LMCACHE_CONFIG_FILE" in environment and value is None:
        remarks.append(Remark("store_elsewhere", "warning", {"store": connector.name, "role": role.role}))
        return None
    size = LMCACHE_DEFAULT_GIB if value is None else _number(value)
    if size is None or not math.isfinite(size) or not 0 < size * GIB < MAX_BYTES:
        raise input_error(
            "sizing.not_positive", where=str(role.at), name="max_local_cpu_size", value=str(value)[:60]
        )
    remarks.append(Remark("lmcache_ranks", "note", {"role": role.role, "ranks": _ranks(role)}))
    return _private("lmcache", int(size * GIB), f"{size:g}", "lmcache")


def _trt_host_cache(role: RoleSpec, remarks: list[Remark]) -> StoreSizes | None:
    """host_cache_size is bytes of every rank; the second cache manager provisions a tier where nothing is said."""
    config = role.flag("kv-cache-config")
    value = config.get("host_cache_size") if isinstance(config, dict) else None
    if value is None:
        if isinstance(config, dict) and config.get("use_kv_cache_manager_v2") is True:
            remarks.append(Remark("trt_host_auto", "note", {"role": role.role}))
        return None
    found = _placed(raw_bytes, value, str(role.at))
    return _private("trtllm", found, str(value)[:60], "trtllm") if found else None


def _private(kind: str, size: int, text: str, reader: str) -> StoreSizes:
    """A tier that no network reads."""
    return StoreSizes(kind, 0, size, "tcp", buffer_text=text[:60], buffer_reader=reader)


def _ranks(role: RoleSpec) -> int:
    """Ranks of one vLLM engine (its world size): TP x PP x PCP; data-parallel engines each take the total again."""
    sizes = role.parallel
    return max(1, (sizes.tp or 1) * (sizes.pp or 1) * (sizes.pcp or 1))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value) if len(str(value)) < 24 else None
    except (ValueError, OverflowError):
        return None
