"""What one node of an arm's deployment asks of its host: exact arithmetic with each formula and its source.

All sizes are bytes and say their scope: per rank, per node. `rank` is one engine process on one GPU. An embedded
store takes its segment in every rank's own process; a size like `190GB` is read by the store's rules, so it is
190 x 2^30 bytes. What the recipe does not say is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from servemark.base.errors import ServemarkError
from servemark.catalog.deployment import ROLE_NAMES, Deployment, RoleName, RoleSpec, Service
from servemark.preflight.facts import GIB, PAGE_2M
from servemark.sizing.needs import HostNeeds, chunks, entries, host_needs
from servemark.sizing.size_strings import mooncake_python_size, sglang_hicache_size, vllm_size

STORE_CONNECTORS = ("MooncakeStoreConnector",)
DEFAULT_PORTS = {"mooncake-master": (8700, 8701, 8702), "etcd": (2379, 2380), "nats": (4222,)}
"""Where srt-slurm starts the services of a recipe that names no ports (store: RPC, HTTP metadata, metrics)."""


@dataclass(frozen=True, slots=True)
class StoreNeed:
    """The store's part of one node. `huge`: what the recipe asks for: hugetlb, malloc-thp, or plain."""

    segment_bytes: int
    buffer_bytes: int
    ranks: int
    protocol: str | None
    huge: str
    huge_page_bytes: int

    @property
    def host(self) -> HostNeeds:
        """The node's needs by `sizing.needs`, with every formula. A protocol that the recipe does not name gets the
        reserve of one without an entry limit."""
        return host_needs(
            ranks=self.ranks,
            segment_bytes=self.segment_bytes,
            buffer_bytes=self.buffer_bytes,
            page_bytes=self.huge_page_bytes,
            protocol=self.protocol or "rdma",
        )

    @property
    def rank_bytes(self) -> int:
        """One rank: segment + local buffer."""
        return self.segment_bytes + self.buffer_bytes

    @property
    def node_bytes(self) -> int:
        """All ranks of the node."""
        return self.host.bytes_per_node

    @property
    def pages(self) -> int:
        """Huge pages that the store takes on the node."""
        return self.host.pages

    @property
    def reserve_pages(self) -> int:
        """Huge pages to reserve on the node, headroom included."""
        return self.host.pages_reserved

    def entries(self, page_bytes: int) -> int:
        """Registration entries of one rank's segment at a page size."""
        return entries(self.segment_bytes, page_bytes)

    def chunks(self, page_bytes: int) -> int:
        """Pieces that EFA registers one segment in."""
        return chunks(self.segment_bytes, page_bytes)


@dataclass(frozen=True, slots=True)
class RoleNeed:
    """One node of one role. `ranks`: engine processes on the node; `gpus`: devices they take."""

    role: RoleName
    ranks: int
    gpus: int
    store: StoreNeed | None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a deployment asks of the node that it asks most of. `problems`: message keys of what cannot be told."""

    arm: str
    roles: tuple[RoleNeed, ...]
    gpu_type: str | None
    protocols: tuple[str, ...]
    """Transports between nodes that the recipe names: efa, rdma, tcp, nixl's back ends in lower case."""
    ports: tuple[tuple[int, str], ...]
    """(port, who takes it) on the node that holds the services and the frontend."""
    container: str
    host_budget_bytes: int | None
    """Host memory of a node as the clusters file states it."""
    problems: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """The most GPUs that one node needs."""
        return max((role.gpus for role in self.roles), default=0)

    @property
    def store(self) -> StoreNeed | None:
        """The largest store need of one node."""
        found = [role.store for role in self.roles if role.store is not None]
        return max(found, key=lambda store: store.node_bytes, default=None)


def needs_of(
    deployment: Deployment, *, arm: str, host_mib: int | None = None, role: RoleName | None = None
) -> Needs:
    """Needs of one node. `host_mib`: memory of a node in MiB from the clusters file; `role`: only that role's nodes."""
    problems: list[str] = []
    roles = [one for one in deployment.roles if role is None or one.role == role]
    service = next((s for s in deployment.services if s.type.startswith("mooncake")), None)
    found = []
    for one in roles:
        ranks = ranks_per_node(one, deployment)
        store = _store_need(deployment, one, service, ranks, problems)
        found.append(RoleNeed(one.role, ranks, ranks if one.gpus else 0, store))
    return Needs(
        arm=arm,
        roles=tuple(found),
        gpu_type=deployment.gpu_type,
        protocols=_protocols(roles, service),
        ports=_ports(deployment),
        container=deployment.container,
        host_budget_bytes=host_mib * (1 << 20) if host_mib is not None else None,
        problems=tuple(dict.fromkeys(problems)),
    )


