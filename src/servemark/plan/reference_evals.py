"""Which reference rows also run (or only run) evals: marks in the rows, by the rules of the reference
generator."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

from servemark.plan.reference_rows import Row

EvalMode = Literal["marked", "none", "only", "all"]
MIN_EVAL_CONCURRENCY = 16
EVAL_LENGTHS = (8192, 1024)
_NO_IDENTITY = frozenset(("conc", "exp-name", "run-eval", "eval-only", "eval-conc", "eval-all-concs"))


def mark_evals(rows: list[Row], mode: EvalMode) -> list[Row]:
    """`rows` with evals: `marked` in a benchmark plan, `none`, `only` the chosen evals, or `all` evals."""
    if mode == "none":
        return rows
    if mode == "all":
        return _all_evals(rows)
    _mark_fixed_single([row for row in rows if _shape(row) == "fixed-single"])
    chosen = [
        _multi_choice(group)
        for group in _groups([r for r in rows if _shape(r) == "fixed-multi" and _long(r)])
    ]
    _apply_multi(chosen)
    agentic = [row for row in rows if _shape(row).startswith("agentic")]
    for row in agentic:
        row["run-eval"] = False
    if mode == "marked":
        return rows
    _mark_agentic_single([row for row in agentic if _shape(row) == "agentic-single"])
    _apply_multi(
        [_multi_choice(group) for group in _groups([r for r in agentic if _shape(r) == "agentic-multi"])]
    )
    return [row | {"eval-only": True} for row in rows if row["run-eval"]]


def _shape(row: Row) -> str:
    kind = "agentic" if row.get("scenario-type") == "agentic-coding" else "fixed"
    return f"{kind}-{'multi' if 'prefill' in row else 'single'}"


def _long(row: Row) -> bool:
    return (row["isl"], row["osl"]) == EVAL_LENGTHS


def _groups(rows: list[Row], name: Callable[[Row], str] | None = None) -> list[list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[(name or _identity)(row)].append(row)
    return list(found.values())


def _identity(row: Row) -> str:
    """All fields but concurrency, name and eval marks."""
    return json.dumps({key: value for key, value in row.items() if key not in _NO_IDENTITY}, sort_keys=True)


def _by(*names: str) -> Callable[[Row], str]:
    return lambda row: json.dumps([row[name] for name in names])


def _concurrency(row: Row) -> int:
    value = row["conc"]
    return value if isinstance(value, int) else 0


def _concurrencies(row: Row) -> list[int]:
    value = row["conc"]
    return [conc for conc in value if isinstance(conc, int)] if isinstance(value, list) else []


def _mark_fixed_single(rows: list[Row]) -> None:
    """Of each group with long prompts, every row at the highest and at the median eligible concurrency."""
    eligible = [row for row in rows if _long(row) and _concurrency(row) >= MIN_EVAL_CONCURRENCY]
    names = ("model", "runner", "framework", "precision", "isl", "osl", "spec-decoding", "dp-attn")
    for group in _groups(eligible, _by(*names)):
        levels = sorted({_concurrency(row) for row in group})
        wanted = {levels[-1], levels[len(levels) // 2]}
        for row in group:
            row["run-eval"] = _concurrency(row) in wanted


def _mark_agentic_single(rows: list[Row]) -> None:
    """One row of each group: the highest concurrency, the first of several alike; no least concurrency."""
    for group in _groups(rows, _by("model", "runner", "framework", "precision")):
        max(group, key=_concurrency)["run-eval"] = True


def _multi_choice(group: list[Row]) -> tuple[Row, int] | None:
    """The row with the highest eligible concurrency of one topology, and that concurrency."""
    found = [
        (max(eligible), row)
        for row in group
        if (eligible := [conc for conc in _concurrencies(row) if conc >= MIN_EVAL_CONCURRENCY])
    ]
    if not found:
        return None
    best, row = max(found, key=lambda pair: pair[0])
    return row, best


def _apply_multi(chosen: list[tuple[Row, int] | None]) -> None:
    for pair in chosen:
        if pair is not None:
            row, concurrency = pair
            row["run-eval"] = True
            row["eval-conc"] = concurrency


def _all_evals(rows: list[Row]) -> list[Row]:
    """Evals of everything but short prompts: rows of one multi-node topology become one row with all its
    concurrencies in ascending order."""
    found: list[Row] = []
    merged: dict[str, Row] = {}
    for row in rows:
        shape = _shape(row)
        if shape.startswith("fixed") and not _long(row):
            continue
        if shape.endswith("single"):
            found.append(row | {"run-eval": True, "eval-only": True})
            continue
        name = shape + _identity(row)
        if name not in merged:
            merged[name] = dict(row)
            found.append(merged[name])
        concurrencies = {*_concurrencies(merged[name]), *_concurrencies(row)}
        merged[name]["conc"] = sorted(concurrencies)
    for row in merged.values():
        _finish(row)
    return found


def _finish(row: Row) -> None:
    row["run-eval"] = True
    if _shape(row) == "fixed-multi":
        row["eval-all-concs"] = True
    else:
        row["eval-conc"] = max(_concurrencies(row))
    row["eval-only"] = True
