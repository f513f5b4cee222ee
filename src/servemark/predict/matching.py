"""Which measured configuration a planned point belongs to, and in what the two differ: said, never guessed.

Levels: `exact` (the same configuration, image and recipe included), `version` (the same, but another image, version or
recipe, or the source does not state one), `shape` (the same at other input or output lengths, or of another data set),
`kin` (the same model; hardware, engine, precision or topology differ or are not stated). A size that only one side states
counts as equal when it says nothing special (1, no), and as a difference otherwise. A router that only one side states makes
another version, one that is another makes kin. Random weights and a model's own are two models: what was measured with
the one says nothing of the other, not even as kin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from servemark.analysis.comparable import stated_weights
from servemark.analysis.measured import Measured
from servemark.base.canonical import canonical_json
from servemark.results.importers.inferencex_names import model_id
from servemark.results.point import PointIdentity, RoleTopology

Level = Literal["exact", "version", "shape", "kin"]
LEVELS: tuple[Level, ...] = ("exact", "version", "shape", "kin")
SIZES = ("workers", "gpus", "tp", "pp", "dp", "ep", "dcp", "pcp", "dp_attention")
_VERSION = ("image", "engine_version", "model_revision", "recipe")
_SHAPE = (
    "scenario",
    "isl",
    "osl",
    "range_ratio",
    "dataset",
    "arrivals",
    "replay",
    "mean_input_tokens",
    "mean_output_tokens",
)
_USED_EXTRA = frozenset({"suite", "arm", "stated", "scenario", "recipe", "framework"})
"""Parts of an identity's `extra` that are compared under another name (a framework is engine and router), or that only
name where a configuration is written down."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One part in which two configurations differ; None: this side does not state it."""

    part: str
    planned: str | None
    measured: str | None


@dataclass(frozen=True, slots=True)
class Match:
    """A measured configuration beside a planned point. `differs` are parts that both state, unlike; `unstated` parts that
    one of them does not state. `points` are its measurements at any concurrency."""

    level: Level
    config_key: str
    identity: PointIdentity
    differs: tuple[Difference, ...]
    unstated: tuple[Difference, ...]
    points: tuple[Measured, ...]

    @property
    def newest_utc(self) -> str:
        """When it was measured last; empty where nobody says."""
        return _newest(self.points)

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """Measured loads, ascending."""
        return tuple(sorted({point.concurrency for point in self.points if point.concurrency is not None}))


@dataclass(frozen=True, slots=True)
class Known:
    """A measured configuration with the parts that are compared, made once for many planned points."""

    key: str
    points: tuple[Measured, ...]
    model: tuple[str, str]
    """Its name, and whose weights."""
    kind: Mapping[str, str]
    parts: Mapping[str, str]


def known_configurations(points: Iterable[Measured]) -> tuple[Known, ...]:
    """Configurations of these points, those of accuracy runs left out: they measure no speed."""
    found: dict[str, list[Measured]] = {}
    for point in points:
        if point.identity.scenario.type != "eval":
            found.setdefault(point.config_key, []).append(point)
    return tuple(
        Known(
            key, tuple(some), _model(some[0].identity), kind_parts(some[0].identity), parts(some[0].identity)
        )
        for key, some in found.items()
    )


def matches(planned: PointIdentity, known: Iterable[Known]) -> list[Match]:
    """Measured configurations of the planned point's model, the nearest first: by level, then by how little differs, then
    the newest. Where none is of its kind (hardware, engine, precision, roles), the nearest of another kind alone."""
    mine, mine_kind, mine_parts = _model(planned), kind_parts(planned), parts(planned)
    mine_items = mine_kind.items()
    found, others = [], []
    for one in known:
        if one.model != mine:
            continue
        if one.kind == mine_kind:
            found.append(_compared(mine_parts, one.parts, one.key, one.points))
        elif not found:
            others.append(one)
    if not found and others:
        one = max(others, key=lambda each: (len(mine_items & each.kind.items()), _newest(each.points)))
        differs, unstated = _sides(mine_kind, one.kind, frozenset())
        return [Match("kin", one.key, one.points[0].identity, tuple(differs), tuple(unstated), one.points)]
    found.sort(key=lambda each: each.newest_utc, reverse=True)
    found.sort(key=lambda each: (LEVELS.index(each.level), len(each.differs), len(each.unstated)))
    return found


def _newest(points: Sequence[Measured]) -> str:
    return max((point.at_utc for point in points), default="")


def compare(
    planned: PointIdentity, measured: PointIdentity, config_key: str, points: Sequence[Measured]
) -> Match:
    """The two side by side."""
    return _compared(parts(planned), parts(measured), config_key, points)


def _compared(
    mine: Mapping[str, str], other: Mapping[str, str], key: str, points: Sequence[Measured]
) -> Match:
    differs, unstated = _sides(mine, other, _settled(mine, other))
    level: Level = "exact"
    for each in (*differs, *unstated):
        plain = each.part.partition(":")[0]
        unsaid = plain == "router" and each in unstated
        its: Level = "version" if plain in _VERSION or unsaid else "shape" if plain in _SHAPE else "kin"
        level = max(level, its, key=LEVELS.index)
    return Match(level, key, points[0].identity, tuple(differs), tuple(unstated), tuple(points))


