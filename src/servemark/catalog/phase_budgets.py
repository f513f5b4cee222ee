"""A run's phases and the time that a recipe or a cluster allows each."""

from __future__ import annotations

from servemark.catalog.fields import Fields

PHASES = (
    "allocate",
    "preflight",
    "images",
    "services",
    "workers",
    "router",
    "health",
    "warmup",
    "replay",
    "evals",
    "collect",
    "stop",
)
"""In their order."""
MAX_BUDGET_S = 2_592_000.0
"""30 days."""


def budgets_of(inner: Fields, field: str) -> tuple[tuple[str, float], ...]:
    """(phase, seconds) of a mapping; another name than a phase's, or no time, is a problem."""
    section = inner.mapping(field, field)
    if section is None:
        return ()
    found = []
    for name in PHASES:
        seconds = section.number(name)
        if seconds is not None and not 0.1 <= seconds <= MAX_BUDGET_S:
            section.problem(section.at(name), "catalog.out_of_range", field=name, value=seconds)
        elif seconds is not None:
            found.append((name, seconds))
    section.no_others()
    return tuple(found)
