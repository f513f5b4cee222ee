"""`servemark compare A B [KEY=VALUE…]`: what really differs between two sides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from servemark.base.home import Home
from servemark.cli.options import Finite, Verb, common

if TYPE_CHECKING:
    from servemark.analysis.compare_types import CompareView


@click.command(cls=Verb)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--metric", "metrics", multiple=True, metavar="METRIC", help="compare.option.metric")
@click.option("--by", multiple=True, metavar="FIELD,...", help="compare.option.by")
@click.option(
    "--fail-on", type=click.Choice(["worse", "any", "none"]), default="none", help="compare.option.fail_on"
)
@click.option(
    "--min-effect", type=Finite(0, 1000), default=2.0, metavar="PERCENT", help="compare.option.min_effect"
)
@click.option("--x", metavar="METRIC", default="", help="compare.option.x")
@click.option("--y", metavar="METRIC", default="", help="compare.option.y")
@click.option("--set", "said", multiple=True, metavar="KEY=VALUE", help="compare.option.set")
@click.option("--markdown", is_flag=True, help="compare.option.markdown")
@common
def compare(  # noqa: PLR0917 - click names them
    a: str,
    b: str,
    words: tuple[str, ...],
    metrics: tuple[str, ...],
    by: tuple[str, ...],
    fail_on: str,
    min_effect: float,
    x: str,
    y: str,
    said: tuple[str, ...],
    markdown: bool,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.analysis.compare import CompareOptions  # noqa: PLC0415 - --help imports no room
    from servemark.analysis.compare import compare as compared  # noqa: PLC0415
    from servemark.analysis.compare_sides import fields_named  # noqa: PLC0415
    from servemark.cli.compare_sides import noise_of, side_of  # noqa: PLC0415
    from servemark.cli.import_files import intake_of  # noqa: PLC0415

    where = Home.resolve(home)
    intake = intake_of(where, said)
    one, other = (side_of(each, words, where, intake) for each in (a, b))
    options = CompareOptions(
        metrics or None,
        by or fields_named(one, other),
        min_effect / 100,
        x,
        y,
        a_label=one.label,
        b_label=other.label,
    )
    view = compared(one.points, other.points, options, noise_of(where, one, other))
    problems = (*one.problems, *other.problems)
    if as_json:
        import msgspec  # noqa: PLC0415

        click.echo(json.dumps({**msgspec.to_builtins(view), "problems": problems}, ensure_ascii=False))
    elif markdown:
        from servemark.cli.compare_markdown import markdown_text  # noqa: PLC0415

        click.echo(markdown_text(view, problems))
    else:
        from servemark.cli.compare_view import print_view  # noqa: PLC0415

        print_view(view, problems)
    return exit_code(view, fail_on)


def exit_code(view: CompareView, fail_on: str) -> int:
    """0, or 1 for what the user does not accept; also where nothing could be compared."""
    tested = any(each.effect is not None for pair in view.pairs for each in pair.judged)
    if not tested:
        return 1
    verdicts = {each.verdict for pair in view.pairs for each in pair.judged}
    verdicts |= {each.verdict for each in view.metrics if each.verdict is not None}
    refused = {"worse": {"worse"}, "any": {"worse", "better"}, "none": set()}[fail_on]
    return 1 if verdicts & refused else 0
