"""A made point that every gate passes or skips, with numbers that can be checked in the head, and ways to change it."""

from __future__ import annotations

from dataclasses import replace

from servemark.results.gates.base import Context, GateFinding
from servemark.results.gates.registry import GATES_BY_ID
from servemark.results.point import (
    Execution,
    Figure,
    Point,
    PointIdentity,
    Requests,
    RoleTopology,
    Scenario,
)

SOUND = {
    "ttft_s.mean": 0.25,
    "ttft_s.p50": 0.2,
    "ttft_s.p90": 0.4,
    "tpot_s.mean": 9.75 / 1023,
    "tpot_s.p50": 9.75 / 1023,
    "tpot_s.p90": 0.0099,
    "itl_s.p50": 9.75 / 1023,
    "e2el_s.mean": 10.0,
    "e2el_s.p50": 10.0,
    "e2el_s.p90": 10.5,
    "total_tokens_per_s_per_gpu": 256.0,
    "input_tokens_per_s_per_gpu": 128.0,
    "output_tokens_per_s_per_gpu": 128.0,
}
"""Ten lanes, 1024 + 1024 tokens, 10 s: 10 x 2048 / 10 = 2048 tok/s, on 8 GPUs 256 each. 0.25 + 9.75 = 10."""


def figures(values: dict[str, float]) -> dict[str, Figure]:
    """Figures of the values, all of one definition."""
    return {name: Figure(value, "made", name) for name, value in values.items()}


def sound(**changes: object) -> Point:
    """The point, with fields of `Point` replaced."""
    identity = PointIdentity(
        model="m",
        hardware="h",
        engine="e",
        scenario=Scenario("fixed-seq-len", 1024, 1024, 1.0),
        concurrency=10,
        topology=(RoleTopology("aggregated", 1, 8, tp=8),),
    )
    point = Point(
        identity=identity,
        execution=Execution("r1", 1, "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"),
        figures=figures(SOUND),
        source="made",
        mapping_version=1,
        requests=Requests(100, 100, 0, 0, 0),
        duration_s=105.0,
        gpus_deployed=8,
    )
    return replace(point, **changes)  # type: ignore[arg-type]


def with_figures(point: Point, **values: float | None) -> Point:
    """Figures set, or with None taken away; `__` in a name stands for the dot of an address."""
    found = dict(point.figures)
    for name, value in values.items():
        address = name.replace("__", ".")
        found.pop(address, None)
        if value is not None:
            found[address] = Figure(value, "made", address)
    return replace(point, figures=found)


def with_identity(point: Point, **changes: object) -> Point:
    """Fields of the identity replaced."""
    return replace(point, identity=replace(point.identity, **changes))  # type: ignore[arg-type]


def said(gate: str, point: Point, context: Context | None = None) -> GateFinding:
    """What one gate says."""
    return GATES_BY_ID[gate].judge(point, context or Context())


def split_point(
    prefill: int, decode: int, read: float, written: float, total: float, **changes: object
) -> Point:
    """A disaggregated point that claims `prefill` and `decode` GPUs, without latencies."""
    topology = (RoleTopology("prefill", None, prefill), RoleTopology("decode", None, decode))
    point = sound(gpus_deployed=None, gpus_stated=prefill + decode, figures={}, **changes)
    return with_identity(
        with_figures(
            point,
            input_tokens_per_s_per_prefill_gpu=read,
            output_tokens_per_s_per_decode_gpu=written,
            total_tokens_per_s_per_gpu=total,
        ),
        topology=topology,
    )
