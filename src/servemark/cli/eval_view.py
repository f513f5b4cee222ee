"""What `servemark eval` shows: progress on stderr, then a table of scores, what is missing, and what is doubtful."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from servemark.base.messages import text
from servemark.base.printable import one_line
from servemark.cli.text_table import table

if TYPE_CHECKING:
    from servemark.evals.runner import TaskOutcome
    from servemark.runs.eval_run import Doubt, EvalResult
    from servemark.runs.lm_eval_run import HarnessResult

_COLUMNS = (
    "task",
    "concurrency",
    "score",
    "interval",
    "correct",
    "unanswered",
    "truncated",
    "refused",
    "retried",
)


def show_progress(task: str, concurrency: int, done: int, expected: int, correct: int) -> None:
    """One line that is written over; for terminals."""
    said = text(
        "cli.eval.progress",
        None,
        task=one_line(task),
        concurrency=concurrency,
        done=done,
        n=expected,
        correct=correct,
    )
    click.echo(f"\r\x1b[K{said}", nl=done == expected, err=True)


def print_eval(result: EvalResult) -> None:
    """Scores, then whatever keeps them from being believed."""
    heads = [text(f"cli.eval.column.{name}", None) for name in _COLUMNS]
    width = shutil.get_terminal_size((140, 24)).columns
    for line in table(heads, [_row(each) for each in result.outcomes], width):
        click.echo(line)
    for each in result.outcomes:
        if each.ended != "complete":
            values = {"task": one_line(each.score.task), "concurrency": each.score.concurrency}
            said = text(
                f"cli.eval.ended.{each.ended}", None, missing=each.missing, n=each.score.expected_n, **values
            )
            click.echo(said)
    for missing in result.missing:
        click.echo(
            text("cli.eval.missing", None, task=one_line(missing.task), concurrency=missing.concurrency)
        )
    for doubt in result.doubts:
        click.echo(doubt_text(doubt))
    click.echo(text("cli.eval.kept", None, folder=result.folder))
    if not result.complete:
        click.echo(text("cli.eval.take_up", None, folder=result.folder))


def doubt_text(doubt: Doubt) -> str:
    """One doubt in words."""
    reason = text(f"evals.suspect.{doubt.code}", None)
    if not doubt.task:
        return text("cli.eval.doubt_all", None, reason=reason)
    values = {
        "task": one_line(doubt.task),
        "concurrency": doubt.concurrency,
        "count": doubt.count,
        "n": doubt.n,
    }
    return text("cli.eval.doubt", None, reason=reason, **values)


def _row(outcome: TaskOutcome) -> list[str]:
    found = outcome.statistics
    return [
        f"{one_line(outcome.score.task)} {one_line(outcome.score.version)}",
        str(outcome.score.concurrency),
        f"{100 * found.score:.1f} %",
        f"{100 * found.low:.1f}-{100 * found.high:.1f} %",
        f"{found.correct}/{found.n}",
        str(found.unanswered),
        str(found.truncated),
        str(found.refused),
        str(found.retried),
    ]


def print_harness(results: Sequence[HarnessResult]) -> None:
    """The scores that lm-evaluation-harness wrote, and those that it did not."""
    for result in results:
        for score in result.scores:
            click.echo(text("cli.eval.harness_score", None, concurrency=result.concurrency, **score))
        for task in result.missing:
            click.echo(text("cli.eval.missing", None, task=task, concurrency=result.concurrency))
        click.echo(text("cli.eval.harness_kept", None, folder=result.folder))
