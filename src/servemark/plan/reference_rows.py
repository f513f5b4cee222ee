"""Rows exactly as the reference generator prints them: keys, values and order.

This format exists for comparison and for tools that read it; its oddities are kept on purpose (a multi-node
fixed-sequence row carries a list of concurrencies, an agentic single-node row has no `disagg`). servemark's
own plan is `strict.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from servemark.catalog.arms import Arm, Component, Scenario, SearchEntry, WorkerBlock
from servemark.catalog.clusters import Clusters
from servemark.catalog.nodes import Problem

Row = dict[str, object]
DURATION_S = 3600
LENGTH_MARGIN = 256
"""Tokens added to isl + osl for the largest model length."""
DRAM_CAP_MIB = 2_861_022
"""About 3 TB: a node's memory counts up to this before the utilization is applied."""


def reference_rows(
    arms: Iterable[Arm],
    clusters: Clusters,
    problems: list[Problem],
    *,
    scenarios: tuple[str, ...] = (),
    step: int = 2,
) -> list[Row]:
    """Rows of all arms in order, without eval marks. An entry without a DRAM budget is a problem."""
    rows: list[Row] = []
    for arm in arms:
        for entry in arm.entries:
            scenario = entry.scenario
            if scenario is None or (scenarios and scenario.kind not in scenarios):
                continue
            budget = dram_budget_gb(arm, entry, clusters, problems)
            if budget is not None:
                rows += _rows(arm, entry, scenario, budget, step)
    return rows


def dram_budget_gb(arm: Arm, entry: SearchEntry, clusters: Clusters, problems: list[Problem]) -> int | None:
    """Host memory budget of one node in GB (10^9), 0 without KV offload; None with a problem.

    floor(min(node MiB, cap) x 2^20 x utilization x GPUs used of the node / GPUs of the node / 10^9), in
    decimal arithmetic. Of a multi-node entry only the prefill worker counts, as in the reference.
    """
    share = entry.scenario.dram_utilization if entry.scenario is not None else None
    if entry.kv_offloading != "dram" or share is None:
        return 0
    hardware = clusters.hardware.get(arm.runner)
    at = entry.at
    if hardware is None:
        problems.append(Problem(at, "plan.no_hardware", {"runner": arm.runner, "arm": arm.key}))
        return None
    used = _used_gpus(entry, hardware.gpus_per_node)
    if used is None:
        values: dict[str, object] = {"gpus": entry.prefill.gpus, "node": hardware.gpus_per_node}
        problems.append(Problem(at, "plan.gpus_do_not_fit", values))
        return None
    mib = min(hardware.available_cpu_dram_mib, DRAM_CAP_MIB)
    exact = Decimal(mib) * 1_048_576 * Decimal(str(share)) * used / hardware.gpus_per_node
    return int(exact / 1_000_000_000)


def _used_gpus(entry: SearchEntry, per_node: int) -> int | None:
    """GPUs of one node that the (prefill) worker uses; None when it divides no node evenly."""
    gpus = entry.prefill.gpus
    if gpus <= per_node:
        return gpus if entry.single_node or per_node % gpus == 0 else None
    return per_node if not entry.single_node and gpus % per_node == 0 else None


def _rows(arm: Arm, entry: SearchEntry, scenario: Scenario, budget: int, step: int) -> Iterator[Row]:
    concurrencies = entry.expanded(step)
    agentic = scenario.kind == "agentic-coding"
    if not agentic and not entry.single_node:
        yield _fixed_multi(arm, entry, scenario, concurrencies)
        return
    for concurrency in concurrencies:
        if not agentic:
            yield _fixed_single(arm, entry, scenario, concurrency)
        elif entry.single_node:
            yield _agentic_single(arm, entry, concurrency, budget)
        else:
            yield _agentic_multi(arm, entry, concurrency, budget)


def _head(arm: Arm) -> Row:
    return {
        "image": arm.image,
        "model": arm.model,
        "model-prefix": arm.model_prefix,
        "precision": arm.precision,
        "framework": arm.framework,
        "runner": arm.runner,
    }


def component_row(component: Component) -> Row:
    """`{name[, version]}`."""
    row: Row = {"name": component.name}
    return row if component.version is None else row | {"version": component.version}


def _parts(arm: Arm, entry: SearchEntry) -> Row:
    router, transfer = arm.router_of(entry), arm.transfer_of(entry)
    found: Row = {} if router is None else {"router": component_row(router)}
    return found if transfer is None else found | {"kv-p2p-transfer": transfer}


