"""`servemark trace simulate` as it is typed: text in two languages, JSON, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.cli.main import run_cli

Run = Callable[..., tuple[int, str]]
SUITES = Path(__file__).resolve().parents[2] / "suites"


def trace(tmp_path: Path) -> Path:
    """Eight prompts of two blocks that alternate between two first blocks."""
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {"timestamp": 1000 * n, "input_length": 1024, "output_length": 4, "hash_ids": [n % 2, 10 + n]}
            )
            + "\n"
            for n in range(8)
        )
    )
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The verb: (exit code, all that was printed)."""
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("COLUMNS", "100")

    def typed(*args: object) -> tuple[int, str]:
        code = run_cli(["trace", "simulate", "--lang", "en", *map(str, args)])
        found = capsys.readouterr()
        return code, found.out + found.err

    return typed


def test_text_says_what_was_simulated(run: Run, tmp_path: Path) -> None:
    """Six of eight first blocks are found: 6 x 512 of 8 x 1024 tokens; three blocks are enough."""
    code, out = run(trace(tmp_path), "--block", 512)
    assert code == 0
    assert "blocks of 512 tokens" in out and "37.5%" in out and "without end" in out
    assert "1,536 tokens" in out and "stack distances" in out
    code, out = run(trace(tmp_path), "--block", 512, "--lang", "zh")
    assert code == 0 and "GPU 缓存池" in out and "37.5%" in out and not re.search(r"predict\.\w", out)


def test_json_is_whole(run: Run, tmp_path: Path) -> None:
    """Shares, counts, windows and the cache that was simulated."""
    code, out = run(trace(tmp_path), "--block", 256, "--dcp", 2, "--gpu-blocks", 2, "--json")
    found = json.loads(out)
    assert code == 0 and found["cache"]["block_tokens"] == 512 and found["cache"]["gpu_tokens"] == 1024
    assert found["hit_share"] == 0.0 and found["share_unbounded"] == 0.375
    assert found["counts"]["requests"] == 8 and found["least"]["tokens"] == 1536


def test_a_store_in_gib_needs_the_bytes_of_a_token(run: Run, tmp_path: Path) -> None:
    """1 GiB on each of two ranks at 2^20 bytes a token are 2,048 tokens: four blocks, of which the watermark keeps three,
    so little is found; what each rank must give for all is said."""
    code, out = run(trace(tmp_path), "--cache", "mooncake", "--store", 1)
    assert code == 2 and "--token-bytes" in out
    given = ("--block", 512, "--gpu-tokens", 0, "--token-bytes", 1 << 20, "--ranks", 2, "--lease", 0)
    code, out = run(trace(tmp_path), "--cache", "mooncake", "--store", 1, *given, "--json")
    assert code == 0 and json.loads(out)["cache"]["store_tokens"] == 2048
    code, out = run(trace(tmp_path), "--cache", "mooncake", *given, "--find", "store")
    assert code == 0 and "for each of 2 ranks" in out and "bisection" in out


def test_sizes_come_from_a_recipe(run: Run, tmp_path: Path) -> None:
    """The Kimi-K3 recipe: 16,704 bytes a token over all ranks (24 MLA layers of 576 and 5 of the draft), 190 GiB on each
    of 16 ranks, states of 31,583,232 bytes on each of 8: 15,127 tokens' room."""
    recipe = SUITES / "kimi-k3-b300" / "recipes" / "kimi-k3" / "vllm" / "b300" / "disagg-1p1d-c48.yaml"
    code, out = run(trace(tmp_path), "--for", recipe, "--json")
    assert code == 0
    cache = json.loads(out)["cache"]
    assert cache["token_bytes"] == 24 * 576 + 5 * 576
    assert cache["store_tokens"] == 16 * 190 * 2**30 // 16704
    assert cache["states"]["state_tokens"] == -(-31_583_232 * 8 // 16704)
    code, out = run(trace(tmp_path), "--for", recipe)
    assert code == 0 and "gpu_tokens" in out and "hybrid model" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--gpu-tokens", 1, "--gpu-blocks", 1), "both say"),
        (("--cache", "mooncake"), "no size"),
        (("--cache", "llamacpp", "--store", 1, "--token-bytes", 1), "no shared store"),
        (("--cache", "llamacpp", "--find", "gpu"), "slots"),
        (("--tpot", "nan"), "finite"),
        (("--watermark", 2), "watermark"),
    ],
)
def test_bad_use(run: Run, tmp_path: Path, args: tuple[object, ...], said: str) -> None:
    """Exit code 2 and a sentence."""
    code, out = run(trace(tmp_path), *args)
    assert code == 2 and said in out and "Traceback" not in out


def test_a_trace_that_cannot_be_simulated(run: Run, tmp_path: Path) -> None:
    """Lengths alone; and no arrival times."""
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00.0000000,10,5\n")
    code, out = run(path)
    assert code == 2 and "lengths alone" in out
    code, out = run("random:isl=100,osl=5,requests=3")
    assert code == 2 and "--concurrency" in out
    assert run("random:isl=100,osl=5,requests=3", "--concurrency", 2)[0] == 0
