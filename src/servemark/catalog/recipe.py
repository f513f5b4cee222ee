"""Recipes of all three shapes -> one `Deployment`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servemark.catalog import recipe_v2
from servemark.catalog.deployment import SPREAD, Deployment, RoleSpec, Service
from servemark.catalog.fields import Fields
from servemark.catalog.kv_and_spec import transfer_engines
from servemark.catalog.nodes import Node, Problem
from servemark.catalog.recipe_parts import (
    batch_options,
    benchmark_of,
    environment_of,
    frontend_of,
    images_of,
    ready_budget,
    software_of,
    time_limit,
)
from servemark.catalog.recipe_v1 import Backend
from servemark.catalog.variants import has_variants, resolve_variant
from servemark.catalog.yaml_nodes import read_yaml

_UNREAD = (
    "enable_config_dump",
    "host_setup",
    "post_eval",
    "profiling",
    "reporting",
    "telemetry",
)
"""Top-level fields that steer the batch system, hosts or tooling and change no fact of the deployment."""


def read_recipe(
    path: Path, shown: str, problems: list[Problem], variant: str | None = None
) -> Deployment | None:
    """Read one recipe file; None when errors (collected) make it unusable."""
    root, found = read_yaml(path, shown)
    problems.extend(found)
    return deployment_of(root, problems, variant)


def deployment_of(root: Node, problems: list[Problem], variant: str | None = None) -> Deployment | None:
    """The deployment of a recipe that is already a tree; None with an error among `problems`."""
    own: list[Problem] = []
    tree: Node | None = root
    if has_variants(root):
        tree = resolve_variant(root, variant, own)
    elif variant is not None:
        own.append(Problem(root.at, "catalog.no_variant", {"variant": variant[:200], "names": "—"}))
        tree = None
    found = _deployment(tree, own, variant) if tree is not None else None
    problems.extend(own)
    return None if any(problem.severity == "error" for problem in own) else found


def shape_of(root: Node) -> int | None:
    """1 or 2 by the fields of a recipe's tree; None when it is no recipe that is known here."""
    entries = root.entries or {}
    if "roles" in entries or ("schema" in entries and entries["schema"].scalar != 1):
        return 2
    if "backend" in entries or "schema" in entries:
        return 1
    return None


def _deployment(root: Node, problems: list[Problem], variant: str | None) -> Deployment | None:
    shape = shape_of(root)
    if shape is None:
        if not root.partial:
            problems.append(Problem(root.at, "catalog.recipe_shape", {"kind": root.kind}))
        return None
    top = Fields(root, problems, "recipe")
    schema = top.integer("schema", minimum=1)
    if schema is not None and schema not in (1, 2):
        top.problem(top.at("schema"), "catalog.recipe_schema", schema=schema)
    name = top.text("name", required=True)
    model = top.mapping("model", "model", required=True)
    texts = {field: model.text(field, required=True) if model else None for field in _MODEL}
    if model is not None:
        model.no_others(lenient=True)
    parts = _parts_v1(top) if shape == 1 else _parts_v2(top)
    gpu_type, per_node, spread = _node_facts(top, strict=shape == 2)
    budget, stated = ready_budget(top)
    software, identity = software_of(top)
    setup = top.text("setup_script")
    found = Deployment(
        name=name or "",
        engine=parts.engine,
        model_path=texts["path"] or "",
        precision=texts["precision"] or "",
        container=texts["container"] or "",
        roles=parts.roles,
        port=parts.port,
        ready_budget_s=budget,
        benchmark=benchmark_of(top),
        identity=identity,
        file=root.file,
        at=root.at,
        schema=shape,
        variant=variant,
        ready_budget_stated=stated,
        gpu_type=gpu_type,
        gpus_per_node=per_node,
        environment=environment_of(top, "environment"),
        frontend=frontend_of(top),
        services=parts.services,
        software=software,
        images=images_of(top),
        kv_transfer=transfer_engines(parts.roles),
        time_limit_s=time_limit(top),
        sbatch_options=batch_options(top, "sbatch_directives"),
        srun_options=batch_options(top, "srun_options"),
        extras={
            **parts.extras,
            **({"setup_script": setup} if setup else {}),
            **({SPREAD: True} if spread else {}),
        },
        node=root,
    )
    top.asked |= set(_UNREAD)
    top.no_others(lenient=True)
    return found


_MODEL = ("path", "precision", "container")


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the two schemas write in different places."""

    engine: str
    roles: tuple[RoleSpec, ...]
    services: tuple[Service, ...]
    port: int | None
    extras: dict[str, object]


def _parts_v1(top: Fields) -> _Parts:
    backend = Backend(top)
    parts = _Parts(backend.engine or "", backend.roles(), backend.services(), None, backend.extras)
    backend.finish()
    return parts


def _parts_v2(top: Fields) -> _Parts:
    engine = top.mapping("engine", "engine", required=True)
    name, port, extras = None, None, {}
    if engine is not None:
        name = engine.text("type", required=True)
        port = engine.integer("port", minimum=1)
        extras = recipe_v2.engine_extras(engine)
        engine.no_others(lenient=True)
    return _Parts(name or "", recipe_v2.roles_of(top, name or ""), recipe_v2.services_of(top), port, extras)


def _node_facts(top: Fields, *, strict: bool) -> tuple[str | None, int | None, bool]:
    """GPU type, GPUs of a node, and whether each worker has a node of its own. Schema 1's own reader has reported what is
    wrong with them."""
    quiet: list[Problem] = []
    found = top.get("resources")
    if found is None or found.entries is None:
        if strict and found is not None:
            top.mapping("resources", "resources")
        return None, None, False
    resources = Fields(found, top.problems if strict else quiet, "resources")
    facts = resources.text("gpu_type"), resources.integer("gpus_per_node", minimum=0)
    spread = resources.boolean(SPREAD)
    if strict:
        resources.no_others(lenient=True)
    return *facts, spread is True
