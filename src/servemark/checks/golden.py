"""Golden acceptance lengths: which measured curve belongs to an arm, and what an arm states."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from servemark.catalog.deployment import Deployment, RoleSpec, Speculative
from servemark.catalog.nodes import Position
from servemark.catalog.references import GoldenLength
from servemark.checks.view import EntryView, env_at, env_of, flag_at

_PRECISION = re.compile(r"-(?:nv|mx)?(?:fp|int|bf)\d+(?:-v\d+)?\Z")
_METHODS = ("dspark", "eagle3", "mtp")
_NAMES = {
    "nextn": "mtp",
    "eagle": "mtp",
    "mtp": "mtp",
    "mtp_eagle": "mtp",
    "eagle3": "eagle3",
    "dspark": "dspark",
}


@lru_cache(maxsize=4096)
def plain_model(name: str) -> str:
    """A model's name without its owner and without the precision of its weights, in lower case."""
    return _PRECISION.sub("", name.rpartition("/")[2].lower())


@dataclass(frozen=True, slots=True)
class Curve:
    """One golden file's values of one model: {(mode, draft tokens): value}."""

    file: str
    method: str
    probabilistic: bool
    block: bool
    values: dict[tuple[str, int], GoldenLength]


def curves_of(golden: tuple[GoldenLength, ...], model: str, method: str) -> list[Curve]:
    """The curves measured for a model and method; the method and sampling are parts of the file's name."""
    wanted = plain_model(model)
    found: dict[str, Curve] = {}
    for one in golden:
        if plain_model(one.model) != wanted:
            continue
        stem = one.at.file.rpartition("/")[2].lower()
        kind = next((name for name in _METHODS if name in stem), "")
        if kind != method:
            continue
        curve = found.get(one.at.file)
        if curve is None:
            curve = Curve(one.at.file, kind, "probabilistic" in stem, "block" in stem, {})
            found[one.at.file] = curve
        curve.values[one.mode, one.draft_tokens] = one
    return list(found.values())


@dataclass(frozen=True, slots=True)
class StatedLength:
    """An acceptance length that an arm forces: its value as tokens per step (bonus token included)."""

    value: float
    written: str
    name: str
    at: Position
    role: RoleSpec
    speculative: Speculative | None


def method_of(speculative: Speculative) -> str:
    """`mtp`, `eagle3`, `dspark`, or the method as the recipe names it."""
    if speculative.draft_model is None or speculative.method != "eagle":
        return _NAMES.get(speculative.method, speculative.method)
    return speculative.method


def stated_lengths(view: EntryView) -> list[StatedLength]:
    """Every acceptance length that the master or the recipe forces on a role that generates."""
    recipe = view.deployment
    if recipe is None:
        return []
    role = recipe.role("decode") or recipe.role("aggregated")
    if role is None:
        return []
    found = []
    value = view.setting("SYNTHETIC_ACCEPTANCE_LENGTH")
    if value is not None:
        found.append(
            _stated(
                value, "SYNTHETIC_ACCEPTANCE_LENGTH", view.setting_at("SYNTHETIC_ACCEPTANCE_LENGTH"), role
            )
        )
    found += recipe_lengths(recipe, role)
    return [one for one in found if one is not None]


def recipe_lengths(recipe: Deployment, role: RoleSpec) -> list[StatedLength | None]:
    """Those that a recipe forces itself: two environment variables, an argument's field and llama.cpp's argument."""
    found: list[StatedLength | None] = []
    env = env_of(recipe, role)
    for name, more in (("SGLANG_SIMULATE_ACC_LEN", 0.0), ("TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS", 1.0)):
        if name in env:
            found.append(_stated(env[name], name, env_at(recipe, role, name) or role.at, role, more))
    config = role.flag("speculative-config")
    length = config.get("synthetic_acceptance_length") if isinstance(config, dict) else None
    if isinstance(length, (int, float)) and not isinstance(length, bool):
        found.append(
            _stated(str(length), "synthetic_acceptance_length", flag_at(role, "speculative-config"), role)
        )
    if role.flag("spec-synth-len") is not None:
        name = "spec-synth-len"
        found.append(_stated(str(role.flag(name)), name, flag_at(role, name), role))
    return found


def _stated(written: str, name: str, at: Position, role: RoleSpec, more: float = 0.0) -> StatedLength | None:
    try:
        value = float(written) + more
    except ValueError:
        return None
    return StatedLength(value, written, name, at, role, role.speculative)


MODE = "thinking_on"
"""The mode whose golden value an arm forces: throughput runs think."""


def close(one: float, other: float) -> bool:
    """Equal to two decimals, as golden values are given."""
    return abs(one - other) < 0.005


def fitting_curves(view: EntryView, one: StatedLength) -> list[Curve]:
    """The arm's curves that were measured with the sampling that its recipe states. A recipe that leaves verification to
    the synthetic setting states the draft's sampling only."""
    spec = one.speculative
    if spec is None:
        return []
    curves = curves_of(view.world.golden, view.arm.model, method_of(spec))
    wanted = spec.draft_sampling == "probabilistic"
    if spec.method != "dspark" or not any(curve.probabilistic for curve in curves):
        return curves
    return [curve for curve in curves if curve.probabilistic == wanted]


def golden_of(view: EntryView, one: StatedLength) -> list[GoldenLength]:
    """Golden values of exactly the arm's model, method, sampling and number of draft tokens."""
    spec = one.speculative
    if spec is None or spec.draft_tokens is None:
        return []
    found = [curve.values.get((MODE, spec.draft_tokens)) for curve in fitting_curves(view, one)]
    return [golden for golden in found if golden is not None]


def belongs(view: EntryView, one: StatedLength) -> str:
    """Where the stated value stands instead: another draft length, mode or curve of the same model; "" for nowhere."""
    spec = one.speculative
    found = [
        f"{golden.at.file}: {mode} {tokens}"
        for curve in (curves_of(view.world.golden, view.arm.model, method_of(spec)) if spec else ())
        for (mode, tokens), golden in curve.values.items()
        if close(golden.length, one.value)
    ]
    return "; ".join(found[:3])


def in_units_of(name: str, value: float) -> str:
    """A golden value as the named field writes it: TensorRT-LLM's variable counts accepted drafts only."""
    if name == "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS":
        value -= 1
    return f"{value:.2f}"
