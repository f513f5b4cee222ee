"""The model on published rows, coarsely: one seed of the benchmark. The limits are those that the field's own fits reach on
such rows (medians 3.3 %, means 5.5 %) with room for one seed."""

from __future__ import annotations

import importlib
import random
import statistics
import sys
from pathlib import Path

import pytest

from servemark.predict.speed import SpeedModel

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT.parent / "shared" / "data" / "results" / "published-2026-06"
sys.path.insert(0, str(ROOT / "benchmarks" / "predict"))


@pytest.mark.corpus
def test_alternate_concurrencies_held_out() -> None:
    """All lines' alternate concurrencies at once, which is harder than half of them: medians within 4.5 %, means within 8 %;
    no figure without a class, none in class none."""
    if not PUBLISHED.is_dir():
        pytest.skip(f"no published rows at {PUBLISHED}")
    published = importlib.import_module("published")  # the benchmark's own splits

    points = published.choose(published.imported(PUBLISHED)).points
    fit, asked = published.all_at_once(points, random.Random(0))
    held = published.predicted(SpeedModel.of_chosen(fit), asked)
    for metric in ("TPOT", "throughput/GPU"):
        some = [each for each in held[metric] if each[-1] == "interpolated"]
        off = [abs(value / truth - 1) for _, truth, value, *_ in some if value is not None]
        assert len(off) == len(some) > 150
        assert statistics.median(off) < 0.045
        assert statistics.fmean(off) < 0.08
    unseen = published.predicted(*_unseen(published, points))
    assert all(each[2] is None for some in unseen.values() for each in some if each[-1] == "none")


def _unseen(published: object, points: object) -> tuple[SpeedModel, list[object]]:
    fit, asked = published.unseen(points, random.Random(0))  # type: ignore[attr-defined]
    return SpeedModel.of_chosen(fit), asked[:40]
