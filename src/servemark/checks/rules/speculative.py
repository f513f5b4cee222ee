"""Speculative decoding: acceptance lengths against the golden curve of exactly that model, method and length."""

from __future__ import annotations

from collections.abc import Iterator

from servemark.checks.example import DSPARK
from servemark.checks.golden import (
    belongs,
    close,
    fitting_curves,
    golden_of,
    in_units_of,
    plain_model,
    recipe_lengths,
    stated_lengths,
)
from servemark.checks.model import Fix, Hit, Related
from servemark.checks.registry import rule
from servemark.checks.view import EntryView, RecipeView, env_of, flag_at

_DISAGG, _TRT = "recipes/owl/disagg.yaml", "recipes/owl/trt.yaml"
_LENGTH = "SYNTHETIC_ACCEPTANCE_LENGTH=2.70"


@rule("SPC601", "error", wrong=(("masters.yaml", _LENGTH, "SYNTHETIC_ACCEPTANCE_LENGTH=2.91"),))
def golden_length(view: EntryView) -> Iterator[Hit]:
    """A forced acceptance length against the golden value of that model, method and number of draft tokens."""
    for one in stated_lengths(view):
        spec, known = one.speculative, golden_of(view, one)
        if spec is None or not known or any(close(golden.length, one.value) for golden in known):
            continue
        wanted = known[0]
        related = (
            Related(
                wanted.at, "checks.rel.golden", {"value": f"{wanted.length:.2f}", "tokens": spec.draft_tokens}
            ),
            Related(spec.at, "checks.rel.draft_tokens", {"value": spec.draft_tokens, "method": spec.method}),
        )
        values: dict[str, object] = {
            "written": one.written,
            "name": one.name,
            "value": f"{one.value:.2f}",
            "golden": " / ".join(f"{golden.length:.2f}" for golden in known),
            "tokens": spec.draft_tokens,
            "file": wanted.at.file,
            "belongs": belongs(view, one),
        }
        fix = None
        if len({golden.length for golden in known}) == 1:
            new = in_units_of(one.name, wanted.length)
            fix = Fix(one.at, one.written, new, safe=False)
        yield Hit(one.at, values, related, fix, "elsewhere" if values["belongs"] else None)


@rule("SPC602", "note", wrong=(("golden/owl2_mtp.yaml", "owl-2:", "owl-3:"),))
def no_golden(view: EntryView) -> Iterator[Hit]:
    """A forced acceptance length for which the suite has no golden value."""
    for one in stated_lengths(view):
        spec = one.speculative
        if spec is None or spec.draft_tokens is None:
            continue
        if not golden_of(view, one):
            values: dict[str, object] = {
                "value": one.written,
                "name": one.name,
                "model": view.arm.model,
                "method": spec.method,
                "tokens": spec.draft_tokens,
            }
            measured = sorted(
                {
                    golden.at.file.rpartition("/")[2]
                    for golden in view.world.golden
                    if plain_model(golden.model) == plain_model(view.arm.model)
                }
            )
            if measured:
                yield Hit(one.at, values | {"files": ", ".join(measured[:3])}, (), None, "other", "warning")
            else:
                yield Hit(one.at, values)


@rule(
    "SPC603",
    "error",
    wrong=(
        (
            "masters.yaml",
            "- spec-decoding: mtp\n            kv-offloading",
            "- spec-decoding: none\n            kv-offloading",
        ),
    ),
)
def declared(view: EntryView) -> Iterator[Hit]:
    """Speculative decoding in the master against the role that generates."""
    recipe = view.deployment
    role = (recipe.role("decode") or recipe.role("aggregated")) if recipe is not None else None
    if role is None:
        return
    used, said = role.speculative, view.entry.spec_decoding != "none"
    if said == (used is not None):
        return
    where = flag_at(role, "speculative-config", "speculative-algorithm")
    method = used.method if used is not None else ""
    related = (
        Related(
            where,
            "checks.rel.speculative" if used else "checks.rel.no_speculative",
            {"method": method, "role": role.role},
        ),
    )
    values: dict[str, object] = {"said": view.entry.spec_decoding, "method": method, "role": role.role}
    yield Hit(view.at("spec-decoding"), values, related, None, None if used else "missing")


