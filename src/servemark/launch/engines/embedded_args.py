"""Engine arguments of the embedded llama.cpp server: llama-server's names, checked here before anything
starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from servemark.base.errors import ServemarkError, input_error

_CACHE_TYPES = {
    "f32": "GGML_TYPE_F32",
    "f16": "GGML_TYPE_F16",
    "bf16": "GGML_TYPE_BF16",
    "q8_0": "GGML_TYPE_Q8_0",
    "q5_0": "GGML_TYPE_Q5_0",
    "q5_1": "GGML_TYPE_Q5_1",
    "q4_0": "GGML_TYPE_Q4_0",
    "q4_1": "GGML_TYPE_Q4_1",
    "iq4_nl": "GGML_TYPE_IQ4_NL",
}
_FLASH_ATTN = {
    "auto": "LLAMA_FLASH_ATTN_TYPE_AUTO",
    "on": "LLAMA_FLASH_ATTN_TYPE_ENABLED",
    "off": "LLAMA_FLASH_ATTN_TYPE_DISABLED",
}
_SPEC_TYPES = {
    "none": "COMMON_SPECULATIVE_TYPE_NONE",
    "draft-simple": "COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE",
    "draft-eagle3": "COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3",
    "draft-mtp": "COMMON_SPECULATIVE_TYPE_DRAFT_MTP",
    "draft-dspark": "COMMON_SPECULATIVE_TYPE_DRAFT_DSPARK",
    "ngram-simple": "COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE",
    "ngram-map-k": "COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K",
    "ngram-map-k4v": "COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K4V",
    "ngram-mod": "COMMON_SPECULATIVE_TYPE_NGRAM_MOD",
    "ngram-cache": "COMMON_SPECULATIVE_TYPE_NGRAM_CACHE",
}
"""Where speculation is asked for, the type must be: with a draft model alone the server drafts nothing and says so
nowhere."""
MAX_TEXT = 20_000
"""Characters of a chat template, the longest of all."""


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument: the parameter that it sets (dotted path in xllamacpp.CommonParams) and the values it
    takes."""

    target: str
    kind: Literal["int", "float", "bool", "enum", "enums", "folder", "model", "text"]
    least: float = 0
    most: float = 2**31 - 1
    enum: str = ""
    members: Mapping[str, str] | None = None

    @property
    def expected(self) -> str:
        """What a value may be, in signs that need no translation."""
        if self.kind == "bool":
            return "true | false"
        if self.kind == "enum":
            return " | ".join(self.members or ())
        if self.kind == "enums":
            return "[" + " | ".join(self.members or ()) + ", ...]"
        words = {
            "folder": "relative/path",
            "model": "embedded:NAME | FILE.gguf",
            "text": f"1..{MAX_TEXT} characters",
        }
        if self.kind in words:
            return words[self.kind]
        most = "" if self.most == 2**31 - 1 else f"{self.most:g}"
        return f"{self.kind} {self.least:g}..{most}"

    def encode(self, value: object) -> object:
        """The JSON form that the child understands; raises ValueError for a value that is not allowed."""
        if self.kind == "bool":
            found: object | None = value if isinstance(value, bool) else None
        elif self.kind in {"enum", "enums"}:
            found = self._members(value)
        elif self.kind in {"folder", "model", "text"}:
            known = isinstance(value, str) and 0 < len(value) <= MAX_TEXT and "\0" not in value
            found = value if known and (self.kind != "folder" or _stays_inside(str(value))) else None
        else:
            found = self._number(value)
        if found is None:
            raise ValueError
        return found

    def _members(self, value: object) -> object | None:
        """Members of an enumeration by their words; None for a word that it does not have."""
        members = self.members or {}
        if self.kind == "enum":
            # YAML 1.1 reads a bare on and off as booleans.
            word = {True: "on", False: "off"}.get(value) if isinstance(value, bool) else value
            if not isinstance(word, str) or word not in members:
                return None
            return {"enum": self.enum, "member": members[word]}
        words = value if isinstance(value, list) else str(value).split(",")
        named = [word.strip() for word in words if isinstance(word, str)]
        if not named or len(named) < len(words) or not all(word in members for word in named):
            return None
        return {"enum": self.enum, "members": [members[word] for word in named]}

    def _number(self, value: object) -> object | None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        whole = isinstance(value, int) or self.kind == "float"
        return value if whole and math.isfinite(value) and self.least <= value <= self.most else None


def _stays_inside(value: str) -> bool:
    path = PurePosixPath(value)
    return not path.is_absolute() and ".." not in path.parts


