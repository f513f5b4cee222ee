"""Every metric once, as data: unit, direction, formula, denominator, what it needs.

Labels, definitions and formulas in words are messages: `metrics.<id>.label`, `.definition`, `.formula`, in
both languages. Where a value lies in the row, and how a rate is made of stored figures, is here;
`metrics.derive` evaluates it. Nothing else may know a metric's name, unit or formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from servemark.metrics.request import DEFINITIONS_ID


class Better(StrEnum):
    """Which way is better; NEITHER for a property of the workload or the instrument."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


class Kind(StrEnum):
    """DISTRIBUTION: a stored summary of many values. SCALAR: one stored figure. TASK: one figure an accuracy
    task. DERIVED: made from stored figures when read, never stored. TELEMETRY: stands on a point alone, made from
    power samples or stated by another tool; a row holds none. COST: made from a point's figures and a rate card
    (`analysis.costs`), so that no row alone has it."""

    DISTRIBUTION = "distribution"
    SCALAR = "scalar"
    TASK = "task"
    DERIVED = "derived"
    TELEMETRY = "telemetry"
    COST = "cost"


class Unit(StrEnum):
    """Units as they are printed; every one is named in the ids that carry it."""

    SECONDS = "s"
    MICROSECONDS = "µs"
    TOKENS = "tokens"
    REQUESTS = "requests"
    SESSIONS = "sessions"
    GPUS = "GPUs"
    COUNT = "count"
    SHARE = "share"
    TOKENS_PER_STEP = "tok/step"
    TOKENS_PER_S = "tok/s"
    TOKENS_PER_S_PER_USER = "tok/s/user"
    TOKENS_PER_S_PER_GPU = "tok/s/GPU"
    REQUESTS_PER_S = "req/s"
    REQUESTS_PER_S_PER_GPU = "req/s/GPU"
    WATTS = "W"
    BYTES = "B"
    BYTES_PER_S = "B/s"
    JOULES = "J"
    JOULES_PER_TOKEN = "J/token"  # noqa: S105 - a unit
    JOULES_PER_REQUEST = "J/req"
    USD_PER_MILLION_TOKENS = "$/M tok"
    USD_PER_USER_HOUR = "$/user-hour"
    TOKENS_PER_S_PER_MW = "tok/s/MW"
    USERS_PER_MW = "users/MW"


class Denominator(StrEnum):
    """What a figure is divided by; one denominator for every headline per-GPU figure: all GPUs deployed."""

    NONE = "none"
    WINDOW = "window_s"
    GPUS_DEPLOYED = "gpus_deployed"
    TOKEN = "token"  # noqa: S105 - what latency per token is divided by
    REQUESTS = "requests"
    PROMPT_TOKENS = "prompt_tokens"
    ITEMS = "items"
    CHUNK = "chunk"
    MEGAWATTS_PROVISIONED = "provisioned_mw"
    USER_HOUR = "user_hour"
    STEPS = "steps"
    TRANSFERS = "transfers"
    TRANSFER_S = "transfer_s"
    DRAFT_TOKENS = "draft_tokens"


class Need(StrEnum):
    """What must have been recorded for the metric to exist; names the reason when it is absent."""

    ALWAYS = "always"
    CONTENT = "content"
    TEXT = "text"
    STREAMING = "streaming"
    USAGE = "usage"
    CHUNK_USAGE = "chunk_usage"
    NEW_CONNECTION = "new_connection"
    SCHEDULE = "schedule"
    WINDOW = "window"
    GPUS = "gpus"
    STEADY = "steady"
    SLO = "slo"
    THEORY = "theory"
    CACHED_USAGE = "cached_usage"
    ENGINE_COUNTERS = "engine_counters"
    SPECULATION = "speculation"
    KV_TRANSFER = "kv_transfer"
    EVAL = "eval"
    CLIENT = "client"
    CLOSED_LOOP = "closed_loop"
    POWER = "power"
    POWER_ROLES = "power_roles"
    RATE_CARD = "rate_card"


