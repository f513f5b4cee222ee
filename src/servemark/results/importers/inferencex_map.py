"""One InferenceX row -> a point: configuration, figures, the GPUs behind them, and what could not be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from servemark.results.figures import Figure, number_of, with_more
from servemark.results.importers import inferencex_figures as figures_of
from servemark.results.importers.inferencex_figures import FieldError, number
from servemark.results.importers.inferencex_gpus import Load, Split, lost_split, pool_gpus, split_gpus
from servemark.results.importers.inferencex_names import Problem
from servemark.results.importers.inferencex_nested import flatten, places
from servemark.results.importers.inferencex_rows import (
    Config,
    CountError,
    api_configuration,
    count,
    execution,
    flat_configuration,
)
from servemark.results.point import (
    NO_REQUESTS,
    Eval,
    Memory,
    Point,
    PointIdentity,
    Requests,
    RoleTopology,
)

ID = "inferencex"
VERSION = 2
GIGABYTE = 10**9


def map_row(row: dict[str, Any], hints: Mapping[str, str], name: str) -> Point | Problem:
    """One row of any InferenceX format. Never raises for what is in the row."""
    try:
        if "hw" in row:
            config = flat_configuration(row, hints)
            place = ""
            metrics: object = flatten(row) if "request_metrics" in row else row
        else:
            config = api_configuration(row)
            place, metrics = "/metrics", row.get("metrics")
        if not isinstance(metrics, dict):
            return Problem("results.import_missing", {"field": "metrics"}, True)
        return config if isinstance(config, Problem) else _point(row, metrics, place, config, hints, name)
    except KeyError as error:
        return Problem("results.import_missing", {"field": str(error.args[0])[:60]}, True)
    except (FieldError, CountError) as error:
        return error.problem
    except TypeError as error:  # a list or an object where a word belongs: no part of a configuration
        return Problem("results.import_bad_row", {"problem": str(error)[:200]}, True)


def _point(  # noqa: PLR0917 - one row, said in parts
    row: dict[str, Any],
    metrics: dict[str, Any],
    place: str,
    config: Config,
    hints: Mapping[str, str],
    name: str,
) -> Point | Problem:
    concurrency = count(row.get("conc"), "conc", 1)
    if concurrency is None:
        return Problem("results.import_missing", {"field": "conc"}, True)
    if config.scenario.type == "eval":
        return _evaluation(row, metrics, place, config, concurrency, hints, name)
    bare = row.keys().isdisjoint(_MORE) and row.get("workers") is None
    requests = NO_REQUESTS if bare else _requests(row)
    if requests.ok == 0:
        return Problem("results.import_no_success", {}, True)
    agentic = config.scenario.type == "agentic-coding"
    latency = figures_of.AGENTIC if agentic else figures_of.FIXED
    plan = figures_of.plan(tuple(metrics), place, latency, not config.disaggregated)
    valid = row.get("power_valid")
    powered = valid is None or bool(valid)
    figures = figures_of.take(metrics, plan, powered)
    notes = config.notes + plan.notes
    if plan.power and not powered:
        notes += ("power was left out: the row calls it invalid",)
    if config.disaggregated:
        deployed, identity, figures, noted = _disaggregated(
            metrics, place, config, figures, concurrency, latency
        )
        notes += noted
        if plan.power and powered:
            figures, noted = figures_of.energy(metrics, place, figures)
            notes += noted
    else:
        identity = config.at(concurrency)
        deployed = config.gpus_stated
        if not (config.own_count or (deployed is not None and deployed == config.tp)):
            deployed, said = pool_gpus(config.tp, config.ep, deployed, _load(config, concurrency, figures))
            notes += (said,) if said is not None else ()
    if number_of(figures, "total_tokens_per_s_per_gpu") == 0:
        return Problem("results.import_no_success", {}, True)
    if metrics is not row and not place:
        figures = _placed(figures, row)
    started = execution(row, hints, name)
    client: dict[str, object] = {"harness": "aiperf"} if agentic else {}
    expected: dict[str, object] = {}
    if plan.expected:
        key = "mean_output_tokens_expected"
        expected["output_tokens_mean"] = number(metrics[key], key)
    if bare:
        return Point(
            identity, started, figures, ID, VERSION, "complete", requests, None, None, deployed, config.gpus_stated, None,
            None, (), expected, dict(config.declared), _observed(row, metrics) if plan.seen else {}, client, notes,
        )  # fmt: skip
    return Point(
        identity, started, figures, ID, VERSION, "complete", requests, _duration(row), None, deployed,
        config.gpus_stated, _telemetry(row), _memory(row, config), (), expected, dict(config.declared),
        _observed(row, metrics), client, notes,
    )  # fmt: skip


def _placed(figures: Mapping[str, Figure], row: dict[str, Any]) -> Mapping[str, Figure]:
    """Figures of a nested row with the places that they have in it."""
    where = places(row)
    return {
        address: msgspec.structs.replace(figure, at=where.get(figure.at[1:], figure.at))
        for address, figure in figures.items()
    }


def _load(config: Config, concurrency: int, figures: Mapping[str, Figure]) -> Load:
    """What the closed loop says; nominal lengths for fixed ones, mean lengths of the requests for traces."""
    latency = number_of(figures, "e2el_s.mean")
    scenario = config.scenario
    if scenario.isl is not None and scenario.osl is not None:
        tokens: float | None = scenario.isl + scenario.osl
    else:
        into, out = number_of(figures, "input_tokens.mean"), number_of(figures, "output_tokens.mean")
        tokens = into + out if into is not None and out is not None else None
    return Load(
        concurrency,
        tokens,
        number_of(figures, "total_tokens_per_s_per_gpu"),
        latency if latency is not None else number_of(figures, "e2el_s.p50"),
    )


_INPUT = (
    "input_tput_per_gpu",
    "input_tokens_per_s_per_gpu",
    "input_tokens_per_s_per_prefill_gpu",
    "prefill GPUs",
)
_OUTPUT = (
    "output_tput_per_gpu",
    "output_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_decode_gpu",
    "decode GPUs",
)
"""(key, address over all GPUs, address over those of the role, their name)"""


def _disaggregated(  # noqa: PLR0917 - as above
    metrics: Mapping[str, Any],
    place: str,
    config: Config,
    figures: Mapping[str, Figure],
    concurrency: int,
    definition: str,
) -> tuple[int | None, PointIdentity, Mapping[str, Figure], tuple[str, ...]]:
    """Throughput over all GPUs deployed, and by role under role-named ids; (GPUs, identity, all figures, notes)."""
    into = number(metrics.get("input_tput_per_gpu"), "input_tput_per_gpu")
    out = number(metrics.get("output_tput_per_gpu"), "output_tput_per_gpu")
    total = number(metrics.get("tput_per_gpu"), "tput_per_gpu")
    more: dict[str, Figure] = {}
    if total is not None:
        more["total_tokens_per_s_per_gpu"] = Figure(float(total), definition, f"{place}/tput_per_gpu")
    if config.lost_split:
        load = _load(config, concurrency, with_more(figures, more))
        split = lost_split(config.prefill_gpus, config.decode_gpus, into, out, load)
    else:
        split = split_gpus(config.prefill_gpus, config.decode_gpus, into, out, total)
    for (key, over_all, by_role, gpus_of), value, gpus in (
        (_INPUT, into, split.prefill),
        (_OUTPUT, out, split.decode),
    ):
        if value is None:
            continue
        at = f"{place}/{key}"
        if split.by_role is False:
            more[over_all] = Figure(float(value), definition, at)
            continue
        more[by_role] = Figure(float(value), definition, at)
        if split.by_role and gpus and split.deployed:
            how = f"{value:.9g} x {gpus} {gpus_of} / {split.deployed} GPUs deployed"
            more[over_all] = Figure(value * gpus / split.deployed, definition, at, value, how)
    identity = _recovered(config, split, concurrency) if config.lost_split else config.at(concurrency)
    notes = () if split.note is None else (split.note,)
    return split.deployed, identity, with_more(figures, more), notes


def _recovered(config: Config, split: Split, concurrency: int) -> PointIdentity:
    """The identity of a row whose roles were lost: GPUs of each role where they are known, tp and ep never."""
    roles = (RoleTopology("prefill"), RoleTopology("decode"))
    if split.prefill is None or split.decode is None or split.deployed is None:
        return config.identity(concurrency, roles)
    return config.identity(concurrency, roles, {"prefill_gpus": split.prefill, "decode_gpus": split.decode})


def _requests(row: Mapping[str, Any]) -> Requests:
    """Requests by outcome. Totals that include warm-up are left out."""
    ok = count(row.get("num_requests_successful"), "num_requests_successful")
    outcome, accounts = row.get("benchmark_outcome"), row.get("request_accounting")
    if isinstance(outcome, dict):
        return Requests(
            count(outcome.get("requested"), "requested"), count(outcome.get("completed"), "completed"),
            count(outcome.get("failed"), "failed"),
        )  # fmt: skip
    if isinstance(accounts, dict):
        return Requests(None, ok, count(accounts.get("records_error_dropped"), "records_error_dropped"))
    return Requests(ok=ok) if ok is not None else NO_REQUESTS


def _duration(row: Mapping[str, Any]) -> float | None:
    value = row.get("duration_seconds")
    inner = row.get("request_metrics")
    if value is None and isinstance(inner, dict) and isinstance(inner.get("throughput"), dict):
        value = inner["throughput"].get("duration_seconds")
    found = number(value, "duration_seconds")
    return None if found is None else float(found)


def _telemetry(row: Mapping[str, Any]) -> int | None:
    """Distinct GPUs in the samples that the row's power was made from."""
    audit = row.get("power_audit")
    if isinstance(audit, dict):
        return count(audit.get("observed_gpu_count"), "observed_gpu_count")
    workers = row.get("workers")
    if not isinstance(workers, list) or not workers:
        return None
    counts = [count(one.get("num_gpus"), "num_gpus") for one in workers if isinstance(one, dict)]
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(workers) else None


