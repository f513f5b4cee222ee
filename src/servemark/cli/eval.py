"""`servemark eval --url URL --task NAME|FILE …`."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from servemark.base.errors import input_error
from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.eval_verdict import asks_verdict, check_named, show_probe, show_verdicts, verdict_options
from servemark.cli.options import Finite, Verb, common

if TYPE_CHECKING:
    from servemark.replay.target import Target
    from servemark.runs.eval_run import EvalRequest

HARNESS = "lm_eval:"
"""Tasks of lm-evaluation-harness: `lm_eval:gsm8k`."""


@click.command("eval", cls=Verb)
@click.option("--url", metavar="URL", help="cli.eval.option.url")
@click.option("--model", metavar="M", help="cli.replay.option.model")
@click.option("--task", "tasks", multiple=True, metavar="NAME|FILE", help="cli.eval.option.task")
@click.option("--concurrency", default="1", metavar="N,…", help="cli.eval.option.concurrency")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="cli.eval.option.limit")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="cli.eval.option.max_tokens")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="cli.eval.option.out")
@click.option("--resume", is_flag=True, help="cli.eval.option.resume")
@click.option("--datasets", type=click.Path(path_type=Path), metavar="DIR", help="cli.eval.option.datasets")
@click.option(
    "--harness-path", type=click.Path(path_type=Path), metavar="PATH", help="cli.eval.option.harness_path"
)
@click.option("--api-key-env", metavar="NAME", help="cli.replay.option.api_key_env")
@click.option("--ca-file", type=click.Path(path_type=Path), metavar="PEM", help="cli.replay.option.ca_file")
@click.option(
    "--idle-timeout",
    type=Finite(0, min_open=True),
    default=120.0,
    metavar="S",
    help="cli.eval.option.idle_timeout",
)
@click.option("--list", "listed", is_flag=True, help="cli.eval.option.list")
@verdict_options
@common
def eval_verb(  # noqa: PLR0917 - one parameter an option
    url: str | None, model: str | None, tasks: tuple[str, ...], concurrency: str, limit: int | None,
    max_tokens: int | None, out: Path | None, resume: bool, datasets: Path | None, harness_path: Path | None,
    api_key_env: str | None, ca_file: Path | None, idle_timeout: float, listed: bool, home: str | None, as_json: bool,
    **judging: Any,  # noqa: ANN401 - click's values
) -> int:  # fmt: skip
    """Text comes from the catalogue."""
    if listed:
        return _list(as_json)
    if judging["of"] is not None:
        if url is not None or tasks:
            raise input_error("cli.eval.of_alone")
        return show_verdicts(judging["of"], judging, model, home, as_json=as_json)
    if url is None or not tasks:
        raise input_error("cli.eval.needs")
    from servemark.replay.target import Target  # noqa: PLC0415 - --help must not import the client
    from servemark.runs.manifest import new_line_id  # noqa: PLC0415
    from servemark.runs.server_questions import Server  # noqa: PLC0415

    concurrencies = _concurrencies(concurrency)
    if resume and out is None:
        raise input_error("cli.eval.resume_where")
    target = Target(url, model or "", api_key_env=api_key_env, idle_timeout_s=idle_timeout, ca_file=ca_file)
    if model is None:
        target = dataclasses.replace(target, model=Server.of(target).only_model())
    folder = out or Home.resolve(home).root / "evals" / new_line_id(
        "eval-" + target.model.rpartition("/")[2][:32]
    )
    check_named(judging, home)
    harness = tuple(task.removeprefix(HARNESS) for task in tasks if task.startswith(HARNESS))
    if harness:
        others = resume or max_tokens is not None or judging["determinism"] or asks_verdict(judging)
        if len(harness) != len(tasks) or others:
            raise input_error("cli.eval.harness_alone")
        _refuse_forced(url)
        return _harness(
            target, harness, concurrencies, limit, folder, datasets, harness_path, as_json=as_json
        )
    request = _request(target, tasks, concurrencies, limit, max_tokens)
    if judging["determinism"]:
        if len(concurrencies) != 1 or resume or asks_verdict(judging):
            raise input_error("cli.eval.determinism_alone")
        _refuse_forced(url)
        return show_probe(target, request.tasks, concurrencies[0], folder, as_json=as_json)
    _refuse_forced(url)
    return _run(request, folder, judging, home, resume=resume, as_json=as_json)


def _concurrencies(said: str) -> tuple[int, ...]:
    from servemark.runs.eval_run import parse_concurrencies  # noqa: PLC0415

    try:
        return parse_concurrencies(said)
    except ValueError:
        raise input_error("cli.eval.bad_concurrency", value=said[:40]) from None


def _request(
    target: Target,
    specs: tuple[str, ...],
    concurrencies: tuple[int, ...],
    limit: int | None,
    max_tokens: int | None,
) -> EvalRequest:
    from servemark.evals.registry import find_task  # noqa: PLC0415
    from servemark.runs.eval_run import EvalRequest, first_of  # noqa: PLC0415

    tasks = first_of([find_task(spec) for spec in specs], limit, max_tokens)
    names = [task.id for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise input_error("cli.eval.task_twice", task=twice)
    options: dict[str, object] = {"tasks": list(specs), "limit": limit, "max_tokens": max_tokens}
    return EvalRequest(target, tasks, concurrencies, options, ("servemark", *sys.argv[1:]))


def _refuse_forced(url: str) -> None:
    """No task is asked of an engine that forces acceptance. Raises ServemarkError (exit 2)."""
    from servemark.evals.forced import forced_by_server  # noqa: PLC0415

    rule = forced_by_server(url)
    if rule is not None:
        raise rule.refusal(url)


def _run(
    request: EvalRequest,
    folder: Path,
    judging: dict[str, Any],
    home: str | None,
    *,
    resume: bool,
    as_json: bool,
) -> int:
    """Ask, show the scores and, where one is asked for, the verdict: one object where it is JSON."""
    from servemark.cli.eval_view import print_eval, show_progress  # noqa: PLC0415
    from servemark.cli.plain_progress import Lines, PlainEval  # noqa: PLC0415
    from servemark.runs.eval_run import run_eval, summary  # noqa: PLC0415

    progress = show_progress if sys.stderr.isatty() else PlainEval(Lines())
    result = run_eval(request, folder, take_up=resume, on_progress=progress)
    code, said = 0 if result.complete else 1, summary(request, result)
    if not as_json:
        print_eval(result)
    if asks_verdict(judging):
        model = request.target.model
        return max(code, show_verdicts(str(folder), judging, model, home, as_json=as_json, beside=said))
    if as_json:
        click.echo(json.dumps(said, ensure_ascii=False))
    return code


def _harness(  # noqa: PLR0917 - what lm-eval is started with
    target: Target, tasks: tuple[str, ...], concurrencies: tuple[int, ...], limit: int | None, folder: Path,
    datasets: Path | None, path: Path | None, *, as_json: bool,
) -> int:  # fmt: skip
    from servemark.cli.eval_view import print_harness  # noqa: PLC0415
    from servemark.runs.lm_eval_run import HarnessJob, run_harness  # noqa: PLC0415

    results = [
        run_harness(HarnessJob(target, tasks, each, limit, folder / f"c{each}", datasets, path))
        for each in concurrencies
    ]
    if as_json:
        click.echo(json.dumps([each.plain() for each in results], ensure_ascii=False))
    else:
        print_harness(results)
    return 0 if all(not each.missing for each in results) else 1


def _list(as_json: bool) -> int:
    """The tasks that come with servemark."""
    from servemark.evals.registry import TASKS  # noqa: PLC0415

    made = [make() for make in TASKS.values()]
    if as_json:
        facts = [
            {"task": t.id, "version": t.version, "n": len(t.items), "max_tokens": t.max_tokens} for t in made
        ]
        click.echo(json.dumps(facts))
        return 0
    for task in made:
        click.echo(text(f"cli.eval.task.{task.id}", None, version=task.version, n=len(task.items)))
    click.echo(text("cli.eval.more", None))
    return 0
