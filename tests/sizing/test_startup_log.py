"""Start-up logs: llama.cpp's from a real start; vLLM's and SGLang's lines as their source files format them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.sizing.startup_log import log_facts, read_log

GIB, MIB = 1 << 30, 1 << 20
LOGS = Path(__file__).parent / "logs"
VLLM = """\
(EngineCore pid=7) INFO 11-30 [model_runner.py:306] Model loading took 15.27 GiB and 1.900000 seconds
(Worker_TP1 pid=9) INFO 11-30 [model_runner.py:306] Model loading took 15.31 GiB and 2.000000 seconds
(Worker_TP1 pid=9) INFO 11-30 [gpu_worker.py:561] Available KV cache memory: 111.80 GiB
(EngineCore pid=7) INFO 11-30 [gpu_worker.py:561] Available KV cache memory: 111.84 GiB
(EngineCore pid=7) INFO 11-30 [kv_cache_utils.py:2177] GPU KV cache size: 814,368 tokens
(EngineCore pid=7) INFO 11-30 [kv_cache_utils.py:2179] Maximum concurrency for 8,192 tokens per request: 99.41x
(EngineCore pid=7) INFO 11-30 [model_runner.py:748] Graph capturing finished in 6 secs, took 0.59 GiB
"""
SGLANG = """\
[2026-11-30 TP0] Load weight end. elapsed=2.10 s, type=Qwen3ForCausalLM, avail mem=61.87 GB, mem usage=14.99 GB.
[2026-11-30 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 442371, K size: 30.37 GB, V size: 30.38 GB
[2026-11-30 TP0] Capture target verify CUDA graph end. elapsed=5.12 s, mem usage=1.19 GB, avail mem=5.90 GB.
[2026-11-30 TP0] max_total_num_tokens=442371, chunked_prefill_size=8192, context_len=40960, available_gpu_mem=5.90 GB
"""


def test_llamacpp() -> None:
    """A real start: 92.10 MiB of weights, 360 MiB of cache (16,384 x 30 x 2 x 192 x 2 B), 18.64 + 0.75 of buffers."""
    found = read_log(LOGS / "llamacpp-smollm2.log")
    assert found.engine == "llamacpp"
    assert found.value("weights_bytes") == pytest.approx(92.10 * MIB)
    assert found.value("pool_bytes") == 360 * MIB == 16_384 * 30 * 2 * 192 * 2
    assert found.value("compute_bytes") == pytest.approx(18.64 * MIB)
    assert found.value("output_bytes") == pytest.approx(0.75 * MIB)
    assert (found.value("pool_tokens"), found.value("max_context")) == (16_384, 4096)


def test_llamacpp_counts_each_device_once() -> None:
    """Two devices are added up; a second pass over the same device is not."""
    lines = [
        "llama_kv_cache:      CUDA0 KV buffer size =   100.00 MiB",
        "llama_kv_cache:      CUDA1 KV buffer size =    60.00 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =   100.00 MiB",
    ]
    assert log_facts(lines, "x").value("pool_bytes") == 160 * MIB


def test_vllm() -> None:
    """Ranks: the most weights, the least pool."""
    found = log_facts(VLLM.splitlines(), "x")
    assert found.engine == "vllm"
    assert found.value("weights_bytes") == pytest.approx(15.31 * GIB)
    assert found.value("pool_bytes") == pytest.approx(111.80 * GIB)
    assert found.value("pool_tokens") == 814_368
    assert (found.value("max_context"), found.value("requests")) == (8192, 99.41)
    assert found.value("graph_bytes") == pytest.approx(0.59 * GIB)
    assert found.facts["pool_tokens"].line == 5


def test_vllm_negative_pool() -> None:
    """An engine that had nothing left says so with a minus, and it stays one."""
    found = log_facts(["INFO Available KV cache memory: -2.18 GiB"], "x")
    assert found.value("pool_bytes") == pytest.approx(-2.18 * GIB)


def test_sglang() -> None:
    """Keys and values are added; its GB are 2^30."""
    found = log_facts(SGLANG.splitlines(), "x")
    assert found.engine == "sglang"
    assert found.value("weights_bytes") == pytest.approx(14.99 * GIB)
    assert found.value("pool_bytes") == pytest.approx(60.75 * GIB)
    assert (found.value("pool_tokens"), found.value("max_context")) == (442_371, 40_960)
    assert found.value("graph_bytes") == pytest.approx(1.19 * GIB)


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x00\xff" * 5000, b"KV cache size: many tokens\n"])
def test_foreign(tmp_path: Path, content: bytes) -> None:
    """No known line: exit code 2, never an empty report."""
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(ServemarkError) as caught:
        read_log(path)
    assert caught.value.key == "sizing.log_foreign" and caught.value.exit_code == 2


def test_no_regular_file(tmp_path: Path) -> None:
    """A missing file, a folder, a pipe that nobody writes to: an answer at once."""
    os.mkfifo(tmp_path / "pipe")
    for name, key in (("none", "log_unreadable"), ("", "log_unreadable"), ("pipe", "log_not_file")):
        with pytest.raises(ServemarkError) as caught:
            read_log(tmp_path / name)
        assert caught.value.key == f"sizing.{key}"


def test_one_endless_line(tmp_path: Path) -> None:
    """A line of 20 MB costs no memory, and what follows it is read."""
    path = tmp_path / "log"
    path.write_bytes(b"x" * 20_000_000 + b"\nGPU KV cache size: 12 tokens\n")
    assert read_log(path).value("pool_tokens") == 12


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=120), max_size=8))
def test_any_text(lines: list[str]) -> None:
    """Whatever stands in a log, the answer is facts or an expected error."""
    try:
        found = log_facts([f"{line} KV cache size: {line} tokens n_ctx" for line in lines], "x")
    except ServemarkError:
        return
    assert all(isinstance(reading.value, float) for reading in found.facts.values())
