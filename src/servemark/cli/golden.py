"""`servemark golden show|check|measure`: golden acceptance lengths, what arms force, and new entries from counters."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.errors import input_error
from servemark.base.messages import text
from servemark.base.printable import one_line
from servemark.cli.options import Finite, SubVerbGroup, Verb, common, language

if TYPE_CHECKING:
    from servemark.catalog.nodes import Problem
    from servemark.catalog.suite import Suite
    from servemark.checks.golden_check import GoldenCurve, GoldenVerdict
    from servemark.evals.acceptance import Acceptance


class GoldenVerb(Verb):
    """A verb below `golden`: its texts stand under `cli.golden_<verb>`."""

    group = "golden"


@click.group(cls=SubVerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@language
def golden() -> None:
    """Text comes from the catalogue."""


@golden.command(cls=GoldenVerb)
@click.argument("suite", required=False)
@click.argument("model", required=False)
@common
def show(suite: str | None, model: str | None, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.checks.golden_check import golden_curves  # noqa: PLC0415 - --help imports no room

    if model is None and suite is not None and not _is_suite(suite):
        suite, model = None, suite  # `golden show kimi-k3` in a suite's folder
    found, problems = _suite(suite or ".")
    curves, models = golden_curves(found, problems, model)
    _tell(problems)
    if not curves:
        known = ", ".join(models[:20])
        key = "cli.golden.no_model" if model is not None and models else "cli.golden.none"
        raise input_error(key, model=model, known=known, suite=found.name)
    if as_json:
        click.echo(json.dumps({"schema": 1, "curves": [_plain(each) for each in curves]}, ensure_ascii=False))
        return 0
    for curve in curves:
        _show(curve, several=sum(each.model == curve.model for each in curves) > 1)
    return 0


def _is_suite(name: str) -> bool:
    from servemark.base.errors import ServemarkError  # noqa: PLC0415
    from servemark.catalog.layout import suite_root  # noqa: PLC0415

    try:
        suite_root(name)
    except ServemarkError:
        return False
    return True


def _suite(where: str) -> tuple[Suite, list[Problem]]:
    from servemark.catalog.suite import read_suite  # noqa: PLC0415

    found, _ = read_suite(where)
    return found, []  # what is wrong elsewhere in the suite is for `check`


def _tell(problems: list[Problem]) -> None:
    for problem in problems[:20]:
        click.echo(one_line(problem.error().what()), err=True)


def _plain(curve: GoldenCurve) -> dict[str, object]:
    return {**asdict(curve), "values": {str(k): v for k, v in sorted(curve.values.items())}}


def _sampling(curve: GoldenCurve) -> str:
    """How drafts were sampled and verified: what tells two curves of one model apart."""
    if curve.draft_sampling is None and curve.rejection_sampling is None:
        return text("cli.golden.sampling_unstated")
    draft, rejection = curve.draft_sampling or "—", curve.rejection_sampling or "—"
    return text("cli.golden.sampling", None, draft=one_line(draft), rejection=one_line(rejection))


def _show(curve: GoldenCurve, *, several: bool) -> None:
    click.echo(f"{one_line(curve.model)}  {one_line(curve.mode)}  {_sampling(curve)}")
    click.echo(f"  {one_line(curve.file)}")
    levels = sorted(curve.values)
    for line in curve.notes[:3] if several else ():
        click.echo(f"  # {one_line(line)}")
    widths = [max(len(str(k)), 4) for k in levels]
    pairs = list(zip(levels, widths, strict=True))
    click.echo("  K   " + "  ".join(f"{k:>{w}}" for k, w in pairs))
    click.echo("  AL  " + "  ".join(f"{curve.values[k]:>{w}.2f}" for k, w in pairs))
    click.echo()


@golden.command(cls=GoldenVerb)
@click.argument("suite", required=False, default=".")
@click.option("--all", "every", is_flag=True, help="cli.golden.option.all")
@common
def check(suite: str, every: bool, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.checks.golden_check import golden_verdicts  # noqa: PLC0415

    found, problems = _suite(suite)
    verdicts = golden_verdicts(found, problems)
    _tell(problems)
    wrong = sum(each.verdict in {"wrong", "impossible"} for each in verdicts)
    if as_json:
        click.echo(
            json.dumps({"schema": 1, "forced": [_verdict(each) for each in verdicts]}, ensure_ascii=False)
        )
        return 1 if wrong else 0
    for each in verdicts:
        if every or each.verdict != "right":
            _say(each)
    names: dict[str, list[bool]] = {}
    for each in verdicts:
        names.setdefault(each.name, []).append(each.verdict in {"wrong", "impossible"})
    for name, bad in names.items():
        click.echo(text("cli.golden.by_name", None, name=name, n=len(bad), wrong=sum(bad)))
    arms = len({each.arm for each in verdicts})
    click.echo(text("cli.golden.total", None, n=len(verdicts), arms=arms, wrong=wrong))
    return 1 if wrong else 0


def _verdict(each: GoldenVerdict) -> dict[str, object]:
    values = asdict(each)
    values["at"] = str(each.at)
    values["golden"] = [{"value": one.length, "at": str(one.at)} for one in each.golden]
    return values


def _say(each: GoldenVerdict) -> None:
    """One forced length: where, what, and what it should be."""
    values = {
        "arm": one_line(each.arm),
        "topology": one_line(each.topology),
        "name": one_line(each.name),
        "written": one_line(each.written),
        "value": f"{each.value:.2f}",
        "method": one_line(each.method) or "—",
        "tokens": "—" if each.draft_tokens is None else each.draft_tokens,
        "wanted": each.wanted or "—",
        "golden": " / ".join(f"{one.length:.2f}" for one in each.golden) or "—",
        "most": "—" if each.draft_tokens is None else each.draft_tokens + 1,
    }
    click.echo(text(f"cli.golden.verdict.{each.verdict}", None, **values))
    click.echo(f"  --> {one_line(str(each.at))}")
    if each.belongs:
        click.echo("  " + text("cli.golden.belongs", None, where=one_line(each.belongs)))


@golden.command(cls=GoldenVerb)
@click.argument("run", required=False)
@click.option("--url", metavar="URL", help="cli.golden.option.url")
@click.option("--watch", type=Finite(0.1, 86_400), metavar="SECONDS", help="cli.golden.option.watch")
@click.option("--model", required=True, metavar="NAME", help="cli.golden.option.model")
@click.option("--mode", default="thinking_on", metavar="NAME", help="cli.golden.option.mode")
@click.option("--draft-tokens", type=click.IntRange(1, 128), required=True, help="cli.golden.option.tokens")
@click.option("--method", required=True, metavar="NAME", help="cli.golden.option.method")
@click.option("--append", type=click.Path(path_type=Path), metavar="FILE", help="cli.golden.option.append")
@common
def measure(  # noqa: PLR0917 - click passes by name
    run: str | None,
    url: str | None,
    watch: float | None,
    model: str,
    mode: str,
    draft_tokens: int,
    method: str,
    append: Path | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.evals.golden import append_entry, entry_of, entry_text  # noqa: PLC0415

    if (run is None) == (url is None) or (watch is not None and url is None):
        raise input_error("cli.golden.which")
    found = _of_url(url, watch) if url is not None else _of_run(run or "", home)
    entry = entry_of(found, model, mode, draft_tokens, method)
    if append is not None:
        append_entry(append, entry)
    if as_json:
        click.echo(json.dumps({"schema": 1, **asdict(entry)}, ensure_ascii=False))
        return 0
    click.echo(entry_text(entry), nl=False)
    if entry.per_position:
        shares = "  ".join(f"{share:.3f}" for share in entry.per_position)
        click.echo(text("cli.golden.positions", None, shares=shares), err=True)
    if entry.stderr > 0.005:
        needed = round(entry.steps * (entry.stderr / 0.005) ** 2)
        click.echo(text("cli.golden.wide", None, stderr=f"{entry.stderr:.3f}", needed=needed), err=True)
    if append is not None:
        click.echo(text("cli.golden.written", None, file=append), err=True)
    return 0


def _of_url(url: str, watch_s: float | None) -> Acceptance:
    from urllib.parse import urlsplit  # noqa: PLC0415

    from servemark.evals.golden import measure_url  # noqa: PLC0415

    base = url.rstrip("/").removesuffix("/v1")
    try:
        target = urlsplit(base)
        usable = target.scheme == "http" and bool(target.hostname) and target.port is not None
    except ValueError:
        usable = False
    if not usable:
        raise input_error("cli.golden.url", url=url[:200])
    found, rule = measure_url(base, watch_s)
    if rule is not None:
        raise rule.refusal(url)
    return found


def _of_run(name: str, home: str | None) -> Acceptance:
    """The window of a run that is kept, if its acceptance was real."""
    from servemark.base.home import Home  # noqa: PLC0415
    from servemark.evals.acceptance import Acceptance  # noqa: PLC0415
    from servemark.evals.forced import Forced, forced_by_engine  # noqa: PLC0415
    from servemark.results.serialize import RESULT_NAME, read_result  # noqa: PLC0415
    from servemark.runs.folder import find_run  # noqa: PLC0415

    path = Path(name) if Path(name).is_dir() else find_run(Home.resolve(home).runs, name).path
    row = read_result(path / RESULT_NAME)
    said = row.declared.get("speculation")
    engine = row.observed.get("engine")
    rule = forced_by_engine(engine) if isinstance(engine, dict) else None
    if rule is None and isinstance(said, dict) and said.get("acceptance") == "forced":
        rule = Forced("recipe", str(said.get("forced_by")))
    if rule is not None:
        raise rule.refusal(str(path / RESULT_NAME))
    seen = row.speculation
    if seen is None:
        raise input_error("cli.golden.no_speculation", run=path.name)
    steps, drafted, accepted = seen.steps, seen.drafted, seen.accepted
    length = 1 + accepted / steps if steps and accepted is not None else None
    rate = accepted / drafted if drafted and accepted is not None else None
    missing = None if length is not None else seen.missing
    return Acceptance(length, rate, steps, drafted, accepted, seen.per_position, None, missing)  # type: ignore[arg-type]