@rule("SPC604", "error", wrong=(("masters.yaml", _LENGTH, "SYNTHETIC_ACCEPTANCE_LENGTH=4.70"),))
def possible(view: EntryView) -> Iterator[Hit]:
    """An acceptance length outside 1 .. draft tokens + 1 cannot happen."""
    for one in stated_lengths(view):
        spec = one.speculative
        if spec is None:
            related = (
                Related(one.role.at, "checks.rel.no_speculative", {"method": "", "role": one.role.role}),
            )
            yield Hit(
                one.at,
                {"written": one.written, "name": one.name, "role": one.role.role},
                related,
                None,
                "unused",
            )
        elif spec.draft_tokens is not None and not 1 <= one.value <= spec.draft_tokens + 1.000001:
            related = (
                Related(
                    spec.at, "checks.rel.draft_tokens", {"value": spec.draft_tokens, "method": spec.method}
                ),
            )
            values: dict[str, object] = {
                "value": f"{one.value:.2f}",
                "most": spec.draft_tokens + 1,
                "name": one.name,
                "tokens": spec.draft_tokens,
                "written": one.written,
            }
            yield Hit(one.at, values, related)


@rule(
    "SPC605",
    "warning",
    "recipe",
    wrong=((_TRT, "num_nextn_predict_layers: 3}\n    decode", "num_nextn_predict_layers: 4}\n    decode"),),
)
def draft_lengths(view: RecipeView) -> Iterator[Hit]:
    """Draft tokens of prefill against those of decode."""
    prefill, decode = view.deployment.role("prefill"), view.deployment.role("decode")
    first = prefill.speculative if prefill is not None else None
    second = decode.speculative if decode is not None else None
    if first is None or second is None or prefill is None:
        return
    if first.draft_tokens != second.draft_tokens or first.method != second.method:
        related = (
            Related(
                second.at, "checks.rel.draft_tokens", {"value": second.draft_tokens, "method": second.method}
            ),
        )
        place = flag_at(prefill, "speculative-num-steps", "speculative-config")
        values: dict[str, object] = {
            "prefill": first.draft_tokens,
            "decode": second.draft_tokens,
            "first": first.method,
            "second": second.method,
        }
        fewer = first.method == second.method and (first.draft_tokens or 0) < (second.draft_tokens or 0)
        if fewer:
            yield Hit(place, values, related, None, "fewer", "note")
        else:
            yield Hit(place, values, related)


@rule(
    "SPC606",
    "warning",
    wrong=(
        (
            "masters.yaml",
            f'                - "SYNTHETIC_ACCEPTANCE=true"\n                - "{_LENGTH}"\n',
            "",
        ),
    ),
)
def no_length(view: EntryView) -> Iterator[Hit]:
    """An agentic arm with speculative decoding that forces no acceptance length. What drafts from the context itself
    (n-grams) has no golden length: it is the workload's own."""
    recipe, scenario = view.deployment, view.entry.scenario
    if recipe is None or scenario is None or scenario.kind != "agentic-coding":
        return
    if view.entry.spec_decoding == "none" or stated_lengths(view):
        return
    role = recipe.role("decode") or recipe.role("aggregated")
    if role is not None and role.speculative is not None and "ngram" not in role.speculative.method:
        related = (
            Related(
                role.speculative.at,
                "checks.rel.speculative",
                {"method": role.speculative.method, "role": role.role},
            ),
        )
        yield Hit(view.at("spec-decoding"), {"method": role.speculative.method}, related)


@rule("SPC607", "error", wrong=(("masters.yaml", '                - "SYNTHETIC_ACCEPTANCE=true"\n', ""),))
def half_synthetic(view: EntryView) -> Iterator[Hit]:
    """SYNTHETIC_ACCEPTANCE and its length go together, and the value is a number."""
    switch, length = view.setting("SYNTHETIC_ACCEPTANCE"), view.setting("SYNTHETIC_ACCEPTANCE_LENGTH")
    on = switch is not None and switch.lower() in {"true", "1", "yes"}
    if length is not None and not on:
        yield Hit(view.setting_at("SYNTHETIC_ACCEPTANCE_LENGTH"), {"value": length})
    elif on and length is None:
        yield Hit(view.setting_at("SYNTHETIC_ACCEPTANCE"), {"value": str(switch)}, (), None, "no_length")
    elif length is not None:
        try:
            float(length)
        except ValueError:
            yield Hit(
                view.setting_at("SYNTHETIC_ACCEPTANCE_LENGTH"), {"value": length}, (), None, "no_number"
            )


