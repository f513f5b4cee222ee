"""`servemark cost`: what tokens cost at a target, by a dated rate card, and which cards there are."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

import click

from servemark.base.messages import text
from servemark.cli.options import Finite, Verb, common

if TYPE_CHECKING:
    from servemark.analysis.cost_view import CardsView, CardView, CostAt, CostRow, CostView

SHOWN = (
    ("total", "usd_per_million_total_tokens"),
    ("input", "usd_per_million_input_tokens"),
    ("output", "usd_per_million_output_tokens"),
    ("joules", "provisioned_joules_per_total_token"),
    ("hour", "usd_per_user_hour"),
)
"""Columns of the table on a terminal; CSV and JSON have all costs."""


@click.command(cls=Verb)
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--card", metavar="NAME|FILE", help="cost.option.card")
@click.option("--target", type=Finite(min=0, min_open=True), help="cost.option.target")
@click.option("--x", "x", metavar="METRIC", default="interactivity.p50", help="cost.option.x")
@click.option("--cards", "list_cards", is_flag=True, help="cost.option.cards")
@click.option("--csv", "as_csv", is_flag=True, help="cost.option.csv")
@click.option("--formulas", is_flag=True, help="cost.option.formulas")
@common
def cost(  # noqa: PLR0917 - options by name
    words: tuple[str, ...],
    card: str | None,
    target: float | None,
    x: str,
    list_cards: bool,
    as_csv: bool,
    formulas: bool,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.analysis.cost_view import cards_view, costs_of  # noqa: PLC0415 - --help imports no room
    from servemark.analysis.rate_cards import choose, shelf  # noqa: PLC0415
    from servemark.analysis.selection import parse_selection  # noqa: PLC0415
    from servemark.base.home import Home  # noqa: PLC0415
    from servemark.store.database import Store  # noqa: PLC0415

    where = Home.resolve(home)
    known = shelf(where.root)
    for fault in known.faults:
        click.echo(text("cli.error", None, layer=str(fault.layer), what=fault.what()), err=True)
    if list_cards:
        return _cards(cards_view(known), as_json=as_json)
    chosen = choose(known, card)
    asked = parse_selection(words)
    with Store.open(where.store, read_only=True) as store:
        view = costs_of(store, asked, chosen, target, x=x)
    if as_json:
        import msgspec  # noqa: PLC0415

        click.echo(json.dumps(msgspec.to_builtins(view), ensure_ascii=False))
    elif as_csv:
        _csv(view)
    else:
        _table(view, formulas=formulas)
    return 0


def _cards(found: CardsView, *, as_json: bool) -> int:
    """Every card with its figures and where they were read."""
    if as_json:
        import msgspec  # noqa: PLC0415

        click.echo(json.dumps(msgspec.to_builtins(found), ensure_ascii=False))
        return 0
    for number, card in enumerate(found.cards):
        if number:
            click.echo()
        for line in _card_lines(card):
            click.echo(line)
    return 0


def _card_lines(card: CardView) -> list[str]:
    from servemark.base.printable import printable  # noqa: PLC0415
    from servemark.cli.text_table import wrapped  # noqa: PLC0415

    lines = [text("cost.card", None, name=card.name, date=card.date, origin=card.origin_label)]
    if card.note:
        lines += wrapped(printable(card.note.strip()), _width(), "  ")
    for gpu in card.gpus:
        if gpu.usd_per_gpu_hour is not None:
            said = {"usd": f"{gpu.usd_per_gpu_hour:g}", "source": gpu.price_source, "read": gpu.price_read}
            lines += wrapped(printable(text("cost.card.price", None, gpu=gpu.gpu, **said)), _width(), "    ")
        if gpu.kw_per_gpu is not None:
            said = {"kw": f"{gpu.kw_per_gpu:g}", "source": gpu.power_source, "read": gpu.power_read}
            line = text("cost.card.power", None, gpu=gpu.gpu, scope=gpu.power_scope_label, **said)
            lines += wrapped(printable(line), _width(), "    ")
    return lines


def _width() -> int:
    return max(60, min(shutil.get_terminal_size((80, 24)).columns, 120))


def _table(view: CostView, *, formulas: bool) -> None:
    """A block a series: its name, a line of costs of its measured point, one of its estimate, and their configurations."""
    from servemark.base.printable import printable  # noqa: PLC0415
    from servemark.cli.text_table import table, wrapped  # noqa: PLC0415

    width = _width()
    card = view.card.edition if view.card is not None else "—"
    if not view.rows:
        lines = wrapped(text("cost.head.no_target", None, card=card), width, "")
    else:
        head = text("cost.head", None, target=view.target_text, metric=view.x.label, card=card)
        names = ("kind", "x", "rate", *(name for name, _ in SHOWN))
        heads = [text(f"cost.column.{name}") for name in names]
        values = [_cells(at) for row in view.rows for at in (row.measured, row.estimate) if at is not None]
        made = table(heads, values, width)
        lines = [*wrapped(head, width, ""), "", *made[:2]]
        rest = iter(made[2:])
        for row in view.rows:
            lines += wrapped(printable(row.label), width, "")
            for at in (row.measured, row.estimate):
                if at is not None:
                    lines += [next(rest), *_below(at, width, formulas=formulas)]
            if row.said:
                lines += wrapped(printable(row.said), width, "    ")
    for note in view.notes:
        lines += ["", *wrapped(printable(note), width, "")]
    for line in lines:
        click.echo(line)


def _cells(at: CostAt) -> list[str]:
    from servemark.analysis.format import ABSENT, significant  # noqa: PLC0415

    def number(value: float | None) -> str:
        return ABSENT if value is None else significant(value)

    found = {cell.address: cell.value for cell in at.costs}
    kind = text("cost.kind.estimate" if at.estimated else "cost.kind.measured")
    return [f"  {kind}", number(at.x), number(at.throughput), *(number(found[name]) for _, name in SHOWN)]


def _below(at: CostAt, width: int, *, formulas: bool) -> list[str]:
    """The configuration, why there is no cost, and formulas where they are asked for."""
    from servemark.base.printable import printable  # noqa: PLC0415
    from servemark.cli.text_table import wrapped  # noqa: PLC0415

    said = [at.configuration]
    if (why := at.costs[0].absent_because) and not at.estimated:
        said.append(text("cost.absent", None, why=why))
    if formulas:
        said += [f"{cell.address} = {cell.text} = {cell.formula}" for cell in at.costs if cell.formula]
    return [line for one in said for line in wrapped(printable(one), width, "    ")]


def _csv(view: CostView) -> None:
    """One row a series and kind; every row names its card, its date and its points."""
    import csv  # noqa: PLC0415

    out = csv.writer(sys.stdout, lineterminator="\n")
    head = ("series", "group", "kind", "state", "configuration", "refs", "card", "card_date")
    columns = (view.x.address, view.throughput.address, *(column.address for column in view.columns))
    out.writerow([*head, *columns])
    for row in view.rows:
        for at in (row.measured, row.estimate):
            if at is not None:
                out.writerow([_safe(cell) for cell in _csv_row(view, row, at)])


def _csv_row(view: CostView, row: CostRow, at: CostAt) -> list[object]:
    kind = "estimate" if at.estimated else "measured"
    card = (view.card.name, view.card.date) if view.card is not None else ("", "")
    figures = (at.x, at.throughput, *(cell.value for cell in at.costs))
    said = (row.label, row.group, kind, row.state, at.configuration, " ".join(at.refs), *card)
    return [*said, *figures]


def _safe(cell: object) -> object:
    """A text that a spreadsheet would run as a formula begins with a quote."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in {"=", "+", "-", "@", "\t", "\r"} else cell
