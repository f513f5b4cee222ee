"""How a workload is replayed, as data: the named profiles, and the version of the rules that they obey.

`agentx` and `inferencex-mvp` set what the agentic harness of InferenceX sets under those names, version
1.0.12; `plain` replays a trace from its start to its end once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from servemark.base.errors import input_error
from servemark.replay.record import RequestRecord
from servemark.replay.timeline import IdleCaps
from servemark.traces.types import CacheBust

SEMANTICS_ID: Final = "servemark-replay-1"
"""Changes whenever the same workload and options would be sent otherwise: joins, gaps, start points, markers.
Results of different ids are not comparable."""

Replies = Literal["recorded", "live"]

CONTEXT_OVERFLOW: Final = (
    "context length",
    "context_length",
    "maximum context",
    "context size",
    "context window",
    "too many tokens",
    "prompt is too long",
)
"""Texts (lower case) in a server's error by which a prompt that does not fit is known."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Limits beyond which a run does not count as the profile's. Shares are 0..1; None: not judged.

    `max_failed`: share of failed requests that aborts the run, judged once as many requests have ended as
    there are lanes and at least `failed_after`.
    """

    max_context_overflow: float | None = None
    min_first_token_coverage: float | None = None
    min_gap_coverage: float | None = None
    max_failed: float | None = None
    failed_after: int = 10
    min_duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Semantics under one name; times in seconds. `duration_s` None: the workload once.

    `start_share`: the moment within each first tree's recorded time from which it is measured, drawn evenly
    between the two shares; None: from its beginning, without a warm-up of streams. `pressure_requests`: extra
    requests a lane that fill the cache before the window.
    """

    name: str
    duration_s: float | None
    grace_s: float
    start_share: tuple[float, float] | None
    pressure_requests: int
    warmup_grace_s: float
    idle_caps: IdleCaps
    cache_bust: CacheBust
    ignore_eos: bool
    stream: bool
    seed: int
    replies: Replies
    validity: Validity


_OFFICIAL: Final = Validity(
    max_context_overflow=0.01, min_first_token_coverage=0.95, min_gap_coverage=0.95, max_failed=0.10
)

PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "plain": Profile(
            name="plain",
            duration_s=None,
            grace_s=30.0,
            start_share=None,
            pressure_requests=0,
            warmup_grace_s=600.0,
            idle_caps=IdleCaps(),
            cache_bust="session",
            ignore_eos=True,
            stream=True,
            seed=42,
            replies="recorded",
            validity=Validity(),
        ),
        "agentx": Profile(
            name="agentx",
            duration_s=3600.0,
            grace_s=30.0,
            start_share=(0.25, 0.75),
            pressure_requests=10,
            warmup_grace_s=1800.0,
            idle_caps=IdleCaps(tree_s=300.0, system_s=10.0),
            cache_bust="session",
            ignore_eos=True,
            stream=True,
            seed=42,
            replies="recorded",
            validity=_OFFICIAL,
        ),
        "inferencex-mvp": Profile(
            name="inferencex-mvp",
            duration_s=1800.0,
            grace_s=30.0,
            start_share=(0.0, 1.0),
            pressure_requests=10,
            warmup_grace_s=1800.0,
            idle_caps=IdleCaps(tree_s=300.0, system_s=10.0),
            cache_bust="session",
            ignore_eos=True,
            stream=True,
            seed=42,
            replies="recorded",
            validity=Validity(
                max_context_overflow=0.01,
                min_first_token_coverage=0.95,
                min_gap_coverage=0.95,
                max_failed=0.10,
                min_duration_s=900.0,
            ),
        ),
    }
)
"""The one table of profiles."""

RUN_PROFILE: Final = "plain"
"""By whose rules `run` replays the workload that a recipe names."""


