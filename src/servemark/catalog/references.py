"""Small files that a suite is checked and ordered by: golden acceptance lengths, eval thresholds, aliases."""

from __future__ import annotations

from dataclasses import dataclass, field

from servemark.catalog.fields import Fields
from servemark.catalog.nodes import Node, Position, Problem


@dataclass(frozen=True, slots=True)
class GoldenLength:
    """One measured acceptance length (tokens accepted a step) of a model at a number of draft tokens."""

    model: str
    mode: str
    draft_tokens: int
    length: float
    at: Position


def golden_of(root: Node, problems: list[Problem]) -> tuple[GoldenLength, ...]:
    """A golden file: model -> mode (`thinking_on`) -> number of draft tokens -> acceptance length."""
    found: list[GoldenLength] = []
    top = Fields(root, problems, "golden acceptance lengths")
    for model in root.entries or {}:
        modes = top.mapping(model, f"golden lengths of {model}")
        for mode in (modes.node.entries or {}) if modes else ():
            levels = modes.mapping(mode, f"golden lengths of {model} {mode}") if modes else None
            for level in (levels.node.entries or {}) if levels else ():
                length = levels.number(level) if levels else None
                at = levels.node.key_at(level) if levels else root.at
                if not (level.isascii() and level.isdigit() and len(level) < 6 and int(level) > 0):
                    problems.append(Problem(at, "catalog.draft_tokens", {"level": level[:200]}))
                elif length is not None and levels is not None:
                    found.append(GoldenLength(model, mode, int(level), length, levels.at(level)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Least accepted eval scores by task; a model's own value goes before the task's default."""

    default: dict[str, float]
    models: dict[str, dict[str, float]]
    at: dict[tuple[str, str], Position] = field(default_factory=dict, compare=False)
    """(model, task) -> where its value stands; model "" for defaults."""

    def of(self, model_prefix: str, task: str) -> float | None:
        """The threshold in force, None when none is stated."""
        return self.models.get(model_prefix, {}).get(task, self.default.get(task))


def thresholds_of(root: Node, problems: list[Problem]) -> Thresholds:
    """Read a thresholds file."""
    top = Fields(root, problems, "eval thresholds")
    at: dict[tuple[str, str], Position] = {}
    default = _scores(top.mapping("default", "default thresholds", required=True), "", at)
    models = top.mapping("models", "thresholds by model")
    names = list(models.node.entries or {}) if models else []
    by_model = {
        name: _scores(models.mapping(name, f"thresholds of {name}"), name, at) for name in names if models
    }
    top.no_others()
    return Thresholds(default, by_model, at)


def _scores(fields: Fields | None, model: str, at: dict[tuple[str, str], Position]) -> dict[str, float]:
    scores = {}
    for task in (fields.node.entries or {}) if fields else ():
        score = fields.number(task) if fields else None
        if fields and score is not None and not 0 <= score <= 1:
            fields.problem(fields.at(task), "catalog.out_of_range", field=task, value=score)
        elif score is not None:
            scores[task] = score
            if fields:
                at[model, task] = fields.at(task)
    return scores


def aliases_of(root: Node, problems: list[Problem]) -> dict[str, str]:
    """Container aliases: short name -> image."""
    top = Fields(root, problems, "container aliases")
    found = {name: top.text(name) for name in root.entries or {}}
    return {name: image for name, image in found.items() if image is not None}
