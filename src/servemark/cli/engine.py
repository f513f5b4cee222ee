"""`servemark engine list|install`: what this machine can serve with."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from servemark.base.messages import text
from servemark.cli.options import Verb, VerbGroup, common, language


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@language
def engine() -> None:
    """Text comes from the catalogue."""


@engine.command("list", cls=Verb)
@common
def list_engines(home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.launch.install import engine_list  # noqa: PLC0415 - --help imports no room

    found = engine_list()
    if as_json:
        for status in found:
            click.echo(json.dumps(asdict(status), ensure_ascii=False))
        return 0
    for status in found:
        mark = "✓" if status.installed else "✗"
        size = f"{status.size_bytes / 1e6:.0f} MB" if status.size_bytes is not None else ""
        facts = " · ".join(fact for fact in (status.version, status.model, size) if fact)
        click.echo(f"{mark} {status.name}  {facts}".rstrip())
        click.echo(f"    {text(status.note_key)}")
    return 0


@engine.command("install", cls=Verb)
@click.argument("name", default="llamacpp")
@common
def install(name: str, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.launch.install import engine_install  # noqa: PLC0415 - --help imports no room

    steps = engine_install(name, on_start=lambda argv: click.echo("$ " + " ".join(argv), err=True))
    for step in steps:
        if as_json:
            click.echo(json.dumps(asdict(step), ensure_ascii=False))
        else:
            click.echo(
                text(f"cli.install.{step.status}", None, what=step.requirement, seconds=f"{step.seconds:.0f}")
            )
    return 0