_KV = "ggml_type"
DRAFT_MODEL = "speculative.draft.mparams.path"
SYNTH_LENGTH = "speculative.synth_len"
"""The acceptance length that the server forces, whatever the drafts are."""
ARGS: dict[str, Arg] = {
    "ctx-size": Arg("n_ctx", "int", most=1 << 24),
    "parallel": Arg("n_parallel", "int", 1, 256),
    "threads": Arg("cpuparams.n_threads", "int", 1, 512),
    "threads-batch": Arg("cpuparams_batch.n_threads", "int", 1, 512),
    "threads-http": Arg("n_threads_http", "int", 1, 512),
    "batch-size": Arg("n_batch", "int", 1, 1 << 20),
    "ubatch-size": Arg("n_ubatch", "int", 1, 1 << 20),
    "cache-prompt": Arg("cache_prompt", "bool"),
    "cache-ram": Arg("cache_ram_mib", "int", -1),
    "cache-idle-slots": Arg("cache_idle_slots", "bool"),
    "cache-reuse": Arg("n_cache_reuse", "int"),
    "slot-prompt-similarity": Arg("slot_prompt_similarity", "float", 0, 1),
    "slot-save-path": Arg("slot_save_path", "folder"),
    "kv-unified": Arg("kv_unified", "bool"),
    "cache-type-k": Arg("cache_type_k", "enum", enum=_KV, members=_CACHE_TYPES),
    "cache-type-v": Arg("cache_type_v", "enum", enum=_KV, members=_CACHE_TYPES),
    "flash-attn": Arg("flash_attn_type", "enum", enum="llama_flash_attn_type", members=_FLASH_ATTN),
    "ctx-checkpoints": Arg("n_ctx_checkpoints", "int", 0, 4096),
    "context-shift": Arg("ctx_shift", "bool"),
    "cont-batching": Arg("cont_batching", "bool"),
    "swa-full": Arg("swa_full", "bool"),
    "n-gpu-layers": Arg("n_gpu_layers", "int", -2, 100_000),
    "n-predict": Arg("n_predict", "int", -1),
    "warmup": Arg("warmup", "bool"),
    "fit": Arg("fit_params", "bool"),
    "jinja": Arg("use_jinja", "bool"),
    "chat-template": Arg("chat_template", "text"),
    "seed": Arg("sampling.seed", "int", 0, 2**32 - 1),
    "temp": Arg("sampling.temp", "float", 0, 100),
    "top-k": Arg("sampling.top_k", "int"),
    "top-p": Arg("sampling.top_p", "float", 0, 1),
    "min-p": Arg("sampling.min_p", "float", 0, 1),
    "repeat-penalty": Arg("sampling.penalty_repeat", "float", 0, 100),
    "spec-type": Arg("speculative.types", "enums", enum="common_speculative_type", members=_SPEC_TYPES),
    "spec-draft-model": Arg(DRAFT_MODEL, "model"),
    "spec-draft-n-max": Arg("speculative.draft.n_max", "int", 1, 128),
    "spec-draft-n-min": Arg("speculative.draft.n_min", "int", 0, 128),
    "spec-draft-p-min": Arg("speculative.draft.p_min", "float", 0, 1),
    "spec-ngram-simple-size-n": Arg("speculative.ngram_simple.size_n", "int", 1, 1024),
    "spec-ngram-simple-size-m": Arg("speculative.ngram_simple.size_m", "int", 1, 1024),
    "spec-ngram-simple-min-hits": Arg("speculative.ngram_simple.min_hits", "int", 1, 1024),
    "spec-synth-len": Arg(SYNTH_LENGTH, "float", 1, 129),
}
RESERVED = frozenset(
    {"host", "port", "model", "alias", "metrics", "slots", "props", "offline", "ui", "api-key"}
)
"""Set by the launcher, for every run alike."""


def parse_args(args: Mapping[str, object]) -> dict[str, object]:
    """Recipe arguments -> {target: JSON value}, in the recipe's order.

    Raises ServemarkError (input) for a name that is unknown (naming the nearest known one) or reserved, and
    for a value of the wrong kind or out of range.
    """
    parsed: dict[str, object] = {}
    for name, value in args.items():
        known = ARGS.get(name)
        if known is None:
            raise _unknown(name)
        try:
            parsed[known.target] = known.encode(value)
        except ValueError:
            raise input_error(
                "launch.arg_value", name=name, value=repr(value)[:80], expected=known.expected
            ) from None
    return parsed


def _unknown(name: object) -> ServemarkError:
    import difflib  # noqa: PLC0415 - only a typing error needs it

    if name in RESERVED:
        return input_error("launch.arg_reserved", name=name)
    text = str(name)[:80]
    spelled = text.strip().lstrip("-").replace("_", "-").lower()
    if spelled in ARGS:
        return input_error("launch.arg_unknown_near", name=text, nearest=spelled)
    whole = max((arg for arg in ARGS if len(arg) > 2 and spelled.startswith(arg)), key=len, default=None)
    near = [whole] if whole else difflib.get_close_matches(spelled, ARGS, n=1, cutoff=0.5)
    if near:
        return input_error("launch.arg_unknown_near", name=text, nearest=near[0])
    return input_error("launch.arg_unknown", name=text, known=", ".join(ARGS))
