"""InferenceX rows that were made for the test: older and newer versions, unknown words, wrong values, damaged files."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.base.messages import LANGUAGES, text
from servemark.results.importers.base import Given
from servemark.results.importers.inferencex import detect, read
from servemark.results.importers.inferencex_gpus import Load, lost_split
from servemark.results.importers.inferencex_names import hardware_id, model_id
from servemark.results.importers.json_rows import WINDOW_BYTES, list_elements
from servemark.results.point import Mapped, point_json

HELP = runpy.run_path(str(Path(__file__).with_name("make_given.py")))
of_rows, of_bytes, mapped = HELP["of_rows"], HELP["of_bytes"], HELP["mapped"]


def api_row(**changes: object) -> dict[str, Any]:
    """One aggregated row: 4 lanes of 1000 + 1000 tokens, 8 GPUs, 100 tok/s/GPU: 800 tok/s, 4 x 2000 / 800 = 10 s each."""
    sides = {
        f"{role}_{key}": value
        for role in ("prefill", "decode")
        for key, value in (("tp", 8), ("ep", 1), ("dp_attention", False), ("num_workers", 0))
    }
    row: dict[str, Any] = {
        "hardware": "h200", "framework": "vllm", "model": "dsr1", "precision": "fp8", "spec_method": "none",
        "disagg": False, "is_multinode": False, **sides, "num_prefill_gpu": 8, "num_decode_gpu": 8,
        "isl": 1000, "osl": 1000, "conc": 4, "image": None, "date": "2026-06-11", "workers": None,
        "metrics": {"tput_per_gpu": 100.0, "mean_e2el": 10.0, "median_ttft": 0.5, "p99_tpot": 0.02},
        "run_url": "https://example.org/runs/12/attempts/3",
    }  # fmt: skip
    return row | changes


def flat_row(**changes: object) -> dict[str, Any]:
    """An aggregate of the first version: no image, no spec_decoding, no GPU count."""
    row: dict[str, Any] = {
        "hw": "h100-dgxc_3", "tp": 8, "ep": 8, "dp_attention": "false", "conc": 4, "model": "deepseek-ai/DeepSeek-R1-0528",
        "framework": "sglang", "precision": "fp8", "isl": 1000, "osl": 1000, "tput_per_gpu": 100.0,
        "output_tput_per_gpu": 50.0, "mean_e2el": 10.0, "p90_ttft": 0.3, "p90_intvty": 1.0,
    }  # fmt: skip
    return row | changes


def only(*rows: object, **hints: str) -> Mapped:
    """The one row of a list."""
    found: list[Mapped] = mapped(of_rows(*rows, **hints))
    assert len(found) == 1
    return found[0]


def test_an_api_row() -> None:
    """Figures in seconds at their places, run and attempt from the link."""
    found = only(api_row())
    assert found.status == "mapped" and found.point is not None
    point = found.point
    assert set(point.figures) == {"total_tokens_per_s_per_gpu", "e2el_s.mean", "ttft_s.p50", "tpot_s.p99"}
    assert point.figures["ttft_s.p50"].at == "/metrics/median_ttft"
    assert (point.execution.run, point.execution.attempt, point.execution.started_utc) == (
        "12",
        3,
        "2026-06-11",
    )
    assert (point.gpus_stated, point.gpus_deployed) == (8, 8)


def test_the_first_flat_version_lets_the_loop_decide() -> None:
    """tp 8, ep 8 and no count: 100 x 8 x 10 / (4 x 2000) = 1.0 of the loop, 64 GPUs would be 8.0."""
    point = only(flat_row()).point
    assert point is not None
    assert (point.gpus_stated, point.gpus_deployed) == (None, 8)
    assert (point.identity.model, point.identity.hardware) == ("deepseek-r1", "h100")
    assert "tpot_s.p90" not in point.figures and "interactivity.p90" not in point.figures
    # Nothing fits: 0.1 s instead of 10 s is 0.01 and 0.08 of the loop. Nothing to go by: no latency at all.
    for row in (flat_row(mean_e2el=0.1), {k: v for k, v in flat_row().items() if k != "mean_e2el"}):
        point = only(row).point
        assert point is not None and point.gpus_deployed is None
        assert any(note.startswith("GPU count unknown") for note in point.notes)


def test_a_gpu_count_that_a_row_lacks_can_be_said() -> None:
    """`--set gpus=16` is the user's own word; gates may doubt it."""
    point = only(flat_row(), gpus="16").point
    assert point is not None and (point.gpus_stated, point.gpus_deployed) == (16, 16)


