"""Which worker gets which nodes and GPUs: prefill first, then decode, small workers packed
(each on a node of its own where the recipe spreads them), large ones on whole nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.deployment import COLOCATION, SPREAD, Deployment, RoleName, RoleSpec

ORDER: tuple[RoleName, ...] = ("prefill", "decode", "aggregated")
_COLOCATION_WIDE = "allow_prefill_decode_colocation_across_nodes"


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What one worker has of one node: the node's number in the allocation and GPU indices on it."""

    node: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """One worker instance. Its first share is the leader (rank 0)."""

    role: RoleSpec
    index: int
    shares: tuple[NodeShare, ...]

    @property
    def name(self) -> str:
        """`prefill-0`."""
        return f"{self.role.role}-{self.index}"


def place(deployment: Deployment, available: int | None = None) -> tuple[Placed, ...]:
    """Every worker of a deployment with its nodes, in order of placement.

    `available` nodes there are; None: as many as the recipe books. Workers without GPUs share what there is, roles on
    nodes of their own while there are enough. Raises ServemarkError (layer input, with the role's position) when the
    nodes do not suffice or a worker's GPUs do not spread evenly.
    """
    booked = deployment.nodes_total if available is None else available
    roles = [role for name in ORDER for role in deployment.roles if role.role == name and role.workers > 0]
    if not deployment.gpus_per_node or all(role.gpus == 0 for role in roles):
        return _without_gpus(roles, booked)
    return _Filling(deployment, deployment.gpus_per_node, booked).fill(roles)


def place_apart(deployment: Deployment, per_node: int | None) -> tuple[Placed, ...]:
    """Every worker on nodes of its own, numbered on from 0: for managers that place workers themselves.

    `per_node` GPUs a node; None: a worker is one piece, however many GPUs it has. Raises ServemarkError (layer input)
    when a worker's GPUs do not spread evenly.
    """
    found, node = [], 0
    for name in ORDER:
        for role in deployment.roles:
            for index in range(role.workers if role.role == name else 0):
                whole = max(1, -(-role.gpus // per_node)) if per_node else 1
                each, odd = divmod(role.gpus, whole)
                if odd:
                    raise _uneven(role, per_node or 0)
                shares = tuple(NodeShare(node + n, tuple(range(each))) for n in range(whole))
                found.append(Placed(role, index, shares))
                node += whole
    return tuple(found)


def _uneven(role: RoleSpec, per_node: int) -> ServemarkError:
    return ServemarkError(
        "launch.uneven_ranks",
        Layer.INPUT,
        exit_code=2,
        where=str(role.at),
        role=role.role,
        gpus=role.gpus,
        per_node=per_node,
    )


def nodes_of(placed: tuple[Placed, ...]) -> int:
    """Nodes that a placement uses."""
    return 1 + max((share.node for worker in placed for share in worker.shares), default=0)


def gpus_of_a_node(placed: tuple[Placed, ...]) -> int:
    """The most GPUs that a placement uses of any one node."""
    used: Counter[int] = Counter()
    for worker in placed:
        for share in worker.shares:
            used[share.node] += len(share.gpus)
    return max(used.values(), default=0)


def _without_gpus(roles: list[RoleSpec], booked: int) -> tuple[Placed, ...]:
    found, first = [], 0
    for role in roles:
        for index in range(role.workers):
            node = min(first + index % role.nodes, booked - 1)
            found.append(Placed(role, index, (NodeShare(node, ()),)))
        first += role.nodes
    return tuple(found)


class _Filling:
    """Nodes are taken in order; the current one may have GPUs left."""

    def __init__(self, deployment: Deployment, per_node: int, booked: int) -> None:
        self.per_node = per_node
        self.booked = booked
        self.colocate = bool(deployment.extras.get(COLOCATION))
        self.spread = bool(deployment.extras.get(SPREAD))
        self.wide = bool(deployment.extras.get(_COLOCATION_WIDE))
        self.total = sum(role.workers * role.gpus for role in deployment.roles)
        self.node, self.used = 0, 0

    def fill(self, roles: list[RoleSpec]) -> tuple[Placed, ...]:
        found: list[Placed] = []
        for number, role in enumerate(roles):
            if number and not self._may_share():
                left = self._nodes_for(roles[number:])
                if self.used and self.node + 1 + left <= self.booked:
                    self._next_node()
            for index in range(role.workers):
                found.append(Placed(role, index, self._worker(role)))
        return tuple(found)

    def _may_share(self) -> bool:
        return self.colocate and (self.wide or self.total <= self.per_node)

    def _nodes_for(self, roles: list[RoleSpec]) -> int:
        """Nodes that these roles need when they begin on a fresh one."""
        node, used = 0, 0
        for role in roles:
            for _ in range(role.workers):
                whole = -(-role.gpus // self.per_node)
                if role.gpus >= self.per_node:
                    node, used = node + (1 if used else 0) + whole, 0
                elif self.spread:
                    node, used = node + (1 if used else 0), self.per_node
                elif used + role.gpus > self.per_node:
                    node, used = node + 1, role.gpus
                else:
                    used += role.gpus
        return node + (1 if used else 0)

    def _next_node(self) -> None:
        self.node, self.used = self.node + 1, 0

    def _worker(self, role: RoleSpec) -> tuple[NodeShare, ...]:
        if role.gpus < self.per_node:
            if self.used + role.gpus > self.per_node:
                self._next_node()
            share = NodeShare(self.node, tuple(range(self.used, self.used + role.gpus)))
            self._check(role, self.node)
            self.used = self.per_node if self.spread else self.used + role.gpus
            return (share,)
        if self.used:
            self._next_node()
        whole = -(-role.gpus // self.per_node)
        each, odd = divmod(role.gpus, whole)
        if odd:
            raise _uneven(role, self.per_node)
        shares = tuple(NodeShare(self.node + n, tuple(range(each))) for n in range(whole))
        self._check(role, shares[-1].node)
        self.node, self.used = self.node + whole - 1, each if each < self.per_node else self.per_node
        return shares

    def _check(self, role: RoleSpec, node: int) -> None:
        if node >= self.booked:
            raise ServemarkError(
                "launch.too_few_nodes",
                Layer.INPUT,
                exit_code=2,
                where=str(role.at),
                role=role.role,
                booked=self.booked,
                per_node=self.per_node,
            )
