"""What `servemark run` shows: the live view, the closing table, the small front, the report's place."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from servemark.analysis.own_verdicts import quarantines
from servemark.analysis.report_data import build_report_data
from servemark.base.errors import ServemarkError, input_error
from servemark.base.files import make_folder
from servemark.base.home import Home
from servemark.base.messages import current_language, text
from servemark.base.printable import one_line
from servemark.catalog.acceptance import Difference, differences
from servemark.catalog.selector import parse_selector
from servemark.cli.line_view import print_line
from servemark.cli.live import LiveView
from servemark.cli.plain_progress import Lines, PlainView
from servemark.cli.safe_text import Text
from servemark.launch.failure import printable
from servemark.launch.job import PlannedStep
from servemark.plan.points import Choice, choose
from servemark.report.page import write_report
from servemark.runs.deploy import check_deployment, script_of, shown_job
from servemark.runs.line import LineOutcome, run_line
from servemark.runs.manifest import cache_state, declared, workload_facts
from servemark.runs.request import LineRequest
from servemark.runs.site import find_cluster, site_of


def check(request: LineRequest) -> None:
    """What can be said of the deployment before anything is made or started; raises ServemarkError."""
    check_deployment(request)


def watch(request: LineRequest, home: Home, line_id: str | None = None) -> LineOutcome:
    """Run the line with a live view on stderr when that is a terminal, with plain lines there else."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return run_line(request, home, PlainView(Lines()), line_id)
    with LiveView(console) as view:
        return run_line(request, home, view, line_id)


def make_report(outcome: LineOutcome, home: Home) -> Path | None:
    """Write the line's page; a failure to do so is said and does not undo the runs."""
    path = home.reports / f"{outcome.line_id}.html"
    lang = current_language()
    try:
        make_folder(path.parent)
        write_report(build_report_data(outcome.folders, lang, samples=20), path, lang)
    except ServemarkError as error:
        click.echo(text("cli.run.no_page", None, reason=error.what()), err=True)
        return None
    return path


def print_rows(outcome: LineOutcome) -> None:
    """Each row as one JSON object a line; that some are quarantined is said on stderr."""
    for row in outcome.rows_json():
        click.echo(json.dumps(row, ensure_ascii=False))
    if said := _kept_off(len(quarantines(outcome.rows)), len(outcome.rows)):
        click.echo(said, err=True)


def _kept_off(count: int, points: int) -> str:
    """How many points gates quarantined, and what that means; empty for none."""
    return text("cli.run.quarantined", None, count=count, points=points) if count else ""


def print_outcome(outcome: LineOutcome, page: Path | None) -> None:
    """The closing view on stdout: table, front, findings, then where everything lies."""
    console = Console()
    if outcome.done:
        data = build_report_data(outcome.folders, current_language())
        print_line(console, data)
        if said := _kept_off(sum(point.quarantined for point in data.points), len(data.points)):
            console.print(Text(said, style="red"), soft_wrap=True)
    console.print()
    for folder in outcome.folders[:1]:
        kept = text("cli.run.kept", None, folder=folder.parent, line=outcome.line_id)
        console.print(kept, style="dim", soft_wrap=True)
    if page is not None:
        console.print(text("cli.run.page", None, page=page), soft_wrap=True)
    if outcome.done:
        console.print(text("cli.run.ask", None, run=outcome.done[-1].name), style="dim", soft_wrap=True)


def dry_run_facts(request: LineRequest) -> dict[str, object]:
    """What would run, as one plain value."""
    return {
        "suite": request.choice.suite.name,
        "arm": request.choice.arm.key,
        "topology": request.choice.entry.topology,
        "deployment": request.choice.deployment.canonical(),
        "points": [
            {
                "concurrency": p.concurrency,
                "point_id": p.identity.point_id,
                "series_id": p.identity.series_id,
            }
            for p in request.points
        ],
        "declared": declared(request),
        "workload": workload_facts(request),
        "cache_state": cache_state(request),
        "cache_hit_theoretical": request.theory.tokens,
        "cache_hit_theoretical_blocks": request.theory.blocks,
        "evals": [{"task": t.id, "version": t.version, "n": len(t.items)} for t in request.tasks],
        "inputs": request.inputs,
        "cluster": None if request.described is None else request.described.name,
        "slurm_options": _slurm_options(request),
        "steps": _steps(request),
        "eval_steps": None if request.scored is None else _steps(request.scored),
    }


def _steps(request: LineRequest) -> list[dict[str, object]]:
    launcher = site_of(request.cluster, Path("HOME"), request.host).launcher
    return [
        {
            "name": step.name,
            "stage": step.stage,
            "node": step.node.name,
            "gpus": list(step.gpus),
            "argv": list(step.process.argv),
            "command": launcher.describe(step.request(srun_options=_srun_options(request))),
            "env": dict(step.env),
            "files": dict(step.process.files),
            "ready": None
            if step.process.probe is None
            else step.process.probe.base_url + step.process.probe.path,
            "not_handed_over": list(step.process.ignored),
        }
        for step in shown_steps(request)
    ]


def _srun_options(request: LineRequest) -> tuple[str, ...]:
    """The recipe's own, where Slurm is what starts its steps."""
    return request.choice.deployment.srun_options if request.cluster is not None else ()


def _slurm_options(request: LineRequest) -> dict[str, list[str]] | None:
    """What the recipe gives sbatch, and srun for its workers and router; None on this machine."""
    if request.cluster is None:
        return None
    found = request.choice.deployment
    return {"sbatch": list(found.sbatch_options), "srun": list(found.srun_options)}


