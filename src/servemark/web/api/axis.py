"""A metric as pages show it: label, unit, direction, definition, formula, in the language asked for."""

from __future__ import annotations

from servemark.base.messages import text
from servemark.metrics.address import parse


def axis_info(address: str, lang: str) -> dict[str, str]:
    """What an axis, a column or a tooltip says of an address."""
    found = parse(address)
    metric = found.metric
    label = text(metric.label_key, lang)
    return {
        "address": str(found),
        "label": f"{label} {found.statistic}" if found.statistic else label,
        "unit": str(found.unit),
        "better": str(metric.better),
        "definition": text(metric.definition_key, lang),
        "formula": text(metric.formula_key, lang),
    }
