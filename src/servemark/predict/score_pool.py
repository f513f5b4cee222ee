"""Held-out residuals of a whole store, kept beside it: what intervals rest on, made once and not for every question.

Fitting all points of a large store and holding each out takes seconds; asking about one arm must not. So the residuals by
class are written to `<home>/cache/`, with the number of points that they are of, and a question fits its own model's points
alone. The file may be deleted at any time. It is made anew when the points have grown or shrunk by a tenth.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from servemark.analysis.comparable import MODEL_WEIGHTS
from servemark.base.errors import ServemarkError
from servemark.base.files import write_atomic
from servemark.base.home import Home
from servemark.catalog.deployment import DUMMY
from servemark.predict.calibration import folder, write_calibration
from servemark.predict.speed import MODEL_VERSION, SpeedModel
from servemark.predict.speed_points import QUANTITIES, Quantity
from servemark.predict.speed_scores import Held, ScoreClass
from servemark.results.serialize import read_bounded
from servemark.store.database import Store

SCHEMA = 3
POOLED = (MODEL_WEIGHTS, DUMMY)
"""Weights whose residuals are kept; others, which only a foreign file can name, have those of their own points."""
GROWTH = 0.1
"""Relative change of the number of points from which residuals are made anew."""
MOST_RESIDUAL = 50.0
"""Natural logarithm of a ratio that no measurement is off by: beyond it the file is damaged."""
_FIT = re.compile(r"([0-9a-f]{32})?\Z")
Scores = Mapping[tuple[Quantity, ScoreClass], tuple[Held, ...]]


@dataclass(frozen=True, slots=True)
class ScorePool:
    """Residuals by quantity and class, and how many points of the store they were made of."""

    points: int
    scores: Scores
    fit: str = ""
    """Name of the calibration file that holds the whole fit: its points, coefficients, residuals and influence."""

    def fresh(self, points: int) -> bool:
        """Whether they still speak for a store of so many points."""
        return abs(points - self.points) <= GROWTH * self.points


def pool_path(home: Home, weights: str = MODEL_WEIGHTS) -> Path:
    """Where a home keeps them: those of random weights apart from those of models' own. `weights` one of `POOLED`."""
    return home.cache / f"predict-residuals{'' if weights == MODEL_WEIGHTS else f'-{weights}'}.json"


def usable_count(store: Store) -> int:
    """Current, complete, unquarantined points of a store, accuracy runs included."""
    ask = "SELECT count(*) FROM result_point WHERE current = 1 AND status = 'complete' AND verdict <> 'quarantined'"
    return int(store.query(ask)[0][0])


def read_pool(path: Path) -> ScorePool | None:
    """What is kept; None where nothing is, or it is of another version of the model, or damaged."""
    try:
        body = json.loads(read_bounded(path))
        if body["schema"] != SCHEMA or body["model"] != MODEL_VERSION:
            return None
        classes, names = get_args(ScoreClass), _distinct(body["groups"])
        scores: dict[tuple[Quantity, ScoreClass], tuple[Held, ...]] = {}
        for name, held in body["scores"].items():
            quantity, _, klass = name.partition("/")
            if quantity in QUANTITIES and klass in classes:
                some = tuple(Held(float(off), float(spread), names[_whole(at)]) for off, spread, at in held)
                if not all(map(_sound, some)):
                    return None
                scores[quantity, klass] = some
        fit = str(body["fit"])
        return ScorePool(_whole(body["points"]), scores, fit) if _FIT.match(fit) else None
    except (
        OSError,
        ServemarkError,
        ArithmeticError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        return None


def _distinct(names: object) -> list[str]:
    """Names of groups, or ValueError for what is none: two of one name would be taken for one deployment."""
    found = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    if not isinstance(names, list) or len(set(found)) < len(names):
        raise ValueError("groups")
    return found


def _whole(number: object) -> int:
    """A count or place, or ValueError for what is none: -1 would be the last place."""
    if type(number) is not int or not 0 <= number < 1 << 53:
        raise ValueError("no count")
    return number


def _sound(held: Held) -> bool:
    return abs(held.off) <= MOST_RESIDUAL and 0 < held.spread < math.inf


def has_fit(home: Home, pool: ScorePool) -> bool:
    """Whether the calibration that they name is there; True where they name none, since none could be written."""
    return not pool.fit or (folder(home) / f"{pool.fit}.json").is_file()


def write_pool(home: Home, model: SpeedModel, points: int, weights: str = MODEL_WEIGHTS) -> ScorePool:
    """Keep a model's residuals, and the whole fit as a calibration file beside the runs, which predictions name; a disk that
    refuses is no reason not to predict."""
    path = pool_path(home, weights)
    try:
        fit = write_calibration(model, folder(home)).stem
    except (OSError, ServemarkError, ValueError):
        fit = ""
    scores = {key: tuple(filter(_sound, held)) for key, held in model.scores.items()}
    made = ScorePool(points, scores, fit)
    numbers = {
        name: at for at, name in enumerate(sorted({each.group for held in scores.values() for each in held}))
    }
    body = {
        "schema": SCHEMA,
        "model": MODEL_VERSION,
        "points": points,
        "fit": fit,
        "groups": list(numbers),
        "scores": {
            f"{quantity}/{klass}": [(off, spread, numbers[group]) for off, spread, group in held]
            for (quantity, klass), held in scores.items()
        },
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(body, allow_nan=False).encode("utf-8"))
    except (OSError, ServemarkError, ValueError):
        with contextlib.suppress(OSError):  # a disk that is read-only, a folder in its place
            path.unlink(missing_ok=True)
    return made
