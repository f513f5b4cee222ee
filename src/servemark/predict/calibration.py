"""A fitted speed model as data: its points, coefficients, doubts and held-out residuals, so that a figure can be made again.

One JSON file: canonical, with a hash over its body, named by the hash. The same points give the same file. A file that was
changed, or that another version of the model wrote, is refused: its figures would be others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from servemark.base.canonical import canonical_json, content_hash
from servemark.base.errors import ServemarkError, input_error
from servemark.base.files import write_atomic
from servemark.base.home import Home
from servemark.predict.speed import MODEL_VERSION, SpeedModel
from servemark.predict.speed_level import LevelState
from servemark.predict.speed_points import QUANTITIES, Chosen, FitPoint, Quantity
from servemark.predict.speed_scores import Held, ScoreClass
from servemark.predict.speed_types import ConfigFacts
from servemark.results.serialize import read_bounded

SCHEMA = 2
DIGITS = 9
"""Significant digits that are kept: far beyond what a fit can tell, and the same on every machine."""
BENDING: tuple[Quantity, ...] = ("tpot", "service", "e2el")
MOST_BYTES = 256 * 2**20


def folder(home: Home) -> Path:
    """Where a home keeps its calibrations; not in the cache, since a prediction names the one that it was made with."""
    return home.root / "calibrations"


def calibration(model: SpeedModel) -> dict[str, Any]:
    """The model as plain JSON values. `levels` have each point's left-out residual and influence on its own guess."""
    levels: dict[str, Any] = {}
    for quantity in QUANTITIES:
        level = model.level(quantity)
        if level is None:
            continue
        state = level.state()
        levels[quantity] = {
            "points": [point.ref for point in level.points],
            "coefficients": _rounded(state.coefficients),
            "noise": _rounded(state.noise),
            "residuals": _rounded(map(float, level.kriging.residuals())),
            "influence": _rounded(map(float, level.kriging.influence())),
        }
    return {
        "schema": SCHEMA,
        "model_version": MODEL_VERSION,
        "points": [_rounded_values(asdict(point)) for point in model.points],
        "left_out": dict(sorted(model.left_out.items())),
        "levels": levels,
        "bend_noise": {
            quantity: _rounded(map(float, model.bend(quantity).kriging.noise)) for quantity in BENDING
        },
        "scores": {
            f"{quantity}/{name}": [[_round(off), _round(spread), group] for off, spread, group in held]
            for (quantity, name), held in sorted(model.scores.items())
        },
    }


def write_calibration(model: SpeedModel, target: Path) -> Path:
    """Writes the file into the folder `target` and returns its path; one that is there already stays, and is written again
    where its bytes are others than its name says."""
    body = calibration(model)
    name = content_hash(body, 32)
    path = target / f"{name}.json"
    whole = canonical_json({"hash": name, "body": body}).encode()
    if not _holds(path, whole):
        target.mkdir(parents=True, exist_ok=True)
        write_atomic(path, whole)
    return path


def _holds(path: Path, whole: bytes) -> bool:
    try:
        return path.stat().st_size == len(whole) and read_bounded(path, MOST_BYTES) == whole
    except (OSError, ServemarkError):
        return False


def read_calibration(path: Path) -> SpeedModel:
    """The model of a file. Raises ServemarkError (exit code 2) for one that cannot be read, was changed, or is of another
    version."""
    shown = str(path)
    try:
        whole = json.loads(_bytes(path, shown))
        body, name = whole["body"], whole["hash"]
        if body["schema"] != SCHEMA or body["model_version"] != MODEL_VERSION:
            found = f"{body['schema']}.{body['model_version']}"
            wanted = f"{SCHEMA}.{MODEL_VERSION}"
            raise input_error("predict.fit.calibration.version", path=shown, found=found, wanted=wanted)
        if content_hash(body, 32) != name:
            raise input_error("predict.fit.calibration.changed", path=shown)
        return _model(body)
    except ServemarkError:
        raise
    except (ArithmeticError, LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error)[:200]
        raise input_error("predict.fit.calibration.unreadable", path=shown, reason=reason) from error


def _bytes(path: Path, shown: str) -> bytes:
    """A regular file's bytes: never a pipe's, nor of more than can be a calibration."""
    try:
        return read_bounded(path, MOST_BYTES)
    except ServemarkError as error:
        reason = error.what()
        raise input_error("predict.fit.calibration.unreadable", path=shown, reason=reason) from error


def _model(body: Mapping[str, Any]) -> SpeedModel:
    points = tuple(_point(each) for each in body["points"])
    states: dict[Quantity, LevelState] = {}
    scores: dict[tuple[Quantity, ScoreClass], tuple[Held, ...]] = {}
    for quantity in QUANTITIES:
        if quantity in body["levels"]:
            level = body["levels"][quantity]
            states[quantity] = LevelState(tuple(level["coefficients"]), tuple(level["noise"]))
    for key, held in body["scores"].items():
        quantity, _, name = key.partition("/")
        scores[quantity, name] = tuple(
            Held(float(off), float(spread), str(group)) for off, spread, group in held
        )
    bends = {quantity: body["bend_noise"][quantity] for quantity in BENDING}
    return SpeedModel(Chosen(points, dict(body["left_out"])), states, scores, bends)


def _point(stated: Mapping[str, Any]) -> FitPoint:
    return FitPoint(**{**stated, "facts": ConfigFacts(**stated["facts"])})


def _rounded(numbers: Any) -> list[float]:  # noqa: ANN401 - any iterable of floats
    return [_round(number) for number in numbers]


def _round(number: float) -> float:
    """`DIGITS` significant digits."""
    return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else 0.0


def _rounded_values(point: dict[str, Any]) -> dict[str, Any]:
    values = {name: _round(value) for name, value in point["values"].items()}
    means = {name: _round(value) for name, value in point["means"].items()}
    share = point["output_share"]
    return {
        **point,
        "values": values,
        "means": means,
        "output_share": None if share is None else _round(share),
    }
