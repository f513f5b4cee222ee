"""Names of weight formats -> the family that filters and fronts go by."""

from __future__ import annotations

from servemark.results.point import Precision

_FORMATS = {
    "fp4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4", "fp8": "fp8", "mxfp8": "fp8", "int4": "int4", "int8": "int8",
    "bf16": "bf16", "fp16": "fp16", "fp32": "fp32",
}  # fmt: skip
_GGUF = {
    "fp32": ("f32",),
    "fp16": ("f16",),
    "fp4": ("mxfp4_moe",),
    "ternary": ("tq1_0", "tq2_0"),
    "int1": ("q1_0", "iq1_s", "iq1_m"),
    "int2": ("q2_0", "q2_k", "q2_k_s", "q2_k_l", "q2_k_xl", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m"),
    "int3": ("q3_k", "q3_k_s", "q3_k_m", "q3_k_l", "q3_k_xl", "iq3_xxs", "iq3_xs", "iq3_s", "iq3_m"),
    "int4": ("q4_0", "q4_1", "q4_k", "q4_k_s", "q4_k_m", "q4_k_l", "q4_k_xl", "iq4_xs", "iq4_nl"),
    "int5": ("q5_0", "q5_1", "q5_k", "q5_k_s", "q5_k_m", "q5_k_l", "q5_k_xl"),
    "int6": ("q6_k", "q6_k_l", "q6_k_xl"),
    "int8": ("q8_0", "q8_1", "q8_k", "q8_k_xl"),
}  # fmt: skip
"""File types of GGUF, as llama.cpp names them (gguf-py's `LlamaFileType` and `GGMLQuantizationType`), and the sizes L
and XL in which mixes are published. A mix belongs to the width that its name tells, which most of its weights have."""
FAMILIES = _FORMATS | {name: family for family, names in _GGUF.items() for name in names}
"""Name in lower case -> family."""


def precision(reported: str | None) -> Precision:
    """As reported, and its family (`nvfp4` -> `fp4`, `Q4_K_M` -> `int4`); None where the name is not known."""
    return Precision(reported, None if reported is None else FAMILIES.get(reported.strip().lower()))
