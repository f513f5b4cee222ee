"""One recipe, two deployments: throughput points force an acceptance length, accuracy is scored with real verification.

A forced length makes deployments comparable, but the text is then not the model's. So the master's `SYNTHETIC_ACCEPTANCE`
is put into the engine's own settings for the points (`as_measured`) and every such setting is taken out for the evals
(`as_verified`). The settings, by engine, as each engine documents them:

* vLLM: `speculative-config` with `rejection_sample_method: synthetic` and `synthetic_acceptance_length` (AL);
* SGLang: `SGLANG_SIMULATE_ACC_LEN` (AL);
* TensorRT-LLM: `TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS` (accepted drafts: AL - 1);
* llama.cpp: `spec-synth-len` (AL).

AL is in tokens a step, the bonus token included.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from servemark.catalog.arms import SearchEntry, WorkerBlock
from servemark.catalog.deployment import Deployment, RoleSpec
from servemark.catalog.engine_args import Argument, canonical_name
from servemark.catalog.kv_and_spec import speculative_of
from servemark.catalog.nodes import Position

SWITCH, LENGTH = "SYNTHETIC_ACCEPTANCE", "SYNTHETIC_ACCEPTANCE_LENGTH"
EVAL_RECIPE = "EVAL_CONFIG_FILE"
"""Settings of a master entry: force acceptance, to what length, and the recipe of the evals where it is another one."""
_ON = frozenset({"true", "1", "yes", "on"})
CONFIG = "speculative-config"
METHOD, SYNTHETIC = "rejection_sample_method", "synthetic"
_VLLM_LENGTH = "synthetic_acceptance_length"
_VLLM_FORCING = frozenset({_VLLM_LENGTH, "synthetic_acceptance_rates"})
SGLANG_ENV, TRTLLM_ENV = "SGLANG_SIMULATE_ACC_LEN", "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
_FORCING_ENV = frozenset(
    {SGLANG_ENV, "SGLANG_SIMULATE_ACC_METHOD", "SGLANG_SIMULATE_ACC_TOKEN_MODE", TRTLLM_ENV}
)
LLAMACPP_FLAG = "spec-synth-len"
_LLAMACPP_FORCING = frozenset({LLAMACPP_FLAG, "spec-synth-rates"})


@dataclass(frozen=True, slots=True)
class MasterForce:
    """What the master forces: the setting that says so, where, and AL; `length` is None where it gives no number that
    could be one."""

    name: str
    at: Position
    length: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that two deployments of a recipe do not share; None where one has it not."""

    role: str
    name: str
    measured: object
    scored: object

    def plain(self) -> dict[str, object]:
        """For machines."""
        return {"role": self.role, "name": self.name, "measured": self.measured, "scored": self.scored}


def master_force(entry: SearchEntry) -> MasterForce | None:
    """What the entry's settings force; None without a switch that is on. A length alone has no effect."""
    for block in (entry.prefill, entry.decode):
        if (block.setting(SWITCH) or "").strip().lower() in _ON:
            said = next((found for found in _lengths(block, entry) if found is not None), None)
            return MasterForce(SWITCH if said is None else LENGTH, block.at, _length(said))
    return None


def _lengths(block: WorkerBlock, entry: SearchEntry) -> Iterator[str | None]:
    yield block.setting(LENGTH)
    yield entry.prefill.setting(LENGTH)
    yield entry.decode.setting(LENGTH)


