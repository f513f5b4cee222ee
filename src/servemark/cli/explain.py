"""`servemark explain METRIC|CODE|GATE`: what a figure means, or what a rule or a gate looks for and why."""

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
        click.echo()
        _rules("", as_json=False)
        return 0
    if _rules(metric, as_json=as_json) or _gate(metric, as_json=as_json):
        return 0
    name = metric.partition(".")[0]
    one = METRICS.get(name)
    if one is None:
        from servemark.checks.registry import all_rules  # noqa: PLC0415

        near = nearest(name, METRICS) or nearest(name.upper(), all_rules())
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


def _gate(name: str, *, as_json: bool) -> bool:
    """Print one gate on results; False when none is meant."""
    from servemark.results.gates.registry import GATES_BY_ID  # noqa: PLC0415 - a room of its own
    from servemark.results.gates.words import title, why  # noqa: PLC0415

    gate = GATES_BY_ID.get(name.lower())
    if gate is None:
        return False
    facts = {
        "id": gate.id,
        "title": title(gate.id),
        "why": why(gate.id),
        "tolerance": gate.tolerance,
        "source": gate.source,
        "version": gate.version,
    }
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return True
    click.echo(f"{facts['title']}  ({gate.id})\n")
    click.echo(facts["why"])
    if gate.tolerance is not None:
        click.echo(text("cli.explain.tolerance", None, tolerance=f"{gate.tolerance:g}", source=gate.source))
    return True


def _rules(name: str, *, as_json: bool) -> bool:
    """Print one rule, or the list of those whose code or family is meant; False when none is."""
    from servemark.checks.explain_view import rule_lines, rule_plain  # noqa: PLC0415 - rules are many files
    from servemark.checks.registry import all_rules  # noqa: PLC0415

    rules = all_rules()
    one = rules.get(name.upper())
    if one is not None:
        if as_json:
            click.echo(json.dumps(rule_plain(one), ensure_ascii=False))
        else:
            for line in rule_lines(one):
                click.echo(line)
        return True
    some = [
        r
        for r in rules.values()
        if not name or r.family == name.lower() or (len(name) >= 3 and r.code.startswith(name.upper()))
    ]
    for found in some:
        click.echo(
            json.dumps(rule_plain(found), ensure_ascii=False)
            if as_json
            else f"{found.code}  {text(f'checks.severity.{found.severity}'):<8} {found.summary()}"
        )
    return bool(some)
