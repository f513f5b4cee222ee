"""docs/measured-front-h200.md against the rows that are attached to it."""

from __future__ import annotations

import json
import statistics
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from servemark.metrics.derive import value_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROWS = DOCS / "data" / "h200-qwen3" / "rows.tar.xz"
ARMS = frozenset({"agg", "nixl-disagg-1p1d", "agg-tp2", "agg-8k1k", "nixl-disagg-1p1d-8k1k"})


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Every row of the archive."""
    with tarfile.open(ROWS) as archive:
        members = [
            m
            for m in archive.getmembers()
            if m.name.startswith("./runs/") and m.name.endswith("/result.json")
        ]
        files = [archive.extractfile(member) for member in members]
        return [json.loads(file.read()) for file in files if file is not None]


def test_every_row_says_what_it_is(rows: list[dict[str, Any]]) -> None:
    """Dummy weights, and a client that was never the limit."""
    assert len(rows) == 35
    assert (
        {row["declared"]["weights"] for row in rows}
        == {row["identity"]["weights"] for row in rows}
        == {"dummy"}
    )
    assert not any(row["client"]["limited"] for row in rows)
    assert not any(sum(row["counts"][name] for name in ("error", "timeout", "incomplete")) for row in rows)


@pytest.mark.parametrize("page", ["measured-front-h200.md", "zh/measured-front-h200.md"])
def test_the_tables_are_the_rows(rows: list[dict[str, Any]], page: str) -> None:
    """Throughput and interactivity of each point: the median, and the smallest and largest where there are repeats."""
    text = (DOCS / page).read_text(encoding="utf-8")
    points = defaultdict(list)
    for row in rows:
        arm = row["arm"].removeprefix("qwen3-8b-dummy-bf16-h200-vllm-")
        if arm in ARMS:
            points[arm, row["concurrency"]].append(row)
    assert len(points) == 18
    for (_, concurrency), some in points.items():
        cells = [str(concurrency)]
        for address, form in (
            ("total_tokens_per_s_per_gpu", ",.0f"),
            ("output_tokens_per_s", ",.0f"),
            ("interactivity.p50", ".1f"),
        ):
            values = [value for row in some if (value := value_of(row, address)) is not None]
            shown = format(statistics.median(values), form)
            many = f" [{min(values):{form}}\u2013{max(values):{form}}]" if len(values) > 1 else ""
            cells.append(shown + many)
        assert " | ".join(cells) + " |" in text


def test_transfers_moved_whole_blocks(rows: list[dict[str, Any]]) -> None:
    """A block is 16 tokens of 147,456 bytes (36 layers x 2 x 8 heads x 128 x 2 bytes); none failed."""
    moved = [row["observed"]["kv_transfer"] for row in rows if "disagg" in row["arm"]]
    assert len(moved) == 15
    for each in moved:
        assert each["bytes"] % (16 * 147_456) == 0 and each["failed_transfers"] == 0
