"""`servemark replay --url URL WORKLOAD`."""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.errors import input_error
from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.options import Finite, Verb, common

if TYPE_CHECKING:
    from servemark.replay.profiles import Profile
    from servemark.runs.replay_run import ReplayRequest


@click.command(cls=Verb)
@click.argument("workload")
@click.option("--url", "urls", required=True, multiple=True, metavar="URL", help="cli.replay.option.url")
@click.option("--model", metavar="M", help="cli.replay.option.model")
@click.option("--profile", default="plain", metavar="NAME", help="cli.replay.option.profile")
@click.option(
    "--concurrency", type=click.IntRange(1, 1_000_000), default=1, help="cli.replay.option.concurrency"
)
@click.option("--arrivals", metavar="LAW", help="cli.replay.option.arrivals")
@click.option("--duration", type=Finite(0, min_open=True), metavar="S", help="cli.replay.option.duration")
@click.option("--requests", type=click.IntRange(1), metavar="N", help="cli.replay.option.requests")
@click.option("--grace", type=Finite(0), metavar="S", help="cli.replay.option.grace")
@click.option("--ramp", type=Finite(0, 3600), metavar="S", help="cli.replay.option.ramp")
@click.option("--max-in-flight", type=click.IntRange(1), metavar="N", help="cli.replay.option.max_in_flight")
@click.option("--processes", default="auto", metavar="N", help="cli.replay.option.processes")
@click.option("--replies", type=click.Choice(["recorded", "live"]), help="cli.replay.option.replies")
@click.option(
    "--cache-bust", type=click.Choice(["none", "session", "request"]), help="cli.run.option.cache_bust"
)
@click.option("--sessions", type=click.IntRange(1), metavar="N", help="cli.replay.option.sessions")
@click.option(
    "--scale-lengths", type=Finite(0, 100, min_open=True), default=1.0, help="cli.run.option.scale_lengths"
)
@click.option("--scale-think", type=Finite(0, 1000), default=1.0, help="cli.run.option.scale_think")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="cli.replay.option.gpus")
@click.option("--slo", metavar="LIMITS", help="cli.replay.option.slo")
@click.option("--api-key-env", metavar="NAME", help="cli.replay.option.api_key_env")
@click.option("--ca-file", type=click.Path(path_type=Path), metavar="PEM", help="cli.replay.option.ca_file")
@click.option("--protocol", default="chat", metavar="NAME", help="cli.replay.option.protocol")
@click.option("--sticky", is_flag=True, help="cli.replay.option.sticky")
@click.option("--affinity", default="session", metavar="NAME", help="cli.replay.option.affinity")
@click.option(
    "--retries", type=click.IntRange(0, 100), default=0, metavar="N", help="cli.replay.option.retries"
)
@click.option(
    "--idle-timeout",
    type=Finite(0, min_open=True),
    default=60.0,
    metavar="S",
    help="cli.replay.option.idle_timeout",
)
@click.option(
    "--total-timeout",
    type=Finite(0, min_open=True),
    default=3600.0,
    metavar="S",
    help="cli.replay.option.total_timeout",
)
@click.option(
    "--tokenizer", default="auto", metavar="PATH|auto|server|usage|words", help="cli.replay.option.tokenizer"
)
@click.option("--tree-idle-cap", metavar="S", help="cli.replay.option.tree_idle_cap")
@click.option("--system-idle-cap", metavar="S", help="cli.replay.option.system_idle_cap")
@click.option("--link", is_flag=True, help="cli.replay.option.link")
@click.option("--client", default="servemark", metavar="NAME", help="cli.replay.option.client")
@click.option(
    "--client-path", type=click.Path(path_type=Path), metavar="PATH", help="cli.replay.option.client_path"
)
@click.option("--side-by-side", is_flag=True, help="cli.replay.option.side_by_side")
@click.option("--dry-run", is_flag=True, help="cli.run.option.dry_run")
@common
def replay(  # noqa: PLR0917 - one parameter an option
    workload: str, urls: tuple[str, ...], model: str | None, profile: str, concurrency: int, arrivals: str | None,
    duration: float | None, requests: int | None, grace: float | None, ramp: float | None,
    max_in_flight: int | None,
    processes: str, replies: str | None, cache_bust: str | None, sessions: int | None,
    scale_lengths: float, scale_think: float, gpus: int | None, slo: str | None, api_key_env: str | None,
    ca_file: Path | None, protocol: str, sticky: bool, affinity: str, retries: int, idle_timeout: float,
    total_timeout: float, tokenizer: str, tree_idle_cap: str | None, system_idle_cap: str | None, link: bool,
    client: str, client_path: Path | None, side_by_side: bool, dry_run: bool, home: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Text comes from the catalogue."""
    from servemark.replay.arrivals import parse_arrivals  # noqa: PLC0415 - --help must not import the client
    from servemark.replay.processes import process_count  # noqa: PLC0415
    from servemark.replay.profiles import find_profile  # noqa: PLC0415
    from servemark.replay.target import Target  # noqa: PLC0415
    from servemark.runs.replay_run import ReplayRequest  # noqa: PLC0415
    from servemark.runs.server_questions import Server  # noqa: PLC0415
    from servemark.traces.open import TraceOptions  # noqa: PLC0415

    chosen = _changed(find_profile(profile), duration, requests, grace, replies, cache_bust)
    chosen = replace_caps(chosen, tree_idle_cap, system_idle_cap, open_loop=arrivals is not None)
    law = None if arrivals is None else parse_arrivals(arrivals, chosen.seed)
    if law is not None and chosen.replies == "live":
        raise input_error("replay.open_live")
    streams = concurrency if law is None else max_in_flight or max(1, int(max(law.rate, law.end_rate)))
    target = Target(
        urls[0], model or "", api_key_env=api_key_env, idle_timeout_s=idle_timeout, total_timeout_s=total_timeout,
        protocol=protocol,  # type: ignore[arg-type]  # Target refuses others
        affinity=affinity,  # type: ignore[arg-type]
        more_urls=urls[1:], sticky=sticky, ca_file=ca_file, retries=retries,
    )  # fmt: skip
    if model is None:
        target = dataclasses.replace(target, model=Server.of(target).only_model())
    request = ReplayRequest(
        target=target,
        spec=workload,
        trace=TraceOptions(
            sessions=sessions, scale_lengths=scale_lengths, think_scale=scale_think, link=link
        ),
        profile=chosen,
        concurrency=concurrency,
        arrivals=law,
        max_requests=requests,
        max_in_flight=max_in_flight,
        processes=process_count(processes, streams),
        gpus=gpus,
        ramp_s=ramp,
        tokenizer=tokenizer,
        limits=_limits(slo),
        command=("servemark", *sys.argv[1:]),
    )
    asked = (client, client_path, processes, cache_bust is not None, idle_timeout != 60.0)
    if client != "servemark":
        return _other_client(request, asked, Home.resolve(home), side_by_side, dry_run, as_json)
    _only_with_client(client_path, side_by_side)
    if dry_run:
        return _dry_run(request, as_json)
    return _run(request, Home.resolve(home), as_json)


def _dry_run(request: ReplayRequest, as_json: bool) -> int:
    """What would be sent, as JSON."""
    from servemark.traces.describe import describe  # noqa: PLC0415
    from servemark.traces.open import open_workload  # noqa: PLC0415

    target = request.target
    facts = {"urls": list(target.urls), "model": target.model, "options": request.options()}
    facts["workload"] = describe(open_workload(request.spec, request.trace))
    click.echo(json.dumps(facts, ensure_ascii=False, indent=None if as_json else 1))
    return 0


def _only_with_client(path: Path | None, side_by_side: bool) -> None:
    if path is not None or side_by_side:
        raise input_error("cli.replay.only_with_client")


def _other_client(  # noqa: PLR0917 - one parameter an option
    request: ReplayRequest, asked: tuple[str, Path | None, str, bool, bool], home: Home,
    side_by_side: bool, dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    """Another harness does it; `asked`: client, its path, processes as written, marker asked for, idle time-out."""
    from servemark.cli.replay_harness import job_of, print_command, run_client  # noqa: PLC0415
    from servemark.replay.harness import command_line  # noqa: PLC0415
    from servemark.runs.harness_run import find_program  # noqa: PLC0415
    from servemark.runs.replay_run import run_replay  # noqa: PLC0415

    client, path, processes, busted, idle = asked
    job = job_of(request, client, ("--idle-timeout",) if idle else (), processes, busted=busted)
    if dry_run:
        return print_command(job, path, home, as_json=as_json)
    command_line(
        job, find_program(client, path), home.root
    )  # what cannot be converted is said before anything runs
    own = run_replay(request, home).row if side_by_side else None
    return run_client(request, job, path, home, own, as_json=as_json)


def _run(request: ReplayRequest, home: Home, as_json: bool) -> int:
    from servemark.cli.replay_view import ReplayView, print_replay  # noqa: PLC0415
    from servemark.results.serialize import signed_json  # noqa: PLC0415
    from servemark.runs.replay_run import run_replay  # noqa: PLC0415

    with ReplayView() as view:
        result = run_replay(request, home, view.progress)
    if result.row.status != "complete":  # a last impatient signal must not cut off what is said
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    if result.store_error is not None:
        click.echo(text("runs.not_stored", None, reason=result.store_error.what()), err=True)
    if as_json:
        click.echo(json.dumps(signed_json(result.row), ensure_ascii=False))
    else:
        print_replay(result)
    return 0 if result.row.status == "complete" else 1


def _changed(  # noqa: PLR0917 - one parameter an option
    profile: Profile, duration: float | None, requests: int | None, grace: float | None,
    replies: str | None, cache_bust: str | None,
) -> Profile:  # fmt: skip
    """The profile with what the command line says otherwise; a fixed count takes the place of a duration."""
    from dataclasses import replace  # noqa: PLC0415

    changes: dict[str, object] = {}
    if duration is not None or requests is not None:
        changes["duration_s"] = duration
    given = {"grace_s": grace, "replies": replies, "cache_bust": cache_bust}
    changes |= {name: value for name, value in given.items() if value is not None}
    return replace(profile, **changes)  # type: ignore[arg-type]  # click has checked them


def replace_caps(profile: Profile, tree: str | None, system: str | None, *, open_loop: bool) -> Profile:
    """The profile with the idle caps of the command line: seconds, or `none`. Raises ServemarkError (exit code 2)."""
    from dataclasses import replace  # noqa: PLC0415

    caps = profile.idle_caps
    for name, said in (("tree_s", tree), ("system_s", system)):
        if said is None:
            continue
        if open_loop:
            raise input_error("cli.replay.cap_open")
        try:
            value = None if said == "none" else float(said)
        except ValueError:
            value = -1.0
        if value is not None and not 0 <= value < float("inf"):
            raise input_error("cli.replay.bad_cap", value=said[:20])
        caps = replace(caps, **{name: value})
    return replace(profile, idle_caps=caps)


def _limits(slo: str | None) -> dict[str, float]:
    """`ttft_s=2,tpot_s=0.05`. Raises ServemarkError (exit code 2) for another form or metric."""
    from servemark.results.measures import VALUES  # noqa: PLC0415

    limits: dict[str, float] = {}
    for part in (slo or "").split(",") if slo else ():
        name, _, value = part.strip().partition("=")
        known = [each for each in VALUES if each.endswith("_s")]
        try:
            limit = float(value)
        except ValueError:
            limit = -1.0
        if name not in known or not 0 < limit < float("inf"):
            raise input_error("cli.replay.bad_slo", part=part[:40], known=", ".join(known))
        limits[name] = limit
    return limits
