"""What one node of an arm's deployment asks of its host; the arithmetic is `sizing`'s.

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
from servemark.sizing.from_recipe import ranks_per_node
from servemark.sizing.lines import Remark
from servemark.sizing.needs import HostNeeds, chunks, entries, host_needs
from servemark.sizing.store_sizes import store_of

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
    def arithmetic(self) -> HostNeeds:
        """Bytes, pages and entries of the node, as `fit` works them out."""
        return host_needs(
            ranks=self.ranks,
            segment_bytes=self.segment_bytes,
            buffer_bytes=self.buffer_bytes,
            page_bytes=self.huge_page_bytes,
            protocol=self.protocol or "",
        )

    @property
    def rank_bytes(self) -> int:
        """One rank: segment + local buffer."""
        return self.segment_bytes + self.buffer_bytes

    @property
    def node_bytes(self) -> int:
        """All ranks of the node."""
        return self.arithmetic.bytes_per_node

    @property
    def pages(self) -> int:
        """Huge pages of the node."""
        return self.arithmetic.pages

    @property
    def reserve_pages(self) -> int:
        """What to reserve, headroom included."""
        return self.arithmetic.pages_reserved

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
        store = _store_need(deployment, one, ranks, problems)
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


def _store_need(deployment: Deployment, role: RoleSpec, ranks: int, problems: list[str]) -> StoreNeed | None:
    """The role's tier as `fit` reads it; a problem where its size is elsewhere or its reader refuses it."""
    remarks: list[Remark] = []
    try:
        store = store_of(deployment, role, remarks)
    except ServemarkError:  # its reader refuses it too: `check` names the place
        problems.append("preflight.need.unreadable_store_size")
        return None
    if any(remark.name in {"store_standalone", "store_elsewhere"} for remark in remarks):
        # A store process of its own holds the segment; its size stands where that process is configured.
        problems.append("preflight.need.standalone_store")
        return None
    if any(remark.name in {"store_unconfigured", "store_unread"} for remark in remarks):
        problems.append("preflight.need.no_store_size")
    if store is None:
        return None
    if store.ratio:
        problems.append("preflight.need.ratio_store")
    if not store.rank_bytes:
        return None
    huge, page = (
        _huge({**deployment.environment, **role.env}) if store.kind == "mooncake" else ("plain", PAGE_2M)
    )
    return StoreNeed(
        store.segment_bytes, store.buffer_bytes, ranks, store.protocol if store.shared else None, huge, page
    )


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
