"""What is predicted of a line's points before anything starts: into each point's manifest, so that it can be compared after.

A prediction is an extra: whatever goes wrong with it, the run goes on, and the manifest says that there is none and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.store.predictions import FIELD

if TYPE_CHECKING:
    from servemark.runs.request import LineRequest

FAILED = f"{FIELD}_failed"
"""Field of a manifest's `expected` that says why nothing was predicted, where something went wrong."""


def predictions(request: LineRequest, home: Home, made_utc: str) -> dict[int, Mapping[str, object]]:
    """By concurrency, what each point's manifest expects beside the rest: `prediction`, or `prediction_failed`. Empty where
    the home has no store or nothing of the model: then no model is fitted either."""
    if not home.store.exists():
        return {}
    try:
        return _predictions(request, home, made_utc)
    except ServemarkError as error:
        problem = error.what()
    except Exception as error:  # a fault in a prediction must not cost GPU-hours
        problem = f"{type(error).__name__}: {error}"
    said: Mapping[str, object] = {FAILED: problem[:500]}
    return dict.fromkeys((point.concurrency for point in request.points), said)


def _predictions(request: LineRequest, home: Home, made_utc: str) -> dict[int, Mapping[str, object]]:
    from servemark.predict.arm import forecaster_of  # noqa: PLC0415 - only where something was measured
    from servemark.predict.forecast import plain  # noqa: PLC0415
    from servemark.predict.planned import planned_point  # noqa: PLC0415

    choice = request.choice
    forecaster, count = forecaster_of(home, (choice.arm.model,), wait=False)
    if not count:
        return {}
    found: dict[int, Mapping[str, object]] = {}
    for point in request.points:
        planned = planned_point(
            choice.arm,
            choice.entry,
            choice.deployment,
            point.identity,
            point.concurrency,
            choice.deployment.gpus_total,
        )
        forecast = forecaster.forecast(planned)
        if forecast.predictions is not None and forecast.predictions.figures:
            found[point.concurrency] = {FIELD: plain(forecast, forecaster.fit_id, made_utc)}
    return found
