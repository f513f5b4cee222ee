"""`servemark front`: the front of what is in the store, as a table, a small plot and a few sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.home import Home
from servemark.cli.options import Finite, Verb, common

if TYPE_CHECKING:
    from servemark.analysis.front_types import FrontView
    from servemark.analysis.rate_cards import RateCard
    from servemark.analysis.selection import Selection


MODELS = 12
"""Named where nothing was found."""


@click.command(cls=Verb, name="front")
@click.argument("selection", nargs=-1, metavar="[KEY=VALUE[,VALUE]]...")
@click.option("--x", "x", metavar="METRIC", default="", help="front.option.x")
@click.option("--y", "y", metavar="METRIC", default="", help="front.option.y")
@click.option("--target", type=Finite(0), metavar="X", help="front.option.target")
@click.option("--card", metavar="NAME[@DATE]|FILE", help="front.option.card")
@click.option("--cols", metavar="METRIC[,METRIC]", help="front.option.cols")
@click.option("--all-lines", is_flag=True, help="front.option.all_lines")
@click.option("--csv", "as_csv", is_flag=True, help="front.option.csv")
@click.option("--no-plot", is_flag=True, help="front.option.no_plot")
@common
def front(
    selection: tuple[str, ...], *, home: str | None, as_json: bool, as_csv: bool, **options: object
) -> int:
    """Print the front; exit 1 where nothing is selected, nothing can stand on a front or no point reaches the target."""
    from servemark.analysis.selection import parse_selection  # noqa: PLC0415 - help needs no room

    chosen = parse_selection(selection)
    view = _view(Home.resolve(home), chosen, options)
    if as_csv:
        from servemark.analysis.front_csv import front_csv  # noqa: PLC0415

        click.echo(front_csv(view), nl=False)
    elif as_json:
        from servemark.analysis.columnar import columnar  # noqa: PLC0415

        click.echo(json.dumps(columnar(view), ensure_ascii=False, allow_nan=False))
    else:
        from servemark.cli.front_view import print_front  # noqa: PLC0415

        print_front(view, all_lines=bool(options["all_lines"]), plot=not options["no_plot"])
        if not view.rows:
            _say_what_there_is(Home.resolve(home))
    return _code(view, options["target"] is not None)


def _view(where: Home, chosen: Selection, options: dict[str, object]) -> FrontView:
    from servemark.analysis.front_query import beginning, front_of  # noqa: PLC0415
    from servemark.analysis.front_types import FrontOptions  # noqa: PLC0415
    from servemark.analysis.store_noise import store_noise  # noqa: PLC0415
    from servemark.base.messages import current_language  # noqa: PLC0415
    from servemark.store.database import Store  # noqa: PLC0415

    target, cols = options["target"], options["cols"]
    card = _card(where, options)
    with Store.open(where.store, read_only=True) as store:
        asked = FrontOptions(
            x=str(options["x"] or ""),
            y=str(options["y"] or ""),
            target=target if isinstance(target, float) else None,
            extra=tuple(name for name in cols.split(",") if name) if isinstance(cols, str) else None,
            card=card,
            noise=store_noise(store).pooled(),
        )
        return front_of(store, beginning(store, chosen), asked, current_language())


def _say_what_there_is(where: Home) -> None:
    """Models and scenarios of the store, for whoever asked for others."""
    from servemark.analysis.facets import facets  # noqa: PLC0415
    from servemark.base.messages import text  # noqa: PLC0415
    from servemark.store.database import Store  # noqa: PLC0415

    with Store.open(where.store, read_only=True) as store:
        models = facets(store).models
    for model in models[:MODELS]:
        scenarios = " ".join(each.id for each in model.scenarios[:3])
        click.echo(text("front.cli.there_is", None, model=model.id, scenarios=scenarios))


def _card(where: Home, options: dict[str, object]) -> RateCard | None:
    """The card that was named; the usual one where a cost is asked for and none was named."""
    from servemark.analysis.costs import is_cost  # noqa: PLC0415
    from servemark.metrics.address import parse  # noqa: PLC0415

    wanted = options["card"]
    names = [*(str(options[each] or "") for each in ("x", "y")), *str(options["cols"] or "").split(",")]
    if wanted is None and not any(is_cost(parse(name)) for name in names if name):
        return None
    from servemark.analysis.rate_cards import choose, shelf  # noqa: PLC0415 - YAML, only for a cost

    return choose(shelf(Path(where.root)), wanted if isinstance(wanted, str) else None)


def _code(view: FrontView, targeted: bool) -> int:
    if not view.groups or not view.groups[0].on:
        return 1
    return 1 if targeted and (view.target is None or view.target.overall.floor is None) else 0
