"""Workload: what the master says is run against what the recipe runs and can hold."""

from __future__ import annotations

from collections.abc import Iterator

from servemark.catalog.deployment import Deployment, RoleSpec
from servemark.catalog.nodes import Position
from servemark.checks.known_models import model_bytes
from servemark.checks.model import Hit, Related
from servemark.checks.registry import rule
from servemark.checks.view import ArmView, EntryView, RecipeView, at, flag_at, node_in

_TRT, _DISAGG, _AGG = "recipes/owl/trt.yaml", "recipes/owl/disagg.yaml", "recipes/owl/agg.yaml"
BENCHMARKS = (
    "manual",
    "custom",
    "sa-bench",
    "sglang-bench",
    "router",
    "mooncake-router",
    "trace-replay",
    "mmlu",
    "gpqa",
    "gsm8k",
    "longbenchv2",
    "servemark",
)
"""Benchmark types that the recipe launcher knows, and servemark's own."""


def conc_at(view: EntryView) -> Position:
    """Where the entry's concurrencies stand."""
    for name in ("conc-list", "conc-start"):
        if node_in(view.entry.node, name) is not None:
            return view.at(name)
    return view.entry.at


@rule("WRK701", "error", "arm", wrong=(("masters.yaml", "conc-list: [64, 128]", "conc-list: [64, 256]"),))
def concurrencies(view: ArmView) -> Iterator[Hit]:
    """Concurrencies of the master against those that the recipe runs itself. Entries that share one recipe run
    its list together."""
    together: dict[str, set[int]] = {}
    for one in view.entries:
        if one.deployment is not None:
            together.setdefault(one.reading.setting or "", set()).update(one.entry.concurrencies)
    seen = set()
    for one in view.entries:
        recipe, setting = one.deployment, one.reading.setting or ""
        if recipe is None or not recipe.benchmark.concurrencies:
            continue
        run, said = set(recipe.benchmark.concurrencies), set(one.entry.concurrencies)
        where = at(recipe.node, "benchmark", "concurrencies", other=recipe.benchmark.at)
        related = (Related(where, "checks.rel.concurrencies", {"value": _list(run)}),)
        more, less = said - run, run - together[setting]
        values: dict[str, object] = {
            "master": _list(said),
            "recipe": _list(run),
            "more": _list(more),
            "less": _list(less),
        }
        if more:
            yield Hit(conc_at(one), values, related)
        elif less and setting not in seen:
            seen.add(setting)
            yield Hit(conc_at(one), values, related, None, "unlisted", "warning")


def _list(values: set[int]) -> str:
    return ", ".join(map(str, sorted(values)))


@rule("WRK702", "error", wrong=((_TRT, "isl: 1024", "isl: 8192"),))
def lengths(view: EntryView) -> Iterator[Hit]:
    """Input and output lengths of the master against the recipe's."""
    recipe, scenario = view.deployment, view.entry.scenario
    if recipe is None or scenario is None:
        return
    for name, mine, other in (
        ("isl", scenario.isl, recipe.benchmark.isl),
        ("osl", scenario.osl, recipe.benchmark.osl),
    ):
        if mine is not None and other is not None and mine != other:
            place = at(scenario.node, name, other=view.entry.at)
            where = at(recipe.node, "benchmark", name, other=recipe.benchmark.at)
            related = (Related(where, "checks.rel.length", {"name": name, "value": other}),)
            yield Hit(place, {"name": name, "master": mine, "recipe": other}, related)


def seats(recipe: Deployment, role: RoleSpec) -> int | None:
    """Requests that all workers of a role may run at once, by the engine's own limit; None where it states
    none."""
    names = {"vllm": "max-num-seqs", "sglang": "max-running-requests", "trtllm": "max-batch-size"}
    limit = role.flag(names.get(recipe.engine, ""))
    if not isinstance(limit, int) or isinstance(limit, bool):
        return None
    if recipe.engine == "vllm":
        limit *= role.parallel.dp or 1
    elif recipe.engine == "trtllm" and role.parallel.dp_attention:
        limit *= role.parallel.tp or 1
    return limit * role.workers


