"""The priority file: which work goes first. A score is a base plus adjustments by what a point is."""

from __future__ import annotations

from dataclasses import dataclass

from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.fields import Fields
from servemark.catalog.nodes import Node, Problem


@dataclass(frozen=True, slots=True)
class Priorities:
    """Adjustments; longer prefixes go before shorter ones. Label rules belong to a forge, not to a plan."""

    base: float
    multi_node: float
    agentic: float
    precision: dict[str, float]
    spec_decoding: dict[str, float]
    framework_prefix: dict[str, float]
    model_prefix: dict[str, float]

    def score(self, arm: Arm, entry: SearchEntry) -> float:
        """The score of an arm's entry, rounded to three places; higher goes first."""
        total = self.base
        total += self.multi_node if arm.multinode else 0.0
        total += (
            self.agentic if entry.scenario is not None and entry.scenario.kind == "agentic-coding" else 0.0
        )
        total += self.precision.get(arm.precision, 0.0)
        total += self.spec_decoding.get(entry.spec_decoding, 0.0)
        total += _longest(self.framework_prefix, arm.framework)
        total += _longest(self.model_prefix, arm.model_prefix)
        return round(total, 3)


def _longest(table: dict[str, float], value: str) -> float:
    found = [name for name in table if value.startswith(name)]
    return table[max(found, key=len)] if found else 0.0


def priorities_of(root: Node, problems: list[Problem]) -> Priorities:
    """Read a priority file."""
    top = Fields(root, problems, "priority file")
    top.integer("version", minimum=1)
    base = top.number("base-score")
    rules = top.mapping("adjustments", "adjustments")
    tables: dict[str, dict[str, float]] = {}
    plain: dict[str, float] = {}
    if rules is not None:
        for name in ("precision", "spec-decoding", "framework-prefix", "model-prefix", "event"):
            tables[name] = _table(rules.mapping(name, name))
        for name in ("multi-node", "agentic", "eval-only"):
            plain[name] = rules.number(name) or 0.0
        rules.no_others()
    top.get("labels")
    top.no_others()
    return Priorities(
        base=1.0 if base is None else base,
        multi_node=plain.get("multi-node", 0.0),
        agentic=plain.get("agentic", 0.0),
        precision=tables.get("precision", {}),
        spec_decoding=tables.get("spec-decoding", {}),
        framework_prefix=tables.get("framework-prefix", {}),
        model_prefix=tables.get("model-prefix", {}),
    )


def _table(fields: Fields | None) -> dict[str, float]:
    found = {name: fields.number(name) for name in fields.node.entries or {}} if fields else {}
    return {name: value for name, value in found.items() if value is not None}