def shown_steps(request: LineRequest) -> tuple[PlannedStep, ...]:
    """The steps with stand-in nodes, folders and ports."""
    return shown_job(request, Path("RUN")).steps


def script_text(
    selector: str, port: int | None, secrets: Sequence[str], at: tuple[str | None, Path, bool]
) -> str:
    """The deployment that a selector names as an sbatch script; names of secrets only. It needs no workload.

    `at`: a cluster's name, the file of clusters, and whether somebody named that file. A cluster that is named adds its
    partition, account, options, mounts and model folder."""
    cluster, file, asked = at
    choice = choose(parse_selector(selector))
    found = find_cluster(choice, cluster, file, asked=asked) if cluster is not None else None
    if cluster is not None and found is None:
        raise input_error("cli.run.script_no_slurm", name=cluster[:80])
    first, _, rest = script_of(choice, port, secrets, found).partition("\n")
    return "\n".join([first, *_not_for_scores(choice), rest])


def kubernetes_text(selector: str, namespace: str | None, secrets: Sequence[str]) -> str:
    """The deployment that a selector names as Kubernetes manifests; names of secrets only."""
    from servemark.launch.kubernetes import kubernetes_manifests  # noqa: PLC0415 - rarely asked for

    choice = choose(parse_selector(selector))
    said = kubernetes_manifests(choice.deployment, namespace=namespace, secrets=secrets)
    return "\n".join([*_not_for_scores(choice), said])


def _not_for_scores(choice: Choice) -> list[str]:
    """Comments of what is rendered where it forces an acceptance length: accuracy needs another deployment, which is not
    rendered beside it. The first is said on stderr too."""
    measured, scored = choice.deployment, choice.verified
    if scored is measured:
        return []
    head = text("cli.run.not_for_scores", None, recipe=measured.at)
    click.echo(head, err=True)
    if scored is None:
        changes = [text("cli.run.scores_unread")]
    elif scored.file != measured.file:
        changes = [text("cli.run.scores_recipe", None, recipe=scored.at)]
    else:
        changes = [_change_line(each) for each in differences(measured, scored)]
    return [f"# {one_line(each)}" for each in (head, *changes)]


def _change_line(each: Difference) -> str:
    """One setting in which what is scored differs."""
    was, now = (
        "—" if value is None else printable(str(value), 200) for value in (each.measured, each.scored)
    )
    name = printable(each.name, 200)
    return text("cli.run.dry_scored_change", None, role=each.role, name=name, was=was, now=now)


def _node_lines(request: LineRequest) -> list[str]:
    """Per node, exactly what would run, in the order of starting."""
    launcher = site_of(request.cluster, Path("HOME"), request.host).launcher
    steps, own = shown_steps(request), _srun_options(request)
    lines = []
    for node in dict.fromkeys(step.node.name for step in steps):
        lines.append(text("cli.run.dry_node", None, node=node))
        for step in steps:
            if step.node.name == node:
                shown = printable(shlex.join(launcher.describe(step.request(srun_options=own))), 100_000)
                lines.append("  " + text("cli.run.dry_step", None, step=step.name, command=shown))
                lines += [
                    "    " + text("cli.run.dry_file", None, path=step.config_dir / name)
                    for name in step.process.files
                ]
                if step.process.ignored:
                    names = printable(", ".join(step.process.ignored), 1_000)
                    lines.append("    " + text("cli.run.dry_ignored", None, names=names))
    return lines


def _scored_lines(request: LineRequest, scored: LineRequest) -> list[str]:
    """What the tasks are asked on instead, and how it differs; its commands where they are another recipe's."""
    measured, other = request.choice.deployment, scored.choice.deployment
    found = [text("cli.run.dry_scored", None, recipe=other.at, fingerprint=other.fingerprint()[:16])]
    found += [f"  {_change_line(each)}" for each in differences(measured, other)]
    return found if measured.file == other.file else found + _node_lines(scored)


def dry_run_json(request: LineRequest) -> str:
    """One JSON object."""
    return json.dumps(dry_run_facts(request), ensure_ascii=False)


def dry_run_text(request: LineRequest) -> str:
    """The same for a person."""
    work = request.workload
    blocks = request.theory.blocks
    lines = [
        text(
            "cli.run.dry_head",
            None,
            arm=request.choice.arm.key,
            suite=request.choice.suite.name,
            topology=request.choice.entry.topology,
        ),
        text(
            "cli.run.dry_engine",
            None,
            engine=request.choice.deployment.engine,
            model=request.choice.deployment.model_path,
            recipe=request.choice.deployment.at,
        ),
        text(
            "cli.run.dry_work",
            None,
            name=work.name,
            sessions=len(work.sessions),
            requests=work.requests,
            hit=f"{request.theory.tokens:.3f}",
            blocks=text("cli.run.dry_blocks", None, hit=f"{blocks:.3f}") if blocks is not None else "",
        ),
    ]
    lines += [
        text("cli.run.dry_point", None, concurrency=p.concurrency, point=p.identity.point_id)
        for p in request.points
    ]
    lines += [text("cli.run.dry_eval", None, task=t.id, n=len(t.items)) for t in request.tasks]
    if request.not_scored is not None:
        lines.append(text("runs.not_scored", None, name=request.not_scored.name))
    given = _slurm_options(request) or {}
    lines += [
        text("cli.run.dry_slurm", None, program=program, options=printable(shlex.join(options), 10_000))
        for program, options in given.items()
        if options
    ]
    lines += _node_lines(request)
    if request.scored is not None:
        lines += _scored_lines(request, request.scored)
    return "\n  ".join(lines)
