"""How a figure of a row is named: `ttft_s.p90`, `interactivity.p50`, `output_tokens_per_s`,
`eval_score.TASK`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from servemark.base.errors import ServemarkError, input_error
from servemark.metrics.registry import (
    DISTRIBUTION_STATISTICS,
    IMPORTED_STATISTICS,
    METRICS,
    PERCENTILE_STATISTICS,
    Kind,
    Metric,
)

MAX_ADDRESS = 200
"""Longer text is no address; it is cut before it is searched or quoted."""


@dataclass(frozen=True, slots=True)
class Address:
    """One figure: a metric and, where the metric has many values, a statistic or an accuracy task's name."""

    metric: Metric
    statistic: str | None = None
    task: str | None = None

    def __str__(self) -> str:
        tail = self.statistic or self.task
        return f"{self.metric.id}.{tail}" if tail else self.metric.id

    @property
    def unit(self) -> str:
        """Unit of the figure as printed; `n` of a distribution counts values, whatever they measure."""
        return "count" if self.statistic == "n" else self.metric.unit.value


def statistics_of(metric: Metric) -> tuple[str, ...]:
    """Statistics of our own figures that may follow this metric's id. A rate has no mean of its own: the mean of
    rates and the inverse of the mean latency differ, and which one a reader would take is not clear."""
    if metric.inverse_of is not None:
        return (*PERCENTILE_STATISTICS, "min", "max")
    return DISTRIBUTION_STATISTICS if metric.kind is Kind.DISTRIBUTION else metric.telemetry


def all_addresses() -> list[str]:
    """Every address that needs no knowledge of a row, in the registry's order."""
    found = []
    for metric in METRICS.values():
        names = statistics_of(metric)
        found += [f"{metric.id}.{name}" for name in names] or [metric.id]
    return found


def _unknown(text: str) -> ServemarkError:
    known = [*METRICS, *all_addresses()]
    near = difflib.get_close_matches(text.lower(), known, n=5, cutoff=0.5)
    shown = near or ["interactivity.p50", "ttft_s.p90", "output_tokens_per_s"]
    return input_error("metrics.unknown", name=text, near=", ".join(shown))


def parse(text: str) -> Address:
    """The address that `text` spells.

    Raises ServemarkError (exit code 2) that names the nearest metrics, or the statistics to choose from.
    """
    text = text.strip()[:MAX_ADDRESS]
    name, _, tail = text.partition(".")
    metric = METRICS.get(name)
    if metric is None:
        raise _unknown(text)
    if metric.kind is Kind.TASK:
        return Address(metric, task=tail or None)
    allowed = statistics_of(metric)
    if not allowed:
        if tail:
            raise input_error("metrics.no_statistics", name=name, statistic=tail)
        return Address(metric)
    imported = tail in IMPORTED_STATISTICS and metric.kind is not Kind.TELEMETRY
    if tail not in allowed and not imported:
        key = "metrics.unknown_statistic" if tail else "metrics.statistic_missing"
        raise input_error(key, name=name, statistic=tail, allowed=", ".join(allowed))
    return Address(metric, statistic=tail)