@rule(
    "SPC608",
    "error",
    wrong=(
        (
            "masters.yaml",
            '"CONFIG_FILE=recipes/owl/disagg.yaml"',
            '"CONFIG_FILE=recipes/owl/disagg.yaml"\n                - "EVAL_CONFIG_FILE=recipes/owl/trt.yaml"',
        ),
    ),
)
def eval_is_real(view: EntryView) -> Iterator[Hit]:
    """Accuracy is scored with real verification: the recipe of the evals must force no acceptance length."""
    setting = view.setting("EVAL_CONFIG_FILE")
    if setting is None:
        return
    recipe = view.world.deployment_of(setting, view.entry.prefill)
    place = view.setting_at("EVAL_CONFIG_FILE")
    if recipe is None:
        own = view.deployment
        if own is not None and own.benchmark.evals and stated_lengths(view):
            yield Hit(place, {"file": setting, "name": ""}, (), None, "evals")
        else:
            yield Hit(place, {"file": setting, "name": ""}, (), None, "unknown", "note")
        return
    for role in recipe.roles:
        names: list[str] = [
            n
            for n in ("SGLANG_SIMULATE_ACC_LEN", "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS")
            if n in env_of(recipe, role)
        ]
        config = role.flag("speculative-config")
        if isinstance(config, dict) and config.get("rejection_sample_method") == "synthetic":
            names.append("rejection_sample_method: synthetic")
        if names:
            yield Hit(
                place,
                {"file": setting, "name": names[0]},
                (Related(role.at, "checks.rel.synthetic", {"name": names[0]}),),
            )
            return


@rule(
    "SPC609",
    "warning",
    wrong=(
        (_DISAGG, "", DSPARK),
        ("golden/owl2_dspark_probabilistic_block.yaml", "", "owl-2:\n  thinking_on: {3: 2.70}\n"),
    ),
)
def curve_sampling(view: EntryView) -> Iterator[Hit]:
    """The curve that a value comes from was measured with block verification; the recipe does not ask for it."""
    for one in stated_lengths(view):
        spec = one.speculative
        if spec is None or spec.draft_tokens is None or spec.rejection_sampling is not None:
            continue
        for curve in fitting_curves(view, one):
            golden = curve.values.get(("thinking_on", spec.draft_tokens))
            if curve.block and golden is not None and close(golden.length, one.value):
                related = (
                    Related(
                        golden.at,
                        "checks.rel.golden",
                        {"value": f"{golden.length:.2f}", "tokens": spec.draft_tokens},
                    ),
                )
                yield Hit(
                    spec.at,
                    {"value": one.written, "file": curve.file, "sampling": str(spec.draft_sampling)},
                    related,
                )


@rule(
    "SPC610",
    "error",
    "recipe",
    wrong=(
        (
            _TRT,
            "  decode_environment:",
            '  prefill_environment: {TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS: "1.30"}\n  decode_environment:',
        ),
    ),
)
def one_length(view: RecipeView) -> Iterator[Hit]:
    """Roles that force an acceptance length force the same one."""
    recipe = view.deployment
    found = [one for role in recipe.roles for one in recipe_lengths(recipe, role) if one is not None]
    for one in found[1:]:
        if abs(one.value - found[0].value) > 0.004:
            related = (
                Related(
                    found[0].at, "checks.rel.forced", {"value": found[0].written, "role": found[0].role.role}
                ),
            )
            values: dict[str, object] = {
                "name": one.name,
                "written": one.written,
                "role": one.role.role,
                "other": found[0].written,
            }
            yield Hit(one.at, values, related)


@rule(
    "SPC611",
    "warning",
    "recipe",
    wrong=(
        (
            "recipes/owl/agg.yaml",
            "      hicache-size: 150",
            "      hicache-size: 150\n      speculative-algorithm: EAGLE\n      speculative-num-steps: 3\n"
            "      speculative-eagle-topk: 1\n      speculative-num-draft-tokens: 6",
        ),
    ),
)
def steps_and_tokens(view: RecipeView) -> Iterator[Hit]:
    """SGLang's chain of drafts: with one candidate a step, draft tokens are steps + 1 (the root is one)."""
    for role in view.deployment.roles:
        steps, topk, tokens = (
            role.flag(f"speculative-{name}") for name in ("num-steps", "eagle-topk", "num-draft-tokens")
        )
        if isinstance(steps, int) and isinstance(tokens, int) and topk == 1 and tokens != steps + 1:
            flag = "speculative-num-draft-tokens"
            related = (Related(flag_at(role, flag), "checks.rel.flag", {"name": flag, "value": tokens}),)
            values: dict[str, object] = {"role": role.role, "steps": steps, "tokens": tokens}
            yield Hit(flag_at(role, "speculative-num-steps"), values, related)
