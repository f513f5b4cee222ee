"""Any address that a point may carry in words: those of the registry, and figures of other tools that have no metric here
(power per role, tokens per GPU of one role), which are shown under their own names and never stand on a front.
"""

from __future__ import annotations

from servemark.analysis.format import display
from servemark.analysis.labels import label
from servemark.base.errors import ServemarkError
from servemark.base.messages import find_text, text
from servemark.base.printable import one_line
from servemark.metrics.address import Address, parse
from servemark.metrics.registry import METRICS, Metric, Unit

STATISTICS = ("p50", "p75", "p90", "p95", "p99", "p99.9", "mean", "std", "min", "max", "n")
"""The order in which people read them."""
GROUPS = ("throughput", "latency", "accuracy", "cache", "power", "work", "instrument", "other")

_FOREIGN = {
    "gpu_power_w": "W",
    "gpus_power_w": "W",
    "prefill_gpu_power_w": "W",
    "decode_gpu_power_w": "W",
    "gpus_energy_j": "J",
    "joules_per_total_token": "J/token",
    "joules_per_input_token": "J/token",
    "joules_per_output_token": "J/token",
    "prefill_joules_per_input_token": "J/token",
    "decode_joules_per_output_token": "J/token",
    "joules_per_request": "J/request",
    "input_tokens_per_s_per_prefill_gpu": Unit.TOKENS_PER_S_PER_GPU.value,
    "output_tokens_per_s_per_decode_gpu": Unit.TOKENS_PER_S_PER_GPU.value,
    "cache_hit_engine_gpu": Unit.SHARE.value,
}
"""Id -> unit of figures that importers keep and no metric describes; label and definition are messages
`analysis.figure.<id>` and `.definition`."""

_SPEEDS = {"interactivity", "normalised_interactivity", "within_slo_share"}


def split(address: str) -> tuple[str, str]:
    """(metric id, statistic or task)."""
    name, _, statistic = address.partition(".")
    return name, statistic


def _address(address: str) -> Address | None:
    try:
        return parse(address)
    except ServemarkError:
        return None


def _metric(address: str) -> Metric | None:
    return METRICS.get(split(address)[0])


def unit_of(address: str) -> str:
    """The unit of its value; empty where nobody says."""
    name, statistic = split(address)
    if statistic == "n":
        return Unit.COUNT.value
    metric = METRICS.get(name)
    return metric.unit.value if metric is not None else _FOREIGN.get(name, "")


def metric_label(name: str, lang: str | None = None) -> str:
    """A metric's short name without a statistic; the id itself where nobody has named it."""
    found = find_text(f"metrics.{name}.label", lang) if name in METRICS else None
    if found is None and name in _FOREIGN:
        found = find_text(f"analysis.figure.{name}", lang)
    return found or one_line(name)


def label_of(address: str, lang: str | None = None) -> str:
    """Short name with its statistic or task."""
    known = _address(address)
    if known is not None:
        return label(known, lang)
    name, statistic = split(address)
    if not statistic:
        return metric_label(name, lang)
    said = find_text(f"analysis.statistic.{statistic}", lang) if statistic in STATISTICS else None
    return text(
        "analysis.label.statistic",
        lang,
        label=metric_label(name, lang),
        statistic=said or one_line(statistic),
    )


def text_of(address: str, value: float | None) -> str:
    """A value in the unit that suits it; a dash where absent."""
    return display(unit_of(address), (value,)).text(value)


def definition_of(address: str, lang: str | None = None) -> str:
    """What the metric means, in a sentence; empty where nobody says."""
    metric = _metric(address)
    if metric is not None:
        return text(metric.definition_key, lang)
    name = split(address)[0]
    return (find_text(f"analysis.figure.{name}.definition", lang) if name in _FOREIGN else None) or ""


def formula_of(address: str, lang: str | None = None) -> str:
    """The formula in words; empty where nobody says."""
    metric = _metric(address)
    return text(metric.formula_key, lang) if metric is not None else ""


def group_of(name: str) -> str:
    """The group of a metric by its id."""
    metric = METRICS.get(name)
    spread = metric is not None and metric.has_statistics and metric.unit is Unit.SECONDS
    rules = (
        ("accuracy", name == "eval_score"),
        ("instrument", name.startswith("client_") or name == "send_lateness_s"),
        ("cache", "cache_hit" in name or name == "cached_tokens_total"),
        ("power", "power_w" in name or "joules" in name or name.endswith("_energy_j")),
        ("throughput", "_per_s" in name or name in _SPEEDS),
        ("latency", spread),
        ("work", metric is not None),
    )
    return next((group for group, holds in rules if holds), "other")