def _length(said: str | None) -> float | None:
    try:
        value = float(said or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 1 else None


def as_measured(entry: SearchEntry, recipe: Deployment) -> Deployment:
    """The deployment that a point is measured on: the recipe's, with the master's length forced on every role that
    speculates. The recipe's own where the master forces none, or none that its engine could be told."""
    said = master_force(entry)
    if said is None or said.length is None:
        return recipe
    return _edited(recipe, lambda role: _forced(recipe.engine, role, said.length or 1.0))


def as_verified(deployment: Deployment) -> Deployment:
    """The same without any setting that forces acceptance: drafts are verified, and the text is the model's."""
    found = _edited(deployment, _verified)
    kept = {name: value for name, value in deployment.environment.items() if name not in _FORCING_ENV}
    return found if kept == deployment.environment else replace(found, environment=kept)


def differences(measured: Deployment, scored: Deployment) -> list[Difference]:
    """Engine settings and variables in which they differ, role by role; of a JSON setting the fields that do."""
    found = [
        Difference("*", name, *values)
        for name, values in _unequal(measured.environment, scored.environment).items()
    ]
    for role in measured.roles:
        other = scored.role(role.role)
        if other is None:
            continue
        for pair in ((role.env, other.env), (_values(role), _values(other))):
            for name, (first, second) in _unequal(*pair).items():
                if isinstance(first, dict) and isinstance(second, dict):
                    found += [
                        Difference(role.role, f"{name}.{key}", *values)
                        for key, values in _unequal(first, second).items()
                    ]
                else:
                    found.append(Difference(role.role, name, first, second))
    return found


def _unequal(
    first: dict[str, object] | dict[str, str], second: dict[str, object] | dict[str, str]
) -> dict[str, tuple[object, object]]:
    names = dict.fromkeys([*first, *second])
    return {
        name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)
    }


def _values(role: RoleSpec) -> dict[str, object]:
    return {argument.name: argument.value for argument in role.flags.values()}


def _edited(deployment: Deployment, edit: Callable[[RoleSpec], RoleSpec]) -> Deployment:
    roles = tuple(edit(role) for role in deployment.roles)
    return deployment if roles == deployment.roles else replace(deployment, roles=roles)


def _forced(engine: str, role: RoleSpec, length: float) -> RoleSpec:
    if role.speculative is None:
        return role
    if engine == "sglang":
        return replace(role, env={**role.env, SGLANG_ENV: f"{length:g}"})
    if engine == "trtllm":
        return replace(role, env={**role.env, TRTLLM_ENV: f"{round(length - 1, 9):g}"})
    if engine == "llamacpp":
        return _with_flag(role, LLAMACPP_FLAG, length)
    config = role.flag(CONFIG)
    if engine != "vllm" or not isinstance(config, dict):
        return role
    kept = {key: value for key, value in config.items() if _field(key) not in {*_VLLM_FORCING, METHOD}}
    return _with_flag(role, CONFIG, {**kept, METHOD: SYNTHETIC, _VLLM_LENGTH: length})


def _verified(role: RoleSpec) -> RoleSpec:
    kept = {name: value for name, value in role.env.items() if name not in _FORCING_ENV}
    if kept != role.env:
        role = replace(role, env=kept)
    for name in _LLAMACPP_FORCING:
        if name in role.flags:
            role = _without_flag(role, name)
    config = role.flag(CONFIG)
    if not isinstance(config, dict):
        return role
    real = {key: value for key, value in config.items() if not _forces(key, value)}
    return role if real == config else _with_flag(role, CONFIG, real)


def _forces(key: object, value: object) -> bool:
    """Without its method, vLLM verifies by its own default."""
    name = _field(key)
    return name in _VLLM_FORCING or (name == METHOD and str(value).lower() == SYNTHETIC)


def _field(key: object) -> str:
    return str(key).replace("-", "_")


def _with_flag(role: RoleSpec, name: str, value: object) -> RoleSpec:
    """The role with that argument, spelled as it is already spelled there; JSON stays the text that it was."""
    old = role.flags.get(name)
    spelled = next((said for said in role.args if canonical_name(said) == name), name)
    as_text = isinstance(value, dict) and isinstance(role.args.get(spelled), str)
    written = json.dumps(value, separators=(",", ":"), ensure_ascii=False) if as_text else value
    flags = {
        **role.flags,
        name: Argument(name, value, old.spelled if old else name, old.at if old else role.at),
    }
    return replace(role, args={**role.args, spelled: written}, flags=flags, speculative=speculative_of(flags))


def _without_flag(role: RoleSpec, name: str) -> RoleSpec:
    flags = {key: argument for key, argument in role.flags.items() if key != name}
    args = {said: value for said, value in role.args.items() if canonical_name(said) != name}
    return replace(role, args=args, flags=flags, speculative=speculative_of(flags))
