"""A store made for the page's tests: published rows with figures that can be checked in the head. Not a test module.

python tests/web/browser/made_store.py HOME
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from servemark.results.point import (
    POINT_SCHEMA,
    Execution,
    Figure,
    Point,
    PointIdentity,
    Precision,
    Requests,
    RoleTopology,
    Scenario,
    point_json,
)

MODEL = "deepseek-r1"
SCENARIO = "fixed-seq-len:1024/1024"
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
LONG = "a-very-long-name-without-a-space-" * 6
MANY = 2000

Pair = tuple[float, float]

LINES: dict[tuple[str, str, bool], tuple[Pair, ...]] = {
    ("h200", "vllm", False): ((20, 900), (40, 700), (80, 300)),
    ("h100", "vllm", False): ((15, 500), (30, 400), (60, 200)),
    ("b200", "sglang", False): ((25, 1500), (50, 1100), (120, 260)),
    ("b200", "trt", False): ((22, 1400), (45, 1200), (100, 240)),
    ("mi355x", "sglang", False): ((24, 1300), (48, 900), (110, 250)),
    ("gb200", "dynamo-trt", True): ((30, 2600), (60, 1300), (150, 200)),
}
"""(hardware, framework, disaggregated) -> (tok/s/user, tok/s/GPU) from the highest load to the lowest: a line each."""


def row(
    hardware: str,
    framework: str,
    speed: float,
    rate: float,
    *,
    split: bool = False,
    run: int = 1,
    **changes: object,
) -> dict[str, Any]:
    """One published row whose figures agree: as many lanes as the rate keeps busy, TPOT 1 / speed, E2EL by Little's law."""
    gpus = 40 if split else 8
    osl = 1024
    lanes = math.ceil(rate * gpus / (2 * speed))
    e2el = lanes * 2 * osl / (rate * gpus)
    sides = {
        f"{role}_{key}": value
        for role, count in (("prefill", 1), ("decode", 4))
        for key, value in (
            ("tp", 8),
            ("ep", 1),
            ("dp_attention", False),
            ("num_workers", count if split else 0),
        )
    }
    latencies = {"tpot": 1 / speed, "e2el": e2el, "ttft": e2el - (osl - 1) / speed}
    made: dict[str, Any] = {
        "hardware": hardware, "framework": framework, "model": "dsr1", "precision": "fp8", "spec_method": "none",
        "disagg": split, "is_multinode": split, **sides, "num_prefill_gpu": 8, "num_decode_gpu": 32 if split else 8,
        "isl": osl, "osl": osl, "conc": lanes, "image": f"example/{framework}:v1", "date": "2026-06-11", "workers": None,
        "metrics": {
            "tput_per_gpu": rate,
            **{f"{statistic}_{name}": value for name, value in latencies.items() for statistic in ("median", "mean")},
            **{f"p90_{name}": 1.25 * value for name, value in latencies.items()},
        },
        "run_url": f"https://example.org/runs/{run}/attempts/1",
    }  # fmt: skip
    return made | changes


def usual() -> list[dict[str, Any]]:
    """Six lines of one scenario, a point that lacks a TPOT, and a scenario with a single point."""
    made = [
        row(hardware, framework, speed, rate, split=split, run=100 + number)
        for number, ((hardware, framework, split), points) in enumerate(LINES.items())
        for speed, rate in points
    ]
    lacking = row("h200", "vllm", 10, 950, run=100)
    lacking["metrics"] = {"tput_per_gpu": 950}
    alone = row("h200", "vllm", 50, 800, run=120, osl=4096, precision="fp4")
    alone["metrics"] = {"tput_per_gpu": 800, "median_tpot": 1 / 50}
    return [*made, lacking, alone]


def hostile() -> str:
    """A file of points whose every name is one that a page must show and never obey."""
    lines = [json.dumps({"servemark_points": 1, "schema": POINT_SCHEMA})]
    for number, (hardware, engine, run) in enumerate(
        [(HOSTILE, "vllm", HOSTILE), ("h200", HOSTILE, "r2"), (LONG, LONG, LONG)]
    ):
        for load, speed, rate in ((4, 80, 300), (16, 40, 700), (64, 20, 900 + number)):
            identity = PointIdentity(
                model=HOSTILE, hardware=hardware, engine=engine, scenario=Scenario("fixed-seq-len", 1024, 1024),
                concurrency=load, precision=Precision("fp8", "fp8"), image=HOSTILE,
                topology=(RoleTopology("aggregated", 1, 8, tp=8),),
            )  # fmt: skip
            figures = {"tpot_s.p50": 1 / speed, "total_tokens_per_s_per_gpu": float(rate)}
            point = Point(
                identity=identity, execution=Execution(run=run, started_utc="2026-06-11", url="javascript:alert(3)"),
                figures={name: Figure(value, "made", name) for name, value in figures.items()},
                source="made", mapping_version=1, requests=Requests(ok=100, error=0), gpus_deployed=8,
            )  # fmt: skip
            lines.append(point_json(point))
    return "\n".join(lines) + "\n"


def many(count: int = MANY) -> list[dict[str, Any]]:
    """Many points of one model."""
    rng = random.Random(7)
    made = []
    for number in range(count):
        line, place = divmod(number, 8)
        speed = 12 * 1.4 ** (7 - place) * rng.uniform(0.9, 1.1)
        hardware, framework, _ = list(LINES)[line % 5]
        rate = 30_000 / speed * rng.uniform(0.6, 1.1)
        made.append(
            row(
                hardware,
                framework,
                speed,
                rate,
                model="kimik2.5",
                image=f"example/engine:v{line}",
                run=1000 + line,
            )
        )
    return made


def fill(home: Path, **files: list[dict[str, Any]] | str) -> Path:
    """Import rows into a home by the program's own verb."""
    home.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        path = home / f"{name}.json"
        path.write_text(rows if isinstance(rows, str) else json.dumps(rows), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "servemark", "import", "--home", str(home), str(path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr)
    return home


if __name__ == "__main__":
    fill(Path(sys.argv[1]), usual=usual(), hostile=hostile(), many=many())
