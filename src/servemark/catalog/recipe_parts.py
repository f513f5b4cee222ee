"""Parts that both recipe schemas share: environment, health, benchmark, front end, software, sizes."""

from __future__ import annotations

import re
from typing import Literal

from servemark.catalog.byte_sizes import binary_size
from servemark.catalog.deployment import BenchmarkSpec, Frontend, Image, RoleName, RoleSpec, Software
from servemark.catalog.engine_args import arguments_of, plain_args
from servemark.catalog.fields import Fields
from servemark.catalog.kv_and_spec import connectors_of, parallel_of, speculative_of
from servemark.catalog.nodes import Node, Position
from servemark.catalog.phase_budgets import budgets_of

DEFAULT_ATTEMPTS, DEFAULT_INTERVAL_S = 120, 1.0
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):(\d{2})(?::(\d{2}))?\Z", re.ASCII)
_BENCHMARK_FIELDS = (
    "aiperf_server_metrics",
    "client_placement",
    "custom_tokenizer",
    "num_prompts_mult",
    "num_warmup_mult",
    "random_range_ratio",
    "tokenizer_mode",
    "use_chat_template",
)
COUNT_BELOW = 4097
"""Of workers, nodes, and GPUs of a worker or a node: more is a slip, and what lists them would take for ever."""


def environment_of(fields: Fields, name: str) -> dict[str, str]:
    """Environment variables: names that a shell takes, values that are texts."""
    values: dict[str, str] = {}
    found = fields.mapping(name, name)
    for variable, node in (found.node.entries or {}).items() if found else ():
        if not _ENV_NAME.match(variable):
            fields.problem(
                found.node.key_at(variable) if found else node.at, "catalog.env_name", name=variable[:200]
            )
        elif not isinstance(node.scalar, str) or "\0" in node.scalar:
            fields.problem(node.at, "catalog.env_value", name=variable[:200])
        else:
            values[variable] = node.scalar
    return values


def role_of(  # noqa: PLR0917 - what makes a role
    fields: Fields,
    name: RoleName,
    engine: str,
    counts: tuple[int, int, int],
    args: Node | None,
    env: dict[str, str],
    at: Position,
) -> RoleSpec:
    """A role from its counts (workers, nodes, GPUs of a worker), arguments and environment."""
    flags = arguments_of(args, fields.problems)
    workers, nodes, gpus = counts
    return RoleSpec(
        role=name,
        workers=workers,
        nodes=nodes,
        gpus=gpus,
        args=plain_args(args),
        env=env,
        at=at,
        flags=flags,
        parallel=parallel_of(engine, flags),
        connectors=connectors_of(flags),
        speculative=speculative_of(flags),
    )


def batch_options(top: Fields, name: str) -> tuple[str, ...]:
    """A block of options of the batch system, as `--NAME=VALUE`; `--NAME` alone where the value is empty or true, nothing
    where it is false or null. A mapping or a list is a problem: no option takes one."""
    found = top.mapping(name, name)
    options = []
    for option, node in (found.node.entries or {}).items() if found else ():
        if node.entries is not None or node.items is not None:
            top.problem(
                node.at, "catalog.wrong_type", field=f"{name}.{option}", expected="text", kind=node.kind
            )
        elif isinstance(node.scalar, bool) or node.scalar is None:
            options += [f"--{option}"] if node.scalar is True else []
        else:
            value = str(node.scalar).strip()
            options.append(f"--{option}={value}" if value else f"--{option}")
    return tuple(options)


def ready_budget(top: Fields) -> tuple[float, bool]:
    """Seconds until a deployment must answer, and whether the recipe states it."""
    health = top.mapping("health_check", "health_check")
    if health is None:
        return DEFAULT_ATTEMPTS * DEFAULT_INTERVAL_S, False
    attempts = health.integer("max_attempts", minimum=1)
    interval = health.number("interval_seconds")
    if interval is not None and not 0 < interval <= 3600:
        field = "interval_seconds"
        health.problem(health.at(field), "catalog.out_of_range", field=field, value=interval)
        interval = None
    health.no_others(lenient=True)
    stated = attempts is not None and interval is not None
    return (attempts or DEFAULT_ATTEMPTS) * (interval or DEFAULT_INTERVAL_S), stated


