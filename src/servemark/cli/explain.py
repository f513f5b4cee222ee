"""`servemark explain METRIC`: what a figure means, its unit, formula and direction."""

from __future__ import annotations

import json

import click

from servemark.base.messages import text
from servemark.cli.options import Verb, common


@click.command(cls=Verb)
@click.argument("metric", required=False)
@common
def explain(metric: str | None, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.base.errors import input_error  # noqa: PLC0415 - --help imports no room
    from servemark.catalog.fields import nearest  # noqa: PLC0415
    from servemark.metrics.registry import METRICS  # noqa: PLC0415

    if metric is None:
        for found in METRICS.values():
            click.echo(f"{found.id:<32} {text(found.label_key)}")
        return 0
    name = metric.partition(".")[0]
    one = METRICS.get(name)
    if one is None:
        near = nearest(name, METRICS)
        key = "cli.explain.unknown_near" if near else "cli.explain.unknown"
        raise input_error(key, metric=metric, near=near)
    facts = {
        "id": one.id,
        "label": text(one.label_key),
        "unit": str(one.unit),
        "better": str(one.better),
        "denominator": str(one.denominator),
        "definition": text(one.definition_key),
        "formula": text(one.formula_key),
        "definition_id": one.definition_id,
    }
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return 0
    click.echo(f"{facts['label']}  ({one.id}, {one.unit})\n")
    click.echo(facts["definition"])
    click.echo(text("cli.explain.formula", None, formula=facts["formula"]))
    click.echo(text(f"cli.explain.better.{one.better}"))
    return 0
