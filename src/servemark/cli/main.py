"""The command group, its lazily loaded verbs, and the one place where expected errors become exit codes."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

import click

from servemark import __version__
from servemark.base.errors import ServemarkError, input_error
from servemark.base.messages import LANGUAGES, set_language, text
from servemark.cli.options import VerbGroup, language

VERBS = {
    "check": "servemark.cli.check:check",
    "changelog": "servemark.cli.changelog:changelog",
    "plan": "servemark.cli.plan:plan",
    "fit": "servemark.cli.fit:fit",
    "predict": "servemark.cli.predict:predict",
    "preflight": "servemark.cli.preflight:preflight",
    "run": "servemark.cli.run:run",
    "sweep": "servemark.cli.sweep:sweep",
    "replay": "servemark.cli.replay:replay",
    "eval": "servemark.cli.eval:eval_verb",
    "import": "servemark.cli.import_files:import_files",
    "export": "servemark.cli.export:export",
    "runs": "servemark.cli.runs:runs",
    "show": "servemark.cli.show:show",
    "front": "servemark.cli.front:front",
    "cost": "servemark.cli.cost:cost",
    "compare": "servemark.cli.compare:compare",
    "report": "servemark.cli.report:report",
    "serve": "servemark.cli.serve:serve",
    "explain": "servemark.cli.explain:explain",
    "doctor": "servemark.cli.doctor:doctor",
    "prune": "servemark.cli.prune:prune",
    "engine": "servemark.cli.engine:engine",
    "trace": "servemark.cli.trace:trace",
    "clusters": "servemark.cli.clusters:clusters",
    "images": "servemark.cli.images:images",
    "golden": "servemark.cli.golden:golden",
    "new": "servemark.cli.new:new",
    "review": "servemark.cli.review:review",
}


class LazyGroup(VerbGroup):
    """Lists verbs from `VERBS` and imports one only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Verbs in the order of the line of work."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        where = VERBS.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        found = getattr(importlib.import_module(module), name)
        return found if isinstance(found, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest verb named for a mistyped one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from servemark.catalog.fields import nearest  # noqa: PLC0415 - only for a mistake

            near = nearest(args[0], VERBS)
            key = "cli.no_verb_near" if near else "cli.no_verb"
            ctx.fail(text(key, None, verb=args[0], near=near))
        return super().resolve_command(ctx, args)


def early_language(arguments: Sequence[str]) -> None:
    """Fix the language before help texts are made: `--lang zh` or `--lang=zh` anywhere on the line."""
    for position, argument in enumerate(arguments):
        value = argument.partition("=")[2] if argument.startswith("--lang=") else None
        if argument == "--lang" and position + 1 < len(arguments):
            value = arguments[position + 1]
        if value in LANGUAGES:
            set_language(value)


@click.group(
    cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="servemark %(version)s")
@language
@click.pass_context
def group(ctx: click.Context) -> None:
    """Shown through `help` below, which follows the language."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run_cli(arguments: Sequence[str]) -> int:  # noqa: PLR0911 - one return an ending
    """Run one command line and give its exit code: 0 done, 1 findings or failed run, 2 bad use, 130 Ctrl-C."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without our letters gets '?', not a trace
            stream.reconfigure(errors="replace")
    early_language(arguments)
    group.epilog = text("cli.epilog")
    try:
        code = group.main(list(arguments), prog_name="servemark", standalone_mode=False)
    except ServemarkError as error:
        return _told(error.exit_code, partial(print_error, error, as_json="--json" in arguments))
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        usage = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "servemark"
        if "--json" in arguments:
            wrong = input_error("cli.usage", message=error.format_message(), command=usage)
            return _told(2, partial(print_error, wrong, as_json=True))
        said = text("cli.usage_error", None, message=error.format_message(), command=usage)
        return _told(2, partial(click.echo, said, err=True))
    except (click.Abort, KeyboardInterrupt):
        return _told(130, partial(click.echo, text("cli.aborted"), err=True))
    except SystemExit:  # click's way to end when the reader of a pipe has had enough: `servemark runs | head`
        return _hush(0)
    except BrokenPipeError:
        return _hush(0)
    except (
        OSError
    ) as error:  # what no room has named: the terminal or the pipe itself, a name that is too long
        with contextlib.suppress(OSError):
            click.echo(text("cli.os_error", None, reason=str(error)), err=True)
        return _hush(1)
    return code if isinstance(code, int) else 0


def _open_closed_streams() -> None:
    """Give a process that was started with a closed stdin, stdout or stderr (`2>&-`) one that leads nowhere: the next file
    that it opens would else be what other code and its children write on."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                os.set_inheritable(
                    os.open(os.devnull, os.O_RDWR), True
                )  # the lowest that is free: the number itself
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: PTH123,SIM115


def _told(code: int, say: Callable[[], None]) -> int:
    """The exit code, once it was said why; a device that takes no more words changes nothing of it."""
    try:
        say()
    except OSError:
        return _hush(code)
    return code


def _hush(code: int) -> int:
    """Keep the interpreter from complaining about a stdout that cannot be flushed at exit."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123,SIM115 - lives until the process ends
    return code


def print_error(error: ServemarkError, *, as_json: bool = False) -> None:
    """One expected failure for the person who must act: what, where, why; then what to do. On stderr."""
    next_step = error.next_step()
    if as_json:
        body = {
            "error": {
                "key": error.key,
                "layer": str(error.layer),
                "where": error.where,
                "what": error.what(),
                "next": next_step,
            }
        }
        click.echo(json.dumps(body, ensure_ascii=False))
        return
    click.echo(text("cli.error", None, layer=str(error.layer), what=error.what()), err=True)
    if next_step:
        click.echo("  " + text("cli.next", None, step=next_step), err=True)
