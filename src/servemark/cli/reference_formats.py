"""The generated page of formats: what each importer makes of a file that the tool itself wrote.

No table is written by hand or read out of an importer's code: the sample is imported, and what came of it is listed.
"""

from __future__ import annotations

import gzip
from io import BytesIO
from pathlib import Path

from servemark.base.messages import text
from servemark.metrics.registry import METRICS
from servemark.results.importers.base import HEAD_BYTES, HINTS, Given, Importer
from servemark.results.importers.registry import importers
from servemark.results.point import Point
from servemark.traces.open import FORMATS

SAMPLES = {
    "inferencex": ("inferencex/api.json", "inferencex/aggregate.json"),
    "vllm-bench": ("vllm_bench/result.json",),
    "sglang-bench": ("sglang_bench/sglang.jsonl",),
    "aiperf": ("aiperf/profile_export_aiperf.json",),
    "guidellm": ("guidellm/report.json.gz",),
    "llmd-report": ("llmd_report/vllm-benchmark.yaml",),
    "lm-eval": ("lm_eval/results_2026-11-30T09-21-28.343591.json",),
}
"""Importer -> files below the folder of samples, whose README says how each was made. Others give no points alone."""
_HINTS = {"hardware": "h200", "engine": "vllm", "model": "org/model", "gpus": "8"}


def formats_page(samples: Path) -> str:
    """Markdown; `samples` is the folder of sample files."""
    parts = [f"# {text('cli.reference.formats')}", "", text("cli.reference.generated"), ""]
    parts += [text("cli.reference.formats_about"), "", text("cli.reference.formats_hints"), ""]
    parts += [f"`{'`, `'.join(HINTS)}`", ""]
    for importer in importers():
        key = importer.id.replace("-", "_")
        parts += [
            f"## {importer.id}",
            "",
            text("cli.reference.format", None, title=importer.title, version=importer.version),
        ]
        parts += ["", text(f"cli.reference.format.{key}"), ""]
        for name in SAMPLES.get(importer.id, ()):
            parts += _table(importer, samples / name, name)
    parts += [f"## {text('cli.reference.traces')}", "", text("cli.reference.traces_about"), ""]
    parts += [f"`{'`, `'.join(FORMATS)}`"]
    return "\n".join(parts) + "\n"


def _table(importer: Importer, file: Path, name: str) -> list[str]:
    """What came of one sample's first point."""
    point = next(row.point for row in importer.read(_given(file)) if row.point is not None)
    lines = [
        text("cli.reference.sample", None, file=name),
        "",
        text("cli.reference.format_columns"),
        "| --- | --- | --- | --- |",
    ]
    for address, figure in sorted(point.figures.items(), key=lambda pair: (pair[1].at, pair[0])):
        how = figure.how or "="
        lines.append(
            f"| `{figure.at}` | `{address}` ({_unit(address)}) | {_cell(how)} | `{figure.definition}` |"
        )
    for score in point.evals:
        lines.append(f"| | `{_cell(score.task)}` | = | |")
    return [*lines, "", *_facts(point)]


def _facts(point: Point) -> list[str]:
    """What else the sample says of itself, as the point has it."""
    identity = point.identity
    said = {
        "model": identity.model, "hardware": identity.hardware, "engine": identity.engine,
        "scenario": identity.scenario.type, "concurrency": identity.concurrency, "gpus_deployed": point.gpus_deployed,
        "requests.ok": point.requests.ok, "duration_s": point.duration_s,
    }  # fmt: skip
    shown = ", ".join(f"`{name}` {_cell(str(value))}" for name, value in said.items() if value is not None)
    return [text("cli.reference.also", None, facts=shown), ""]


def _given(file: Path) -> Given:
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    beside = {
        one.name: Given(one.name, one.stat().st_size, b"", lambda one=one: one.open("rb"))  # type: ignore[misc]
        for one in file.parent.iterdir()
        if one != file
    }
    return Given(file.name, len(data), data[:HEAD_BYTES], lambda: BytesIO(data), _HINTS, beside)


def _unit(address: str) -> str:
    metric = METRICS.get(address.partition(".")[0])
    return metric.unit if metric is not None else "-"


def _cell(said: str) -> str:
    return said.replace("|", "\\|").replace("\n", " ")
