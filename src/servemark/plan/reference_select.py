"""Reference rows of a selection. Arms and entries are chosen before rows are made, concurrencies after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.nodes import Problem
from servemark.catalog.suite import Suite
from servemark.plan.reference_rows import Row, reference_rows
from servemark.plan.selection import Selection

Why = Callable[[Arm, SearchEntry], object]
"""Gives the reasons of an entry; None leaves the entry out."""


def selected_rows(
    suite: Suite, selection: Selection, problems: list[Problem], why: Why | None = None
) -> list[Row]:
    """Rows without eval marks. A list of concurrencies keeps those that pass; a row without any is left
    out."""
    arms = selection.arms(suite)
    if why is not None or selection.scenarios or selection.topologies:
        arms = [
            replace(
                arm,
                entries=tuple(
                    entry
                    for entry in arm.entries
                    if selection.takes_entry(entry) and (why is None or why(arm, entry) is not None)
                ),
            )
            for arm in arms
        ]
    rows = reference_rows(arms, suite.clusters, problems)
    return _narrowed(rows, selection) if selection.concurrencies else rows


def _narrowed(rows: list[Row], selection: Selection) -> list[Row]:
    found = []
    for row in rows:
        value = row["conc"]
        if isinstance(value, list):
            kept = [one for one in value if selection.takes_concurrency(one)]
            if kept:
                found.append(row | {"conc": kept})
        elif isinstance(value, int) and selection.takes_concurrency(value):
            found.append(row)
    return found
