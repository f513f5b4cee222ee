"""Recipes of schema 1: `backend:` with one block an engine, counts in `resources:`."""

from __future__ import annotations

from servemark.catalog.byte_sizes import binary_size
from servemark.catalog.deployment import ROLE_NAMES, RoleName, RoleSpec, Service
from servemark.catalog.engine_args import arguments_of
from servemark.catalog.fields import Fields
from servemark.catalog.recipe_parts import COUNT_BELOW, environment_of, role_of, sizes_of

ENGINES = ("vllm", "sglang", "trtllm")
_SHORT: dict[RoleName, str] = {"aggregated": "agg", "prefill": "prefill", "decode": "decode"}
_EXTRAS = (
    "allow_prefill_decode_colocation",
    "allow_prefill_decode_colocation_across_nodes",
    "connector",
    "dp_launch_mode",
    "kv_events_config",
    "publish_events_and_metrics",
)


class Backend:
    """The backend block of one recipe: engine, arguments and environment by role, engine-wide settings."""

    def __init__(self, top: Fields) -> None:
        self.top = top
        self.fields = top.mapping("backend", "backend", required=True)
        self.engine = self._engine()
        self.args = self._block(f"{self.engine}_config") if self.engine else None
        self.extras: dict[str, object] = {}
        if self.fields is not None:
            for name in _EXTRAS:
                node = self.fields.get(name)
                if node is not None:
                    self.extras[name] = node.plain()

    def _block(self, name: str) -> Fields | None:
        return self.fields.mapping(name, name) if self.fields is not None else None

    def _engine(self) -> str | None:
        """What `type` says, else the one `*_config` block that stands there."""
        if self.fields is None:
            return None
        stated = self.fields.choice("type", ENGINES)
        blocks = [name for name in ENGINES if self.fields.stated(f"{name}_config")]
        if stated is None and self.fields.get("type") is None:
            if len(blocks) != 1:
                self.fields.problem(self.fields.node.at, "catalog.no_engine", engines=", ".join(ENGINES))
                return None
            return blocks[0]
        for name in blocks:
            if name != stated and stated is not None:
                at = self.fields.node.key_at(f"{name}_config")
                self.fields.problem(at, "catalog.other_engine", field=f"{name}_config", engine=stated)
                self.fields.asked.add(f"{name}_config")
        return stated

    def roles(self) -> tuple[RoleSpec, ...]:
        """The roles that `resources` books."""
        resources = self.top.mapping("resources", "resources", required=True)
        if resources is None or self.fields is None or self.engine is None:
            return ()
        per_node = resources.integer("gpus_per_node", minimum=0, required=True) or 0
        resources.text("gpu_type")
        for switch in ("het_jobs", "spread_workers"):
            resources.boolean(switch)
        found = []
        for name in ROLE_NAMES:
            counts = self._counts(resources, _SHORT[name], per_node)
            args = self.args.get(name) if self.args is not None else None
            if args is not None and args.entries is None:
                self.fields.problem(
                    args.at, "catalog.wrong_type", field=name, expected="mapping", kind=args.kind
                )
                args = None
            env = environment_of(self.fields, f"{name}_environment")
            if counts is not None and counts[0] > 0:
                at = args.at if args is not None else resources.node.at
                found.append(role_of(self.fields, name, self.engine, counts, args, env, at))
        resources.no_others(lenient=True)
        if self.args is not None:
            self.args.no_others(lenient=True)
        if not found:
            resources.problem(resources.node.at, "catalog.no_roles", allowed=", ".join(ROLE_NAMES))
        return tuple(found)

    @staticmethod
    def _counts(resources: Fields, short: str, per_node: int) -> tuple[int, int, int] | None:
        nodes = resources.integer(f"{short}_nodes", minimum=0, below=COUNT_BELOW)
        workers = resources.integer(f"{short}_workers", minimum=0, below=COUNT_BELOW)
        gpus = resources.integer(f"gpus_per_{short}", minimum=1, below=COUNT_BELOW)
        if workers is None:
            return None
        if gpus is None:
            gpus = (nodes or 0) * per_node // workers if workers else 0
        return workers, nodes or 0, gpus

    def services(self) -> tuple[Service, ...]:
        """Services that the recipe configures: NATS's limit in `infra`, Mooncake's store in the backend."""
        found = []
        infra = self.top.mapping("infra", "infra")
        if infra is not None:
            limit = infra.integer("nats_max_payload_mb", minimum=1)
            dedicated = infra.boolean("etcd_nats_dedicated_node")
            infra.no_others(lenient=True)
            placement = "dedicated" if dedicated else None
            if limit is not None:
                sizes = {"max_payload": binary_size(f"{limit}MB") or 0}
                options: dict[str, object] = {"max_payload_mb": limit}
                found.append(Service("nats", "nats", placement, {}, options, sizes, infra.node.at))
        store = self._block("mooncake_kv_store")
        if store is not None:
            inner = store.mapping("store_config", "store_config")
            environment_of(store, "env")
            args = arguments_of(store.get("master_extra_args"), store.problems)
            store.no_others(lenient=True)
            plain = store.node.plain()
            options = plain if isinstance(plain, dict) else {}
            at = store.node.at
            found.append(
                Service("mooncake-master", "mooncake-master", None, args, options, sizes_of(inner), at)
            )
        return tuple(found)

    def finish(self) -> None:
        """Names in the backend block that nothing asked for."""
        if self.fields is not None and self.engine is not None:
            self.fields.no_others(lenient=True)