def test_the_june_agentic_version() -> None:
    """Flat, without medians; p90_intvty is its fast tail and is not taken; trace lengths come from the row."""
    row = flat_row(
        scenario_type="agentic-coding", isl=None, osl=None, ep=1, num_requests_successful=40, num_requests_total=40,
        kv_offloading="dram", kv_offload_backend="lmcache", allocated_cpu_dram_gb=600, mean_input_tokens=1900.0,
        mean_output_tokens_actual=100.0, p90_intvty=200.0, mean_tpot=0.01, p75_tpot=0.011, total_tput_tps=800.0,
        duration_seconds=100.0, server_gpu_cache_hit_rate=0.5, theoretical_cache_hit_rate=0.9,
    )  # fmt: skip
    point = only(row).point
    assert point is not None
    assert point.identity.scenario.type == "agentic-coding" and point.identity.scenario.isl is None
    assert (point.value("tpot_s.p50"), point.value("tpot_s.p90"), point.value("tpot_s.p75")) == (
        None,
        None,
        0.011,
    )
    assert point.gpus_deployed == 8  # 100 x 8 x 10 / (4 x 2000) = 1
    assert point.requests.ok == 40 and point.requests.error is None and point.duration_s == 100.0
    assert point.memory is not None and point.memory.allocated_bytes == 600 * 10**9
    assert (point.value("cache_hit_engine_gpu"), point.value("cache_hit_theoretical_blocks")) == (0.5, 0.9)
    assert point.figures["tpot_s.mean"].definition == "inferencex-agentic-1"


def test_disaggregated_rows_by_their_own_denominator() -> None:
    """P = 2, D = 6. By role: 60 x 2 + 20 x 6 = 240 = 30 x 8. Over all: 12 + 18 = 30 stays as it is."""
    sides = {"disagg": True, "framework": "dynamo-vllm", "num_prefill_gpu": 2, "num_decode_gpu": 6,
             "prefill_num_workers": 1, "decode_num_workers": 1, "prefill_tp": 2, "decode_tp": 6}  # fmt: skip
    by_role = {"tput_per_gpu": 30.0, "input_tput_per_gpu": 60.0, "output_tput_per_gpu": 20.0}
    point = only(api_row(**sides, metrics=by_role)).point
    assert point is not None and point.gpus_deployed == 8 and point.identity.router == "dynamo"
    assert (point.value("input_tokens_per_s_per_gpu"), point.value("output_tokens_per_s_per_gpu")) == (
        15.0,
        15.0,
    )
    assert [(role.role, role.workers, role.gpus) for role in point.identity.topology] == [
        ("prefill", 1, 2),
        ("decode", 1, 6),
    ]
    over_all = {"tput_per_gpu": 30.0, "input_tput_per_gpu": 12.0, "output_tput_per_gpu": 18.0}
    point = only(api_row(**sides, metrics=over_all)).point
    assert point is not None and point.figures["input_tokens_per_s_per_gpu"].stated is None
    assert point.value("input_tokens_per_s_per_prefill_gpu") is None
    neither = {"tput_per_gpu": 30.0, "input_tput_per_gpu": 50.0, "output_tput_per_gpu": 18.0}
    point = only(api_row(**sides, metrics=neither)).point
    assert point is not None and point.gpus_deployed is None
    assert point.value("input_tokens_per_s_per_gpu") is None  # its denominator is not known
    assert any(note.startswith("split unknown") for note in point.notes)


