"""A point: one result of one deployment at one load, in the same shape wherever it comes from.

Our own rows (`row.ResultRow`) and every imported format become points; gates, the store and everything that compares or
draws reads points only. A point never holds what was not said: absent is None, or a key that is not there.

Figures are what the source states, in base units (seconds, tokens, watts, joules, bytes), by metric address
(`metrics.address`: `ttft_s.p90`, `total_tokens_per_s_per_gpu`). Per-GPU figures are over all GPUs deployed; a figure over
the GPUs of one role alone stands under an id that names the role. Rates that latencies give (interactivity) are never
taken from an import: they are derived from the latencies when read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import msgspec

from servemark.base.canonical import canonical_json, content_hash
from servemark.results.figures import Figure as Figure  # noqa: PLC0414 - a part of a point, asked for with it
from servemark.results.figures import number_of

POINT_SCHEMA = 1
ID_LENGTH = 16

RoleName = Literal["aggregated", "prefill", "decode"]
Status = Literal["complete", "partial"]
MappingStatus = Literal["mapped", "unmapped", "invalid"]
"""unmapped: kept, but its model, hardware or shape is not known to the mapping. invalid: kept, not a result."""


@dataclass(frozen=True, slots=True)
class RoleTopology:
    """One role of a deployment. `workers` engine instances of `gpus` GPUs each; None where nobody says."""

    role: RoleName
    workers: int | None = None
    gpus: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    dcp: int | None = None
    pcp: int | None = None
    dp_attention: bool | None = None
    hardware: str | None = None
    """Where it differs from the deployment's."""


@dataclass(frozen=True, slots=True)
class Precision:
    """As reported (`nvfp4`), and the family that filters go by (`fp4`)."""

    reported: str | None
    family: str | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """What was replayed. Fixed lengths have `isl` and `osl`, traces a `dataset`; `rules` is the version of the replay's
    rules where the source tells it. Points of unlike scenarios are not comparable."""

    type: str
    """`fixed-seq-len`, `agentic-coding`, `trace`, `random`, `unknown`; `eval`: scores alone, `dataset` is the task."""
    isl: int | None = None
    osl: int | None = None
    range_ratio: float | None = None
    dataset: str | None = None
    rules: str | None = None
    arrivals: str | None = None
    """`poisson:4` for an open loop; None for a closed one."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding. `acceptance` says whether acceptance lengths are real, golden (forced) or unknown."""

    method: str
    draft_tokens: int | None = None
    acceptance: str | None = None


@dataclass(frozen=True, slots=True)
class Offload:
    """KV offload beyond GPU memory."""

    tier: str
    backend: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class PointIdentity:
    """What makes two points the same point. Every part is in the canonical JSON that `point_key` hashes, absent parts
    as null, so no key has a nullable column."""

    model: str
    hardware: str
    engine: str
    scenario: Scenario
    concurrency: int | None
    """None where load is open loop: the arrivals say it."""
    model_revision: str | None = None
    engine_version: str | None = None
    image: str | None = None
    precision: Precision = Precision(None, None)
    speculation: Speculation | None = None
    topology: tuple[RoleTopology, ...] = ()
    offload: Offload | None = None
    recipe_fingerprint: str | None = None
    """Over the recipe's content, not its name."""
    router: str | None = None
    extra: dict[str, object] = field(default_factory=dict)
    """What else tells two configurations of this source apart."""

    def canonical(self) -> dict[str, object]:
        """Plain JSON values."""
        return asdict(self)

    @property
    def point_key(self) -> str:
        """Equal for equal configurations at equal load."""
        return content_hash(self.canonical(), ID_LENGTH)

    @property
    def config_key(self) -> str:
        """Equal for equal configurations, whatever the concurrency."""
        return content_hash({**self.canonical(), "concurrency": None}, ID_LENGTH)

    @property
    def disaggregated(self) -> bool | None:
        """True with separate prefill and decode roles; None when the topology is not known."""
        if not self.topology:
            return None
        return {role.role for role in self.topology} >= {"prefill", "decode"}


