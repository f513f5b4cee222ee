"""What a plan may expect, and which of its points need not run: `plan --summary` with a store, and `plan --prune`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from servemark.analysis.figure_words import label_of, unit_of
from servemark.analysis.format import display
from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.base.joined import clauses, in_list, sentences, with_head
from servemark.base.messages import text
from servemark.cli.text_table import wrapped
from servemark.plan.rows import PlanRow, Reason

if TYPE_CHECKING:
    from servemark.predict.forecast import Forecast
    from servemark.predict.outlook import ExpectedFront, Outlook
    from servemark.predict.pruning import PruneRules, PruneVerdict

MAX_FRONT = 12
"""Points of an expected front that a terminal shows."""
MAX_FRONTS = 6


@dataclass(frozen=True, slots=True)
class PlanPredictions:
    """A plan's predictions. `verdicts` by point id: only where it is pruned. `points` counts the measured points of the
    plan's models that they rest on."""

    points: int
    outlook: Outlook
    forecasts: Mapping[str, Forecast]
    verdicts: Mapping[str, PruneVerdict]

    def runs(self, row: PlanRow) -> bool:
        """Whether a row of the plan is to run."""
        verdict = self.verdicts.get(row.identity.point_id)
        return verdict is None or verdict.runs

    def why(self, row: PlanRow) -> Reason | None:
        """Why it runs or does not; None where nothing is pruned."""
        verdict = self.verdicts.get(row.identity.point_id)
        return None if verdict is None else verdict.why

    def plain(self) -> dict[str, object]:
        """For machines."""
        return {"measured_points": self.points, **asdict(self.outlook)}

    def plain_row(self, row: PlanRow) -> dict[str, object]:
        """One row's predictions and its verdict for machines."""
        from servemark.cli.predict_view import forecast_plain  # noqa: PLC0415 - drawn only here

        point = row.identity.point_id
        why = self.why(row)
        forecast = self.forecasts.get(point)
        return {
            "prediction": None if forecast is None else forecast_plain(forecast),
            "prune": None
            if why is None
            else {"runs": self.runs(row), "key": why.key, "said": why.said(), "values": dict(why.values)},
        }


def predictions_of(
    rows: Sequence[PlanRow], home: str | None, card: str | None, rules: PruneRules | None
) -> PlanPredictions | None:
    """Predict a plan's rows from the store of a home, and prune them where there are `rules`; None where the home has no
    store or nothing of the plan's models, which is said on stderr when pruning was asked for.

    Raises ServemarkError for an unknown card; a store that cannot be read is an error only when pruning was asked for.
    """
    where = Home.resolve(home)
    chosen = None
    if card is not None or where.store.exists():
        from servemark.analysis.rate_cards import choose, shelf  # noqa: PLC0415

        chosen = choose(shelf(where.root), card)
    if not where.store.exists() or not rows:
        if rules is not None:
            click.echo(text("plan.prune.no_store", None, home=str(where.root)), err=True)
        return None
    from servemark.predict.arm import forecaster_of  # noqa: PLC0415 - a plan of masters needs none
    from servemark.predict.outlook import axes_of, measured_spots, outlook, planned_spots  # noqa: PLC0415
    from servemark.predict.planned import planned_of_row  # noqa: PLC0415
    from servemark.predict.pruning import prune, runs_by_id  # noqa: PLC0415

    try:
        forecaster, count = forecaster_of(where, tuple({row.arm.model for row in rows}))
    except ServemarkError as error:
        if rules is not None:
            raise
        click.echo(text("plan.view.no_predictions", None, reason=error.what()), err=True)
        return None
    if not count:
        if rules is not None:
            click.echo(text("plan.prune.no_points", None, home=str(where.root)), err=True)
        return None
    bands = rules is not None and "none" in rules.classes
    forecasts = [forecaster.forecast(planned_of_row(row), bands=bands) for row in rows]
    verdicts: Mapping[str, PruneVerdict] = {}
    if rules is not None:
        axes = axes_of(forecasts)
        measured = measured_spots(forecasts, forecaster.points, axes)
        verdicts = runs_by_id(prune(planned_spots(forecasts, axes), measured, axes, rules))
    running = [
        each
        for each in forecasts
        if each.planned.point_id not in verdicts or verdicts[each.planned.point_id].runs
    ]
    return PlanPredictions(
        count, outlook(running, chosen), {each.planned.point_id: each for each in forecasts}, verdicts
    )