def test_a_split_that_several_numbers_fit_is_unknown() -> None:
    """Input and output per GPU within 1 %: tokens add up for many splits, so none is taken."""
    load = Load(4, 2000.0, 100.3, 20.0)
    found = lost_split(20, 20, 100.8, 100.0, load)
    assert (found.prefill, found.deployed, found.by_role) == (None, None, None)


@pytest.mark.parametrize(
    ("change", "reason", "word"),
    [
        ({"model": "dsr9"}, "results.import_unknown_model", "dsr9"),
        ({"hardware": "tpu-v7"}, "results.import_unknown_hardware", "tpu-v7"),
        ({"hardware": "h2000"}, "results.import_unknown_hardware", "h2000"),
        ({"framework": "lmdeploy"}, "results.import_unknown_framework", "lmdeploy"),
        ({"precision": "fp6"}, "results.import_unknown_precision", "fp6"),
        ({"spec_method": "psychic"}, "results.import_unknown_speculation", "psychic"),
        ({"isl": None, "osl": None, "benchmark_type": "video"}, "results.import_unknown_scenario", "video"),
    ],
)
def test_unknown_words_are_named_and_kept(change: dict[str, Any], reason: str, word: str) -> None:
    """Status unmapped; the row's own bytes are there to be mapped again."""
    row = api_row(**change)
    found = only(row)
    assert (found.status, found.point, found.reason) == ("unmapped", None, reason)
    assert found.reason_values == {"word": word} and json.loads(found.raw or b"") == row


def test_lengths_that_a_row_lacks_can_be_said() -> None:
    """The oldest aggregates do not hold them."""
    row = {key: value for key, value in flat_row().items() if key not in {"isl", "osl"}}
    assert only(row).reason == "results.import_no_shape"
    point = only(row, isl="1000", osl="1000", run="77", attempt="2", date="2025-10-01").point
    assert point is not None and point.identity.scenario.isl == 1000
    assert (point.execution.run, point.execution.attempt, point.execution.started_utc) == (
        "77",
        2,
        "2025-10-01",
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (api_row(metrics={"tput_per_gpu": -1.0}), "results.import_negative"),
        (api_row(metrics={"tput_per_gpu": 5.0, "mean_ttft": -0.1}), "results.import_negative"),
        (api_row(metrics={"tput_per_gpu": 5.0, "mean_ttft": "0.1"}), "results.import_not_a_number"),
        (
            api_row(metrics={"tput_per_gpu": 5.0, "mean_ttft": list(range(1000))}),
            "results.import_not_a_number",
        ),
        (api_row(metrics={"tput_per_gpu": True}), "results.import_not_a_number"),
        (api_row(metrics={"tput_per_gpu": 0.0}), "results.import_no_success"),
        (api_row(metrics=[1, 2]), "results.import_missing"),
        (api_row(conc=None), "results.import_missing"),
        (api_row(conc=0), "results.import_bad_count"),
        (api_row(conc="many"), "results.import_bad_count"),
        (api_row(prefill_tp=-8), "results.import_bad_count"),
        (api_row(num_prefill_gpu=1e30), "results.import_bad_count"),
        (api_row(hardware=["h200"]), "results.import_bad_row"),
        ({"hardware": "h200", "metrics": {}}, "results.import_missing"),
        (flat_row(num_requests_successful=0), "results.import_no_success"),
        (
            flat_row(benchmark_outcome={"requested": 9, "completed": 0, "failed": 9}),
            "results.import_no_success",
        ),
        (flat_row(task="gsm8k", em_strict=1.2), "results.import_no_share"),
        (flat_row(task="gsm8k"), "results.import_missing"),
        (7, "results.import_not_object"),
        ([[1]], "results.import_not_object"),
    ],
)
def test_wrong_rows_are_invalid_and_kept(row: object, reason: str) -> None:
    """One of them does not cost its neighbours."""
    before, found, after = mapped(of_rows(api_row(), row, api_row()))
    assert (before.status, after.status, after.ordinal) == ("mapped", "mapped", 2)
    assert (found.status, found.point, found.reason) == ("invalid", None, reason)
    assert json.loads(found.raw) == row
    for language in LANGUAGES:
        assert "{" not in text(found.reason, language, **found.reason_values)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"hw": NaN}', "results.import_bad_row"),
        (b'{"hw": "h100", "tput_per_gpu": Infinity}', "results.import_bad_row"),
        (b'{"hw": "h100", "tput_per_gpu": -Infinity}', "results.import_bad_row"),
        (b'{"hw": "h100", "tput_per_gpu": 1e999}', "results.import_bad_row"),
        (b'{"hw": "h100", "hw" : "h200"}', "results.import_key_twice"),
        (b'{"hw": "h100", "dataset": {"a": 1, "a": 2}}', "results.import_key_twice"),
        (b'{"hw": "\xff\xfe"}', "results.import_bad_row"),
        (b'{"hw": "h100",}', "results.import_bad_row"),
        (b'{"hw": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "results.import_bad_row"),
        (b'{"hw": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, "results.import_bad_row"),
    ],
)
def test_rows_that_are_no_json_cost_only_themselves(bad: bytes, reason: str) -> None:
    """NaN is none either; texts with braces and commas in rows around it do not confuse the cutting."""
    good = json.dumps(api_row(image='a}, {"b": ",]')).encode()
    rows = mapped(of_bytes(b"[" + b",\n".join([good, bad, good]) + b"]"))
    assert [(row.status, row.reason) for row in rows] == [("mapped", ""), ("invalid", reason), ("mapped", "")]
    assert rows[1].raw == bad
    if reason == "results.import_bad_row":
        with pytest.raises(ServemarkError) as caught:
            mapped(of_bytes(bad))
        assert caught.value.key == "results.import_not_json"


