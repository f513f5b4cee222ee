"""What the speed model is asked about and what it answers: a configuration's facts, figures with their class, reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from servemark.analysis.measured import Measured
from servemark.base.canonical import content_hash
from servemark.predict.types import Predicted, PredictionClass
from servemark.results.point import PointIdentity, RoleTopology

TPOT = "tpot_s.p50"
TTFT = "ttft_s.p50"
E2EL = "e2el_s.p50"
INTERACTIVITY = "interactivity.p50"
TOTAL_PER_GPU = "total_tokens_per_s_per_gpu"
OUTPUT_PER_GPU = "output_tokens_per_s_per_gpu"
METRICS = (TOTAL_PER_GPU, OUTPUT_PER_GPU, TPOT, INTERACTIVITY, TTFT, E2EL)
"""Addresses that every answer has."""
LEVEL = 0.9
"""Share of figures that an interval is to hold."""


@dataclass(frozen=True, slots=True)
class ConfigFacts:
    """What a configuration is for a fit, whatever the load and the lengths. `build` is image, version, revision and recipe
    content together; None where nobody says, and then only points of one run are sure to be of one build. `run`
    (`source/run`) asks for one run's points alone. `gpus` are all GPUs deployed."""

    model: str
    hardware: str
    engine: str
    precision: str | None
    speculation: str | None
    topology: str
    gpus: int | None
    disaggregated: bool | None = None
    offload: str | None = None
    scenario_type: str = "fixed-seq-len"
    build: str | None = None
    run: str | None = None
    experts: int | None = None
    top_k: int | None = None
    acceptance: float | None = None
    """Acceptance length of speculative decoding where it is known; None is not 1."""

    @property
    def key(self) -> str:
        """The deployment: the same for all its builds, runs, loads and lengths."""
        kind = (self.model, self.hardware, self.engine, self.precision, self.speculation)
        return _key(*kind, self.topology, self.offload, self.scenario_type)


@lru_cache(maxsize=4096)
def _key(*parts: str | None) -> str:
    """One hash for each deployment, made once: a fit asks for it many times."""
    return content_hash(list(parts), 16)


def facts_of(identity: PointIdentity, gpus: int | None) -> ConfigFacts:
    """The facts that a point's identity states; experts are those of the model's architecture where the catalogue has it."""
    experts, top_k = experts_of(identity.model)
    draft = identity.speculation
    said = [identity.image, identity.engine_version, identity.model_revision, identity.recipe_fingerprint]
    return ConfigFacts(
        model=identity.model,
        hardware=identity.hardware,
        engine=identity.engine,
        precision=identity.precision.family or identity.precision.reported,
        speculation=None if draft is None else f"{draft.method}:{draft.draft_tokens or '?'}",
        topology=_topology(identity.topology, gpus),
        gpus=gpus,
        disaggregated=identity.disaggregated,
        offload=None
        if identity.offload is None
        else f"{identity.offload.tier}:{identity.offload.backend or '?'}",
        scenario_type=identity.scenario.type,
        build=content_hash(said, 16) if any(said) else None,
        experts=experts,
        top_k=top_k,
    )


def facts_of_point(point: Measured) -> ConfigFacts:
    """The facts of a measured point, its run's points alone where nobody says which build it was."""
    facts = facts_of(point.identity, point.gpus_deployed)
    return facts if facts.build else replace(facts, run=f"{point.source}/{point.run}")


def _topology(roles: tuple[RoleTopology, ...], gpus: int | None) -> str:
    """Roles with their sizes. Where a source states no size at all, the GPUs tell deployments apart, as far as they can."""
    said = " + ".join(_role(role) for role in roles)
    sized = any(role.tp or role.dp or role.ep or role.workers for role in roles)
    return said if sized or gpus is None else f"{said or '?'}:gpus{gpus}"


def _role(role: RoleTopology) -> str:
    sizes = {name: getattr(role, name) for name in ("workers", "tp", "pp", "dp", "ep", "dcp", "pcp")}
    said = [f"{name}{size}" for name, size in sizes.items() if size is not None]
    return ":".join([role.role, *said, *(["dpa"] if role.dp_attention else [])])


_EXPERTS: dict[str, tuple[int | None, int | None]] = {}
_EXPERTS_KEPT = 256


def experts_of(model: str) -> tuple[int | None, int | None]:
    """(routed experts, experts of a token); None for a dense model and for one that the catalogue does not have."""
    if model not in _EXPERTS:
        if len(_EXPERTS) >= _EXPERTS_KEPT:
            _EXPERTS.clear()
        _EXPERTS[model] = _read_experts(model)
    return _EXPERTS[model]


def _read_experts(model: str) -> tuple[int | None, int | None]:
    from servemark.base.errors import ServemarkError  # noqa: PLC0415
    from servemark.catalog.architectures import architecture  # noqa: PLC0415 - reads files; only where asked

    try:
        groups = architecture(model).feed_forward
    except (ServemarkError, OSError):
        return None, None
    routed = [group for group in groups if group.experts]
    return (routed[0].experts, routed[0].top_k) if routed else (None, None)


@dataclass(frozen=True, slots=True)
class UsedPoint:
    """A measured point that a figure rests on. `weight` is its share in the figure where one can be stated; `residual` is
    ln(measured / fitted without it); `influence` the relative change of the figure when it is left out."""

    ref: str
    run: str
    at_utc: str
    concurrency: int
    isl: int
    osl: int
    value: float
    residual: float | None = None
    influence: float | None = None
    role: str = "curve"
    """`curve`: this configuration's own. `like`: of others, which lend their bend or level."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Answers for one configuration at one load, by metric address. `notes` are message keys with values: what is doubtful
    about the points underneath. `bend` and `scale` say how the figure was made."""

    config: ConfigFacts
    concurrency: int
    isl: int
    osl: int
    klass: PredictionClass
    figures: Mapping[str, Predicted]
    notes: tuple[tuple[str, Mapping[str, object]], ...] = ()
    measured: bool = False
    """Whether this very load has been measured: the figure is then that measurement's neighbourhood, not news."""

    def __getitem__(self, metric: str) -> Predicted:
        return self.figures[metric]


@dataclass(frozen=True, slots=True)
class Why:
    """The working of one figure: the points it rests on, the most influential first, and the coefficients."""

    metric: str
    klass: PredictionClass
    used: tuple[UsedPoint, ...]
    coefficients: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Why points of this configuration were not used: message key -> how many."""
