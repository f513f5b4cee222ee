"""What each series costs at a target: of its best measured point that reaches it, and of an estimate within one line.

Point and estimate are those of `analysis.targets`: a real configuration first; the estimate's throughput is linear
between two neighbours of one line, and its costs are made of that throughput, so that cost x throughput is the card's
price there as everywhere. Nothing is taken off a drawn curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from servemark.analysis.axes import AxisInfo, axis_info
from servemark.analysis.costs import COST_IDS, INTERACTIVITY, CostReading, cost_from, cost_of
from servemark.analysis.front_points import FrontPoints
from servemark.analysis.front_query import accuracy_results, beginning, with_gates
from servemark.analysis.front_targets import row_name
from servemark.analysis.front_types import FrontOptions, FrontView, TargetView
from servemark.analysis.front_view import front_view
from servemark.analysis.labels import display_of
from servemark.analysis.measured import Measured
from servemark.analysis.rate_cards import CardShelf, RateCard
from servemark.analysis.selection import Selection, select
from servemark.analysis.targets import TargetRead
from servemark.base.messages import text
from servemark.metrics.address import parse
from servemark.metrics.derive import TIMES
from servemark.metrics.registry import TOKEN_KINDS
from servemark.store.database import Store

RATES = tuple(f"{kind}_tokens_per_s_per_gpu" for kind in TOKEN_KINDS)
X_DEFAULT = INTERACTIVITY


@dataclass(frozen=True, slots=True)
class GpuRateView:
    """One GPU of a card, with where and when each figure was read."""

    gpu: str
    usd_per_gpu_hour: float | None
    price_source: str | None
    price_read: str | None
    kw_per_gpu: float | None
    power_scope: str | None
    power_scope_label: str | None
    power_source: str | None
    power_read: str | None
    note: str | None


@dataclass(frozen=True, slots=True)
class CardView:
    """A card in words. `origin` is `shipped`, `user` or `file`."""

    name: str
    date: str
    edition: str
    currency: str
    origin: str
    origin_label: str
    note: str | None
    gpus: tuple[GpuRateView, ...]


@dataclass(frozen=True, slots=True)
class CardsView:
    """All cards at hand, and what is wrong with files that hold none."""

    cards: tuple[CardView, ...]
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CostCell:
    """One cost: value in the unit of its address and as text, its formula with the numbers, or why it is absent."""

    address: str
    value: float | None
    text: str
    formula: str | None
    absent_because: str | None


@dataclass(frozen=True, slots=True)
class CostAt:
    """Costs of one point, or of an estimate between two (`refs` are both ends). `card` is the edition that made them."""

    estimated: bool
    refs: tuple[str, ...]
    configuration: str
    x: float
    x_text: str
    throughput: float | None
    throughput_text: str
    costs: tuple[CostCell, ...]
    card: str | None


@dataclass(frozen=True, slots=True)
class CostRow:
    """One series. `state` is that of its target read; where nothing reaches the target `said` names the nearest point."""

    series: str
    label: str
    group: str
    state: str
    measured: CostAt | None
    estimate: CostAt | None
    said: str | None


@dataclass(frozen=True, slots=True)
class CostView:
    """Series by what a million tokens costs, cheapest first; those without a cost last, each with its reason."""

    card: CardView | None
    x: AxisInfo
    throughput: AxisInfo
    target: float | None
    target_text: str
    chosen: bool
    columns: tuple[AxisInfo, ...]
    rows: tuple[CostRow, ...]
    notes: tuple[str, ...]


def card_view(card: RateCard, lang: str | None = None) -> CardView:
    """A card in words."""
    gpus = []
    for rate in card.gpus.values():
        price, power, scope = rate.usd_per_gpu_hour, rate.kw_per_gpu, rate.power_scope
        gpus.append(
            GpuRateView(
                rate.gpu,
                price.value if price else None,
                price.source if price else None,
                price.read if price else None,
                power.value if power else None,
                scope,
                text(f"analysis.card.scope.{scope}", lang) if scope else None,
                power.source if power else None,
                power.read if power else None,
                rate.note,
            )
        )
    origin = text(f"cost.origin.{card.origin}", lang)
    return CardView(
        card.name, card.date, card.edition, card.currency, card.origin, origin, card.note, tuple(gpus)
    )


def cards_view(known: CardShelf, lang: str | None = None) -> CardsView:
    """All cards in words."""
    found = tuple(card_view(card, lang) for card in known.cards)
    return CardsView(found, tuple(fault.what(lang) for fault in known.faults))


def cost_view(
    points: Sequence[Measured] | FrontPoints,
    card: RateCard | None,
    target: float | None = None,
    *,
    x: str = X_DEFAULT,
    evals: Sequence[Measured] = (),
    lang: str | None = None,
) -> CostView:
    """The costs of every series at `target` in x (a round value amid the front where none is asked for). Raises
    ServemarkError (exit code 2) for an x that is no axis."""
    view = front_view(points, FrontOptions(x=x, target=target, evals=evals), lang)
    read = view.target
    by_ref = {p.ref: p for p in (points.offered if isinstance(points, FrontPoints) else points)}
    rows = _rows(view, read, by_ref, card, lang) if read is not None else []
    columns = tuple(axis_info(parse(name), lang) for name in COST_IDS)
    shown = display_of(parse(view.x.address), [read.target if read else None])
    return CostView(
        card_view(card, lang) if card is not None else None,
        view.x,
        view.y,
        read.target if read else None,
        shown.text(read.target if read else None),
        read.chosen if read else target is not None,
        columns,
        tuple(sorted(rows, key=_by_cost)),
        _notes(view, rows, card, lang),
    )


def costs_of(
    store: Store,
    chosen: Selection,
    card: RateCard | None,
    target: float | None = None,
    *,
    x: str = X_DEFAULT,
    lang: str | None = None,
) -> CostView:
    """The same straight from a store; without a model and a scenario those with the most points are taken."""
    selection = beginning(store, chosen)
    points = with_gates(store, select(store, selection))
    evals = accuracy_results(store, points)
    return cost_view(points, card, target, x=x, evals=evals, lang=lang)


def _by_cost(row: CostRow) -> tuple[float, ...]:
    """The cheapest measured point first, then those without a cost, then those that do not reach the target."""
    found = row.measured.costs[0].value if row.measured is not None else None
    return (float("inf") if found is None else found, 0 if row.measured else 1)


def _rows(
    view: FrontView,
    target: TargetView,
    by_ref: dict[str, Measured],
    card: RateCard | None,
    lang: str | None,
) -> list[CostRow]:
    found = []
    for place, read in target.series:
        series = view.series[place]
        measured = None
        if read.floor is not None:
            measured = _at_point(view, read.floor, by_ref, card, lang)
        found.append(
            CostRow(
                series.id,
                series.label,
                view.groups[series.group].label,
                read.state,
                measured,
                _at_estimate(view, read, by_ref, card, lang),
                _said(view, read, lang),
            )
        )
    return found


def _said(view: FrontView, read: TargetRead, lang: str | None) -> str | None:
    if read.nearest is not None:
        x = view.rows[read.nearest].x
        shown = display_of(parse(view.x.address), [x]).text(x)
        return text("cost.not_reached", lang, point=row_name(view, read.nearest, lang), x=shown)
    return text("cost.below_measured", lang) if read.below_measured else None


def _at_point(
    view: FrontView, row: int, by_ref: dict[str, Measured], card: RateCard | None, lang: str | None
) -> CostAt:
    point = by_ref[view.rows[row].ref]
    cells = tuple(_cell(cost_of(point, card, name), lang) for name in COST_IDS)
    x = view.rows[row].x or 0.0
    return _at(view, False, (point.ref,), _configuration(view, row, lang), x, view.rows[row].y, cells, card)


def _at_estimate(
    view: FrontView, read: TargetRead, by_ref: dict[str, Measured], card: RateCard | None, lang: str | None
) -> CostAt | None:
    """Throughputs and interactivity linear in x between the two ends, costs made of them."""
    if read.estimate is None:
        return None
    ends = [view.rows[read.estimate.low], view.rows[read.estimate.high]]
    low, high = (by_ref[row.ref] for row in ends)
    x_low, x_high = ends[0].x, ends[1].x
    if x_low is None or x_high is None or x_low == x_high:
        return None
    share = (read.target - x_low) / (x_high - x_low)
    figures = {}
    for name in (*RATES, INTERACTIVITY):
        one, other = low.value(name), high.value(name)
        if one is not None and other is not None:
            figures[name] = one + share * (other - one)
    cells = tuple(_cell(cost_from(figures, low, card, name), lang) for name in COST_IDS)
    where = text(
        "cost.between",
        lang,
        low=_configuration(view, read.estimate.low, lang),
        high=_configuration(view, read.estimate.high, lang),
    )
    refs = (low.ref, high.ref)
    return _at(view, True, refs, where, read.target, read.estimate.y, cells, card)


def _at(  # noqa: PLR0917 - the parts of one read
    view: FrontView,
    estimated: bool,
    refs: tuple[str, ...],
    configuration: str,
    x: float,
    y: float | None,
    cells: tuple[CostCell, ...],
    card: RateCard | None,
) -> CostAt:
    x_text = display_of(parse(view.x.address), [x]).text(x)
    y_text = display_of(parse(view.y.address), [y]).text(y)
    edition = card.edition if card is not None else None
    return CostAt(estimated, refs, configuration, x, x_text, y, y_text, cells, edition)


def _configuration(view: FrontView, row: int, lang: str | None) -> str:
    """`TP8 EP8, concurrency 64`."""
    line = view.lines[view.rows[row].line].label
    load = view.rows[row].concurrency
    return line if load is None else f"{line}, {text('analysis.label.point', lang, concurrency=load)}"


def _cell(reading: CostReading, lang: str | None) -> CostCell:
    shown = display_of(reading.address, [reading.value])
    return CostCell(
        str(reading.address),
        reading.value,
        shown.text(reading.value),
        reading.formula or None,
        reading.why(lang),
    )


def _notes(
    view: FrontView, rows: Sequence[CostRow], card: RateCard | None, lang: str | None
) -> tuple[str, ...]:
    """What a reader must know: whose card it is, which series it says nothing of, which points do not count."""
    said = []
    if card is None:
        said.append(text("analysis.cost.absent.no_card", lang))
    else:
        key = "cost.note.shipped" if card.origin == "shipped" else "cost.note.card"
        said.append(text(key, lang, name=card.name, date=card.date))
        scopes = sorted({rate.power_scope for rate in card.gpus.values() if rate.power_scope})
        if scopes:
            words = [text(f"analysis.card.scope.{scope}", lang) for scope in scopes]
            said.append(text("cost.note.power", lang, scopes=", ".join(words)))
    if len({row.group for row in rows}) > 1:
        said.append(text("cost.note.groups", lang))
    left = sum(each.points for each in view.left_out)
    if left:
        reasons = "; ".join(f"{each.points} {TIMES} {each.reason}" for each in view.left_out)
        said.append(text("cost.note.left_out", lang, points=left, reasons=reasons))
    return tuple(said)