def _fixed_single(arm: Arm, entry: SearchEntry, scenario: Scenario, concurrency: int) -> Row:
    worker = entry.prefill
    return {
        **_head(arm),
        "isl": scenario.isl,
        "osl": scenario.osl,
        "tp": worker.tp,
        "pp": worker.pp,
        "dcp-size": worker.dcp_size,
        "pcp-size": worker.pcp_size,
        "conc": concurrency,
        "max-model-len": _length(scenario),
        "ep": worker.ep,
        "dp-attn": worker.dp_attn,
        "spec-decoding": entry.spec_decoding,
        "exp-name": f"{arm.model_prefix}_{scenario.name}",
        "disagg": arm.disagg,
        "run-eval": False,
        **_parts(arm, entry),
    }


def _fixed_multi(arm: Arm, entry: SearchEntry, scenario: Scenario, concurrencies: tuple[int, ...]) -> Row:
    return {
        **_head(arm),
        "isl": scenario.isl,
        "osl": scenario.osl,
        "spec-decoding": entry.spec_decoding,
        "prefill": worker_row(entry.prefill),
        "decode": worker_row(entry.decode),
        "conc": list(concurrencies),
        "max-model-len": _length(scenario),
        "exp-name": f"{arm.model_prefix}_{scenario.name}",
        "disagg": arm.disagg,
        "run-eval": False,
        **_parts(arm, entry),
    }


def _agentic_single(arm: Arm, entry: SearchEntry, concurrency: int, budget: int) -> Row:
    worker = entry.prefill
    spec = "" if entry.spec_decoding == "none" else f"_spec-{entry.spec_decoding}"
    offload = _offload_name(entry) or "kvnone"
    backend = entry.kv_offload_backend
    return {
        **_head(arm),
        "tp": worker.tp,
        "pp": worker.pp,
        "dcp-size": worker.dcp_size,
        "pcp-size": worker.pcp_size,
        "ep": worker.ep,
        "dp-attn": worker.dp_attn,
        "spec-decoding": entry.spec_decoding,
        "conc": concurrency,
        "kv-offloading": entry.kv_offloading,
        "total-cpu-dram-gb": budget,
        "duration": DURATION_S,
        "exp-name": f"{arm.model_prefix}_tp{worker.tp}_conc{concurrency}_{offload}{spec}",
        "scenario-type": "agentic-coding",
        **({} if backend is None else {"kv-offload-backend": component_row(backend)}),
        **_parts(arm, entry),
    }


def _agentic_multi(arm: Arm, entry: SearchEntry, concurrency: int, budget: int) -> Row:
    offload = _offload_name(entry)
    workers = f"p{_worker_name(entry.prefill)}_d{_worker_name(entry.decode)}"
    backend = entry.kv_offload_backend
    return {
        **_head(arm),
        "spec-decoding": entry.spec_decoding,
        "prefill": worker_row(entry.prefill),
        "decode": worker_row(entry.decode),
        "conc": [concurrency],
        "kv-offloading": entry.kv_offloading,
        "total-cpu-dram-gb": budget,
        "duration": DURATION_S,
        "exp-name": f"{arm.model_prefix}_{workers}_conc{concurrency}{f'_{offload}' if offload else ''}",
        "disagg": arm.disagg,
        "scenario-type": "agentic-coding",
        **({} if backend is None else {"kv-offload-backend": component_row(backend)}),
        **_parts(arm, entry),
    }


def _offload_name(entry: SearchEntry) -> str | None:
    if entry.kv_offloading != "dram" or entry.kv_offload_backend is None:
        return None
    return f"kvdram-{entry.kv_offload_backend.name}"


def _worker_name(worker: WorkerBlock) -> str:
    experts = f"ep{worker.ep}" if worker.ep != 1 else ""
    return f"{worker.num_worker}x{worker.tp}{experts}{'dpa' if worker.dp_attn else ''}"


def _length(scenario: Scenario) -> int | None:
    if scenario.isl is None or scenario.osl is None:
        return None
    return scenario.isl + scenario.osl + LENGTH_MARGIN


_WORKER_FIELDS = (
    "num-worker",
    "tp",
    "pp",
    "dcp-size",
    "pcp-size",
    "ep",
    "dp-attn",
    "hardware",
    "additional-settings",
)


def worker_row(worker: WorkerBlock) -> Row:
    """A worker block as written, in the order in which it is written; sizes that are not written follow as
    1."""
    written: Row = {}
    for name, node in (worker.node.entries or {}).items() if worker.node is not None else ():
        kebab = name.replace("_", "-")
        if kebab in _WORKER_FIELDS and node.kind != "null":
            written[kebab] = node.plain()
    for name, size in (("pp", worker.pp), ("dcp-size", worker.dcp_size), ("pcp-size", worker.pcp_size)):
        written.setdefault(name, size)
    return written
