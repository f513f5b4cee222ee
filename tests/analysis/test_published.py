"""Fronts of rows that were published in June 2026: three readings that a page of the same rows gets wrong, shown right, each
worked out here from the rows themselves; and how small the columns are."""

from __future__ import annotations

import gzip
import io
import json
from functools import cache, partial
from pathlib import Path
from typing import cast

import pytest

from servemark.analysis.columnar import columnar
from servemark.analysis.front_types import FrontOptions, FrontView
from servemark.analysis.front_view import front_view
from servemark.analysis.measured import Measured, of_point
from servemark.analysis.selection import Selection, matches
from servemark.results.importers.base import Given
from servemark.results.importers.registry import importers

ROWS = Path(__file__).resolve().parents[3] / "shared/data/results/published-2026-06/benchmarks.json"
FP8 = Selection(scenario=("fixed-seq-len:8192/1024",), precision=("fp8",))

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not ROWS.exists(), reason="the published rows are not here"),
]
Row = dict[str, object]


@cache
def raw() -> list[Row]:
    """The rows as they were published."""
    return cast("list[Row]", json.loads(ROWS.read_bytes()))


@cache
def points() -> tuple[Measured, ...]:
    """The same rows as the importer maps them."""
    data = ROWS.read_bytes()
    given = Given(ROWS.name, len(data), data[:65536], partial(io.BytesIO, data), {}, {})
    reader = next(each for each in importers() if each.id == "inferencex")
    found = [(each.ordinal, each.point) for each in reader.read(given)]
    return tuple(of_point(p, f"file:{n}", "valid", official=True) for n, p in found if p is not None)


def figure(row: Row, name: str) -> float:
    """A published figure."""
    return float(cast("dict[str, float]", row["metrics"])[name])


def number(row: Row, name: str) -> int:
    """A published count."""
    return int(cast("int", row[name]))


def rows_8k_fp8() -> list[Row]:
    """Published rows of 8192 / 1024 tokens in fp8."""
    return [row for row in raw() if (row["isl"], row["osl"], row["precision"]) == (8192, 1024, "fp8")]


def view(chosen: Selection = FP8, **options: object) -> FrontView:
    """The front of a selection of them."""
    some = [point for point in points() if matches(point, chosen)]
    return front_view(some, FrontOptions(**options), "en")  # type: ignore[arg-type]


def test_output_per_gpu_is_over_all_gpus() -> None:
    """At 40 tok/s/user: published output tok/s per GPU are per decode GPU for disaggregated rows. By them GB200 with
    TensorRT-LLM and MTP leads with 2258 (40 prefill + 16 decode GPUs); over all 56 GPUs that is 2258 x 16 / 56 = 645,
    and GB200 with SGLang leads with 761 (40 + 32 GPUs, stated 1713 x 32 / 72)."""
    fast = [r for r in rows_8k_fp8() if 1 / figure(r, "median_tpot") >= 40 and r["disagg"]]
    fast = [r for r in fast if "output_tput_per_gpu" in cast("dict[str, float]", r["metrics"])]
    stated = max(fast, key=lambda r: figure(r, "output_tput_per_gpu"))
    assert (stated["framework"], stated["spec_method"], number(stated, "conc")) == ("dynamo-trt", "mtp", 666)
    assert (number(stated, "num_prefill_gpu"), number(stated, "num_decode_gpu")) == (40, 16)
    assert figure(stated, "output_tput_per_gpu") == pytest.approx(2258, abs=0.5)

    def over_all(row: Row) -> float:
        decode, prefill = number(row, "num_decode_gpu"), number(row, "num_prefill_gpu")
        return figure(row, "output_tput_per_gpu") * decode / (decode + prefill)

    assert over_all(stated) == pytest.approx(645, abs=0.5)
    right = max(fast, key=over_all)
    assert (right["framework"], number(right, "conc")) == ("dynamo-sglang", 6144)
    found = view(y="output_tokens_per_s_per_gpu", target=40)
    assert found.target is not None and found.target.overall.floor is not None
    row = found.rows[found.target.overall.floor]
    assert found.series[found.lines[row.line].series].parts["engine"] == "sglang"
    assert row.concurrency == 6144
    assert row.y == pytest.approx(over_all(right), rel=1e-6) == pytest.approx(761, abs=0.5)