@rule("WRK703", "warning", wrong=((_AGG, "max-running-requests: 128", "max-running-requests: 4"),))
def seats_suffice(view: EntryView) -> Iterator[Hit]:
    """The highest concurrency against the requests that the generating role may run at once."""
    recipe = view.deployment
    role = (recipe.role("decode") or recipe.role("aggregated")) if recipe is not None else None
    if recipe is None or role is None:
        return
    limit, most = seats(recipe, role), max(view.entry.concurrencies)
    if limit is not None and most > limit:
        flag = next(n for n in ("max-num-seqs", "max-running-requests", "max-batch-size") if n in role.flags)
        related = (Related(flag_at(role, flag), "checks.rel.flag", {"name": flag, "value": role.flag(flag)}),)
        values: dict[str, object] = {
            "most": most,
            "limit": limit,
            "role": role.role,
            "workers": role.workers,
            "flag": flag,
        }
        if role.role == "aggregated":
            yield Hit(conc_at(view), values, related)
        else:
            yield Hit(conc_at(view), values, related, None, "waiting", "note")


@rule(
    "WRK704",
    "warning",
    wrong=(
        (_AGG, "max-running-requests: 128", "max-running-requests: 128\n      cuda-graph-max-bs: 4"),
        ("masters.yaml", "conc-list: [8]", "conc-list: [64]"),
    ),
)
def graphs_cover(view: EntryView) -> Iterator[Hit]:
    """Requests of one rank at the highest concurrency against the largest captured CUDA graph. With vLLM a graph
    counts tokens: one for each request and one for each draft token."""
    recipe = view.deployment
    role = (recipe.role("decode") or recipe.role("aggregated")) if recipe is not None else None
    if recipe is None or role is None:
        return
    flag = {"vllm": "max-cudagraph-capture-size", "sglang": "cuda-graph-max-bs"}.get(recipe.engine, "")
    size = role.flag(flag)
    if not isinstance(size, int) or isinstance(size, bool):
        return
    ranks = role.workers * (role.parallel.dp or 1)
    most = max(view.entry.concurrencies)
    limit = seats(recipe, role)
    each = -(-min(most, limit or most) // ranks)
    drafts = role.speculative.draft_tokens if role.speculative is not None else None
    tokens = each * (1 + (drafts or 0)) if recipe.engine == "vllm" else each
    if tokens > size:
        related = (Related(flag_at(role, flag), "checks.rel.flag", {"name": flag, "value": size}),)
        yield Hit(
            conc_at(view),
            {"most": most, "each": each, "tokens": tokens, "size": size, "role": role.role},
            related,
        )


@rule("WRK705", "warning", wrong=((_TRT, "use_chat_template: true", "use_chat_template: false"),))
def chat_template(view: EntryView) -> Iterator[Hit]:
    """Speculative decoding measured on prompts without the chat template."""
    recipe = view.deployment
    if recipe is None or view.entry.spec_decoding == "none" or recipe.benchmark.type != "sa-bench":
        return
    found = node_in(recipe.node, "benchmark", "use_chat_template")
    if found is not None and found.scalar is False:
        related = (
            Related(
                view.at("spec-decoding"), "checks.rel.spec_declared", {"value": view.entry.spec_decoding}
            ),
        )
        yield Hit(found.at, {"value": "false"}, related)


@rule(
    "WRK706",
    "warning",
    wrong=(
        (
            _AGG,
            "args: {router-mode: kv, router-session-affinity-ttl-secs: 900}",
            "args: {router-mode: random}",
        ),
        (_AGG, "agg_workers: 1", "agg_workers: 2"),
        (_AGG, "agg_nodes: 1", "agg_nodes: 2"),
        (
            "masters.yaml",
            "num-worker: 1\n              tp: 8\n              ep: 8",
            "num-worker: 2\n              tp: 8\n              ep: 8",
        ),
    ),
)
def affinity(view: EntryView) -> Iterator[Hit]:
    """Sessions over several workers that the router spreads without affinity: each turn misses the cache."""
    recipe, scenario = view.deployment, view.entry.scenario
    if recipe is None or scenario is None or scenario.kind != "agentic-coding" or recipe.frontend is None:
        return
    first = recipe.role("prefill") or recipe.role("aggregated")
    if first is None or first.workers * (first.parallel.dp or 1) < 2 or recipe.frontend.type != "dynamo":
        return
    front = recipe.frontend
    if front.router_mode in {None, "kv"} or any("affinity" in name for name in front.args):
        return
    place = front.args["router-mode"].at
    yield Hit(place, {"mode": front.router_mode, "workers": first.workers, "role": first.role})


@rule(
    "WRK707",
    "error",
    "recipe",
    wrong=((_AGG, "max_attempts: 720, interval_seconds: 10", "max_attempts: 7200, interval_seconds: 10"),),
)
def health_budget(view: RecipeView) -> Iterator[Hit]:
    """The time that the health check may take against the job's time limit."""
    recipe = view.deployment
    if (
        recipe.ready_budget_stated
        and recipe.time_limit_s is not None
        and recipe.ready_budget_s >= recipe.time_limit_s
    ):
        place = at(recipe.node, "health_check", "max_attempts", other=recipe.at)
        where = at(recipe.node, "slurm", "time_limit", other=recipe.at)
        related = (Related(where, "checks.rel.time_limit", {"value": recipe.time_limit_s}),)
        yield Hit(
            place, {"budget": f"{recipe.ready_budget_s:,.0f}", "limit": f"{recipe.time_limit_s:,}"}, related
        )


@rule(
    "WRK708",
    "warning",
    "recipe",
    wrong=((_AGG, "max_attempts: 720, interval_seconds: 10", "max_attempts: 10, interval_seconds: 10"),),
)
def health_is_short(view: RecipeView) -> Iterator[Hit]:
    """A health check that gives up before a model of many GPUs can be loaded."""
    recipe = view.deployment
    largest = max((role.gpus for role in recipe.roles), default=0)
    if recipe.ready_budget_stated and largest >= 4 and recipe.ready_budget_s < 300:
        place = at(recipe.node, "health_check", "max_attempts", other=recipe.at)
        yield Hit(place, {"budget": f"{recipe.ready_budget_s:,.0f}", "gpus": largest})


READ_GB_PER_S = 1.0
"""Rate at which a node is taken to read weights, in GB/s (10^9 bytes): a shared file system under many readers.
A local disk reads faster, so that a budget that asks for more is doubtful and not wrong."""


@rule(
    "WRK712",
    "warning",
    wrong=(
        (
            "masters.yaml",
            "model: acme/Owl-2\n  model-prefix: owl2\n  precision: fp8\n  framework: dynamo-trt",
            "model: deepseek-ai/DeepSeek-R1\n  model-prefix: owl2\n  precision: fp8\n  framework: dynamo-trt",
        ),
        (_TRT, "max_attempts: 720, interval_seconds: 10", "max_attempts: 40, interval_seconds: 10"),
    ),
)
def health_suits_the_model(view: EntryView) -> Iterator[Hit]:
    """The health check's time against the bytes of weights that a node must read before its workers answer."""
    recipe = view.deployment
    size = model_bytes(view.arm.model, view.arm.precision) if recipe is not None else None
    if recipe is None or size is None or not recipe.ready_budget_stated or recipe.ready_budget_s <= 0:
        return
    # A node of a worker that spreads over several reads only its share of the weights.
    per_node = recipe.gpus_per_node or 0
    shares = [min(1.0, per_node / role.gpus) if per_node and role.gpus else 1.0 for role in recipe.roles]
    read = size * max(shares, default=1.0)
    rate = read / recipe.ready_budget_s / 1e9
    if rate > READ_GB_PER_S:
        place = at(recipe.node, "health_check", "max_attempts", other=recipe.at)
        related = (Related(view.at("model"), "checks.rel.model", {"value": view.arm.model}),)
        values: dict[str, object] = {
            "budget": f"{recipe.ready_budget_s:,.0f}",
            "model": view.arm.model,
            "precision": view.arm.precision,
            "size": f"{size / 1e9:,.0f}",
            "read": f"{read / 1e9:,.0f}",
            "rate": f"{rate:.1f}",
            "usual": f"{READ_GB_PER_S:g}",
            "least": f"{read / 1e9 / READ_GB_PER_S:,.0f}",
        }
        yield Hit(place, values, related)


@rule("WRK709", "error", "recipe", wrong=((_TRT, "type: sa-bench", "type: sa-bnech"),))
def benchmark_type(view: RecipeView) -> Iterator[Hit]:
    """A benchmark type that the launcher does not know."""
    from servemark.catalog.fields import nearest  # noqa: PLC0415 - only for a mistake

    kind = view.deployment.benchmark.type
    if kind is not None and kind not in BENCHMARKS:
        place = at(view.deployment.node, "benchmark", "type", other=view.deployment.benchmark.at)
        yield Hit(place, {"value": kind, "near": nearest(kind, BENCHMARKS) or ", ".join(BENCHMARKS)})


@rule(
    "WRK710",
    "error",
    "recipe",
    wrong=((_AGG, "type: custom\n  command: bash /bench/agentic.sh", "type: custom"),),
)
def benchmark_command(view: RecipeView) -> Iterator[Hit]:
    """A custom benchmark without a command runs nothing."""
    benchmark = view.deployment.benchmark
    found = node_in(view.deployment.node, "benchmark", "command")
    empty = found is None or not str(found.scalar or "").strip()
    if benchmark.type == "custom" and empty:
        yield Hit(found.at if found is not None else benchmark.at, {})


@rule(
    "WRK711",
    "error",
    wrong=(
        (
            _AGG,
            "type: custom\n  command: bash /bench/agentic.sh",
            "type: sa-bench\n  isl: 1024\n  osl: 1024\n  concurrencies: [8]",
        ),
    ),
)
def benchmark_scenario(view: EntryView) -> Iterator[Hit]:
    """The kind of benchmark that the recipe runs against the scenario that the master files it under."""
    recipe, scenario = view.deployment, view.entry.scenario
    if recipe is None or scenario is None:
        return
    kind = recipe.benchmark.type
    if (kind == "sa-bench") == (scenario.kind == "fixed-seq-len") or kind not in {"sa-bench", "custom"}:
        return
    if kind == "custom" and scenario.kind == "fixed-seq-len":
        return  # a command may run anything
    place = at(recipe.node, "benchmark", "type", other=recipe.benchmark.at)
    related = (Related(scenario.node.at, "checks.rel.scenario", {"value": scenario.kind}),)
    yield Hit(place, {"kind": str(kind), "scenario": scenario.kind}, related)


SESSION_HEADER = "x-dynamo-session-id"
"""Sent by the load generator of the reference suite only where its recipe asks for it; the correlation id always."""
_SENDS = "AIPERF_HTTP_X_DYNAMO_SESSION_ID_FROM_CORRELATION_ID"


@rule(
    "WRK713",
    "warning",
    "recipe",
    wrong=(
        (
            _AGG,
            "type: dynamo\n  args",
            "type: dynamo\n  enable_multiple_frontends: true\n  num_additional_frontends: 2\n  args",
        ),
    ),
    right=(
        (
            _AGG,
            "type: dynamo\n  args",
            "type: dynamo\n  enable_multiple_frontends: true\n  nginx_session_affinity: true\n  args",
        ),
    ),
)
def sessions_reach_one_frontend(view: RecipeView) -> Iterator[Hit]:
    """Session affinity of the router and of the proxy before it: every front end has its own table of sessions, and
    the header that the proxy goes by must be sent."""
    recipe = view.deployment
    front = node_in(recipe.node, "frontend")
    if recipe.frontend is None or front is None or recipe.frontend.type != "dynamo":
        return
    argument = next((a for name, a in recipe.frontend.args.items() if "session-affinity" in name), None)
    several, proxy = node_in(front, "enable_multiple_frontends"), node_in(front, "nginx_session_affinity")
    by_proxy = proxy is not None and proxy.scalar is True
    if argument is not None and several is not None and several.scalar is True and not by_proxy:
        related = (
            Related(argument.at, "checks.rel.flag", {"name": argument.spelled, "value": argument.value}),
        )
        yield Hit(several.at, {"name": argument.spelled}, related)
    header = node_in(front, "nginx_session_affinity_header")
    sent = node_in(recipe.node, "benchmark", "env", _SENDS)
    named = str(header.scalar).lower() if header is not None else ""
    unsent = sent is None or str(sent.scalar).lower() not in {"true", "1"}
    custom = recipe.benchmark.type == "custom"
    if by_proxy and header is not None and named == SESSION_HEADER and custom and unsent:
        yield Hit(header.at, {"header": str(header.scalar), "variable": _SENDS}, (), None, "unsent")
