"""What the reference's changelog processor prints for the entries that a change appends: rows in buckets.

Benchmark rows carry the recipe fingerprint: SHA-256 over the row's canonical JSON without concurrency and
name.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from servemark.catalog.arms import Arm
from servemark.catalog.changelog import ChangelogEntry
from servemark.catalog.fields import Fields, nearest
from servemark.catalog.nodes import Problem
from servemark.catalog.suite import Suite
from servemark.plan.appended import appended_rows, recipe_fingerprint
from servemark.plan.reference_evals import mark_evals
from servemark.plan.reference_rows import Row, reference_rows

_AGENTIC_SINGLE = (
    "image",
    "model",
    "model-prefix",
    "precision",
    "framework",
    "runner",
    "tp",
    "pp",
    "dcp-size",
    "pcp-size",
    "ep",
    "dp-attn",
    "spec-decoding",
    "conc",
    "kv-offloading",
    "kv-offload-backend",
    "router",
    "total-cpu-dram-gb",
    "duration",
    "exp-name",
    "scenario-type",
    "run-eval",
    "eval-only",
)
_BUCKETS = ("evals", "agentic_evals", "multinode_evals", "multinode_agentic_evals")


def changelog_buckets(
    suite: Suite,
    entries: Iterable[ChangelogEntry],
    refs: tuple[str, str],
    problems: list[Problem],
    base: Suite | None = None,
) -> dict[str, object]:
    """One object: rows to run by single_node and multi_node and sequence length, eval rows by kind, metadata.

    An arm and scenario that several entries name is taken once; entries that ask for all evals go first.
    `base` is the suite before the change; only append-only entries need it.
    """
    listed = list(entries)
    runs: dict[str, dict[str, list[Row]]] = {"single_node": {}, "multi_node": {}}
    evals: dict[str, list[Row]] = {name: [] for name in _BUCKETS}
    done: set[tuple[str, str, str]] = set()
    for entry in sorted(listed, key=lambda one: not one.all_evals):
        arms = resolve_keys(suite, entry, problems)
        added = 0
        if entry.append_only and base is None:
            problems.append(Problem(entry.at, "plan.append_needs_base", {}))
            continue
        scenarios = entry.scenarios or ("fixed-seq-len", "agentic-coding")
        for scenario in scenarios:
            if not (entry.evals_only or entry.all_evals):
                fresh = _fresh(arms, scenario, "run", done)
                rows = reference_rows(fresh, suite.clusters, problems, scenarios=(scenario,))
                if entry.append_only and base is not None:
                    rows = appended_rows(rows, base, entry, scenario, problems)
                added += len(rows)
                for row in rows:
                    _file_run(runs, row)
            fresh = [] if entry.append_only else _fresh(arms, scenario, "eval", done)
            rows = reference_rows(fresh, suite.clusters, problems, scenarios=(scenario,))
            for row in mark_evals(rows, "all" if entry.all_evals else "only"):
                if _prefill_experts(row) >= (entry.eval_min_prefill_ep or 0):
                    evals[_eval_bucket(row)].append(_ordered(row))
        if entry.append_only and not added:
            problems.append(Problem(entry.at, "plan.append_nothing", {}))
    metadata = {"base_ref": refs[0], "head_ref": refs[1], "entries": [_raw(entry) for entry in listed]}
    return {**runs, **evals, "changelog_metadata": metadata}


def resolve_keys(suite: Suite, entry: ChangelogEntry, problems: list[Problem]) -> list[Arm]:
    """The arms that an entry names (`*` is a wildcard), in its order, each once; unknown names are
    problems."""
    found: dict[str, Arm] = {}
    at = Fields(entry.node, [], "").at("config-keys")
    for key in entry.config_keys:
        literal = key.replace("[", "[[]").replace("?", "[?]")
        arms = {name: arm for name, arm in suite.arms.items() if fnmatchcase(name, literal)}
        if not arms:
            near = nearest(key, suite.arms)
            which = "plan.changelog_key_near" if near else "plan.changelog_key"
            problems.append(Problem(at, which, {"name": key, "near": near}))
        found |= arms
    return list(found.values())


def _fresh(arms: list[Arm], scenario: str, what: str, done: set[tuple[str, str, str]]) -> list[Arm]:
    fresh = [arm for arm in arms if (arm.key, scenario, what) not in done]
    done |= {(arm.key, scenario, what) for arm in fresh}
    return fresh


def _file_run(runs: dict[str, dict[str, list[Row]]], row: Row) -> None:
    row = _ordered(row)
    row["recipe-fingerprint"] = recipe_fingerprint(row)
    lengths = {(1024, 1024): "1k1k", (8192, 1024): "8k1k"}
    if row.get("scenario-type") == "agentic-coding":
        name = "agentic"
    else:
        isl, osl = row["isl"], row["osl"]
        known = lengths.get((isl, osl)) if isinstance(isl, int) and isinstance(osl, int) else None
        name = known or f"{isl}_{osl}"
    runs["multi_node" if "prefill" in row else "single_node"].setdefault(name, []).append(row)


def _ordered(row: Row) -> Row:
    """Agentic single-node rows are printed in another order here than in a sweep."""
    if row.get("scenario-type") != "agentic-coding" or "prefill" in row:
        return dict(row)
    return {name: row[name] for name in _AGENTIC_SINGLE if name in row}


def _eval_bucket(row: Row) -> str:
    multi = "prefill" in row
    agentic = row.get("scenario-type") == "agentic-coding"
    return _BUCKETS[(2 if multi else 0) + (1 if agentic else 0)]


def _prefill_experts(row: Row) -> int:
    """Expert parallel size of a multi-node row's prefill workers; single-node rows always pass."""
    prefill = row.get("prefill")
    size = prefill.get("ep") if isinstance(prefill, dict) else None
    return size if isinstance(size, int) else 1 << 30


def _raw(entry: ChangelogEntry) -> Row:
    raw: Row = {
        "config-keys": list(entry.config_keys),
        "description": list(entry.description),
        "pr-link": entry.pr_link,
        "evals-only": entry.evals_only,
        "all-evals": entry.all_evals,
        "append-only": entry.append_only,
    }
    if entry.eval_min_prefill_ep is not None:
        raw["eval-min-prefill-ep"] = entry.eval_min_prefill_ep
    if entry.scenarios is not None:
        raw["scenario-type"] = list(entry.scenarios)
    return raw
