"""What a recipe sets, flat, and which of it decides what is measured: major settings and tuning.

Major are the model, its quantisation, the KV cache's data type, parallel sizes and workers, kernels, speculation and the
software (engine, image, versions). All else is tuning: batch and cache sizes, schedulers, time limits, environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from servemark.catalog.deployment import Deployment, RoleSpec

Group = Literal[
    "model", "parallelism", "quantisation", "kv_dtype", "kernels", "speculation", "software", "tuning"
]
GROUPS: tuple[Group, ...] = (
    "model", "parallelism", "quantisation", "kv_dtype", "kernels", "speculation", "software", "tuning",
)  # fmt: skip
_NAMES: tuple[tuple[Group, re.Pattern[str]], ...] = (
    ("kv_dtype", re.compile(r"cache-dtype|ssm-dtype|kv-dtype|kvcache-dtype")),
    ("speculation", re.compile(r"speculat|draft|mtp|eagle|acceptance")),
    ("quantisation", re.compile(r"quant|(?<![a-z])dtype|nvfp4|mxfp[48]|precision")),
    ("parallelism", re.compile(r"parallel|dp-attention|^workers$|^nodes$|^gpus$|^moe-dense-tp|eplb|redundant-expert")),
    ("kernels", re.compile(r"kernel|attention-backend|attn-backend|moe-.*backend|runner-backend|a2a|all2all|gemm"
                           r"|flashinfer|flash-attn|flash-mla|flashmla|deep-?gemm|deep-?ep|cutlass|trtllm|cutedsl|aiter|marlin")),
    ("model", re.compile(r"^(model|served-model-name|model-path|revision|tokenizer.*|hf-overrides|max-model-len"
                         r"|context-length)$")),
)  # fmt: skip
"""Name of an argument or variable, lower case with dashes -> its group; the first that fits."""
MAX_DEPTH = 6


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting that differs. A side is None where it does not set it."""

    name: str
    group: Group
    before: str | None
    after: str | None

    @property
    def major(self) -> bool:
        """Whether it decides what is measured."""
        return self.group != "tuning"


def settings_of(deployment: Deployment) -> dict[str, tuple[Group, str]]:
    """Every setting by a dotted name (`decode.args.tensor-parallel-size`) with its group and its value as text."""
    found: dict[str, tuple[Group, str]] = {
        "model": ("model", deployment.model_path),
        "precision": ("quantisation", deployment.precision),
        "engine": ("software", deployment.engine),
        "container": ("software", deployment.container),
    }
    if deployment.gpu_type is not None:
        found["gpu-type"] = ("parallelism", deployment.gpu_type)
    for image in deployment.images:
        found[image.field] = ("software", image.image)
    for one in deployment.software:
        if one.kind != "identity":
            found[f"software.{one.name}.{one.kind}"] = ("software", one.value)
    _put(found, "env", deployment.environment)
    for role in deployment.roles:
        _role(found, role)
    front = deployment.frontend
    if front is not None:
        found["frontend"] = ("software", front.type)
        _put(found, "frontend.args", {a.name: a.value for a in front.args.values()})
        _put(found, "frontend.env", front.env)
    for service in deployment.services:
        _put(found, f"{service.name}.args", {a.name: a.value for a in service.args.values()})
        _put(found, f"{service.name}.options", service.options)
    _put(found, "extras", deployment.extras)
    _put(found, "benchmark.env", deployment.benchmark.env)
    found["benchmark.concurrencies"] = (
        "tuning", ", ".join(str(value) for value in deployment.benchmark.concurrencies)
    )  # fmt: skip
    return found


def _role(found: dict[str, tuple[Group, str]], role: RoleSpec) -> None:
    for name in ("workers", "nodes", "gpus"):
        found[f"{role.role}.{name}"] = ("parallelism", str(getattr(role, name)))
    given = {a.name: a.value for a in role.flags.values()} if role.flags else role.args
    _put(found, f"{role.role}.args", given)
    _put(found, f"{role.role}.env", role.env)


def _put(found: dict[str, tuple[Group, str]], prefix: str, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        group = group_of(str(name))
        for path, leaf in _leaves(value, 0):
            whole = ".".join((prefix, str(name), *path))
            inner = group_of(path[-1]) if path and group == "tuning" else group
            found[whole] = (inner, leaf)


def _leaves(value: object, depth: int) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
        for name, inner in value.items():
            for path, leaf in _leaves(inner, depth + 1):
                yield (str(name), *path), leaf
    else:
        yield (), _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def group_of(name: str) -> Group:
    """The group of an argument or an environment variable by its name."""
    bare = name.lstrip("-").replace("_", "-").lower()
    return next((group for group, pattern in _NAMES if pattern.search(bare)), "tuning")


def changed_settings(before: Deployment, after: Deployment) -> tuple[SettingChange, ...]:
    """What differs, major settings first, in the order of their groups and then of their names."""
    old, new = settings_of(before), settings_of(after)
    changes = []
    for name in sorted({*old, *new}):
        one, other = old.get(name), new.get(name)
        if (one and one[1]) != (other and other[1]):
            group = (other or one or ("tuning", ""))[0]
            changes.append(SettingChange(name, group, one[1] if one else None, other[1] if other else None))
    return tuple(sorted(changes, key=lambda change: (GROUPS.index(change.group), change.name)))
