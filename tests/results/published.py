"""Published rows as points, for tests of gates: the least mapping that keeps what a gate reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from servemark.results.gates.latency import STATED_RATES
from servemark.results.point import (
    Execution,
    Figure,
    Point,
    PointIdentity,
    Precision,
    RoleName,
    RoleTopology,
    Scenario,
    Speculation,
)

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "results"
RANGE_RATIO = 0.8
"""The publisher's client draws lengths from [0.8 L, L]."""
_STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99", "p99.9": "p99.9"}


def _figures(row: dict[str, Any], disagg: bool) -> dict[str, Figure]:
    metrics = row["metrics"]
    found = {}
    for short in ("ttft", "tpot", "itl", "e2el"):
        for theirs, ours in _STATISTICS.items():
            if (value := metrics.get(f"{theirs}_{short}")) is not None:
                found[f"{short}_s.{ours}"] = value
    names = {
        "tput_per_gpu": "total_tokens_per_s_per_gpu",
        "input_tput_per_gpu": f"input_tokens_per_s_per_{'prefill_' if disagg else ''}gpu",
        "output_tput_per_gpu": f"output_tokens_per_s_per_{'decode_' if disagg else ''}gpu",
        "avg_power_w": "gpu_power_w.mean",
        "joules_per_total_token": "joules_per_total_token",
    }
    found |= {ours: metrics[theirs] for theirs, ours in names.items() if metrics.get(theirs) is not None}
    return {name: Figure(value, "published", name) for name, value in found.items()}


def _role(row: dict[str, Any], name: RoleName, side: str, gpus: int | None) -> RoleTopology:
    workers = row[f"{side}_num_workers"] or None
    each = gpus // workers if gpus is not None and workers else gpus
    tp, ep = row[f"{side}_tp"], row[f"{side}_ep"]
    return RoleTopology(name, workers, each, tp=tp, ep=ep, dp_attention=row[f"{side}_dp_attention"])


def topology_of(row: dict[str, Any]) -> tuple[RoleTopology, ...]:
    """The roles of a row; an aggregated server has one, whose GPUs are what a gate asks for."""
    if not row["disagg"]:
        return (_role(row, "aggregated", "decode", None),)
    prefill, decode = row["num_prefill_gpu"], row["num_decode_gpu"]
    return _role(row, "prefill", "prefill", prefill), _role(row, "decode", "decode", decode)


def point_of(row: dict[str, Any]) -> Point:
    """One published row as a point."""
    disagg = row["disagg"]
    prefill, decode = row["num_prefill_gpu"], row["num_decode_gpu"]
    run, _, attempt = row["run_url"].rpartition("/runs/")[2].partition("/attempts/")
    method = row["spec_method"]
    identity = PointIdentity(
        model=row["model"],
        hardware=row["hardware"],
        engine=row["framework"],
        scenario=Scenario("fixed-seq-len", row["isl"], row["osl"], RANGE_RATIO),
        concurrency=row["conc"],
        image=row.get("image"),
        precision=Precision(row["precision"], row["precision"]),
        speculation=None if method == "none" else Speculation(method),
        topology=topology_of(row),
    )
    rates = {
        name.removesuffix("_intvty"): value
        for name, value in row["metrics"].items()
        if name.endswith("_intvty")
    }
    return Point(
        identity=identity,
        execution=Execution(run, int(attempt or 1), started_utc=row["date"]),
        figures=_figures(row, disagg),
        source="published",
        mapping_version=1,
        gpus_stated=prefill + decode if disagg else decode,
        observed={STATED_RATES: {k: v for k, v in rates.items() if k in ("median", "p90", "p99")}},
    )


def points(name: str) -> list[Point]:
    """All rows of one published file, in its order."""
    rows = json.loads((DATA / "published-2026-06" / name).read_text(encoding="utf-8"))
    return [point_of(row) for row in rows]
