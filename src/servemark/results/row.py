"""The row: one typed, versioned result of one run (one execution of one point).

`result.json` is the canonical JSON of the row (`serialize.row_to_json`) plus `row_sha256` over it. Rates
(interactivity, tokens per second) are never stored: `metrics.derive` makes them from latencies, counts and
the window when read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from servemark.metrics.accuracy import EvalScore as EvalScore  # noqa: PLC0414 - part of the row
from servemark.metrics.percentiles import Distribution

ROW_SCHEMA = 1

RunStatus = Literal["complete", "partial"]
"""partial: the run ended early but on purpose (Ctrl-C after some requests); never on a front."""


@dataclass(frozen=True, slots=True)
class Warned:
    """A doubt about the measurement: message key `warning.<code>` and its values. Stored and shown
    everywhere."""

    code: str
    values: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """Prefix cache over the measured window. Shares are 0..1; None where it cannot be known.

    `theoretical` = tokens of segments that an infinite cache, starting from the stated cache state, would
    hold / all prompt tokens of the trace. `theoretical_blocks` = the same in whole blocks, as published
    traces count. `usage` = sum of usage.cached_tokens / sum of usage.prompt_tokens. `engine` = the same from
    the server's own counters, after - before.
    """

    theoretical: float | None
    theoretical_blocks: float | None
    usage: float | None
    engine: float | None


@dataclass(frozen=True, slots=True)
class SpeculationFigures:
    """Speculative decoding over the measured window, from the engine's counters, after - before (`evals.acceptance`).

    `per_position[i]` is the share of verify steps whose draft token i was accepted; empty where the engine does not say.
    `gauge_length` is a value of the engine's last moments, not of the window. `missing` says why there is no acceptance
    length.
    """

    steps: float | None
    drafted: float | None
    accepted: float | None
    per_position: tuple[float, ...] = ()
    gauge_length: float | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """The instrument watching itself during the measured window."""

    loop_lag_p50_s: float | None
    loop_lag_p99_s: float | None
    cpu_s: float
    chunks: int
    limited: bool
    loop_lag_max_s: float | None = None
    """The longest time that the client itself stood still; None in rows from before it was kept."""
    cpu_share_max: float | None = None
    """Largest share of one core that any client process used within a second."""
    kernel_drops: dict[str, int] | None = None
    """Rise of the kernel's counters of dropped received bytes; None where they cannot be read."""

    @property
    def cpu_us_per_chunk(self) -> float | None:
        """Client CPU microseconds per content event."""
        return self.cpu_s / self.chunks * 1e6 if self.chunks else None


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests of the measured window by outcome. `planned` is written down before the run."""

    planned: int
    ok: int
    error: int
    timeout: int
    incomplete: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class WindowTokens:
    """Tokens that were received between two moments of the client's clock, partial replies included; None
    where a part cannot be known."""

    start_s: float
    end_s: float
    window_s: float
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class Slo:
    """Service-level objective: metric id -> limit. `good` of `ended` measured requests met all limits."""

    limits: dict[str, float]
    good: int
    ended: int


@dataclass(frozen=True, slots=True)
class ArrivalLaw:
    """When an open loop sent: `law` as it was asked (`poisson:4`), its kind, rates in requests per second (a ramp
    has two), and the factor by which recorded times were sped up."""

    law: str
    kind: str
    rate_per_s: float | None
    end_rate_per_s: float | None
    speed: float | None
    seed: int


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """How the workload was replayed, and what the replay tells beside its records. Times are seconds on the
    client's clock. Rows of unlike `semantics` are not comparable.

    `window` is given where the window ends by time: tokens inside it count for throughput. `with_failures`:
    metric id -> percentiles in which every failed request counts as infinitely slow; None is infinite.
    `live` samples [moment, live session trees, requests in flight]. `shifts`: moves of waiting timers by idle
    caps. `cut_off` and `warmup_cut_off`: ids of requests given up at the end of a grace.
    """

    semantics: str
    mode: Literal["closed", "open"]
    profile: str | None
    options: dict[str, object]
    max_in_flight: int
    passes: int
    window: WindowTokens | None
    steady: WindowTokens | None
    with_failures: dict[str, dict[str, float | None]]
    slo: Slo | None
    invalid: tuple[Warned, ...]
    live: tuple[tuple[float, int, int], ...] = ()
    shifts: tuple[dict[str, object], ...] = ()
    cut_off: tuple[str, ...] = ()
    warmup_cut_off: tuple[str, ...] = ()
    held_by_cap: int = 0
    processes: tuple[dict[str, object], ...] = ()
    stopped: str | None = None
    """Why it ended early: `interrupt`, `server_gone`, `failed_requests`, ...; None at its own end."""
    arrivals: ArrivalLaw | None = None
    """The load of an open loop; None for a closed one."""


@dataclass(frozen=True, slots=True)
class ResultRow:
    """See design.md "Laws". Times are seconds, sizes bytes, counts plain; absent is None."""

    run_id: str
    line_id: str
    point_id: str
    series_id: str
    suite: str
    arm: str
    concurrency: int | None
    """Live sessions that were asked for; None for an open loop, whose load is `replayed.arrivals`."""
    status: RunStatus
    started_utc: str
    """ISO 8601, second precision, ends in Z."""
    finished_utc: str
    identity: dict[str, object]
    """Canonical identity that point_id hashes (catalog.identity)."""
    declared: dict[str, object]
    observed: dict[str, object]
    """engine {engine, version, build, served_model, model_file, model_sha256, details}, host {...}, packages
    {...}, engine_counters {before, after} around the measured window."""
    workload: dict[str, object]
    """id, name, source, sessions, requests, input_tokens, output_tokens."""
    cache_state: dict[str, object]
    """{"kind": "marked"|"cold", "marker_scope": "session"|"request"|None}."""
    gpus_deployed: int | None
    """None where nobody said, as for a server that somebody else runs."""
    counts: Counts
    window_s: float | None
    """Last content or end - first start, of measured requests."""
    tokens: dict[str, int | None]
    """input, output, cached: sums over ok requests of the measured window, from usage (output tokens counted
    as content events where the server sent none, with a warning); None when any ok request lacks its
    count."""
    distributions: dict[str, Distribution]
    """metric id -> summary; ids: ttft_s, ttfo_s, tpot_s, itl_s, chunk_gap_s, e2el_s, connect_s,
    send_lateness_s, input_tokens, output_tokens. A metric without values is missing here."""
    stalls: int
    achieved_concurrency: float | None
    """Mean number of live sessions over the window (time-weighted)."""
    cache: CacheFigures
    evals: tuple[EvalScore, ...]
    client: ClientHealth
    warnings: tuple[Warned, ...]
    phases_s: dict[str, float]
    """phase name -> seconds, in the order of catalog.phase_budgets.PHASES. A phase that a run did not have is
    missing; `stop` stands in the row of the last point of a deployment."""
    files: dict[str, dict[str, object]]
    """file name in the run folder -> {"sha256": hex, "bytes": n}; with "prefix": true the hash covers the
    first n bytes of a file that may go on growing (a log that several points share)."""
    versions: dict[str, object]
    """servemark version, semantics id (metrics.request.DEFINITIONS_ID), schema numbers."""
    schema: int = ROW_SCHEMA
    replayed: ReplayFigures | None = None
    """None in rows from before it was kept."""
    speculation: SpeculationFigures | None = None
    """None where no speculation was asked for and none was seen, and in rows from before it was kept."""