def prune_rules(also: Iterable[str], share: float | None, seed: int | None) -> PruneRules:
    """The rules that the options state; classes come on top of the usual ones."""
    from servemark.predict.pruning import SEED, SHARE, SURE, PruneRules  # noqa: PLC0415
    from servemark.predict.types import CLASSES  # noqa: PLC0415

    named = set(also)
    return PruneRules(
        classes=SURE | {name for name in CLASSES if name in named},
        share=SHARE if share is None else share,
        seed=SEED if seed is None else seed,
    )


def prediction_lines(found: PlanPredictions, width: int) -> list[str]:
    """What a summary says of predictions: of how many points what can be said, hours, dollars, the expected front."""
    view = found.outlook
    said = in_list(f"{_class(name)} {count}" for name, count in view.classes.items())
    lines = wrapped(text("plan.view.predicted", None, points=f"{found.points:,}", classes=said), width, "")
    lines += wrapped(_hours(view), width, "")
    for front in view.fronts[:MAX_FRONTS]:
        lines += _front(front, width)
    if len(view.fronts) > MAX_FRONTS:
        lines += wrapped(text("plan.view.more_fronts", None, count=len(view.fronts) - MAX_FRONTS), width, "")
    return lines


def _class(name: str) -> str:
    return text("plan.view.cannot" if name == "cannot" else f"predict.use.class.{name}")


def _hours(view: Outlook) -> str:
    hours = view.hours
    assumed = hours.points - hours.stated_points - hours.predicted_points
    said = text(
        "plan.view.predicted_hours",
        None,
        value=f"{hours.value:,.1f}",
        low=f"{hours.low:,.1f}",
        high=f"{hours.high:,.1f}",
        predicted=hours.predicted_points,
        stated=hours.stated_points,
        assumed=assumed,
    )
    if hours.dollars is not None:
        value, low, high = (f"{one:,.0f}" for one in hours.dollars)
        cost = text("plan.view.cost", None, card=hours.card, value=value, low=low, high=high)
        return sentences([said, cost])
    if hours.card is not None and hours.unpriced:
        return sentences(
            [said, text("plan.view.no_cost", None, card=hours.card, gpus=in_list(hours.unpriced))]
        )
    return said


def _front(front: ExpectedFront, width: int) -> list[str]:
    if not front.points:
        said = text("plan.view.no_front", None, scope=front.scope, without=front.without)
        return wrapped(said, width, "")
    key = "plan.view.front" if front.without else "plan.view.whole_front"
    lines = wrapped(
        text(key, None, scope=front.scope, count=len(front.points), without=front.without), width, ""
    )
    x_unit = display(unit_of(front.x), [x for _, x, _, _ in front.points])
    y_unit = display(unit_of(front.y), [y for _, _, y, _ in front.points])
    for name, x, y, klass in front.points[:MAX_FRONT]:
        lines += wrapped(
            text(
                "plan.view.front_point",
                None,
                point=name,
                x=x_unit.text(x),
                y=y_unit.text(y),
                x_name=label_of(front.x),
                y_name=label_of(front.y),
                klass=_class(klass),
            ),
            width,
            "  ",
        )
    more = len(front.points) - MAX_FRONT
    return [*lines, f"  … +{more}"] if more > 0 else lines


def pruned_lines(found: PlanPredictions, rows: Sequence[PlanRow], width: int) -> list[str]:
    """What was let go, each with its reason, and how many run for which reason."""
    gone = [row for row in rows if not found.runs(row)]
    kept = Counter(why.key for row in rows if found.runs(row) and (why := found.why(row)) is not None)
    reasons = clauses(f"{text(f'{key}.short')} {count}" for key, count in kept.items())
    lines = wrapped(text("plan.view.pruned", None, gone=len(gone), of=len(rows), reasons=reasons), width, "")
    for row in gone:
        why = found.why(row)
        lines += wrapped(f"- {with_head(row.selector, why.said() if why is not None else '')}", width, "  ")
    for row in rows:
        why = found.why(row)
        if why is not None and why.key == "plan.prune.anyway":
            lines += wrapped(f"+ {with_head(row.selector, why.said())}", width, "  ")
    return lines
