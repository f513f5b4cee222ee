"""Names in InferenceX results -> the names that points carry: models, hardware, frameworks, precisions, speculation.

The tables are data. Hardware comes from `hardware/*.yaml`; models that `models/*.yaml` names by file are known too.
A model's geometry aliases are not used: two models of one geometry (GLM-5 and GLM-5.1) are two models here.
A word that is in no table is a `Problem` that names it; nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from servemark.catalog.architectures import known_models
from servemark.catalog.hardware import known_gpus
from servemark.checks.golden import plain_model
from servemark.results.point import Precision, Speculation

MODELS = {
    "dsr1": "deepseek-r1",
    "dsv3": "deepseek-v3",
    "dsv4": "deepseek-v4-pro",
    "dsv41flash": "deepseek-v4.1-flash",
    "deepseek-v4.1-flash": "deepseek-v4.1-flash",
    "glm5": "glm-5",
    "glm-5": "glm-5",
    "glm5.1": "glm-5.1",
    "glm5.2": "glm-5.2",
    "gptoss": "gpt-oss-120b",
    "gptoss120b": "gpt-oss-120b",
    "gpt-oss": "gpt-oss-120b",
    "kimik2": "kimi-k2",
    "kimi-k2-instruct": "kimi-k2",
    "kimik2.5": "kimi-k2.5",
    "kimik2.6": "kimi-k2.6",
    "kimi-k2.6": "kimi-k2.6",
    "kimik3": "kimi-k3",
    "llama70b": "llama-3.3-70b",
    "70b": "llama-3.3-70b",
    "llama-3.3-70b-instruct": "llama-3.3-70b",
    "minimaxm2.5": "minimax-m2.5",
    "minimax-m2.5": "minimax-m2.5",
    "minimaxm3": "minimax-m3",
    "qwen3.5": "qwen3.5-397b-a17b",
    "qwen3.5-397b": "qwen3.5-397b-a17b",
}
"""Prefixes, and plain names of checkpoints that `models/` has no file of their own for -> model id."""

FRAMEWORKS: dict[str, tuple[str, str, str | None]] = {
    "vllm": ("vllm", "vllm", None),
    "vllm-disagg": ("vllm-disagg", "vllm", None),
    "sglang": ("sglang", "sglang", None),
    "sglang-disagg": ("mori-sglang", "sglang", None),
    "mori-sglang": ("mori-sglang", "sglang", None),
    "trt": ("trt", "trtllm", None),
    "trtllm": ("trt", "trtllm", None),
    "tensorrt-llm": ("trt", "trtllm", None),
    "atom": ("atom", "atom", None),
    "atom-disagg": ("atom-disagg", "atom", None),
    "tilert": ("tilert", "tilert", None),
    "dynamo-vllm": ("dynamo-vllm", "vllm", "dynamo"),
    "dynamo-sglang": ("dynamo-sglang", "sglang", "dynamo"),
    "dynamo-trt": ("dynamo-trt", "trtllm", "dynamo"),
    "dynamo-trtllm": ("dynamo-trt", "trtllm", "dynamo"),
    "llmd-vllm": ("llmd-vllm", "vllm", "llm-d"),
}
"""As reported -> (framework, engine, router). `sglang-disagg` is the older name of `mori-sglang`."""

SINGLE_POOL = frozenset({"vllm", "sglang", "trt", "atom", "tilert"})
"""Frameworks that start one server without separate prefill and decode roles."""

PRECISIONS = {
    "fp4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4", "fp8": "fp8", "mxfp8": "fp8", "int4": "int4", "int8": "int8",
    "bf16": "bf16", "fp16": "fp16",
}  # fmt: skip
"""As reported -> family."""

SPECULATION = {
    "none": None, "off": None, "": None, "mtp": "mtp", "on": "mtp", "eagle": "eagle", "eagle3": "eagle3",
    "ngram": "ngram", "draft_model": "draft_model", "dflash": "dflash", "medusa": "medusa", "suffix": "suffix",
}  # fmt: skip
"""As reported -> method. `on` and `off` are the oldest rows' `mtp` field."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a row has no point: message key and values."""

    reason: str
    values: dict[str, object] = field(default_factory=dict)
    invalid: bool = False
    """True for a row that is wrong, False for one that only has a word which is not known."""


@dataclass(frozen=True, slots=True)
class Names:
    """One row's names after mapping."""

    model: str
    hardware: str
    framework: str
    engine: str
    router: str | None
    precision: Precision
    speculation: Speculation | None


@lru_cache(maxsize=4096)
def model_id(word: str) -> str | None:
    """The model that a prefix, repository, path or file name stands for; None when it is not known.

    Case, owner, precision of the weights, `preview`, `-v2` and month of release do not make another model.
    """
    bare = word.strip().lower().rpartition("/")[2]
    for _ in range(4):
        known = MODELS.get(bare) or (bare if bare in known_models() else None)
        if known is not None:
            return known
        shorter = _shorter(bare)
        if shorter == bare:
            return None
        bare = shorter
    return None


def _shorter(name: str) -> str:
    """One more part taken off the end of a checkpoint's name."""
    for tail in ("-preview", "-v2"):
        if name.endswith(tail):
            return name.removesuffix(tail)
    plain = plain_model(name)
    if plain != name:
        return plain
    stem, dash, tail = name.rpartition("-")
    return stem if dash and len(tail) == 4 and tail.isdecimal() else name


@lru_cache(maxsize=4096)
def hardware_id(label: str) -> str | None:
    """The GPU type that a runner's label begins with (`cluster:h100-dgxc`, `B200`, `mi355x-amds_3`); None for others."""
    bare = label.strip().rpartition(":")[2].lower()
    for name in sorted(known_gpus(), key=len, reverse=True):
        if bare == name or bare.startswith((f"{name}-", f"{name}_")):
            return name
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def names_of(  # noqa: PLR0917 - the six words that a row has
    model: object, prefix: object, hardware: object, framework: object, precision: object, speculation: object
) -> Names | Problem:
    """All names of a row, or the first word that is not known. `prefix` is tried before `model`."""
    words = [word for word in (_text(prefix), _text(model)) if word is not None]
    found = next((known for known in map(model_id, words) if known is not None), None)
    if found is None:
        return _unknown("model", words[0] if words else None)
    label = _text(hardware)
    gpu = hardware_id(label) if label is not None else None
    if gpu is None:
        return _unknown("hardware", label)
    reported = (_text(framework) or "").strip().lower()
    if reported not in FRAMEWORKS:
        return _unknown("framework", reported or None)
    form = (_text(precision) or "").strip().lower()
    if form not in PRECISIONS:
        return _unknown("precision", form or None)
    method = (
        speculation.strip().lower() if isinstance(speculation, str) else "" if speculation is None else "?"
    )
    if method not in SPECULATION:
        return _unknown("speculation", str(speculation))
    known = SPECULATION[method]
    return Names(
        found,
        gpu,
        *FRAMEWORKS[reported],
        Precision(form, PRECISIONS[form]),
        None if known is None else Speculation(known),
    )


def _unknown(what: str, word: str | None) -> Problem:
    if word is None:
        return Problem("results.import_missing", {"field": what})
    return Problem(f"results.import_unknown_{what}", {"word": word[:120]})