def frontend_of(top: Fields) -> Frontend | None:
    """The front end with its router."""
    fields = top.mapping("frontend", "frontend")
    if fields is None:
        return None
    kind = fields.text("type", required=True)
    args = arguments_of(fields.get("args"), fields.problems)
    env = environment_of(fields, "env")
    fields.text("nginx_container")
    for switch in ("enable_multiple_frontends", "nginx_session_affinity"):
        fields.boolean(switch)
    fields.integer("num_additional_frontends", minimum=0)
    for name in ("nginx_session_affinity_header", "orchestrator_placement"):
        fields.text(name)
    fields.no_others(lenient=True)
    mode = args.get("router-mode")
    return Frontend(
        kind or "",
        args,
        env,
        mode.value if mode is not None and isinstance(mode.value, str) else None,
        fields.node.at,
    )


def software_of(top: Fields) -> tuple[tuple[Software, ...], dict[str, object]]:
    """Revisions that the recipe installs or states, and its `identity` block as plain values."""
    found: list[Software] = []
    dynamo = top.mapping("dynamo", "dynamo")
    if dynamo is not None:
        for kind in ("version", "hash", "wheel"):
            value = dynamo.text(kind)
            if value is not None:
                found.append(Software("dynamo", kind, value, dynamo.at(kind)))
        source = dynamo.mapping("source", "dynamo source")
        if source is not None:
            revision = source.text("rev")
            source.text("repo")
            source.no_others(lenient=True)
            if revision is not None:
                found.append(Software("dynamo", "source", revision, source.at("rev")))
        dynamo.boolean("install")
        dynamo.text("request_plane")
        dynamo.no_others(lenient=True)
    identity = top.mapping("identity", "identity")
    if identity is not None:
        model = identity.mapping("model", "identity model")
        frameworks = identity.mapping("frameworks", "identity frameworks")
        container = identity.mapping("container", "identity container")
        for name in (frameworks.node.entries or {}) if frameworks else ():
            stated = frameworks.text(name) if frameworks else None
            if frameworks is not None and stated is not None:
                found.append(Software(name, "identity", stated, frameworks.at(name)))
        for inner, names in ((model, ("repo", "revision")), (container, ("image",))):
            for name in names if inner else ():
                if inner is not None:
                    inner.text(name)
            if inner is not None:
                inner.no_others(lenient=True)
        identity.no_others(lenient=True)
    return tuple(found), top.scalars("identity")


def images_of(top: Fields) -> tuple[Image, ...]:
    """Every container image that the recipe names."""
    places = (("model", "container"), ("frontend", "nginx_container"))
    found = []
    for outer, inner in places:
        node = (top.node.entries or {}).get(outer)
        image = (node.entries or {}).get(inner) if node is not None else None
        if image is not None and isinstance(image.scalar, str):
            found.append(Image(f"{outer}.{inner}", image.scalar, image.at))
    identity = (top.node.entries or {}).get("identity")
    container = (identity.entries or {}).get("container") if identity is not None else None
    image = (container.entries or {}).get("image") if container is not None else None
    if image is not None and isinstance(image.scalar, str):
        found.append(Image("identity.container.image", image.scalar, image.at))
    return tuple(found)


def time_limit(top: Fields) -> int | None:
    """Slurm's time limit in seconds: `8:00:00`, `1-12:00:00`, `30:00`, or minutes as a number."""
    slurm = top.mapping("slurm", "slurm")
    if slurm is None:
        return None
    node = slurm.get("time_limit")
    slurm.no_others(lenient=True)
    if node is None:
        return None
    if isinstance(node.scalar, int) and not isinstance(node.scalar, bool) and 0 < node.scalar < 10**8:
        return node.scalar  # an unquoted 12:00:00 is 43200 by YAML 1.1
    found = _CLOCK.match(node.scalar) if isinstance(node.scalar, str) else None
    if found is None:
        slurm.problem(node.at, "catalog.time_limit", value=str(node.plain())[:100])
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    if found.group(4) is None and found.group(1) is None:
        hours, minutes, seconds = 0, hours, minutes  # Slurm reads MM:SS
    return days * 86_400 + hours * 3600 + minutes * 60 + seconds


