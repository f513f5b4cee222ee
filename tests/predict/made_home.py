"""A home with measured curves that follow a law which can be worked out by hand, and a suite that asks for more of them.

TPOT = a + b*B, TTFT = 50 ms, E2EL = TTFT + 1024 * TPOT, total tokens/s/GPU = B * 2048 / E2EL / GPUs (a closed loop).
`good` (8 GPUs): a = 10 ms, b = 0.1 ms. At B = 256: TPOT 35.6 ms, 28.1 tok/s/user, 256 * 2048 / 36.5 / 8 = 1,795.
`poor` (4 GPUs): a = 20 ms, b = 0.6 ms. At B = 32: TPOT 39.2 ms, 25.5 tok/s/user, 32 * 2048 / 40.2 / 4 = 408: beaten by it.
"""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

from servemark.results.point import Execution, Figure, Point, PointIdentity, Precision, RoleTopology, Scenario

FILL = runpy.run_path(str(Path(__file__).parents[1] / "analysis" / "made_store.py"))["fill"]
IMAGE = "lmsysorg/sglang:v1"
MEASURED = (1, 4, 16, 64, 256)
PLANNED = (1, 8, 32, 128, 256)
LAWS = {8: (0.010, 0.0001), 4: (0.020, 0.0006), 2: (0.040, 0.0009), 16: (0.008, 0.0004)}
"""GPUs = tensor parallelism of a deployment -> (a, b) in seconds."""
MASTER = """\
{key}:
  image: lmsysorg/sglang:v1
  model: deepseek-ai/DeepSeek-R1
  model-prefix: dsr1
  runner: cluster:b200-x
  precision: fp8
  framework: sglang
  multinode: false
  scenarios:
    fixed-seq-len:
    - {{isl: 1024, osl: 1024, search-space: [{{tp: {tp}, conc-list: {loads}}}]}}
"""


def tpot(gpus: int, load: int) -> float:
    """Seconds a token by the law."""
    a, b = LAWS[gpus]
    return a + b * load


def total_per_gpu(gpus: int, load: int) -> float:
    """Tokens a second and GPU by the law."""
    return load * 2048 / (0.05 + 1024 * tpot(gpus, load)) / gpus


def point(gpus: int, load: int, image: str = IMAGE) -> Point:
    """One measurement."""
    e2el = 0.05 + 1024 * tpot(gpus, load)
    figures = {
        "tpot_s.p50": tpot(gpus, load),
        "ttft_s.p50": 0.05,
        "e2el_s.p50": e2el,
        "total_tokens_per_s_per_gpu": total_per_gpu(gpus, load),
        "output_tokens_per_s_per_gpu": total_per_gpu(gpus, load) / 2,
        "input_tokens_per_s_per_gpu": total_per_gpu(gpus, load) / 2,
    }
    identity = PointIdentity(
        model="deepseek-r1",
        hardware="b200",
        engine="sglang",
        scenario=Scenario("fixed-seq-len", 1024, 1024),
        concurrency=load,
        image=image,
        precision=Precision("fp8", "fp8"),
        topology=(RoleTopology("aggregated", 1, gpus, tp=gpus),),
    )
    stated = {name: Figure(value, "made", name) for name, value in figures.items()}
    execution = Execution(f"run-{gpus}", 1, "2026-01-01T00:00:00Z")
    return Point(identity, execution, stated, "made", 1, gpus_deployed=gpus)


def made_home(folder: Path, *, image: str = IMAGE) -> Path:
    """All four curves."""
    found: Path = FILL(folder, [point(gpus, load, image) for gpus in LAWS for load in MEASURED])
    return found


def made_suite(folder: Path) -> Path:
    """The arms `good` and `poor` at loads of which the ends alone were measured."""
    (folder / "configs").mkdir(parents=True)
    arms = "".join(
        MASTER.format(key=key, tp=tp, loads=list(PLANNED)) for key, tp in (("good", 8), ("poor", 4))
    )
    (folder / "configs" / "b200-master.yaml").write_text(arms, encoding="utf-8")
    return folder


def with_image(one: Point, image: str) -> Point:
    """The same measurement with another image."""
    return replace(one, identity=replace(one.identity, image=image))