def _sides(
    mine: Mapping[str, str], other: Mapping[str, str], settled: frozenset[str]
) -> tuple[list[Difference], list[Difference]]:
    """(parts that both state unlike, parts that only one states and that say something)."""
    differs: list[Difference] = []
    unstated: list[Difference] = []
    for name in dict.fromkeys((*mine, *other)):
        one, two = mine.get(name), other.get(name)
        if one == two:
            continue
        plain = name.partition(":")[0]
        both = one is not None and two is not None
        if not both and (plain in settled or (plain not in _ESSENTIAL and _ordinary(one or two))):
            continue
        (differs if both else unstated).append(Difference(name, one, two))
    return differs, unstated


def is_version(part: str) -> bool:
    """Whether a part that differs makes another version of one configuration."""
    return part in _VERSION


def _settled(mine: Mapping[str, str], other: Mapping[str, str]) -> frozenset[str]:
    """Parts that need not be stated on both sides, because another part that is equal says as much: the master's own
    words (`stated`) those of sizes and router, one image and recipe the versions within."""
    found: set[str] = {"stated", "replay"}  # words of a master, which other sources do not have
    if mine.get("stated") is not None and mine.get("stated") == other.get("stated"):
        found |= {"router", *SIZES}
    if all(mine.get(name) is not None and mine.get(name) == other.get(name) for name in ("image", "recipe")):
        found |= {"engine_version", "model_revision"}
    return frozenset(found)


_ESSENTIAL = frozenset(
    {"hardware", "engine", "precision", "roles", "tp", "scenario", "isl", "osl", "dataset"}
)
"""A side that does not state one of these is not the same configuration, whatever the other says."""
_ORDINARY = frozenset({"1", "no", "none", "unknown"})


def _ordinary(value: str | None) -> bool:
    """Whether stating this says no more than not stating it."""
    return value is None or value in _ORDINARY


@lru_cache(maxsize=4096)
def model_name(name: str) -> str:
    """The model that a name stands for, in lower case where the tables do not know it."""
    return model_id(name) or name.lower()


def _model(identity: PointIdentity) -> tuple[str, str]:
    return model_name(identity.model), stated_weights(identity)


def kind_parts(identity: PointIdentity) -> dict[str, str]:
    """The parts that make two configurations kinds of their own: hardware, engine, precision, roles."""
    found = {
        "hardware": None if identity.hardware == "unknown" else identity.hardware,
        "engine": None if identity.engine == "unknown" else identity.engine,
        "precision": identity.precision.family or identity.precision.reported,
        "roles": "+".join(sorted(role.role for role in identity.topology)) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def parts(identity: PointIdentity) -> dict[str, str]:
    """What is compared, as text by name; what is not stated is not there."""
    scenario = identity.scenario
    found: dict[str, object] = {
        **kind_parts(identity),
        **{name: _text(value) for name, value in identity.extra.items() if name not in _USED_EXTRA},
        "speculation": "none" if identity.speculation is None else identity.speculation.method,
        "draft_tokens": None if identity.speculation is None else identity.speculation.draft_tokens,
        "offload": "none" if identity.offload is None else identity.offload.tier,
        "router": identity.router,
        "stated": _stated(identity.extra.get("stated")),
        "image": None if identity.image is None else identity.image.replace("#", "/"),
        "engine_version": identity.engine_version,
        "model_revision": identity.model_revision,
        "recipe": identity.recipe_fingerprint,
        "scenario": None if scenario.type == "unknown" else scenario.type,
        "isl": scenario.isl,
        "osl": scenario.osl,
        "range_ratio": scenario.range_ratio,
        "dataset": scenario.dataset,
        "arrivals": scenario.arrivals,
        "replay": _replay(identity.extra.get("scenario")),
    }
    for role in identity.topology:
        found |= {f"{name}:{role.role}": _size(role, name) for name in SIZES}
        if role.gpus == (role.tp or 0) * (role.pp or 1) * (role.pcp or 1):
            del found[
                f"gpus:{role.role}"
            ]  # says no more than the sizes, which not all sources have beside it
    return {name: str(value) for name, value in found.items() if value is not None}


def _size(role: RoleTopology, name: str) -> str | None:
    value = getattr(role, name)
    return None if value is None else ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _stated(said: object) -> str | None:
    """What a master states of the deployment, shapes included; a budget of host memory changes no speed. Settings name the
    recipe, whose content is compared."""
    if not isinstance(said, Mapping):
        return None
    return canonical_json(
        {name: said.get(name) for name in ("kv_offload_backend", "kv_p2p_transfer", "router", "shapes")}
    )


def _replay(said: object) -> str | None:
    """How a data set is replayed: cache state and marker."""
    if not isinstance(said, Mapping):
        return None
    kept = {
        name: said[name] for name in ("cache_state", "cache_bust", "duration_s") if said.get(name) is not None
    }
    return canonical_json(kept) if kept else None


def _text(value: object) -> str | None:
    return None if value is None else value if isinstance(value, str) else canonical_json(value)