def test_what_came_before_a_row_is_nothing() -> None:
    """true equals 1 and is no count, whether or not a row with 1 was mapped a moment ago."""
    for make in (api_row, flat_row):
        key = "decode_ep" if make is api_row else "ep"
        rows = mapped(of_rows(make(**{key: 1}), make(**{key: True}), make(**{key: 1})))
        assert [row.status for row in rows] == ["mapped", "invalid", "mapped"]
        rows = mapped(of_rows(make(**{key: True}), make(**{key: 1})))
        assert [row.status for row in rows] == ["invalid", "mapped"]


def test_a_number_beyond_floats_costs_its_row_alone() -> None:
    """JSON knows whole numbers of any length."""
    row = api_row()
    row["metrics"]["tput_per_gpu"] = 10**400
    before, found, after = mapped(of_rows(api_row(), row, api_row()))
    assert (before.status, after.status) == ("mapped", "mapped")
    assert (found.status, found.reason) == ("invalid", "results.import_not_finite")


def test_versions_may_be_mixed_in_one_list() -> None:
    """Each row is read by its own shape."""
    other = {"hardware": "h100", "date": "2026-06-14", "n_success": 1, "total": 2}
    rows = mapped(of_rows(api_row(), flat_row(), other, flat_row(task="gsm8k", em_strict=0.9, n_eff=100)))
    assert [row.status for row in rows] == ["mapped", "mapped", "unmapped", "mapped"]
    assert rows[3].point is not None and rows[3].point.evals[0].score == 0.9


