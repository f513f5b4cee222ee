"""Configurations and their differences in words, for a comparison's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from servemark.analysis.comparable import MODEL_WEIGHTS, weights_of
from servemark.analysis.compare_match import Matched, lasting_changes
from servemark.analysis.compare_types import Changed
from servemark.analysis.configurations import part_label, topology_label
from servemark.analysis.measured import Measured
from servemark.analysis.selection import speculation_of
from servemark.base.messages import text

SHOWN = 60
"""Letters of an image or a version that are shown; its ends tell names apart."""
PARTS = ("model", "scenario", "hardware", "engine", "precision", "speculation", "offload", "topology")


def parts_of(point: Measured, lang: str | None = None) -> dict[str, str]:
    """A configuration part by part, without image, versions, recipe and load."""
    identity = point.identity
    offload = identity.offload
    return {
        "model": identity.model + _weights(point, lang),
        "scenario": point.scenario + _lengths(point),
        "hardware": identity.hardware,
        "engine": identity.engine,
        "precision": part_label("precision", identity.precision.family or "unknown", lang),
        "speculation": part_label("speculation", speculation_of(point), lang),
        "offload": "" if offload is None else f"offload {offload.tier}",
        "topology": topology_label(identity, lang) if identity.topology else "",
    }


def _weights(point: Measured, lang: str | None) -> str:
    """Weights that are not the model's own."""
    weights = weights_of(point)
    return "" if weights == MODEL_WEIGHTS else f" ({text('front.comparable.weights', lang, weights=weights)})"


def _lengths(point: Measured) -> str:
    """What tells workloads apart whose lengths nobody declared."""
    extra = point.identity.extra
    lengths = [str(extra[name]) for name in ("mean_input_tokens", "mean_output_tokens") if name in extra]
    return f" {'/'.join(lengths)}" if lengths else ""


def load_of(point: Measured) -> str:
    """`c64`, or the arrivals of an open loop."""
    if point.concurrency is not None:
        return f"c{point.concurrency}"
    return point.identity.scenario.arrivals or ""


def label_of(parts: Mapping[str, str], common: Mapping[str, str], load: str = "") -> str:
    """The parts that are not common to all, and the load."""
    said = [value for name, value in parts.items() if value and name not in common]
    return " · ".join([*said, *([load] if load else [])])


def pair_parts(pair: Matched, lang: str | None = None) -> dict[str, str]:
    """Parts of both sides: `h100 → h200` where they differ."""
    a, b = parts_of(pair.a[0], lang), parts_of(pair.b[0], lang)
    return {name: a[name] if a[name] == b[name] else f"{a[name] or '—'} → {b[name] or '—'}" for name in PARTS}


def common_parts(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Parts in which all rows agree; none for a single row, whose label needs them."""
    if not rows:
        return {}
    return {name: value for name, value in rows[0].items() if all(row[name] == value for row in rows)}


def changes(pair: Matched, lang: str | None = None) -> tuple[Changed, ...]:
    """Image, versions, recipe and the named fields in which the sides differ."""
    a, b = pair.a[0], pair.b[0]
    found = [
        Changed(name, text(f"compare.field.{name}", lang), _shown(one, lang), _shown(other, lang))
        for name, one, other in lasting_changes(a, b)
    ]
    mine, other_parts = parts_of(a, lang), parts_of(b, lang)
    found += [
        Changed(name, text(f"compare.field.{name}", lang), mine[name] or "—", other_parts[name] or "—")
        for name in PARTS
        if mine[name] != other_parts[name]
    ]
    return tuple(found)


def _shown(value: str | None, lang: str | None) -> str:
    if value is None:
        return text("compare.not_stated", lang)
    if len(value) <= SHOWN:
        return value
    half = SHOWN // 2
    return f"{value[: half - 1]}…{value[-half:]}"
