"""Recipes of schema 2 -> `Deployment`. Only the fields that launching here needs are read so far."""

from __future__ import annotations

import math
import re
from pathlib import Path

from servemark.catalog.deployment import BenchmarkSpec, Deployment, RoleName, RoleSpec
from servemark.catalog.fields import Fields
from servemark.catalog.yaml_nodes import Problem, read_yaml

ROLE_NAMES: tuple[RoleName, ...] = ("aggregated", "prefill", "decode")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def read_recipe(path: Path, shown: str, problems: list[Problem]) -> Deployment | None:
    """Read one recipe file; None when problems (collected) make it unusable."""
    before = len(problems)
    root, found = read_yaml(path, shown)
    problems.extend(found)
    top = Fields(root, problems, "recipe")
    schema = top.integer("schema", minimum=1, required=True)
    if schema is not None and schema != 2:
        top.problem(top.at("schema"), "catalog.recipe_schema", schema=schema)
    name = top.text("name", required=True)
    model = top.mapping("model", "model", required=True)
    engine = top.mapping("engine", "engine", required=True)
    resources = top.mapping("resources", "resources")
    if resources is not None:
        resources.text("gpu_type")
        resources.integer("gpus_per_node", minimum=0)
        resources.no_others()
    roles = _roles(top)
    benchmark = _benchmark(top)
    ready = _ready_budget_s(top)
    identity = top.scalars("identity")
    model_path = model.text("path", required=True) if model else None
    precision = model.text("precision", required=True) if model else None
    container = model.text("container", required=True) if model else None
    engine_type = engine.text("type", required=True) if engine else None
    port = engine.integer("port", minimum=1) if engine else None
    for inner in (model, engine):
        if inner is not None:
            inner.no_others()
    top.no_others()
    if len(problems) > before or not (name and engine_type and model_path and precision and container):
        return None
    return Deployment(
        name=name,
        engine=engine_type,
        model_path=model_path,
        precision=precision,
        container=container,
        roles=roles,
        port=port,
        ready_budget_s=ready,
        benchmark=benchmark,
        identity=identity,
        file=shown,
        at=root.at,
    )


def _roles(top: Fields) -> tuple[RoleSpec, ...]:
    holder = top.mapping("roles", "roles", required=True)
    if holder is None:
        return ()
    found: list[RoleSpec] = []
    for name in ROLE_NAMES:
        fields = holder.mapping(name, f"role {name}")
        if fields is None:
            continue
        workers = fields.integer("workers", minimum=1, required=True)
        nodes = fields.integer("nodes", minimum=1)
        gpus = fields.integer("gpus", minimum=0, required=True)
        args = fields.scalars("args")
        env = _environment(fields)
        fields.no_others()
        found.append(RoleSpec(name, workers or 1, nodes or 1, gpus or 0, args, env, fields.node.at))
    holder.no_others()
    if not found:
        holder.problem(holder.node.at, "catalog.no_roles", allowed=", ".join(ROLE_NAMES))
    return tuple(found)


def _environment(fields: Fields) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in fields.scalars("env").items():
        at = fields.at("env")
        if not _ENV_NAME.match(name):
            fields.problem(at, "catalog.env_name", name=name)
        elif not isinstance(value, str) or "\0" in value:
            fields.problem(at, "catalog.env_value", name=name)
        else:
            values[name] = value
    return values


def _ready_budget_s(top: Fields) -> float:
    health = top.mapping("health_check", "health_check")
    if health is None:
        return 120.0
    attempts = health.integer("max_attempts", minimum=1) or 120
    interval = health.number("interval_seconds")
    health.no_others()
    if interval is None or not 0 < interval <= 3600 or not math.isfinite(interval):
        interval = 1.0
    return attempts * interval


def _benchmark(top: Fields) -> BenchmarkSpec:
    fields = top.mapping("benchmark", "benchmark", required=True)
    if fields is None:
        return BenchmarkSpec(None, (), (), "marked", 0, 1, 60.0, top.node.at)
    fields.choice("type", ("servemark",), required=True)
    workload = fields.text("workload")
    concurrencies = fields.each("concurrencies", int, "integer of at least 1", lambda v: int(str(v)) >= 1)
    evals = fields.each("evals", str, "text", bool)
    state = fields.choice("cache_state", ("marked", "cold"))
    warmup = fields.integer("warmup_requests", minimum=0)
    eval_concurrency = fields.integer("eval_concurrency", minimum=1)
    idle = fields.number("idle_timeout_s")
    if idle is not None and not 0.1 <= idle <= 86_400:
        fields.problem(
            fields.at("idle_timeout_s"), "catalog.out_of_range", field="idle_timeout_s", value=idle
        )
    fields.no_others()
    return BenchmarkSpec(
        workload=workload,
        concurrencies=tuple(int(str(v)) for v in concurrencies),
        evals=tuple(str(v) for v in evals),
        cache_state="cold" if state == "cold" else "marked",
        warmup_requests=1 if warmup is None else warmup,
        eval_concurrency=eval_concurrency or 1,
        idle_timeout_s=60.0 if idle is None else idle,
        at=fields.node.at,
    )
