"""Options that several verbs share, and help texts that follow the language."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from servemark.base.messages import LANGUAGES, find_text, set_language, text

F = TypeVar("F", bound=Callable[..., Any])


class Finite(click.FloatRange):
    """A number within bounds; `nan` compares with nothing and is refused."""

    def convert(self, value: float | str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click does, for finite numbers only."""
        found = float(super().convert(value, param, ctx))  # type: ignore[arg-type]  # click takes texts too
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return found


class CatalogueHelp(click.Command):
    """Help whose texts come from the catalogue under `cli.<name>`, in the chosen language."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Description from `cli.<name>.help`; the program's own from `cli.help`."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text("cli.help") if ctx.parent is None else verb_text(self._key(), "help"))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options with their help looked up in the catalogue when it is a key."""
        records = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                name, said = record
                said = {
                    "_click_default_help": "cli.option.help",
                    "help": "cli.option.help",
                    "version": "cli.option.version",
                }.get(param.name or "", said)
                key, _, rest = said.partition("  ")
                records.append((name, text(key) + (f"  {rest}" if rest else "") if _is_key(key) else said))
        if records:
            with formatter.section(text("cli.options")):
                formatter.write_dl(records)

    def _key(self) -> str:
        return (self.name or "").replace("-", "_")


class Verb(CatalogueHelp):
    """One verb: help, options, and examples. A verb below a group whose verbs have common names (`list`, `show`) sets
    `group`: its texts stand under `cli.<group>_<verb>`."""

    group = ""

    def _key(self) -> str:
        return f"{self.group}_{super()._key()}" if self.group else super()._key()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Two examples or more, each a line of `cli.<name>.examples`."""
        with formatter.section(text("cli.examples")):
            for line in verb_text(self._key(), "examples").splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class VerbGroup(CatalogueHelp, click.Group):
    """Several verbs under one name."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options, then the verbs."""
        CatalogueHelp.format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line a verb, from the catalogue: no verb is imported to print help."""
        with formatter.section(text("cli.verbs")):
            formatter.write_dl([(verb, verb_text(verb, "short")) for verb in self.list_commands(ctx)])


class SubVerb(Verb):
    """A verb of a group whose verbs are called like others; its texts stand under `cli.<prefix>_<name>`."""

    prefix = ""

    def _key(self) -> str:
        return f"{self.prefix}_{self.name}"


class SubVerbGroup(VerbGroup):
    """A group of `SubVerb`s, in the order of their definition, with examples."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of their definition."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line a verb."""
        with formatter.section(text("cli.verbs")):
            names = self.list_commands(ctx)
            formatter.write_dl([(name, verb_text(f"{self._key()}_{name}", "short")) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples."""
        with formatter.section(text("cli.examples")):
            for line in verb_text(self._key(), "examples").splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def verb_text(verb: str, part: str) -> str:
    """A text of a verb: `cli.<verb>.<part>`, else `<verb>.verb.<part>` from the catalogue of the verb's room."""
    return find_text(f"cli.{verb}.{part}") or text(f"{verb}.verb.{part}")


def _is_key(said: str) -> bool:
    return "." in said and " " not in said


def _language(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        set_language(value)


def language(function: F) -> F:
    """--lang."""
    return click.option(
        "--lang",
        type=click.Choice(LANGUAGES),
        callback=_language,
        expose_value=False,
        help="cli.option.lang",
    )(function)


def common(function: F) -> F:
    """--home, --json and --lang."""
    function = language(function)
    function = click.option("--json", "as_json", is_flag=True, help="cli.option.json")(function)
    return click.option("--home", metavar="DIR", help="cli.option.home")(function)