def ranks_per_node(role: RoleSpec, deployment: Deployment) -> int:
    """Engine processes of a role on its fullest node: workers that are smaller than a node are packed."""
    per_node = deployment.gpus_per_node or role.gpus or 1
    if not role.gpus:
        return -(-role.workers // max(role.nodes, 1))
    if role.gpus >= per_node:
        return per_node
    workers = min(per_node // role.gpus, -(-role.workers // max(role.nodes, 1)))
    return max(1, workers) * role.gpus


def _store_need(
    deployment: Deployment, role: RoleSpec, service: Service | None, ranks: int, problems: list[str]
) -> StoreNeed | None:
    env = {**deployment.environment, **role.env}
    vllm = any(c.name in STORE_CONNECTORS for c in role.connectors)
    hicache = role.flag("hicache-storage-backend") == "mooncake"
    if not vllm and not hicache:
        return None
    config = _store_config(role, service, env, hicache=hicache)
    mode = config.get("mode")
    if isinstance(mode, str) and mode not in {"embedded"}:
        # A store process of its own holds the segment; its size stands where that process is configured.
        problems.append("preflight.need.standalone_store")
        return None
    sizes = [config.get("global_segment_size"), config.get("local_buffer_size")]
    if None in sizes:
        problems.append("preflight.need.no_store_size")
        return None
    try:
        segment, buffer = _rank_sizes(deployment, role, sizes[0], sizes[1], hicache=hicache)
    except ServemarkError:  # its reader refuses it too: `check` names the place
        problems.append("preflight.need.unreadable_store_size")
        return None
    protocol = config.get("protocol")
    huge, page = _huge(env)
    return StoreNeed(
        segment, buffer, ranks, protocol.lower() if isinstance(protocol, str) else None, huge, page
    )


def _rank_sizes(
    deployment: Deployment, role: RoleSpec, segment: object, buffer: object, *, hicache: bool
) -> tuple[int, int]:
    """(segment, buffer) of one rank in bytes, by the rules of the program that reads each. Raises ServemarkError."""
    if hicache:
        parallel = role.parallel
        return sglang_hicache_size(segment, parallel.tp or 1, parallel.pp or 1), mooncake_python_size(buffer)
    read = vllm_size if deployment.engine == "vllm" else mooncake_python_size
    return read(segment), read(buffer)


def _store_config(
    role: RoleSpec, service: Service | None, env: Mapping[str, str], *, hicache: bool
) -> dict[str, object]:
    """The store's settings: the service's, then the role's own environment or arguments over them."""
    stated = service.options.get("store_config") if service is not None else None
    config: dict[str, object] = dict(stated) if isinstance(stated, dict) else {}
    names = {
        "MOONCAKE_GLOBAL_SEGMENT_SIZE": "global_segment_size",
        "MOONCAKE_LOCAL_BUFFER_SIZE": "local_buffer_size",
        "MOONCAKE_PROTOCOL": "protocol",
    }
    config.update({field: env[name] for name, field in names.items() if name in env})
    extra = role.flag("hicache-storage-backend-extra-config")
    if hicache and isinstance(extra, dict):
        config.update({str(key): value for key, value in extra.items()})
    return config


def _huge(env: Mapping[str, str]) -> tuple[str, int]:
    """(how the segment asks for huge pages, their size). The store tests its variable for presence: "0" is on too."""
    if "MC_STORE_USE_HUGEPAGE" in env:
        return "hugetlb", GIB if env.get("MC_STORE_HUGEPAGE_SIZE", "").strip().upper() == "1GB" else PAGE_2M
    tunables = env.get("GLIBC_TUNABLES", "").split(":")
    return ("malloc-thp" if "glibc.malloc.hugetlb=1" in tunables else "plain"), PAGE_2M


def _protocols(roles: list[RoleSpec], service: Service | None) -> tuple[str, ...]:
    found: list[str] = []
    config = service.options.get("store_config") if service is not None else None
    if isinstance(config, dict) and isinstance(config.get("protocol"), str):
        found.append(str(config["protocol"]).lower())
    for role in roles:
        for connector in role.connectors:
            backends = connector.config.get("backends")
            found += [str(b).lower() for b in backends] if isinstance(backends, list) else []
    return tuple(dict.fromkeys(found))


def _ports(deployment: Deployment) -> tuple[tuple[int, str], ...]:
    """Ports of the frontend, the engine and the services, from their arguments or the programs' defaults."""
    found: list[tuple[int, str]] = []
    stated = deployment.benchmark.env.get("PORT", "")
    if deployment.frontend is not None:
        found.append((int(stated) if stated.isdigit() and len(stated) < 6 else 8000, "frontend"))
    if deployment.port is not None:
        found.append((deployment.port, "engine"))
    for service in deployment.services:
        values = [
            int(str(argument.value))
            for name, argument in service.args.items()
            if name.endswith("port") and str(argument.value).isdigit() and len(str(argument.value)) < 6
        ]
        found += [(port, service.name) for port in values or DEFAULT_PORTS.get(service.type, ())]
    return tuple(dict.fromkeys((port, name) for port, name in found if 0 < port < 65536))


def role_name(text: str) -> RoleName | None:
    """A role by name; None for any other word."""
    return next((name for name in ROLE_NAMES if name == text), None)