def test_a_missing_percentile_is_no_zero() -> None:
    """290 of the 435 rows state no p90 of TPOT, 64 of the 105 here. Read as 0 they stand at the left edge and the fastest
    of them, with all its throughput, at no speed at all. Here they have no place, and the reason is counted."""
    lacking = [row for row in raw() if "p90_tpot" not in cast("dict[str, float]", row["metrics"])]
    assert (len(lacking), len([row for row in rows_8k_fp8() if row in lacking])) == (290, 64)
    found = view(x="interactivity.p90")
    assert [row.state for row in found.rows].count("absent") == 64
    assert all(row.x is None for row in found.rows if row.state == "absent")
    assert min(row.x for row in found.rows if row.x is not None) > 4
    assert [left.points for left in found.left_out] == [64]
    assert "states others of its percentiles, but not this one" in found.left_out[0].reason


def test_nothing_is_read_between_two_runs() -> None:
    """GB200 with SGLang in fp8 is one curve of five points out of four runs. Its front has two: 48.2 tok/s/user, 6854
    tok/s/GPU (72 GPUs, February 2026), and 95.8, 373 (8 GPUs, December 2025). A curve between them gives 6854 + (70 -
    48.16) / (95.77 - 48.16) x (373.3 - 6854.3) = 3881 at 70; the best that anybody measured there is 373."""
    some = [r for r in rows_8k_fp8() if (r["hardware"], r["framework"]) == ("gb200", "dynamo-sglang")]
    assert (len(some), len({r["run_url"] for r in some})) == (5, 4)
    slow, fast = (next(r for r in some if r["conc"] == load) for load in (6144, 4))
    (x0, y0), (x1, y1) = ((1 / figure(r, "median_tpot"), figure(r, "tput_per_gpu")) for r in (slow, fast))
    assert y0 + (70 - x0) / (x1 - x0) * (y1 - y0) == pytest.approx(3881, abs=1)
    chosen = Selection(
        scenario=FP8.scenario, precision=FP8.precision, hardware=("gb200",), engine=("sglang",)
    )
    found = view(chosen, target=70)
    assert len({line.run for line in found.lines}) == 4
    assert found.target is not None
    assert found.target.overall.y == pytest.approx(373.3, abs=0.1)
    assert found.target.overall.estimate is None
    assert len(found.groups[0].on) == 2


def test_gpus_are_not_tp_times_ep() -> None:
    """46 aggregated rows state TP x EP GPUs. B200 with TensorRT-LLM and MTP at load 256 (1024 / 1024, fp8) makes 2658.8
    tok/s/GPU on one server of 8: 21270 tok/s, and not the 170162 of 64 GPUs."""
    wrong = [r for r in raw() if not r["disagg"] and number(r, "num_decode_gpu") > number(r, "decode_tp")]
    assert len(wrong) == 46
    row = next(
        r for r in wrong if r["spec_method"] == "mtp" and r["conc"] == 256 and r["isl"] == r["osl"] == 1024
    )
    assert figure(row, "tput_per_gpu") * number(row, "num_decode_gpu") == pytest.approx(170162, abs=1)
    found = next(p for p in points() if p.value("total_tokens_per_s_per_gpu") == figure(row, "tput_per_gpu"))
    assert found.value("gpus_deployed") == 8
    assert found.value("total_tokens_per_s") == pytest.approx(21270, abs=1)


def test_all_of_them_in_25_kb() -> None:
    """435 points on their axes with three further columns, compressed as a server does."""
    found = front_view(points(), FrontOptions(), "en")
    assert len(found.rows) == 435
    assert [group.points for group in found.groups] == [170, 170, 95]
    body = json.dumps(columnar(found), separators=(",", ":"), ensure_ascii=False).encode()
    assert len(gzip.compress(body, 6)) <= 25_000