def sizes_of(fields: Fields | None) -> dict[str, int]:
    """Options that are sizes, in bytes; what is written as a size and is none is a problem."""
    found = {}
    for name, node in (fields.node.entries or {}).items() if fields else ():
        if fields is not None and name.endswith(("_size", "-size")):
            size = binary_size(node.scalar)
            if size is None:
                fields.problem(node.at, "catalog.bad_size", field=name, value=str(node.plain())[:100])
            else:
                found[name] = size
    return found


def benchmark_of(top: Fields) -> BenchmarkSpec:
    """The benchmark block. servemark's own type states workload, evals and cache state."""
    fields = top.mapping("benchmark", "benchmark", required=True)
    if fields is None:
        return BenchmarkSpec(None, (), (), "marked", 0, None, 60.0, top.node.at)
    kind = fields.text("type", required=True)
    workload = fields.text("workload")
    concurrencies = _concurrencies(fields)
    evals = fields.texts("evals")
    state = fields.choice("cache_state", ("marked", "cold"))
    warmup = fields.integer("warmup_requests", minimum=0)
    eval_concurrency = fields.integer("eval_concurrency", minimum=1)
    idle = fields.number("idle_timeout_s")
    if idle is not None and not 0.1 <= idle <= 86_400:
        at = fields.at("idle_timeout_s")
        fields.problem(at, "catalog.out_of_range", field="idle_timeout_s", value=idle)
        idle = None
    rate = fields.get("req_rate")
    isl, osl = (fields.integer(name, minimum=1) for name in ("isl", "osl"))
    per_slot, least = (
        fields.integer(name, minimum=1) if kind == "servemark" else None
        for name in ("requests_per_slot", "min_requests")
    )
    command = fields.text("command")
    env = environment_of(fields, "env")
    budgets = budgets_of(fields, "budgets_s") if kind == "servemark" else ()
    fields.asked |= set(_BENCHMARK_FIELDS)
    fields.no_others(lenient=kind != "servemark")
    cache_state: Literal["marked", "cold"] = "cold" if state == "cold" else "marked"
    return BenchmarkSpec(
        workload=workload,
        concurrencies=concurrencies,
        evals=evals,
        cache_state=cache_state,
        warmup_requests=1 if warmup is None else warmup,
        eval_concurrency=eval_concurrency,
        idle_timeout_s=60.0 if idle is None else idle,
        at=fields.node.at,
        type=kind,
        isl=isl,
        osl=osl,
        requests_per_slot=per_slot,
        min_requests=least or 1,
        command=command,
        env=env,
        req_rate=str(rate.scalar) if rate is not None and rate.kind != "mapping" else None,
        budgets_s=budgets,
    )


def _concurrencies(fields: Fields) -> tuple[int, ...]:
    """A list of integers, one integer, or a text such as `512x1024`."""
    node = fields.get("concurrencies")
    if node is None:
        return ()
    values: list[int] = []
    if node.items is not None:
        parts: list[object] = [item.scalar for item in node.items]
    elif isinstance(node.scalar, str):
        parts = list(node.scalar.split("x"))
    else:
        parts = [node.scalar]
    for part in parts:
        number = int(part) if isinstance(part, str) and re.fullmatch(r"[0-9]{1,7}", part.strip()) else part
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= 1_000_000:
            if isinstance(number, int) and not isinstance(number, bool):
                fields.out_of_bounds(node, "concurrencies", number, minimum=1)
                return ()
            said = "integers of at least 1, or a text such as 512x1024"
            fields.problem(
                node.at, "catalog.wrong_type", field="concurrencies", expected=said, kind=node.kind
            )
            return ()
        values.append(number)
    return tuple(values)