@dataclass(frozen=True, slots=True)
class Execution:
    """Which execution gave the point: `run` groups the points of one run (a sweep's job, a workflow run), `attempt`
    counts its retries. A line is one configuration within one run."""

    run: str
    attempt: int = 1
    started_utc: str | None = None
    """ISO 8601 ending in Z; a date alone where the source says no more."""
    finished_utc: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests by outcome as the source counts them."""

    planned: int | None = None
    ok: int | None = None
    error: int | None = None
    incomplete: int | None = None
    cancelled: int | None = None


NO_REQUESTS = Requests()
"""Of a point whose source counts none; one object, so that most are told by their identity."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Host memory for KV, bytes, and what each figure is of: `scope` is `rank`, `worker`, `node` or `deployment`."""

    configured_bytes: int | None = None
    allocated_bytes: int | None = None
    capacity_bytes: int | None = None
    reported_bytes: int | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class Eval:
    """One accuracy result of the point: shares 0..1, standard error, items; `expected` False when it was not asked for."""

    task: str
    score: float
    metric: str
    stderr: float | None = None
    n: int | None = None
    passed: bool | None = None
    concurrency: int | None = None
    """Requests in flight while it was asked, where the source says."""


@dataclass(frozen=True, slots=True)
class Point:
    """See the module."""

    identity: PointIdentity
    execution: Execution
    figures: Mapping[str, Figure]
    source: str
    """The importer that made it: `servemark`, `inferencex`, `vllm-bench`, ..."""
    mapping_version: int
    status: Status = "complete"
    requests: Requests = NO_REQUESTS
    duration_s: float | None = None
    steady_s: tuple[float, float] | None = None
    """Begin and end of the steady window, seconds on the source's own clock."""
    gpus_deployed: int | None = None
    """All GPUs of all roles; None where nobody says. Never made from tp x ep."""
    gpus_stated: int | None = None
    """What the source states, where a gate may doubt it."""
    gpus_telemetry: int | None = None
    """Distinct GPUs in power or utilisation samples."""
    memory: Memory | None = None
    evals: tuple[Eval, ...] = ()
    expected: dict[str, object] = field(default_factory=dict)
    """What was written down before the run: concurrencies, evals."""
    declared: dict[str, object] = field(default_factory=dict)
    observed: dict[str, object] = field(default_factory=dict)
    """Provenance side by side: versions, image digests, GPU names, per worker where known."""
    client: dict[str, object] = field(default_factory=dict)
    """The instrument on itself: `limited`, `loop_lag_p99_s`, `loop_lag_max_s`, `harness`, `harness_version`."""
    notes: tuple[str, ...] = ()
    """What the mapping had to decide or leave out, in English, for machines and people who debug a mapping."""

    @property
    def line_key(self) -> str:
        """One configuration within one run: what a curve may join."""
        body = {"config": self.identity.config_key, "run": self.execution.run, "source": self.source}
        return content_hash(body, ID_LENGTH)

    def value(self, address: str) -> float | None:
        """A stated figure; None when it is absent."""
        return number_of(self.figures, address)


def point_json(point: Point) -> str:
    """Canonical JSON of a point, as the store keeps and exports it."""
    return canonical_json({"schema": POINT_SCHEMA, **point_plain(point)})


def point_plain(point: Point) -> dict[str, object]:
    """Plain JSON values of a point."""
    figures = {address: msgspec.structs.asdict(figure) for address, figure in point.figures.items()}
    return {**asdict(replace(point, figures={})), "figures": figures}


class Mapped(msgspec.Struct, frozen=True):
    """What a mapping made of one raw row. `ordinal` is its place in the file, `raw` its own bytes (JSON or CSV text)
    where it is one of many. Never dropped: without a point there is a `reason` (a message key and its values). A
    struct for speed."""

    ordinal: int
    status: MappingStatus
    point: Point | None
    raw: bytes | None = None
    reason: str = ""
    reason_values: dict[str, object] = {}
