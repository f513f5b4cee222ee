"""Start-up logs: llama.cpp's from a real start; vLLM's and SGLang's lines in the formats of public logs, with numbers of
our own."""

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


# Lines below are made here; formats were seen in public logs of the versions named at each.
COLOURS = "\x1b[0;36m(Worker_TP0_DCP0_EP0 pid=31)\x1b[0;0m INFO 02-03 04:05:06 [gpu_worker.py:1] "


def test_vllm_hybrid_with_drafts() -> None:
    """Seen in 0.19 to 0.27 (docker's time stamps in front): tokens counted by blocks over groups, so concurrency times
    context, 2.5 x 40,000 = 100,000, is what the pool holds; estimated and captured graphs; a negative estimate."""
    lines = [
        "2026-02-03 04:05:06.789 | (EngineCore pid=12) INFO 02-03 04:05:06 [core.py:1] Initializing a V1 LLM engine "
        "(v0.20.9) with config: model='m'",
        "2026-02-03 | (EngineCore pid=12) INFO [x.py:1] Model loading took 10.5 GiB memory and 7.250000 seconds",
        "2026-02-03 | (EngineCore pid=12) INFO [x.py:1] Setting attention block size to 1344 tokens to ensure that x",
        "2026-02-03 | (EngineCore pid=12) INFO [x.py:1] Estimated CUDA graph memory: -0.25 GiB total",
        "2026-02-03 | (EngineCore pid=12) INFO [x.py:1] Available KV cache memory: 3.5 GiB",
        "2026-02-03 | (EngineCore pid=12) INFO [x.py:1] GPU KV cache size: 30,912 tokens",
        "2026-02-03 | (EngineCore pid=12) INFO [x.py:1] Maximum concurrency for 40,000 tokens per request: 2.50x",
        "2026-02-03 | (EngineCore pid=12) INFO [x.py:1] Graph capturing finished in 1 sec, took 0.50 GiB",
    ]
    found = log_facts(lines, "x")
    assert found.version == "0.20.9"
    assert (found.value("pool_tokens"), found.value("block_pool_tokens")) == (100_000, 30_912)
    assert (found.value("block_tokens"), found.value("pool_bytes")) == (1344, 3.5 * GIB)
    assert (found.value("graph_estimate_bytes"), found.value("graph_bytes")) == (-0.25 * GIB, 0.5 * GIB)


def test_vllm_decode_context_parallelism_in_colour() -> None:
    """Seen in 0.11 (dcp_world_size) and 0.20 (cp_world_size): tokens are multiplied already; colours around ranks."""
    lines = [
        f"{COLOURS}Available KV cache memory: 20.25 GiB",
        "(EngineCore_DP0 pid=30) INFO [x.py:1] Multiplying the GPU KV cache size by the cp_world_size 4 (pcp_world_size 1 "
        "* dcp_world_size 4).",
        "(EngineCore_DP0 pid=30) INFO [x.py:1] GPU KV cache size: 1,234,944 tokens",
    ]
    found = log_facts(lines, "x")
    assert (found.value("context_ranks"), found.value("pool_tokens")) == (4, 1_234_944)
    assert found.facts["pool_bytes"].rank == "Worker_TP0_DCP0_EP0"
    older = [lines[1].replace("cp_world_size 4 (pcp_world_size 1 * dcp_world_size 4)", "dcp_world_size 8")]
    assert log_facts(older, "x").value("context_ranks") == 8


def test_vllm_ranks_that_disagree() -> None:
    """Seen in 0.8 (`VllmWorker rank=0`), 0.10 to 0.15 (`Worker_DP0_TP1_EP1`, `EngineCore_DP1`): the least pool and the
    most weights count, and both ends are told with their ranks; a difference below 1 % is not."""
    lines = [
        "(VllmWorker rank=0 pid=7) INFO [x.py:1] Model loading took 11.1250 GiB and 9.000000 seconds",
        "(VllmWorker rank=1 pid=8) INFO [x.py:1] Model loading took 11.1500 GiB and 9.000000 seconds",
        "(Worker_DP0_TP0_EP0 pid=9) INFO [x.py:1] Available KV cache memory: 30.00 GiB",
        "(Worker_DP1_TP0_EP4 pid=9) INFO [x.py:1] Available KV cache memory: 24.00 GiB",
        "(EngineCore_DP0 pid=3) INFO [x.py:1] GPU KV cache size: 500,000 tokens",
        "(EngineCore_DP1 pid=4) INFO [x.py:1] GPU KV cache size: 400,000 tokens",
    ]
    found = log_facts(lines, "x")
    assert (found.value("pool_bytes"), found.value("pool_tokens")) == (24 * GIB, 400_000)
    told = {one.name: (one.least.rank, one.most.rank, one.ranks) for one in found.spreads}
    assert told == {
        "pool_bytes": ("Worker_DP1_TP0_EP4", "Worker_DP0_TP0_EP0", 2),
        "pool_tokens": ("EngineCore_DP1", "EngineCore_DP0", 2),
    }


def test_vllm_over_ray_and_the_older_engine() -> None:
    """Seen in 0.7 and 0.8: ranks without a number are told apart by process and host; no blanks before units."""
    line = (
        "(RayWorkerWrapper pid={}, ip=10.0.0.{}) INFO worker.py:267] model weights take 12.50GiB; non_torch_memory takes "
        "0.25GiB; PyTorch activation peak memory takes {}GiB; the rest of the memory reserved for KV Cache is {}GiB."
    )
    found = log_facts([line.format(7, 1, "2.00", "9.00"), line.format(7, 2, "2.50", "8.00")], "x")
    assert (found.value("weights_bytes"), found.value("pool_bytes")) == (12.5 * GIB, 8 * GIB)
    assert found.value("activation_bytes") == 2.5 * GIB
    assert found.facts["pool_bytes"].rank == "RayWorkerWrapper 7 10.0.0.2"


