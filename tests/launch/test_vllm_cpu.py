"""Prefill and decode on two real vLLM servers for CPUs, KV moved by the real Mooncake connector over TCP.

vLLM here is 0.32.0 plus the shim of tools/vllm-cpu, which also converts the embedded model. The environment is looked
for in SERVEMARK_VLLM_CPU, else in `.venv-vllm` of the project.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.launch.test_pd_real import PROMPT, SUITE, ask, content, deployment, start

from servemark.launch.http_probe import fetch

pytestmark = [pytest.mark.engine_vllm, pytest.mark.timeout(600)]
RECIPE = SUITE / "disaggregated-vllm-cpu" / "recipes" / "smollm2" / "vllm" / "disagg-1p1d-mooncake-cpu.yaml"
VLLM = Path(os.environ.get("SERVEMARK_VLLM_CPU") or SUITE.parent / ".venv-vllm")
if not (VLLM / "bin" / "vllm").exists() or not (VLLM / "model" / "config.json").exists():
    pytest.skip(f"no vLLM for CPUs in {VLLM} (tools/vllm-cpu/install.py)", allow_module_level=True)


def test_decode_computes_nothing_and_says_what_prefill_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the decode worker's own counters: a broken transfer would recompute in silence and still return text.

    The greedy text through the router is that of the prefill worker asked directly. Blocks are 128 tokens on CPUs, and
    the prompt is longer than one of them.
    """
    monkeypatch.setenv("PATH", f"{VLLM / 'bin'}{os.pathsep}{os.environ['PATH']}")
    recipe = replace(deployment(RECIPE), model_path=str(VLLM / "model"))
    live = start(recipe, tmp_path, budget_s=300.0)
    try:
        replies = [ask(live, question) for question in ("Name three colours.", "Name three animals.")]
        found = live.counters()
        assert found is not None
        served = f'model_name="{live.job.served_name}"'
        source = {
            where: sum(
                value
                for name, value in found.raw.items()
                if name.startswith("decode-0 vllm:prompt_tokens_by_source_total") and f'source="{where}"' in name
                and served in name
            )
            for where in ("local_compute", "local_cache_hit", "external_kv_transfer")
        }  # fmt: skip
        prompts = sum(reply["usage"]["prompt_tokens"] for reply in replies)  # type: ignore[index]
        assert source["local_compute"] == 0 and source["external_kv_transfer"] > 128
        assert source["local_cache_hit"] + source["external_kv_transfer"] == prompts
        prefill = next(step for step in live.job.steps if step.name == "prefill-0").process.probe
        assert prefill is not None
        for question, said in zip(("Name three colours.", "Name three animals."), replies, strict=True):
            body = {
                "model": live.job.served_name,
                "messages": said_before(question),
                "temperature": 0,
                "max_tokens": 24,
            }
            alone = fetch(prefill.base_url, "/v1/chat/completions", body=body, timeout_s=120.0)
            assert alone.status == 200
            value = alone.json()
            assert isinstance(value, dict) and content(value) == content(said)
        logs = (tmp_path / "logs" / "prefill-0.log").read_text()
        assert "KV Transfer metrics" in logs or "MooncakeConnector" in logs
    finally:
        live.stop()


def said_before(question: str) -> list[dict[str, str]]:
    """The messages that `ask` sends."""
    return [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}]
