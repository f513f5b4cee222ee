"""Schema and values: what reading a suite already finds wrong, under codes that stay.

The catalogue says what is wrong while it reads; this file only numbers it, so that `--select`, suppressions and
baselines work for it as for every rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from servemark.catalog.nodes import Problem
from servemark.checks.model import Finding, Hit, Severity
from servemark.checks.registry import numbered

CODES: dict[str, str] = {
    "not_yaml": "SCH001",
    "duplicate_key": "SCH002",
    "key_not_text": "SCH003",
    "unknown_alias": "SCH004",
    "bad_merge": "SCH005",
    "unknown_tag": "SCH006",
    "many_documents": "SCH007",
    "too_deep": "SCH008",
    "alias_bomb": "SCH009",
    "too_many_values": "SCH010",
    "too_large": "SCH011",
    "tab": "SCH012",
    "bom": "SCH013",
    "carriage_return": "SCH014",
    "is_folder": "SCH015",
    "missing_file": "SCH016",
    "unreadable": "SCH017",
    "not_regular": "SCH018",
    "escapes": "SCH019",
    "missing_in_suite": "SCH020",
    "not_mapping": "SCH021",
    "missing_field": "SCH023",
    "wrong_type": "SCH024",
    "empty_text": "SCH025",
    "empty_list": "SCH026",
    "too_small": "SCH027",
    "out_of_range": "SCH028",
    "not_one_of": "SCH029",
    "unknown_field": "SCH030",
    "unknown_field_near": "SCH031",
    "two_spellings": "SCH032",
    "not_utf8": "SCH033",
    "bad_suite_name": "SCH034",
    "arm_twice": "SCH041",
    "star_in_key": "SCH042",
    "bad_setting": "SCH043",
    "repeated_concurrency": "SCH044",
    "no_concurrencies": "SCH045",
    "list_and_range": "SCH046",
    "half_range": "SCH047",
    "range_order": "SCH048",
    "half_blocks": "SCH049",
    "hardware_pair": "SCH050",
    "block_in_single_node": "SCH051",
    "size_beside_blocks": "SCH052",
    "multinode_only": "SCH053",
    "agentic_only": "SCH054",
    "agentic_runner": "SCH055",
    "no_scenario": "SCH056",
    "no_transfer": "SCH057",
    "both_scopes": "SCH058",
    "backend_with_none": "SCH059",
    "backend_without_offload": "SCH060",
    "offload_without_backend": "SCH061",
    "offload_without_budget": "SCH062",
    "dcp_divides_tp": "SCH063",
    "version_is_image": "SCH064",
    "recipe_schema": "SCH071",
    "recipe_shape": "SCH072",
    "no_roles": "SCH073",
    "no_engine": "SCH074",
    "other_engine": "SCH075",
    "env_name": "SCH076",
    "env_value": "SCH077",
    "bad_flags": "SCH078",
    "bad_size": "SCH080",
    "flag_twice": "SCH081",
    "stray_word": "SCH082",
    "time_limit": "SCH083",
    "no_variant": "SCH084",
    "variant_missing": "SCH085",
    "zip_index": "SCH086",
    "zip_lengths": "SCH087",
    "index_without_zip": "SCH088",
    "draft_tokens": "SCH091",
    "not_read_further": "SCH095",
}
"""Key of a catalogue message (without its room) -> code. A code is never given to another message; SCH022, SCH079,
SCH092, SCH093, SCH094 and SCH096 named what other rules say."""
SUPPRESSIONS: dict[str, str] = {
    "checks.suppression.ended": "SUP001",
    "checks.suppression.unused": "SUP002",
    "checks.suppression.bad_day": "SUP003",
}
"""Key of a message about the file of suppressions -> code."""
OTHER = "SCH000"
"""What a message without a code would get; a test holds that none is without."""
STRICT = ("recipe", "resources", "backend")
"""Blocks of a recipe in which the launcher itself refuses a name that it does not know."""


def _nothing(_: object) -> Iterator[Hit]:
    """The reader finds these, not a rule."""
    return iter(())


for _name, _code in CODES.items():
    numbered(_code, "schema", "error", f"catalog.{_name}", _nothing)
for _name, _code in SUPPRESSIONS.items():
    numbered(_code, "suppressions", "error" if _code == "SUP003" else "warning", _name, _nothing)


def finding_of(problem: Problem, arm: str | None = None) -> Finding | None:
    """A reading problem as a finding; None for what another rule says better."""
    name = problem.key.removeprefix("catalog.")
    if name == "bad_json":
        return None
    if problem.key in SUPPRESSIONS:
        code, family = SUPPRESSIONS[problem.key], "suppressions"
    else:
        code, family = CODES.get(name, OTHER), "schema"
    severity: Severity = "error" if problem.severity == "error" else "warning"
    if name == "unknown_field" and problem.values.get("what") in STRICT:
        severity = "error"
    return Finding(code, family, severity, problem.key, problem.at, dict(problem.values), arm)
