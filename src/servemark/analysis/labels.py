"""Addresses in words, and how their values are shown: derived from the metric registry alone."""

from __future__ import annotations

from collections.abc import Iterable

from servemark.analysis.format import Display, display
from servemark.base.messages import find_text, text
from servemark.metrics.address import Address


def label(address: Address, lang: str | None = None) -> str:
    """Short name with its statistic or task: "TTFT p90", "Accuracy: word-sort"."""
    name = text(address.metric.label_key, lang)
    if address.task:
        return text("analysis.label.task", lang, label=name, task=address.task)
    if address.statistic:
        said = find_text(f"analysis.statistic.{address.statistic}", lang) or address.statistic
        return text("analysis.label.statistic", lang, label=name, statistic=said)
    return name


def display_of(address: Address, values: Iterable[float | None]) -> Display:
    """How the values of one address are shown together."""
    return display("count" if address.statistic == "n" else address.metric.unit, values)


def absent_text(reason: str | None, lang: str | None = None) -> str | None:
    """The sentence for a reason key of `metrics.derive`; None for a value that is there."""
    return text(reason, lang) if reason else None
