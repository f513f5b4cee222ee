"""Families of weight formats. Expected: the width that llama.cpp's own name of a file type tells."""

from __future__ import annotations

import pytest

from servemark.results.importers.precision_names import precision


@pytest.mark.parametrize(
    ("reported", "family"),
    [
        ("q4_0", "int4"), ("Q4_1", "int4"), ("Q4_K_M", "int4"), ("iq4_xs", "int4"), ("q5_k_m", "int5"), ("q6_k", "int6"),
        ("q8_0", "int8"), ("iq3_xxs", "int3"), ("q2_k", "int2"), ("tq1_0", "ternary"), ("f16", "fp16"), ("f32", "fp32"),
        ("mxfp4_moe", "fp4"), ("nvfp4", "fp4"), ("mxfp8", "fp8"), ("bf16", "bf16"), ("int8", "int8"),
        ("q4", None), ("q9_0", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_family(reported: str | None, family: str | None) -> None:
    """Case does not count; a name that nobody knows has no family, and every name stays as it was reported."""
    found = precision(reported)
    assert (found.reported, found.family) == (reported, family)