def find_profile(name: str) -> Profile:
    """A profile by name. Raises ServemarkError (exit code 2) that lists the known ones."""
    found = PROFILES.get(name)
    if found is None:
        raise input_error("replay.no_profile", name=name, known=", ".join(PROFILES))
    return found


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that a run broke: message key `replay.invalid_<rule>`, the figure and its limit (shares or
    seconds)."""

    rule: str
    value: float
    limit: float


def is_context_overflow(record: RequestRecord) -> bool:
    """True for a request that the server refused because its prompt did not fit."""
    detail = (record.error_detail or "").lower()
    return record.outcome == "error" and any(said in detail for said in CONTEXT_OVERFLOW)


def is_failed(record: RequestRecord) -> bool:
    """Ended badly by the server's doing: what this client cut off itself is no failure."""
    return record.outcome in ("error", "timeout", "incomplete")


@dataclass(slots=True)
class ValidityCounts:
    """What the rules look at: measured requests that this client did not cut off, and among the ok ones of two
    tokens or more those with a first content event, and those with a gap between two."""

    ended: int = 0
    overflow: int = 0
    failed: int = 0
    long_ones: int = 0
    with_first: int = 0
    with_gap: int = 0

    def add(self, record: RequestRecord) -> None:
        """One more measured request."""
        if record.outcome == "cancelled":
            return
        self.ended += 1
        self.overflow += is_context_overflow(record)
        self.failed += is_failed(record)
        if record.outcome == "ok" and (record.output_tokens or 2) >= 2:
            self.long_ones += 1
            self.with_first += bool(record.chunk_s)
            self.with_gap += len(record.chunk_s) > 1

    def merge(self, other: ValidityCounts) -> None:
        """Add what another has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def breaches(validity: Validity, seen: ValidityCounts, duration_s: float | None) -> tuple[Breach, ...]:
    """Which of the profile's rules the measured requests broke; () when none."""
    found: list[Breach] = []
    above = (
        ("context_overflow", seen.overflow, seen.ended, validity.max_context_overflow),
        ("failed", seen.failed, seen.ended, validity.max_failed),
    )
    below = (
        ("first_token_coverage", seen.with_first, seen.long_ones, validity.min_first_token_coverage),
        ("gap_coverage", seen.with_gap, seen.long_ones, validity.min_gap_coverage),
    )
    for rule, part, whole, limit in above:
        if limit is not None and whole and part / whole > limit:
            found.append(Breach(rule, part / whole, limit))
    for rule, part, whole, limit in below:
        if limit is not None and whole and part / whole < limit:
            found.append(Breach(rule, part / whole, limit))
    least_s = validity.min_duration_s
    if least_s is not None and duration_s is not None and duration_s < least_s:
        found.append(Breach("duration", duration_s, least_s))
    return tuple(found)


class FailureGate:
    """Counts ends while a replay runs, and says when too many failed to go on."""

    def __init__(self, validity: Validity, lanes: int) -> None:
        self._limit = validity.max_failed
        self._after = max(lanes, validity.failed_after)
        self._ended = 0
        self._failed = 0

    def add(self, record: RequestRecord) -> bool:
        """Take in a measured request that has ended; True when the share of failed ones is over the limit."""
        if record.outcome == "cancelled":
            return False
        self._ended += 1
        self._failed += is_failed(record)
        return self._limit is not None and self._ended >= self._after and self.share > self._limit

    @property
    def share(self) -> float:
        """Failed requests / requests that have ended."""
        return self._failed / self._ended if self._ended else 0.0


GONE_AFTER_S: Final = 5.0
GONE_KINDS: Final = frozenset({"resolve_failed", "connect_refused", "connect_failed"})
"""Failures before anything was sent, which come at once: a lane that met one waits before its next turn."""


def is_gone(record: RequestRecord) -> bool:
    """True for a request for which there was no connection to be had."""
    return record.error_kind in GONE_KINDS


class GoneGate:
    """Notices a server that has ended: connecting fails, and nothing else has happened, for GONE_AFTER_S."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def add(self, record: RequestRecord, now_s: float) -> bool:
        """Take in a request that has ended; True when the server counts as gone."""
        if record.outcome == "cancelled":
            return False
        if not is_gone(record):
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= GONE_AFTER_S