@dataclass(frozen=True, slots=True)
class Ratio:
    """scale x sum(over) / (sum(under) x product(per)). Parts are dotted fields of the row; `{q}` stands for
    the statistic that the address asks for. An empty `over` means 1. Any absent part makes the ratio
    absent."""

    over: tuple[str, ...]
    under: tuple[str, ...]
    per: tuple[str, ...] = ()
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `field` is its dotted place in the row (DISTRIBUTION, SCALAR, TASK), `ratio` its making
    (DERIVED).

    `inverse_of` names the latency whose q-th percentile gives this rate's: what q % of requests reach or
    beat.
    """

    id: str
    unit: Unit
    better: Better
    kind: Kind
    need: Need = Need.ALWAYS
    denominator: Denominator = Denominator.NONE
    field: str = ""
    ratio: Ratio | None = None
    inverse_of: str | None = None
    definition_id: str = DEFINITIONS_ID
    telemetry: tuple[str, ...] = ()
    """Statistics of a TELEMETRY metric; empty where it is one figure."""

    @property
    def label_key(self) -> str:
        """Message key of the short name."""
        return f"metrics.{self.id}.label"

    @property
    def definition_key(self) -> str:
        """Message key of the sentence that says what it means."""
        return f"metrics.{self.id}.definition"

    @property
    def formula_key(self) -> str:
        """Message key of the formula in words."""
        return f"metrics.{self.id}.formula"

    @property
    def has_statistics(self) -> bool:
        """True when an address must say which percentile (or mean, min, max) is meant."""
        return self.kind is Kind.DISTRIBUTION or self.inverse_of is not None or bool(self.telemetry)


PERCENTILE_STATISTICS = ("p50", "p75", "p90", "p95", "p99")
DISTRIBUTION_STATISTICS = (*PERCENTILE_STATISTICS, "mean", "std", "min", "max", "n")
IMPORTED_STATISTICS = ("p99.9",)
"""What other tools state too. Points hold it; our own rows do not: it needs some thousand requests to mean anything."""
FLIPPED = {"min": "max", "max": "min"}
"""The slowest request (max TPOT) has the lowest rate: a rate's min is made from the latency's max."""


def _spread(name: str, unit: Unit, better: Better, need: Need) -> Metric:
    per = Denominator.TOKEN if name in {"tpot_s", "itl_s", "e2el_per_token_s"} else Denominator.NONE
    return Metric(name, unit, better, Kind.DISTRIBUTION, need, per, field=f"distributions.{name}")


def _count(outcome: str, better: Better) -> Metric:
    return Metric(f"requests_{outcome}", Unit.REQUESTS, better, Kind.SCALAR, field=f"counts.{outcome}")


def _rate(name: str, over: tuple[str, ...], unit: Unit, per_gpu: bool) -> Metric:
    return Metric(
        f"{name}_per_s_per_gpu" if per_gpu else f"{name}_per_s",
        unit,
        Better.HIGHER,
        Kind.DERIVED,
        Need.GPUS if per_gpu else Need.WINDOW,
        Denominator.GPUS_DEPLOYED if per_gpu else Denominator.WINDOW,
        ratio=Ratio(over, ("window_s",), ("gpus_deployed",) if per_gpu else ()),
    )


def _steady(name: str, per_gpu: bool) -> Metric:
    """A token rate over the part of the window in which every lane held a session."""
    whole = ("input_tokens", "output_tokens") if name == "total_tokens" else (name,)
    return Metric(
        f"steady_{name}_per_s" + ("_per_gpu" if per_gpu else ""),
        Unit.TOKENS_PER_S_PER_GPU if per_gpu else Unit.TOKENS_PER_S,
        Better.HIGHER,
        Kind.DERIVED,
        Need.STEADY,
        Denominator.GPUS_DEPLOYED if per_gpu else Denominator.WINDOW,
        ratio=Ratio(
            tuple(f"replayed.steady.{each}" for each in whole),
            ("replayed.steady.window_s",),
            ("gpus_deployed",) if per_gpu else (),
        ),
    )


def _share(name: str, source: str, better: Better, need: Need) -> Metric:
    return Metric(
        name, Unit.SHARE, better, Kind.SCALAR, need, Denominator.PROMPT_TOKENS, field=f"cache.{source}"
    )


def _moved(name: str, unit: Unit, better: Better, over: str, under: str) -> Metric:
    """A mean over KV transfers between workers in the window, from the engine's own sums."""
    each = Denominator.TRANSFERS if under == "transfers" else Denominator.TRANSFER_S
    place = "observed.kv_transfer"
    ratio = Ratio((f"{place}.{over}",), (f"{place}.{under}",))
    return Metric(name, unit, better, Kind.DERIVED, Need.KV_TRANSFER, each, ratio=ratio)


_S, _T, _LOW, _HIGH, _NONE = Unit.SECONDS, Unit.TOKENS, Better.LOWER, Better.HIGHER, Better.NEITHER
_OUTCOMES = ("ok", "error", "timeout", "incomplete", "cancelled")
_TOKEN_SUMS = {
    "output_tokens": ("tokens.output",),
    "input_tokens": ("tokens.input",),
    "total_tokens": ("tokens.input", "tokens.output"),
}