def _memory(row: Mapping[str, Any], config: Config) -> Memory | None:
    """Host memory set aside for KV: GB of 10^9 bytes by the format; its scope is not stated. 0 is written for none."""
    value = number(row.get("allocated_cpu_dram_gb"), "allocated_cpu_dram_gb")
    return Memory(allocated_bytes=round(value * GIGABYTE)) if value and config.offload is not None else None


_SEEN = ("workers", *figures_of.SEEN)
_MORE = frozenset({
    "num_requests_successful", "benchmark_outcome", "request_accounting", "duration_seconds", "request_metrics",
    "power_audit", "allocated_cpu_dram_gb", *figures_of.SEEN,
})  # fmt: skip
"""What aggregates have beyond the rows of the API."""
MAX_WORKERS = 4096


def _observed(row: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, object]:
    seen: dict[str, object] = {}
    for key in _SEEN:
        value = row.get(key)
        if value is None:
            value = metrics.get(key)
        if value is not None and not (isinstance(value, list) and not 0 < len(value) <= MAX_WORKERS):
            seen[key] = value
    return seen


def _evaluation(  # noqa: PLR0917 - as above
    row: Mapping[str, Any], metrics: Mapping[str, Any], place: str, config: Config, concurrency: int,
    hints: Mapping[str, str], name: str,
) -> Point | Problem:  # fmt: skip
    """A point that has no load figures but scores: shares of items judged correct, with their standard errors."""
    task = str(row["task"])[:120]
    n = count(metrics.get("n_eff"), "n_eff")
    evals, figures = [], {}
    for key in ("em_strict", "em_flexible", "accuracy"):
        value = number(metrics.get(key), key)
        if value is None:
            continue
        if value > 1:
            return Problem("results.import_no_share", {"field": key, "value": value}, True)
        error = number(metrics.get(f"{key}_se"), f"{key}_se")
        evals.append(Eval(task, float(value), key, None if error is None else float(error), n))
        if len(evals) == 1:
            figures[f"eval_score.{task}"] = Figure(float(value), f"lm-eval {key}", f"{place}/{key}")
    score = number(metrics.get("score"), "score")
    kind = metrics.get("score_name")
    if score is not None and kind == "acceptance_length":
        figures["acceptance_length"] = Figure(float(score), "speedbench-al", f"{place}/score")
    elif score is not None and not evals and score <= 1:
        evals.append(Eval(task, float(score), "score", number(metrics.get("score_se"), "score_se"), n))
        figures[f"eval_score.{task}"] = Figure(float(score), "lm-eval score", f"{place}/score")
    if not figures:
        return Problem("results.import_missing", {"field": "em_strict"}, True)
    return Point(
        config.at(concurrency), execution(row, hints, name), figures, ID, VERSION,
        gpus_stated=config.gpus_stated, evals=tuple(evals), declared=dict(config.declared), notes=config.notes,
    )  # fmt: skip