def test_an_answer_that_wraps_its_lists() -> None:
    """`benchmarks` and `evaluations` of one run, numbered through."""
    body = {
        "runInfo": {"id": 1},
        "benchmarks": [api_row(), 3],
        "evaluations": [api_row(task="gsm8k", metrics={"em_strict": 0.5})],
    }
    rows = mapped(of_bytes(json.dumps(body).encode()))
    assert [(row.ordinal, row.status) for row in rows] == [(0, "mapped"), (1, "invalid"), (2, "mapped")]


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"", "import_empty"),
        (b" \n\t ", "import_empty"),
        (b"hello", "import_not_list"),
        (b"[", "import_cut_off"),
        (b'[{"hw": "h100"}', "import_cut_off"),
        (b'[{"hw": "h100"},', "import_cut_off"),
        (b'[{"hw": "h1', "import_cut_off"),
        (b'[{"hw": "h100"}] x', "import_after_end"),
        (b'[{"hw": "h100"}][]', "import_after_end"),
        (b'{"hw": "h100"', "import_not_json"),
        (b'{"hw": "h100"} {}', "import_not_json"),
    ],
)
def test_damaged_files_are_errors_of_the_file(data: bytes, key: str) -> None:
    """With what to do next, in both languages."""
    with pytest.raises(ServemarkError) as caught:
        mapped(of_bytes(data))
    error = caught.value
    assert (error.key, error.layer, error.exit_code) == (f"results.{key}", Layer.RESULTS, 2)
    for language in LANGUAGES:
        assert "{" not in error.what(language).replace("{}", "") and error.next_step(language)


@pytest.mark.parametrize("cut", range(40))
def test_every_truncation_is_seen(cut: int) -> None:
    """A list cut anywhere is never taken for a whole one."""
    data = json.dumps([api_row()] * 3, indent=1).encode()
    at = 1 + cut * (len(data) - 2) // 40
    with pytest.raises(ServemarkError):
        mapped(of_bytes(data[:at]))


def test_lists_are_cut_alike_however_they_are_written() -> None:
    """Compact, indented, odd spaces, nested lists of objects, a byte order mark, one row larger than the window."""
    large = api_row(image="x" * (WINDOW_BYTES * 2))
    nested = api_row(workers=[{"role": "prefill", "num_gpus": 8}, {"role": "decode", "num_gpus": 8}])
    rows = (
        [api_row(conc=n + 1) for n in range(900)]
        + [large, nested, {"a": [[], {}, [{}, {}]]}]
        + [nested] * 700
    )
    for data in (
        json.dumps(rows).encode(),
        json.dumps(rows, separators=(",", ":")).encode(),
        b"\xef\xbb\xbf " + json.dumps(rows, indent="\t").encode() + b"\n\n",
        json.dumps(rows, separators=(" ,\r\n ", " : ")).encode(),
    ):
        assert [json.loads(raw) for raw in list_elements(of_bytes(data))] == rows
    assert list(list_elements(of_bytes(b"[ ]"))) == []
    assert mapped(of_bytes(b"[]"))[0].status == "unmapped"


class Endless(io.RawIOBase):
    """A list of rows that never ends, as a stream; counts what was read of it."""

    def __init__(self, row: bytes) -> None:
        self.parts = itertools.chain([b"["], itertools.cycle([row + b","]))
        self.rest = b""
        self.seen = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        while len(self.rest) < size:
            self.rest += b"".join(itertools.islice(self.parts, 200))
        block, self.rest = self.rest[:size], self.rest[size:]
        self.seen += len(block)
        return block


def test_a_file_is_read_as_far_as_it_is_asked_for() -> None:
    """Rows come while the file still goes on: no more than a window lies ahead."""
    endless = Endless(json.dumps(api_row()).encode())
    given = Given("endless.json", 2**31, b"[{", lambda: endless)  # type: ignore[arg-type, return-value]
    rows: Iterator[Mapped] = read(given)
    assert all(row.status == "mapped" for row in itertools.islice(rows, 3000))
    assert endless.seen <= 3000 * len(json.dumps(api_row())) + 2 * WINDOW_BYTES


