"""What two real hosts measured (one H200; two of them over NV18), judged again: healthy by the references of the file."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from servemark.catalog.hardware import gpu
from servemark.preflight.finding import Finding
from servemark.preflight.gpu.findings import findings_of
from servemark.preflight.gpu.lines import PROBES_OF, Line, believed
from servemark.preflight.gpu.run import Measured, devices_of

ROWS = Path(__file__).resolve().parents[2] / "docs" / "data" / "h200-qwen3" / "rows.tar.xz"


def said(host: str) -> list[dict[str, Any]]:
    """The lines that `--gpu-lines` kept."""
    with tarfile.open(ROWS) as archive:
        file = archive.extractfile(f"./preflight/{host}.jsonl")
        assert file is not None
        return [json.loads(line) for line in file]


def measured(host: str) -> Measured:
    """The same as the judge takes it; every line is believed as when it came."""
    facts: dict[str, dict[str, object]] = {}
    lines: list[Line] = []
    for one in said(host):
        if one["kind"] == "facts":
            facts[one["probe"]] = one["facts"]
        else:
            probe = "pin" if one["kind"] == "pinned" else PROBES_OF[one["name"]]
            line = believed(json.dumps(one).encode(), probe, one.get("gpus") or (0,))
            assert line is not None, one
            lines.append(line)
    devices = devices_of(facts["cuda"], facts["nvml"])
    return Measured(devices, facts["nvml"], facts["cuda"], facts["watch"], tuple(lines), 31.0)


def of_topic(host: str, topic: str) -> list[Finding]:
    """Findings of one topic."""
    return [finding for finding in findings_of(measured(host), ()) if finding.topic == topic]


@pytest.mark.parametrize(("host", "count"), [("h200-x1", 1), ("h200-x2", 2)])
def test_real_gpus_are_healthy(host: str, count: int) -> None:
    """Power-capped products of 684 to 721 TFLOP/s are usual; on one GPU NIXL to itself (0.47 GB/s) blames nobody."""
    found = of_topic(host, "gpu")
    assert [finding.facts["state"] for finding in found] == ["healthy"] * count
    assert {finding.verdict for finding in found} == {"ok"}
    (links,) = of_topic(host, "gpu_links")
    assert links.verdict == ("none" if count == 1 else "ok")
    assert ("slow" in {one["mark"] for one in links.facts["figures"]}) is False  # type: ignore[attr-defined]


def test_every_figure_that_can_be_compared_is() -> None:
    """A reference for each figure of the two GPUs and between them, but one whose latency grows with the GPUs."""
    findings = [*of_topic("h200-x2", "gpu"), *of_topic("h200-x2", "gpu_links")]
    figures = [one for finding in findings for one in finding.facts["figures"]]  # type: ignore[attr-defined]
    without = {one["name"] for one in figures if one["mark"] == "no_reference"}
    assert without == {"nccl_all_reduce_latency_s"}


def test_references_lie_within_their_tolerance_of_the_hosts() -> None:
    """Each by hand from the lines: worse by less than the tolerance, and a figure of half of it is slow."""
    kind = gpu("h200")
    assert kind.measured is not None
    for host in ("h200-x1", "h200-x2"):
        for one in said(host):
            reference = kind.measured.figures.get(str(one.get("name")).replace("_", "-"))
            if (
                one["kind"] != "figure"
                or reference is None
                or (len(one["gpus"]) < 2 and PROBES_OF[one["name"]] in {"ipc", "nixl"})
            ):
                continue
            ratio = one["value"] / reference.value
            ratio = 1 / ratio if one["name"].endswith("_latency_s") else ratio
            assert ratio >= 1 - reference.tolerance, one["name"]
            assert reference.tolerance < 0.5
