"""Append-only changelog entries: the rows that a change adds to arms whose measured points must all
survive."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict

from servemark.catalog.changelog import ChangelogEntry
from servemark.catalog.nodes import Problem
from servemark.catalog.suite import Suite
from servemark.plan.reference_rows import Row, reference_rows

_SERIES = (
    "model",
    "model-prefix",
    "precision",
    "framework",
    "runner",
    "disagg",
    "isl",
    "osl",
    "scenario-type",
)


def recipe_fingerprint(row: Row) -> str:
    """The reference's fingerprint of a row. It covers the row, not the content of the recipe file."""
    own = {k: v for k, v in row.items() if k not in {"conc", "exp-name", "recipe-fingerprint"}}
    return hashlib.sha256(json.dumps(own, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def appended_rows(
    rows: list[Row], base: Suite, entry: ChangelogEntry, scenario: str, problems: list[Problem]
) -> list[Row]:
    """Rows of the head that the base lacks. A lost point and a point on no existing series are problems."""
    keys = set(entry.config_keys)
    arms = [arm for arm in base.arms.values() if arm.key in keys or any("*" in key for key in keys)]
    before = reference_rows(arms, base.clusters, problems, scenarios=(scenario,))
    old, new = _levels(before), _levels(rows)
    for name, levels in old.items():
        lost = sorted(levels - new.get(name, set()))
        if lost and (name in new or len(keys) == len(arms)):
            shown = ", ".join(map(str, lost))
            problems.append(Problem(entry.at, "plan.append_lost", {"concurrencies": shown}))
    images: dict[str, set[object]] = defaultdict(set)
    for row in before:
        images[_series(row)].add(row["image"])
    added = []
    for row in rows:
        fresh = _concurrencies(row) - old.get(recipe_fingerprint(row), set())
        if not fresh:
            continue
        if images[_series(row)] != {row["image"]}:
            problems.append(Problem(entry.at, "plan.append_series", {"name": str(row["exp-name"])}))
        added.append(row | ({"conc": sorted(fresh)} if isinstance(row["conc"], list) else {}))
    return added


def _concurrencies(row: Row) -> set[int]:
    value = row["conc"]
    values = value if isinstance(value, list) else [value]
    return {one for one in values if isinstance(one, int)}


def _levels(rows: list[Row]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        found[recipe_fingerprint(row)] |= _concurrencies(row)
    return dict(found)


def _series(row: Row) -> str:
    """What one line of a chart shares: offload on or off, and speculation for fixed sequences."""
    parts = [row.get(name) for name in _SERIES]
    agentic = row.get("scenario-type") == "agentic-coding"
    parts += [row.get("kv-offloading") == "dram", None if agentic else row.get("spec-decoding")]
    for role in ("prefill", "decode"):
        worker = row.get(role)
        parts.append(worker.get("hardware") if isinstance(worker, dict) else None)
    return json.dumps(parts)