_LATENCIES = (
    _spread("ttft_s", _S, _LOW, Need.CONTENT),
    _spread("ttfo_s", _S, _LOW, Need.TEXT),
    _spread("tpot_s", _S, _LOW, Need.USAGE),
    _spread("itl_s", _S, _LOW, Need.CHUNK_USAGE),
    _spread("chunk_gap_s", _S, _LOW, Need.STREAMING),
    _spread("e2el_s", _S, _LOW, Need.CONTENT),
    _spread("e2el_per_token_s", _S, _LOW, Need.USAGE),
    _spread("ttft_intended_s", _S, _LOW, Need.SCHEDULE),
    _spread("e2el_intended_s", _S, _LOW, Need.SCHEDULE),
    _spread("connect_s", _S, _LOW, Need.NEW_CONNECTION),
    _spread("send_lateness_s", _S, _LOW, Need.SCHEDULE),
    _spread("input_tokens", _T, _NONE, Need.USAGE),
    _spread("output_tokens", _T, _NONE, Need.USAGE),
)

_RATES = (
    Metric(
        "interactivity",
        Unit.TOKENS_PER_S_PER_USER,
        _HIGH,
        Kind.DERIVED,
        Need.USAGE,
        ratio=Ratio((), ("distributions.tpot_s.{q}",)),
        inverse_of="tpot_s",
    ),
    Metric(
        "normalised_interactivity",
        Unit.TOKENS_PER_S_PER_USER,
        _HIGH,
        Kind.DERIVED,
        Need.USAGE,
        ratio=Ratio((), ("distributions.e2el_per_token_s.{q}",)),
        inverse_of="e2el_per_token_s",
    ),
    *(
        _rate(name, over, Unit.TOKENS_PER_S_PER_GPU if gpu else Unit.TOKENS_PER_S, gpu)
        for gpu in (False, True)
        for name, over in _TOKEN_SUMS.items()
    ),
    *(_steady(name, gpu) for gpu in (False, True) for name in _TOKEN_SUMS),
    _rate("requests", ("counts.ok",), Unit.REQUESTS_PER_S, False),
    _rate("requests", ("counts.ok",), Unit.REQUESTS_PER_S_PER_GPU, True),
    Metric(
        "requests_within_slo_per_s",
        Unit.REQUESTS_PER_S,
        _HIGH,
        Kind.DERIVED,
        Need.SLO,
        Denominator.WINDOW,
        ratio=Ratio(("replayed.slo.good",), ("window_s",)),
    ),
    Metric(
        "within_slo_share",
        Unit.SHARE,
        _HIGH,
        Kind.DERIVED,
        Need.SLO,
        Denominator.REQUESTS,
        ratio=Ratio(("replayed.slo.good",), ("replayed.slo.ended",)),
    ),
)

_WORK = (
    Metric("concurrency", Unit.SESSIONS, _NONE, Kind.SCALAR, Need.CLOSED_LOOP, field="concurrency"),
    Metric(
        "achieved_concurrency", Unit.SESSIONS, _NONE, Kind.SCALAR, Need.WINDOW, field="achieved_concurrency"
    ),
    Metric("gpus_deployed", Unit.GPUS, _NONE, Kind.SCALAR, field="gpus_deployed"),
    Metric("window_s", _S, _NONE, Kind.SCALAR, Need.WINDOW, field="window_s"),
    _count("planned", _NONE),
    _count("ok", _HIGH),
    *(_count(outcome, _LOW) for outcome in _OUTCOMES[1:]),
    Metric(
        "error_rate",
        Unit.SHARE,
        _LOW,
        Kind.DERIVED,
        Need.WINDOW,
        Denominator.REQUESTS,
        ratio=Ratio(
            tuple(f"counts.{each}" for each in _OUTCOMES[1:]), tuple(f"counts.{each}" for each in _OUTCOMES)
        ),
    ),
    *(
        Metric(
            f"{name}_tokens_total",
            _T,
            _NONE,
            Kind.SCALAR,
            Need.CACHED_USAGE if name == "cached" else Need.USAGE,
            field=f"tokens.{name}",
        )
        for name in ("input", "output", "cached")
    ),
    Metric("stalls", Unit.COUNT, _LOW, Kind.SCALAR, field="stalls"),
    _share("cache_hit_theoretical", "theoretical", _NONE, Need.THEORY),
    _share("cache_hit_theoretical_blocks", "theoretical_blocks", _NONE, Need.THEORY),
    _share("cache_hit_usage", "usage", _HIGH, Need.CACHED_USAGE),
    _share("cache_hit_engine", "engine", _HIGH, Need.ENGINE_COUNTERS),
    Metric(
        "acceptance_length",
        Unit.TOKENS_PER_STEP,
        _HIGH,
        Kind.DERIVED,
        Need.SPECULATION,
        Denominator.STEPS,
        ratio=Ratio(("speculation.steps", "speculation.accepted"), ("speculation.steps",)),
    ),
    Metric(
        "draft_acceptance_rate",
        Unit.SHARE,
        _HIGH,
        Kind.DERIVED,
        Need.SPECULATION,
        Denominator.DRAFT_TOKENS,
        ratio=Ratio(("speculation.accepted",), ("speculation.drafted",)),
    ),
    _moved("kv_transfer_s", _S, _LOW, "seconds", "transfers"),
    _moved("kv_transfer_bytes", Unit.BYTES, _NONE, "bytes", "transfers"),
    _moved("kv_transfer_descriptors", Unit.COUNT, _NONE, "descriptors", "transfers"),
    _moved("kv_transfer_bytes_per_s", Unit.BYTES_PER_S, _HIGH, "bytes", "seconds"),
    Metric("eval_score", Unit.SHARE, _HIGH, Kind.TASK, Need.EVAL, Denominator.ITEMS, field="score"),
)

