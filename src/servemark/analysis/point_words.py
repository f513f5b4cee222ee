"""A point's identity in words: title, facts, roles."""

from __future__ import annotations

import re

from servemark.analysis.point_types import Fact, RoleView
from servemark.base.canonical import canonical_json
from servemark.base.messages import find_text, text
from servemark.base.printable import one_line
from servemark.results.point import Offload, Point, PointIdentity, RoleTopology, Scenario, Speculation
from servemark.store.import_types import SourceFile
from servemark.store.points import StoredPoint

MAX_VALUE = 300
_HASH = re.compile(r"[0-9a-f]{40,64}")


def scenario_words(scenario: Scenario, lang: str | None = None) -> str:
    """`1024 tokens in, 1024 out`, or a trace's name."""
    if scenario.isl is not None and scenario.osl is not None:
        return text("analysis.point.scenario.fixed", lang, isl=scenario.isl, osl=scenario.osl)
    parts = [one_line(part) for part in (scenario.type, _dataset(scenario.dataset)) if part]
    return ": ".join(parts)


def _dataset(name: str | None) -> str | None:
    """A dataset known by its hash alone is shown by the hash's beginning."""
    return f"{name[:10]}…" if name is not None and _HASH.fullmatch(name) else name


def load_of(identity: PointIdentity, lang: str | None = None) -> str:
    """`concurrency 8`, or `open loop poisson:4`."""
    if identity.concurrency is not None:
        return text("analysis.label.point", lang, concurrency=identity.concurrency)
    return text("analysis.label.open", lang, arrivals=one_line(identity.scenario.arrivals or "?"))


def title_of(identity: PointIdentity, lang: str | None = None) -> str:
    """Model and hardware, which people look for first."""
    return text(
        "analysis.point.title", lang, model=one_line(identity.model), hardware=one_line(identity.hardware)
    )


def subtitle_of(identity: PointIdentity, lang: str | None = None) -> str:
    """Engine, precision, speculation, scenario, load."""
    parts = [
        one_line(identity.engine),
        one_line(identity.precision.family or identity.precision.reported or ""),
        one_line(identity.speculation.method) if identity.speculation is not None else "",
        text("analysis.point.disaggregated", lang) if identity.disaggregated else "",
        scenario_words(identity.scenario, lang),
        load_of(identity, lang),
    ]
    return " · ".join(part for part in parts if part)


def _clip(value: object) -> str:
    words = one_line(value if isinstance(value, str) else canonical_json(value))
    return words if len(words) <= MAX_VALUE else words[:MAX_VALUE] + " …"


def facts_of(point: Point, source: SourceFile, one: StoredPoint, lang: str | None = None) -> tuple[Fact, ...]:
    """The configuration and the execution, absent parts left out."""
    identity, execution = point.identity, point.execution
    precision = identity.precision
    told: list[tuple[str, object]] = [
        ("model", identity.model),
        ("model_revision", identity.model_revision),
        ("hardware", identity.hardware),
        ("gpus", point.gpus_deployed),
        ("engine", identity.engine),
        ("engine_version", identity.engine_version),
        ("image", identity.image),
        ("precision", precision.reported or precision.family),
        ("scenario", scenario_words(identity.scenario, lang)),
        ("load", load_of(identity, lang)),
        ("speculation", _speculation(identity.speculation, lang)),
        ("offload", _offload(identity.offload)),
        ("router", identity.router),
        ("recipe_fingerprint", identity.recipe_fingerprint),
        *((f"extra:{name}", value) for name, value in sorted(identity.extra.items())),
        ("requests", _requests(point, lang)),
        ("duration", None if point.duration_s is None else f"{point.duration_s:.4g} s"),
        ("run", execution.run),
        ("attempt", execution.attempt if execution.attempt != 1 else None),
        ("began", execution.started_utc or one.at_utc or None),
        (
            "source",
            text("analysis.why.mapping", lang, importer=source.importer, version=source.mapping_version),
        ),
    ]
    return tuple(
        Fact(name, _fact_label(name, lang), _clip(value))
        for name, value in told
        if value is not None and value != ""
    )


def _fact_label(name: str, lang: str | None) -> str:
    if name.startswith("extra:"):
        return one_line(name.removeprefix("extra:"))
    return text(f"analysis.point.fact.{name}", lang)


def _speculation(found: Speculation | None, lang: str | None) -> str | None:
    if found is None:
        return None
    parts = [found.method]
    if found.draft_tokens is not None:
        parts.append(text("analysis.point.draft_tokens", lang, count=found.draft_tokens))
    if found.acceptance is not None:
        said = find_text(f"analysis.point.acceptance.{found.acceptance}", lang) or found.acceptance
        parts.append(said)
    return ", ".join(parts)


def _offload(found: Offload | None) -> str | None:
    if found is None:
        return None
    return " ".join(part for part in (found.tier, found.backend, found.version) if part)


def _requests(point: Point, lang: str | None) -> str | None:
    asked = point.requests
    if asked.ok is None:
        return None
    bad = sum(each or 0 for each in (asked.error, asked.incomplete, asked.cancelled))
    return text("analysis.point.requests", lang, ok=asked.ok, bad=bad)


def roles_of(identity: PointIdentity, lang: str | None = None) -> tuple[RoleView, ...]:
    """One line a role: workers, GPUs, parallelism."""
    return tuple(
        RoleView(role.role, text(f"analysis.point.role.{role.role}", lang), _role(role, lang))
        for role in identity.topology
    )


def _role(role: RoleTopology, lang: str | None) -> str:
    parts = []
    if role.workers is not None:
        parts.append(text("analysis.point.workers", lang, count=role.workers))
    if role.gpus is not None:
        parts.append(text("analysis.point.role_gpus", lang, count=role.gpus))
    parallel = {
        "TP": role.tp, "PP": role.pp, "DP": role.dp, "EP": role.ep, "DCP": role.dcp, "PCP": role.pcp,
    }  # fmt: skip
    parts += [f"{name} {count}" for name, count in parallel.items() if count is not None]
    if role.dp_attention is not None:
        parts.append(text(f"analysis.point.dp_attention.{'on' if role.dp_attention else 'off'}", lang))
    if role.hardware:
        parts.append(one_line(role.hardware))
    return " · ".join(parts) or "—"
