"""Our replay's arguments as the command line of another harness: AIPerf, or its agentic fork (`agentx`).

Pure: nothing is started here. What the other program has no argument for, or would do otherwise, is an error that names
it, and never left out silently. Facts are those of aiperf 0.13.0 and agentx-harness 1.0.12, whose options are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from servemark.base.errors import input_error
from servemark.replay.arrivals import Arrivals
from servemark.replay.profiles import Profile
from servemark.replay.target import Target
from servemark.traces.random_lengths import RandomLengths

HarnessName = Literal["aiperf", "agentx"]
HARNESSES: tuple[str, ...] = get_args(HarnessName)

INPUT_NAME = "input"
"""Folder of the files that the harness reads, within the run's own."""
ARTIFACTS_NAME = "artifacts"
SUMMARY_NAME = "profile_export_aiperf.json"

SCENARIOS: Mapping[tuple[str, str], str] = {
    ("aiperf", "inferencex-mvp"): "inferencex-agentx-mvp",
    ("agentx", "inferencex-mvp"): "inferencex-agentx-mvp",
    ("agentx", "agentx"): "agentx",
}
"""(harness, our profile) -> the scenario that sets the same there."""
GOODPUT: Mapping[str, tuple[str, float]] = {
    "ttft_s": ("time_to_first_token", 1000.0),
    "ttfo_s": ("time_to_first_output_token", 1000.0),
    "tpot_s": ("inter_token_latency", 1000.0),
    "e2el_s": ("request_latency", 1000.0),
}
"""Our metric -> theirs, and what a second is in its unit (ms). Their inter-token latency is a mean per request, which
is our time per output token."""
DATASETS: Mapping[str, str] = {
    "weka": "weka-trace",
    "mooncake": "mooncake-trace",
    "burstgpt": "burst-gpt-trace",
}
"""Our trace format -> their dataset type."""
ENDPOINTS: Mapping[str, str] = {
    "chat": "chat",
    "completions": "completions",
    "messages": "messages",
    "responses": "responses",
}


@dataclass(frozen=True, slots=True)
class HarnessJob:
    """What a replay was asked for, as far as a harness could do it too. `lengths` is a workload of fixed lengths,
    `trace_format` the format of a recorded one; exactly one is given. `changed` names further options of ours that
    were given on the command line (as written there)."""

    harness: HarnessName
    target: Target
    profile: Profile
    concurrency: int
    arrivals: Arrivals | None
    max_requests: int | None
    max_in_flight: int | None
    tokenizer: Path | None
    limits: Mapping[str, float]
    lengths: RandomLengths | None
    trace_format: str | None
    scale_think: float = 1.0
    processes: int | None = None
    changed: tuple[str, ...] = ()
    given_cache_bust: bool = False


@dataclass(slots=True)
class _Line:
    """The command line in the making, and what could not be put into it."""

    argv: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def add(self, option: str, *values: object) -> None:
        """One option with its values."""
        self.argv += [option, *(f"{v:g}" if isinstance(v, float) else str(v) for v in values)]


def command_line(job: HarnessJob, program: str, folder: Path) -> list[str]:
    """The argv that makes the harness do this job, with its files below `folder`.

    Raises ServemarkError (exit code 2) naming every argument that cannot be converted.
    """
    line = _Line([program, "profile"])
    _target(job, line)
    _workload(job, line, folder)
    _load(job, line)
    _semantics(job, line)
    line.refused += job.changed
    if job.tokenizer is None:
        line.refused.append("--tokenizer (it cannot do without one)")
    else:
        folder_of = job.tokenizer.parent if job.tokenizer.is_file() else job.tokenizer
        line.add("--tokenizer", folder_of.absolute())
    if line.refused:
        raise input_error("replay.harness_cannot", harness=job.harness, what="; ".join(line.refused))
    line.argv += ["--use-server-token-count", "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"]
    line.add("--export-level", "records")
    line.add("--output-artifact-dir", (folder / ARTIFACTS_NAME).absolute())
    return line.argv


def _target(job: HarnessJob, line: _Line) -> None:
    target = job.target
    line.add("--model", target.model)
    for url in target.urls:
        line.add("--url", url.rstrip("/").removesuffix("/v1"))
    line.add("--endpoint-type", ENDPOINTS[target.protocol])
    if job.profile.stream:
        line.argv.append("--streaming")
    line.add("--request-timeout-seconds", target.total_timeout_s)
    if target.api_key_env is not None:
        line.refused.append(
            "--api-key-env (it takes a key as an argument only, and writes it into its files)"
        )
    refused = {
        "--sticky": target.sticky,
        f"--affinity {target.affinity}": target.affinity != "session",
        f"--retries {target.retries}": target.retries > 0,
        "--ca-file": target.ca_file is not None,
    }
    line.refused += [name for name, given in refused.items() if given]


