"""llm-d reports: made by its own converter from the same samples, and a point there and back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.results.importers.given_files import (
    HINTS,
    SAMPLES,
    explained,
    given,
    only_point,
    refused,
    sample,
    survives,
)

from servemark.results.importers import guidellm, vllm_bench
from servemark.results.importers.base import Importer
from servemark.results.importers.llmd_report import IMPORTER, to_llmd
from servemark.results.point import Point, RoleTopology

STACK = """
- metadata: {label: a, cfg_id: x}
  standardized: {kind: inference_engine, tool: vllm, tool_version: "0.9", role: %s, replicas: %d, model: {name: org/m},
    accelerator: {model: NVIDIA-H200, count: %d, parallelism: {tp: 4}}}
  native: {}
"""


def with_stack(*roles: tuple[str, int, int]) -> bytes:
    """The vLLM report with a stack of (role, replicas, GPUs)."""
    base = (SAMPLES / "llmd_report" / "vllm-benchmark.yaml").read_text()
    lines = "".join(STACK % role for role in roles).strip("\n").replace("\n", "\n  ")
    return base.replace("scenario:\n", f"scenario:\n  stack:\n  {lines}\n").encode()


@pytest.mark.parametrize(
    ("report", "original", "importer", "index"),
    [
        ("vllm-benchmark.yaml", "vllm_bench/result.json", vllm_bench.IMPORTER, 0),
        ("guidellm_0.yaml", "guidellm/report.json.gz", guidellm.IMPORTER, 0),
        ("guidellm_1.yaml", "guidellm/report.json.gz", guidellm.IMPORTER, 1),
    ],
)
def test_equals_the_direct_import(report: str, original: str, importer: Importer, index: int) -> None:
    """llm-d's converter and the tool's own importer lead to the same figures at the same addresses."""
    through = only_point(IMPORTER, sample(f"llmd_report/{report}"))
    direct = list(importer.read(sample(original)))[index].point
    assert direct is not None and len(through.figures) > 20
    for address, figure in through.figures.items():
        assert direct.value(address) == pytest.approx(figure.value, rel=1e-9), address
        assert figure.definition.startswith("llmd-0.2:")
    assert (
        through.requests.ok == direct.requests.ok
        and through.identity.concurrency == direct.identity.concurrency
    )


def test_stack_gives_topology_and_gpus() -> None:
    """1 prefill of 4 and 1 decode of 8 GPUs; with replicas the count is ambiguous and stays `stated`."""
    point = only_point(IMPORTER, given(with_stack(("prefill", 1, 4), ("decode", 1, 8))))
    roles = [(role.role, role.gpus, role.tp) for role in point.identity.topology]
    assert roles == [("prefill", 4, 4), ("decode", 8, 4)] and point.gpus_stated == 12
    assert (point.identity.hardware, point.identity.engine, point.identity.model) == (
        "NVIDIA-H200",
        "vllm",
        "org/m",
    )
    point = only_point(IMPORTER, given(with_stack(("replica", 2, 8))))
    assert point.identity.topology[0].gpus is None and any("replicas" in note for note in point.notes)
    (row,) = IMPORTER.read(given(with_stack(("teacher", 1, 8))))
    assert explained(row) == "results.import_unknown_role"


def rich() -> Point:
    """A point with what the schema has no place for."""
    point = only_point(
        vllm_bench.IMPORTER, sample("vllm_bench/result.json", {**HINTS, "gpus": "12", "precision": "nvfp4"})
    )
    figures = dict(point.figures)
    del figures["ttft_s.mean"]  # its percentiles have then no place in the public part
    roles = (RoleTopology("prefill", 1, 4, tp=4), RoleTopology("decode", 2, 4, tp=4))
    identity = replace(point.identity, topology=roles, recipe_fingerprint="abc")
    return replace(point, identity=identity, figures=figures, duration_s=12.25)


def test_there_and_back_is_the_same_point() -> None:
    """Identity, execution, figures with their definitions, counts."""
    point = rich()
    report = to_llmd(point)
    again = only_point(IMPORTER, given(json.dumps(report).encode()))
    assert again.identity == point.identity and again.identity.point_key == point.identity.point_key
    assert again.figures == point.figures and again.execution == point.execution
    assert again.requests == point.requests and again.duration_s == 12.25 and again.gpus_deployed == 12


def test_a_changed_report_is_found_out() -> None:
    """A public figure that no longer agrees with the kept ones."""
    report = json.loads(json.dumps(to_llmd(rich())))
    report["results"]["request_performance"]["aggregate"]["latency"]["request_latency"]["p90"] *= 0.9
    (row,) = IMPORTER.read(given(json.dumps(report).encode()))
    assert explained(row) == "results.import_contradicts"


@pytest.mark.parametrize("unit", ["us", "hours", "null"])
def test_unknown_unit(unit: str) -> None:
    """Nothing is converted by guess."""
    data = (
        (SAMPLES / "llmd_report" / "vllm-benchmark.yaml")
        .read_bytes()
        .replace(b"units: ms\n", f"units: {unit}\n".encode())
    )
    (row,) = IMPORTER.read(given(data, hints=HINTS))
    assert explained(row) == "results.import_unknown_unit"


def test_damage_gives_messages() -> None:
    """Cut JSON, YAML bombs and nesting, other versions, NaN."""
    survives(IMPORTER, json.dumps(to_llmd(rich())).encode())
    good = (SAMPLES / "llmd_report" / "vllm-benchmark.yaml").read_bytes()
    bomb = b"a: &a [x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (98 + i, 98 + i, b", ".join([b"*%c" % (97 + i)] * 9)) for i in range(9)
    )
    for data in (bomb, b"a: " + b"[" * 5000, b"a: [\n", good + b"\n\t- x", b"- 1\n"):
        refused(IMPORTER, given(data, hints=HINTS))
    for old, new, key in (
        (b"version: 0.2.1", b"version: 0.1", "other_version"),
        (b"failures: 0", b"failures: 9", "negative"),
        (b"mean: 129.4248673743823", b"mean: .nan", "not_finite"),
    ):
        (row,) = IMPORTER.read(given(good.replace(old, new), hints=HINTS))
        assert explained(row) == f"results.import_{key}"
