"""What `servemark eval` says beyond scores: verdicts, the comparison with a reference, and the determinism probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from servemark.base.home import Home
from servemark.base.messages import text
from servemark.base.printable import one_line

if TYPE_CHECKING:
    from servemark.evals.against import Paired
    from servemark.evals.determinism import Pass
    from servemark.evals.tasks import EvalTask
    from servemark.evals.verdict import Judged
    from servemark.replay.target import Target
    from servemark.runs.eval_verdict import Verdicts

_SHOWN = 5


def verdict_options(function: click.decorators.FC) -> click.decorators.FC:
    """--of, --against, --thresholds, --threshold-model and --determinism; the verb takes them as `**judging`."""
    for name, more in (
        ("--determinism", {"is_flag": True}),
        ("--threshold-model", {"metavar": "PREFIX"}),
        ("--thresholds", {"type": click.Path(path_type=Path), "metavar": "FILE"}),
        ("--against", {"metavar": "POINT|RUN|FILE"}),
        ("--of", {"metavar": "POINT|RUN|FILE"}),
    ):
        key = name.removeprefix("--").replace("-", "_")
        options: dict[str, Any] = {**more, "help": f"cli.eval.option.{key}"}
        function = click.option(name, **options)(function)
    return function


def asks_verdict(judging: dict[str, Any]) -> bool:
    """True when there is something to judge beyond the scores."""
    return any(judging.get(name) is not None for name in ("of", "against", "thresholds"))


def check_named(judging: dict[str, Any], home: str | None) -> None:
    """Read the thresholds and find the reference before anything is asked: an eval takes minutes to hours, a typing error
    is to be told at once. Raises ServemarkError (exit 2)."""
    from servemark.evals.verdict import read_thresholds  # noqa: PLC0415 - --help imports no room
    from servemark.runs.eval_verdict import find_eval  # noqa: PLC0415

    if judging.get("thresholds") is not None:
        read_thresholds(judging["thresholds"])
    if judging.get("against") is not None:
        find_eval(judging["against"], Home.resolve(home))


def show_verdicts(
    name: str,
    judging: dict[str, Any],
    model: str | None,
    home: str | None,
    *,
    as_json: bool,
    beside: dict[str, object] | None = None,
) -> int:
    """Judge an eval that is kept. Exit code 1 when it failed or answers worse than the reference. As JSON the verdict is
    the output, or the field `verdict` of the summary `beside`, so that there is one object."""
    from servemark.runs.eval_verdict import verdicts  # noqa: PLC0415 - --help imports no room

    found = verdicts(
        name,
        Home.resolve(home),
        thresholds=judging.get("thresholds"),
        model=judging.get("threshold_model") or model or "",
        against=judging.get("against"),
    )
    if as_json:
        plain = found.plain()
        click.echo(json.dumps(plain if beside is None else {**beside, "verdict": plain}, ensure_ascii=False))
    else:
        _print(found)
    return 1 if found.failed else 0


def _print(found: Verdicts) -> None:
    for judged in found.judged:
        click.echo(_judged(judged))
        near = found.beside.get(judged.task)
        if near is not None:
            key = "cli.eval.beside_far" if near.far_below else "cli.eval.beside"
            median = f"{100 * near.median:.1f}"
            click.echo("  " + text(key, None, median=median, n=near.others))
    if found.reference is not None:
        click.echo(text("cli.eval.reference", None, file=one_line(found.reference)))
    for paired in found.against:
        _print_paired(paired)


def _at(task: str, concurrency: int | None) -> str:
    return one_line(task) if concurrency is None else f"{one_line(task)} c{concurrency}"


def _judged(judged: Judged) -> str:
    values: dict[str, object] = {
        "task": _at(judged.task, judged.concurrency),
        "score": f"{100 * judged.score:.1f}",
        "n": judged.n,
        "threshold": "—" if judged.threshold is None else f"{100 * judged.threshold:.1f}",
        "where": one_line(judged.where) or "—",
    }
    said = text(f"cli.eval.verdict.{judged.outcome}", None, **values)
    return f"{said} {text('cli.eval.verdict_close')}" if judged.close else said


def _print_paired(paired: Paired) -> None:
    values: dict[str, object] = {
        "task": _at(paired.task, paired.concurrency),
        "n": paired.n,
        "b": paired.b,
        "c": paired.c,
        "discordant": paired.b + paired.c,
        "p": f"{paired.p:.4f}" if paired.p >= 0.0001 else f"{paired.p:.1e}",
        "adjusted": f"{paired.p_adjusted:.4f}" if paired.p_adjusted >= 0.0001 else f"{paired.p_adjusted:.1e}",
        "difference": "—" if paired.difference is None else f"{100 * paired.difference:+.1f}",
        "low": "—" if paired.low is None else f"{100 * paired.low:+.1f}",
        "high": "—" if paired.high is None else f"{100 * paired.high:+.1f}",
        "answers": paired.answers_differ,
        "replies": paired.replies_differ,
        "unpaired": paired.unpaired,
    }
    click.echo(text(f"cli.eval.against.{paired.finding}", None, **values))
    if paired.n:
        click.echo("  " + text("cli.eval.against_counts", None, **values))
    for each in paired.listed[:_SHOWN]:
        was, now = (
            one_line(str(word))[:60] if word is not None else "—" for word in (each.reference, each.here)
        )
        key = "cli.eval.only_reference" if each.expected_by_reference else "cli.eval.only_here"
        click.echo("  " + text(key, None, item=one_line(each.item), was=was, now=now))


def show_probe(
    target: Target, tasks: tuple[EvalTask, ...], concurrency: int, folder: Path, *, as_json: bool
) -> int:
    """Run the determinism probe with each task's items. Exit code 1 when any reply differs or is missing."""
    from servemark.runs.determinism_run import probe_json, run_probe  # noqa: PLC0415

    same = True
    made: list[dict[str, object]] = []
    for task in tasks:
        where = folder if len(tasks) == 1 else folder / task.id
        found = run_probe(target, task, concurrency, where, None if as_json else _print_pass)
        same = same and found.same
        if as_json:
            made.append(probe_json(found))
            continue
        key = "cli.eval.probe.same" if found.same else "cli.eval.probe.differs"
        click.echo(text(key, None, task=one_line(task.id), n=found.prompts))
        click.echo(text("cli.eval.kept", None, folder=where))
    if as_json:
        click.echo(json.dumps(made[0] if len(made) == 1 else made, ensure_ascii=False))
    return 0 if same else 1


def _print_pass(done: Pass) -> None:
    cached = "—" if done.cached_share is None else f"{100 * done.cached_share:.0f}"
    values: dict[str, object] = {
        "concurrency": done.concurrency,
        "answered": done.answered,
        "failed": done.failed,
        "cached": cached,
        "differing": done.differing,
        "compared": done.compared,
    }
    click.echo(text(f"cli.eval.probe.{done.name}", None, **values))
    for each in done.listed[:_SHOWN]:
        share = f"{100 * each.share:.0f}"
        shown = {"item": one_line(each.item), "at": each.at, "share": share}
        click.echo("  " + text("cli.eval.probe.item", None, **shown))
        click.echo(f"    - {one_line(each.first)}")
        click.echo(f"    + {one_line(each.now)}")
