"""Contradictions of parallel sizes, each against a rule that can be checked by hand."""

from __future__ import annotations

import pytest

from servemark.catalog.architectures import architecture
from servemark.catalog.deployment import Parallel
from servemark.sizing.parallel import attention_tp, parallel_faults


@pytest.mark.parametrize(
    ("model", "engine", "sizes", "gpus", "fault"),
    [
        ("kimik3", "vllm", Parallel(tp=8, dcp=8), 8, None),
        ("kimik3", "vllm", Parallel(tp=8, dcp=8), 16, "ranks"),  # 8 ranks, 16 GPUs
        ("kimik3", "vllm", Parallel(tp=8, dp=2, dp_attention=True), 16, None),
        ("kimik3", "vllm", Parallel(tp=8, dcp=3), 8, "dcp"),  # 3 does not divide 8
        ("kimik3", "vllm", Parallel(tp=5), 5, "heads"),  # 96 heads over 5
        ("Qwen/Qwen3-8B", "vllm", Parallel(tp=8, dcp=2), 8, "gqa_dcp"),  # 8 KV heads x 2 > 8
        ("Qwen/Qwen3-8B", "vllm", Parallel(tp=16, dcp=2), 16, None),
        ("dsr1", "sglang", Parallel(tp=8, ep=3), 8, "experts"),  # 256 over 3
        ("Qwen/Qwen3-0.6B", "vllm", Parallel(tp=1, pp=29), 29, "stages"),  # 28 layers
        ("dsr1", "vllm", Parallel(tp=0), 8, "positive"),
        ("dsr1", "vllm", Parallel(tp=-8), 8, "positive"),
    ],
)
def test_rules(model: str, engine: str, sizes: Parallel, gpus: int, fault: str | None) -> None:
    """The first fault is the expected one, or there is none."""
    found = parallel_faults(architecture(model), engine, sizes, gpus, "recipe.yaml:1:1")
    assert [error.key for error in found[:1]] == ([f"sizing.parallel_{fault}"] if fault else [])
    assert all(error.exit_code == 2 and error.where == "recipe.yaml:1:1" for error in found)


def test_redundant_experts_count() -> None:
    """384 experts do not divide over 40 ranks; with 16 copies they do."""
    sizes = Parallel(tp=40, dp=40, ep=40, dp_attention=True)
    model = architecture("dsv4")
    assert parallel_faults(model, "sglang", sizes, 40, "")[0].key == "sizing.parallel_experts"
    assert parallel_faults(model, "sglang", sizes, 40, "", redundant=16) == []


def test_attention_ranks() -> None:
    """vLLM's data-parallel ranks come on top of TP, SGLang's divide it, TensorRT-LLM's attention-DP leaves one."""
    assert attention_tp("vllm", Parallel(tp=4, dp=2, dp_attention=True)) == 4
    assert attention_tp("sglang", Parallel(tp=8, dp=2, dp_attention=True)) == 4
    assert attention_tp("trtllm", Parallel(tp=8, dp_attention=True)) == 1
    assert attention_tp("sglang", Parallel(tp=8)) == 8