def test_second_start_replaces_the_first() -> None:
    """A log that was appended to: only the last start counts, and that there were two is known."""
    start = [
        "(APIServer pid=1) INFO [x.py:1] vLLM API server version 0.12.0",
        "INFO GPU KV cache size: {} tokens",
    ]
    lines = [line.format(count) for count in ("900", "700") for line in start]
    found = log_facts(["Available KV cache memory: 1.00 GiB", *lines], "x")
    assert (found.starts, found.value("pool_tokens"), found.value("pool_bytes")) == (2, 700, None)


def test_forced_blocks() -> None:
    """Seen in 0.19: tokens do not follow from the pool."""
    lines = [
        "INFO Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512",
        "INFO GPU KV cache size: 8,192 tokens",
    ]
    assert log_facts(lines, "x").value("forced_blocks") == 512


def test_sglang_hybrid_with_a_draft() -> None:
    """Seen in 0.5.12 to 0.5.15: weights and graphs of target and draft add up, so do the pools: states 0.5 + 2 + 8 + 0.25,
    entries 2 x 3 and the draft's 2 x 1; `GB` are 2^30 here."""
    lines = [
        "[2026-02-03 04:05:06 TP0] Load weight end. elapsed=3.10 s, type=A, avail mem=80.00 GB, mem usage=20.00 GB.",
        "[2026-02-03 04:05:06 TP0] Load weight end. elapsed=0.50 s, type=ADraft, avail mem=79.00 GB, mem usage=1.00 GB.",
        "[2026-02-03 04:05:06 TP0] Mamba Cache is allocated. max_mamba_cache_size: 48, conv_state size: 0.50GB, "
        "ssm_state size: 2.00GB intermediate_ssm_state_cache size: 8.00GB intermediate_conv_window_cache size: 0.25GB",
        "[2026-02-03 04:05:06 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 20000, K size: 3.00 GB, V size: "
        "3.00 GB",
        "[2026-02-03 04:05:07 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 20000, K size: 1.00 GB, V size: "
        "1.00 GB",
        "[2026-02-03 04:05:08 TP0] Capture cuda graph end. Time elapsed: 5.25 s. mem usage=1.50 GB. avail mem=4.00 GB.",
        "[2026-02-03 04:05:09 TP0] Capture draft decode CUDA graph end. elapsed=1.00 s, mem usage=0.50 GB, avail mem=3 GB",
        "[2026-02-03 04:05:09 TP0] max_total_num_tokens=20000, chunked_prefill_size=8192, max_running_requests=16, "
        "context_len=9000, available_gpu_mem=3.00 GB",
    ]
    found = log_facts(lines, "x")
    assert found.value("weights_bytes") == 21 * GIB and found.value("graph_bytes") == 2 * GIB
    assert found.value("state_pool_bytes") == 10.75 * GIB and found.value("state_slots") == 48
    assert found.value("pool_bytes") == (10.75 + 6 + 2) * GIB
    assert (found.value("pool_tokens"), found.value("max_context")) == (20_000, 9000)


def test_sglang_windows_are_counted_once() -> None:
    """Seen in 0.5.12: the pool with windows prints its two parts too."""
    lines = [
        "[2026-02-03 04:05:06] KV Cache is allocated. #tokens: 8000, K size: 1.00 GB, V size: 1.00 GB",
        "[2026-02-03 04:05:06] KV Cache is allocated. #tokens: 10000, K size: 2.00 GB, V size: 2.00 GB",
        "[2026-02-03 04:05:06] SWAKVPool mem usage: 6.00 GB, swa size: 8000, full size: 10000",
    ]
    found = log_facts(lines, "x")
    assert (found.value("pool_bytes"), found.value("pool_tokens")) == (6 * GIB, 10_000)


def test_sglang_deepseek_v4() -> None:
    """Seen in 0.5.13 and 0.5.15, DP with TP and EP: sizes before and after a cap; the last holds, and so the pool is
    what its tokens cost."""
    at = "[2026-02-03 04:05:06 DP{0} TP{0} EP{0}] "
    lines = []
    for rank in (0, 1):
        lines += [
            f"{at.format(rank)}DSV4 memory calculation: bytes_per_full_token=8000.50, available_bytes=6.00 GB, x=1",
            f"{at.format(rank)}DSV4 pool sizes: full=800000, swa=80000, c4=200000, c128=6250, c4_state=1, c128_state=0",
            f"{at.format(rank)}DSV4 pool sizes: full=32000, swa=3200, c4=8000, c128=250, c4_state=1, c128_state=0",
        ]
    found = log_facts(lines, "x")
    assert (found.value("pool_tokens"), found.value("full_token_bytes")) == (32_000, 8000.5)
    assert found.value("pool_bytes") == 32_000 * 8000.5
    assert found.facts["pool_tokens"].rank == "DP0 TP0 EP0" and not found.spreads


def test_many_ranks_cost_bounded_memory() -> None:
    """A log that makes up ranks without end keeps some, and is read to its end."""
    lines = (f"(Worker_TP{rank} pid=1) Available KV cache memory: 5.00 GiB" for rank in range(20_000))
    assert log_facts(lines, "x").value("pool_bytes") == 5 * GIB


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


def test_a_negative_count_is_no_figure_and_a_negative_pool_is_one() -> None:
    """An engine prints a pool that lacks memory as below zero; tokens below zero no engine prints."""
    log = log_facts(["INFO Available KV cache memory: -2.25 GiB", "INFO GPU KV cache size: -5 tokens"], "log")
    assert log.value("pool_bytes") == -2.25 * (1 << 30)
    assert log.value("pool_tokens") is None