def _workload(job: HarnessJob, line: _Line, folder: Path) -> None:
    lengths = job.lengths
    if lengths is not None:
        if lengths.bounds(lengths.isl) != (lengths.isl, lengths.isl):
            line.refused.append(f"ratio={lengths.ratio():g} (its lengths are drawn by another law)")
        if lengths.prefix_tokens:
            line.refused.append(f"prefix={lengths.prefix_tokens}")
        for option, value in (("--isl", lengths.isl), ("--osl", lengths.osl)):
            line.add(option, value)
            line.add(f"{option}-stddev", 0)
        line.add("--num-dataset-entries", lengths.requests)
        return
    dataset = DATASETS.get(job.trace_format or "")
    if dataset is None:
        line.refused.append(f"a workload in {job.trace_format} format")
        return
    line.add("--custom-dataset-type", dataset)
    line.add("--input-file", (folder / INPUT_NAME).absolute())
    if job.scale_think == 0:
        line.argv.append("--ignore-trace-delays")
    elif job.scale_think != 1:
        line.refused.append(f"--scale-think {job.scale_think:g} (recorded gaps, or with 0 none)")


def _load(job: HarnessJob, line: _Line) -> None:
    law, profile = job.arrivals, job.profile
    if law is None:
        line.add("--concurrency", job.concurrency)
        if job.trace_format == "mooncake":
            line.argv.append("--no-fixed-schedule")
    elif law.kind == "trace":
        if job.trace_format not in ("mooncake", "burstgpt") or law.speed != 1:
            line.refused.append(f"--arrivals {law}")
        line.argv.append("--fixed-schedule")
    elif law.kind in ("constant", "poisson"):
        line.add("--request-rate", law.rate)
        line.add("--arrival-pattern", law.kind)
    else:
        line.refused.append(f"--arrivals {law}")
    if job.max_in_flight is not None:
        line.add("--concurrency", job.max_in_flight)
    count = job.max_requests
    if count is None and profile.duration_s is None and job.lengths is not None:
        count = job.lengths.requests
    if count is not None:
        line.add("--request-count", count)
    if profile.duration_s is not None:
        line.add("--benchmark-duration", profile.duration_s)
        line.add("--benchmark-grace-period", profile.grace_s)
    if job.trace_format == "weka" and profile.name == "plain":
        line.refused.append(
            "a weka trace with --profile plain (without a scenario its replay was not seen to end)"
        )
    if job.processes is not None:
        line.add("--workers-max", job.processes)


def _semantics(job: HarnessJob, line: _Line) -> None:
    profile = job.profile
    scenario = SCENARIOS.get((job.harness, profile.name))
    if scenario is not None:
        line.add("--scenario", scenario)
        line.argv.append(
            "--unsafe-override"
        )  # a local trace is never its official one: it says so in its result
        if job.trace_format != "weka":
            line.refused.append(f"--profile {profile.name} without a weka trace")
    elif profile.name != "plain" or job.harness == "agentx":
        line.refused.append(f"--profile {profile.name} (known: {_profiles(job.harness)})")
    line.add("--random-seed", profile.seed)
    if profile.replies == "live":
        line.refused.append("--replies live")
    if scenario is None:
        _markers(job, line)
        if profile.ignore_eos and job.target.protocol in ("chat", "completions"):
            line.add("--extra-inputs", "ignore_eos:true")
        line.add("--extra-inputs", "temperature:0")
    if job.limits:
        unknown = [name for name in job.limits if name not in GOODPUT]
        line.refused += [f"--slo {name}" for name in unknown]
        parts = [
            f"{GOODPUT[name][0]}:{limit * GOODPUT[name][1]:g}"
            for name, limit in job.limits.items()
            if name in GOODPUT
        ]
        line.add("--goodput", " ".join(parts))


def _markers(job: HarnessJob, line: _Line) -> None:
    """A marker a session. Prompts of fixed lengths differ anyway: there it is added only where it was asked for."""
    scope = job.profile.cache_bust
    if scope == "request":
        line.refused.append("--cache-bust request (its markers are per session)")
    elif scope == "session" and (job.lengths is None or job.given_cache_bust):
        line.add("--cache-bust", "first-turn-prefix")


def _profiles(harness: str) -> str:
    found = [profile for name, profile in SCENARIOS if name == harness]
    return ", ".join(["plain", *found] if harness == "aiperf" else found)