def test_one_endless_row_is_refused() -> None:
    """A text that never ends is read up to the limit of a row."""
    endless = Endless(b'{"hw": "' + b"x" * 5000)
    endless.parts = itertools.chain([b'[{"hw": "'], itertools.cycle([b"x" * 5000]))
    given = Given("endless.json", 2**31, b"[{", lambda: endless)  # type: ignore[arg-type, return-value]
    with pytest.raises(ServemarkError) as caught:
        list(read(given))
    assert caught.value.key == "results.import_row_too_large"


VALUES: tuple[object, ...] = (
    None, 0, -1, 1.5, 1e308, 5e-324, 2**63, True, "", "x", "true", "1", "a/b", "0" * 50, [], {}, [1], {"a": 1}, [{}],
    10**6 + 1,
)  # fmt: skip


def spoilt(value: object, rng: random.Random) -> object:
    """A copy with some parts missing or of another kind."""
    if isinstance(value, list):
        return [spoilt(each, rng) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: each for key, each in value.items() if rng.random() > 0.04}
    return {
        key: rng.choice(VALUES) if rng.random() < 0.05 else spoilt(each, rng) for key, each in kept.items()
    }


def test_no_row_whatever_is_in_it_gives_a_traceback() -> None:
    """Every row has a status, and every point of them can be written, with figures that are finite and not negative."""
    rng = random.Random(1)
    nested = flat_row(
        request_metrics={"latency": {"ttft": {"p90": 1.0}}, "throughput": {"per_gpu": {"total_tput_tps": 5.0}}},
        server_metrics={"cache": {"gpu_cache_hit_rate": 0.5}}, dataset={"hf_dataset_name": "x"},
        request_accounting={"records_error_dropped": 0}, num_gpus=8, power_audit={"observed_gpu_count": 8},
    )  # fmt: skip
    split = api_row(disagg=True, framework="dynamo-trt", workers=[{"role": "prefill", "num_gpus": 8}])
    kinds = [api_row(), flat_row(), nested, split, flat_row(task="gsm8k", em_strict=0.9, n_eff=100)]
    rows = mapped(of_rows(*(spoilt(rng.choice(kinds), rng) for _ in range(2000))))
    assert len(rows) == 2000 and {row.status for row in rows} == {"mapped", "unmapped", "invalid"}
    for row in rows:
        assert (row.point is None) == bool(row.reason)
        if row.point is not None:
            assert point_json(row.point)
            assert all(0 <= figure.value < math.inf for figure in row.point.figures.values())


def test_names() -> None:
    """Words from real masters and runners; two models of one geometry are two models."""
    assert (
        model_id("nvidia/DeepSeek-R1-0528-NVFP4-v2")
        == model_id("amd/DeepSeek-R1-0528-MXFP4-Preview")
        == "deepseek-r1"
    )
    assert (model_id("zai-org/GLM-5-FP8"), model_id("zai-org/GLM-5.1-FP8")) == ("glm-5", "glm-5.1")
    assert (model_id("kimik2.5"), model_id("nvidia/Kimi-K2.6-NVFP4")) == ("kimi-k2.5", "kimi-k2.6")
    assert model_id("/models/Qwen3.5-397B-A17B-FP8") == "qwen3.5-397b-a17b"
    assert model_id("") is None and model_id("///") is None
    assert hardware_id("cluster:gb300-nv") == "gb300" and hardware_id("B200") == "b200"
    assert (
        hardware_id("mi355x-amds_7") == "mi355x" and hardware_id("b2000") is None and hardware_id("") is None
    )


def test_detection_is_by_content() -> None:
    """Never by name."""
    assert detect(of_rows(api_row(), name="x.txt")) == detect(of_rows(flat_row())) == 0.95
    assert detect(of_bytes(b"")) == detect(of_bytes(b"[1, 2]")) == detect(of_bytes(b'{"a": 1}')) == 0
