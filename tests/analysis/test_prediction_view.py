"""How past predictions are judged, and what a point's page says: numbers worked out by hand."""

from __future__ import annotations

import pytest

from servemark.analysis.prediction_view import by_class, by_month, judged
from servemark.store.predictions import Foretold, Recorded


def recorded(
    point: int, month: int, value: float, klass: str = "interpolated", half: float = 10.0
) -> Recorded:
    """A prediction of `value` with an interval of `half` on each side, of a figure that measured 100."""
    foretold = Foretold("tpot_s.p50", klass, value, value - half, value + half, 0.9, 50, None, "", "", 100.0)
    return Recorded(point, "run", f"2026-{month:02d}-03T00:00:00Z", "valid", foretold)


@pytest.mark.parametrize(
    ("inside", "figures", "points", "verdict"),
    [
        (29, 29, 29, "few"),
        (90, 100, 100, "held"),
        # the band at 100 points: 1.96 * sqrt(0.09 / 100) + 0.005 = 0.0638
        (84, 100, 100, "held"),
        (83, 100, 100, "narrow"),
        (96, 100, 100, "held"),
        (97, 100, 100, "wide"),
        # six figures of each of 100 points are no 600 draws
        (504, 600, 100, "held"),
        (0, 0, 100, "few"),
    ],
)
def test_coverage_is_judged_by_points(inside: int, figures: int, points: int, verdict: str) -> None:
    assert judged(inside, figures, points, 0.9) == verdict


def test_rows_by_class_and_month() -> None:
    """Predictions of 95, 105 and 120 of 100: errors 5, 5, 20 %, median 5; two of three within; months apart."""
    past = [
        recorded(1, 1, 95.0),
        recorded(2, 1, 105.0),
        recorded(3, 2, 120.0),
        recorded(4, 2, 80.0, "one_anchor"),
    ]
    near, anchor = by_class(past, "en")
    assert (near.name, near.figures, near.points, near.coverage, near.median_error) == (
        "interpolated",
        3,
        3,
        "67 %",
        "5.00 %",
    )
    assert (near.promised, near.judged) == ("90 %", "few")
    assert (anchor.name, anchor.median_error) == ("one_anchor", "20.0 %")
    assert [(row.name, row.figures) for row in by_month(past, "en")] == [("2026-01", 2), ("2026-02", 2)]
