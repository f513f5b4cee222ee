"""Recipes of schema 2: `roles:` with their own counts, arguments and environment; `services:` and
`engine:`."""

from __future__ import annotations

from servemark.catalog.byte_sizes import binary_size
from servemark.catalog.deployment import ROLE_NAMES, RoleSpec, Service
from servemark.catalog.engine_args import arguments_of
from servemark.catalog.fields import Fields
from servemark.catalog.recipe_parts import COUNT_BELOW, environment_of, role_of, sizes_of

_ENGINE_EXTRAS = ("allow_prefill_decode_colocation", "connector", "dp_launch_mode", "kv_events_config")


def roles_of(top: Fields, engine: str) -> tuple[RoleSpec, ...]:
    """The roles of a recipe; at least one must be deployed."""
    holder = top.mapping("roles", "roles", required=True)
    if holder is None:
        return ()
    found: list[RoleSpec] = []
    for name in ROLE_NAMES:
        fields = holder.mapping(name, f"role {name}")
        if fields is None:
            continue
        workers = fields.integer("workers", minimum=1, required=True, below=COUNT_BELOW)
        nodes = fields.integer("nodes", minimum=1, below=COUNT_BELOW)
        gpus = fields.integer("gpus", minimum=0, required=True, below=COUNT_BELOW)
        args = fields.get("args")
        env = environment_of(fields, "env")
        fields.get("kv_events")
        fields.no_others(lenient=True)
        counts = (workers or 1, nodes or 1, gpus or 0)
        found.append(role_of(fields, name, engine, counts, args, env, fields.node.at))
    holder.no_others()
    if not found:
        holder.problem(holder.node.at, "catalog.no_roles", allowed=", ".join(ROLE_NAMES))
    return tuple(found)


def services_of(top: Fields) -> tuple[Service, ...]:
    """The services with their arguments; sizes of a store are bytes."""
    found = []
    for node in top.items("services"):
        fields = Fields(node, top.problems, "service")
        name = fields.text("name", required=True)
        kind = fields.text("type", required=True)
        placement = fields.mapping("placement", "placement")
        where = placement.text("node") if placement is not None else None
        args = arguments_of(fields.get("args"), fields.problems)
        options = fields.mapping("options", "options")
        store = options.mapping("store_config", "store_config") if options is not None else None
        sizes = sizes_of(store)
        limit = options.integer("max_payload_mb", minimum=1) if options is not None else None
        if limit is not None:
            sizes["max_payload"] = binary_size(f"{limit}MB") or 0
        environment_of(fields, "env")
        fields.no_others(lenient=True)
        if name is not None and kind is not None:
            plain = fields.scalars("options")
            found.append(Service(name, kind, where, args, plain, sizes, fields.node.at))
    return tuple(found)


def engine_extras(engine: Fields) -> dict[str, object]:
    """Engine-wide settings beside type and port."""
    found = {}
    for name in _ENGINE_EXTRAS:
        node = engine.get(name)
        if node is not None:
            found[name] = node.plain()
    return found