_CLIENT = (
    Metric("client_loop_lag_p50_s", _S, _LOW, Kind.SCALAR, Need.CLIENT, field="client.loop_lag_p50_s"),
    Metric("client_loop_lag_p99_s", _S, _LOW, Kind.SCALAR, Need.CLIENT, field="client.loop_lag_p99_s"),
    Metric("client_loop_lag_max_s", _S, _LOW, Kind.SCALAR, Need.CLIENT, field="client.loop_lag_max_s"),
    Metric("client_cpu_s", _S, _LOW, Kind.SCALAR, Need.CLIENT, field="client.cpu_s"),
    Metric("client_chunks", Unit.COUNT, _NONE, Kind.SCALAR, Need.CLIENT, field="client.chunks"),
    Metric(
        "client_cpu_us_per_chunk",
        Unit.MICROSECONDS,
        _LOW,
        Kind.DERIVED,
        Need.CLIENT,
        Denominator.CHUNK,
        ratio=Ratio(("client.cpu_s",), ("client.chunks",), scale=1e6),
    ),
)


def _energy(name: str, unit: Unit, per: Denominator = Denominator.NONE) -> Metric:
    """A figure of GPU power over the measured window; of one role's GPUs where the name begins with the role."""
    better = Better.LOWER if per is not Denominator.NONE else Better.NEITHER
    need = Need.POWER_ROLES if name.startswith(("prefill_", "decode_")) else Need.POWER
    spread = ("mean", "p75", "p90") if unit is Unit.WATTS else ()
    return Metric(name, unit, better, Kind.TELEMETRY, need, per, telemetry=spread)


_J_TOKEN, _TOKEN = Unit.JOULES_PER_TOKEN, Denominator.TOKEN
_POWER = (
    _energy("gpu_power_w", Unit.WATTS),
    _energy("gpus_power_w", Unit.WATTS),
    _energy("gpus_energy_j", Unit.JOULES),
    _energy("joules_per_total_token", _J_TOKEN, _TOKEN),
    _energy("joules_per_input_token", _J_TOKEN, _TOKEN),
    _energy("joules_per_output_token", _J_TOKEN, _TOKEN),
    _energy("joules_per_request", Unit.JOULES_PER_REQUEST, Denominator.REQUESTS),
    *(_energy(f"{role}_gpu_power_w", Unit.WATTS) for role in ("prefill", "decode")),
    *(_energy(f"{role}_gpus_energy_j", Unit.JOULES) for role in ("prefill", "decode")),
    _energy("prefill_joules_per_input_token", _J_TOKEN, _TOKEN),
    _energy("decode_joules_per_output_token", _J_TOKEN, _TOKEN),
)


def _cost(name: str, unit: Unit, better: Better, denominator: Denominator) -> Metric:
    return Metric(name, unit, better, Kind.COST, Need.RATE_CARD, denominator)


TOKEN_KINDS = ("total", "input", "output")
"""Tokens that throughput and costs are stated of: prompt and output together, or one of them."""

_COSTS = (
    *(
        _cost(f"usd_per_million_{kind}_tokens", Unit.USD_PER_MILLION_TOKENS, _LOW, Denominator.TOKEN)
        for kind in TOKEN_KINDS
    ),
    _cost("usd_per_user_hour", Unit.USD_PER_USER_HOUR, _LOW, Denominator.USER_HOUR),
    *(
        _cost(f"provisioned_joules_per_{kind}_token", Unit.JOULES_PER_TOKEN, _LOW, Denominator.TOKEN)
        for kind in TOKEN_KINDS
    ),
    *(
        _cost(
            f"{kind}_tokens_per_s_per_mw", Unit.TOKENS_PER_S_PER_MW, _HIGH, Denominator.MEGAWATTS_PROVISIONED
        )
        for kind in TOKEN_KINDS
    ),
    _cost("users_per_mw", Unit.USERS_PER_MW, _HIGH, Denominator.MEGAWATTS_PROVISIONED),
)

METRICS: Mapping[str, Metric] = {
    metric.id: metric for metric in (*_RATES, *_LATENCIES, *_WORK, *_CLIENT, *_POWER, *_COSTS)
}
"""All metrics by id, in the order in which lists and tables show them."""
