"""Each doubt: the smallest case that raises it, and its neighbour that does not."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servemark.base.messages import LANGUAGES, catalogue, text
from servemark.launch.engines.protocol import EngineCounters
from servemark.metrics.accuracy import EvalScore
from servemark.metrics.derive import read, value_of
from servemark.results.build import LoopFigures
from servemark.results.doubts import DOUBTS
from servemark.results.row import ReplayFigures, Warned
from servemark.results.serialize import row_to_json

MADE = runpy.run_path(str(Path(__file__).with_name("test_build.py")))
a_record, failed, built = MADE["a_record"], MADE["failed"], MADE["built"]
CODES = [doubt.__name__ for doubt in DOUBTS]

TWENTY = [a_record(f"r{i}", 3.2 * i) for i in range(20)]


def scored(**changed: Any) -> EvalScore:  # noqa: ANN401 - any field
    """A whole accuracy task of 10 items."""
    return replace(EvalScore("sums", "1", 10, 10, 6, 0.6, 0.15, 0, 0, 1.0), **changed)


def loop(**changed: Any) -> LoopFigures:  # noqa: ANN401 - any field
    """A client at ease."""
    base: dict[str, Any] = {"cpu_s": 0.1, "chunks": 100, "loop_lag_p50_s": 0.0001, "loop_lag_p99_s": 0.001}
    return LoopFigures(**base | changed)


def changed_last(**fields: Any) -> list[Any]:  # noqa: ANN401 - any field
    """Twenty requests of which the last differs."""
    return [*TWENTY[:-1], replace(TWENTY[-1], **fields)]


def replayed(**changed: Any) -> ReplayFigures:  # noqa: ANN401 - any field
    """A replay without a fault."""
    plain = ReplayFigures("s", "closed", "agentx", {}, 1, 1, None, None, {}, None, ())
    return replace(plain, **changed)


LATE = [replace(record, intended_send_s=(record.start_s or 0.0) - 0.006) for record in TWENTY]

CASES: list[tuple[str, list[Any], dict[str, Any], dict[str, Any]]] = [
    # code, records, inputs that raise it, inputs that just do not (with TWENTY plain records)
    ("client_limited", TWENTY, {"loop": loop(loop_lag_p99_s=0.0051)}, {"loop": loop(loop_lag_p99_s=0.005)}),
    ("client_limited", TWENTY, {"loop": loop(cpu_s=63.9 * 0.91)}, {"loop": loop(cpu_s=63.9 * 0.89)}),
    # One stop of the client among thousands of samples: not in the p99, in the largest
    ("client_paused", TWENTY, {"loop": loop(loop_lag_max_s=1.001)}, {"loop": loop(loop_lag_max_s=1.0)}),
    ("few_requests", TWENTY[:19], {}, {}),
    (
        "replay_invalid",
        TWENTY,
        {"replayed": replayed(invalid=(Warned("failed", {}),))},
        {"replayed": replayed()},
    ),
    (
        "server_gone",
        TWENTY,
        {"replayed": replayed(stopped="server_gone")},
        {"replayed": replayed(stopped="interrupt")},
    ),
    (
        "too_many_failed",
        TWENTY,
        {"replayed": replayed(stopped="failed_requests")},
        {"replayed": replayed(stopped="interrupt")},
    ),
    (
        "process_lost",
        TWENTY,
        {"replayed": replayed(processes=({"process": 0, "lost": True},))},
        {"replayed": replayed(processes=({"process": 0, "lost": False},))},
    ),
    (
        "kernel_dropped",
        TWENTY,
        {"loop": loop(kernel_drops={"TCPRcvQDrop": 1})},
        {"loop": loop(kernel_drops={"TCPRcvQDrop": 0})},
    ),
    # 6 ms behind the intended send, over the limit of 5 ms; a closed loop waits for replies and is not judged
    ("dispatch_late", LATE, {"replayed": replayed(mode="open")}, {"replayed": replayed()}),
    ("held_by_cap", TWENTY, {"replayed": replayed(held_by_cap=1)}, {"replayed": replayed()}),
    ("cut_off", TWENTY, {"replayed": replayed(cut_off=("r1",))}, {"replayed": replayed()}),
    ("failed_requests", [*TWENTY, failed("x", 64.0, "error")], {}, {}),
    ("osl_mismatch", changed_last(output_tokens=4, chunk_s=TWENTY[-1].chunk_s[:4]), {}, {}),
    # 100 expected: up to 64 more are the template's, then 2 % more
    ("isl_mismatch", changed_last(input_tokens=167), {}, {}),
    ("isl_mismatch", changed_last(input_tokens=97), {}, {}),
    ("tokens_unknown", changed_last(input_tokens=None), {}, {}),
    ("tokens_from_chunks", changed_last(tokens_origin="chunks"), {}, {}),
    ("first_chunk_assumed", changed_last(output_tokens=9, requested_output_tokens=9), {}, {}),
    ("clock_jumped", TWENTY, {"loop": loop(clock_jump_s=-3.0)}, {"loop": loop(clock_jump_s=None)}),
    ("host_shared", TWENTY, {"other_runs": ("r1", "r2")}, {"other_runs": ()}),
    ("cache_counter_disagrees", TWENTY, {"theoretical": 0.44}, {"theoretical": 0.42}),
    (
        "cache_counter_disagrees",
        TWENTY,
        {"counters_before": EngineCounters(0, 0, 0), "counters_after": EngineCounters(100, 36, 0)},
        {"counters_before": EngineCounters(0, 0, 0), "counters_after": EngineCounters(100, 38, 0)},
    ),
    ("cache_counter_impossible", changed_last(cached_tokens=3000), {}, {}),
    ("eval_incomplete", TWENTY, {"evals": (scored(n=9),)}, {"evals": (scored(),)}),
    ("eval_incomplete", TWENTY, {"evals": (scored(unanswered=1),)}, {"evals": (scored(),)}),
    (
        "eval_incomplete",
        TWENTY,
        {"expected_evals": ("sums",)},
        {"expected_evals": ("sums",), "evals": (scored(),)},
    ),
    ("concurrency_not_reached", TWENTY, {"concurrency": 2}, {"concurrency": 1}),
    ("engine_restarted", TWENTY, {"engine_restarts": 1}, {"engine_restarts": 0}),
    (
        "engine_restarted",
        TWENTY,
        {"counters_before": EngineCounters(9, 0, 0), "counters_after": EngineCounters(8, 0, 0)},
        {"counters_before": EngineCounters(9, 0, 0), "counters_after": EngineCounters(9, 0, 0)},
    ),
]
_LATE = [*TWENTY[-1].chunk_s[:3], *(moment + 6 for moment in TWENTY[-1].chunk_s[3:])]
NAMED = [replace(record, served_model="m") for record in TWENTY]
CASES.append(("other_model", NAMED, {"asked_model": "n"}, {"asked_model": "m"}))
_OTHER = {"worker": "decode-0", "fact": "version", "declared": "1.2", "observed": "1.3"}
CASES.append(("worker_differs", TWENTY, {"differing_workers": (_OTHER,)}, {"differing_workers": ()}))


def drafts(steps: float, drafted: float, accepted: float) -> EngineCounters:
    """llama.cpp's counters of speculation."""
    names = ("drafts", "draft_tokens", "accepted_tokens")
    raw = {
        f"llamacpp:spec_decode_num_{name}_total": n
        for name, n in zip(names, (steps, drafted, accepted), strict=True)
    }
    return EngineCounters(100, 0, 0, raw)


_ASKED = {"declared": {"spec_decoding": "draft_model"}, "counters_before": drafts(5, 9, 3)}
CASES.append(
    (
        "speculation_idle",
        TWENTY,
        _ASKED | {"counters_after": drafts(5, 9, 3)},
        _ASKED | {"counters_after": drafts(6, 10, 4)},
    )
)
CASES.append(
    (
        "nothing_accepted",
        TWENTY,
        _ASKED | {"counters_after": drafts(9, 12, 3)},
        _ASKED | {"counters_after": drafts(9, 12, 4)},
    )
)
CASES.append(("stalls_seen", changed_last(chunk_s=_LATE, end_s=_LATE[-1]), {}, {}))


@pytest.mark.parametrize(("code", "records", "raising", "quiet"), CASES, ids=[case[0] for case in CASES])
def test_doubt_is_raised_at_its_threshold_and_not_before(
    code: str, records: list[Any], raising: dict[str, Any], quiet: dict[str, Any]
) -> None:
    """Raised by the case, absent from the plain point, and readable in both languages."""
    found = {warned.code: warned.values for warned in built(*records, **raising).warnings}
    assert code in found
    assert code not in {warned.code for warned in built(*TWENTY, **quiet).warnings}
    for lang in LANGUAGES:
        said = text(f"warning.{code}", lang, **found[code])
        assert "{" not in said
        assert text(f"warning.{code}.next", lang, **found[code])


def test_every_doubt_has_a_case_and_a_message() -> None:
    """The set is closed: no doubt without test, no message without doubt."""
    assert {case[0] for case in CASES} == set(CODES)
    for lang in LANGUAGES:
        named = {key.split(".")[1] for key in catalogue(lang, "warning")}
        assert named == set(CODES)
        for code in CODES:
            assert {f"warning.{code}", f"warning.{code}.title", f"warning.{code}.next"} <= set(
                catalogue(lang, "warning")
            )


def test_a_plain_point_raises_nothing() -> None:
    """Twenty good requests, one after another, at concurrency 1."""
    assert built(*TWENTY).warnings == ()


def test_one_event_less_than_tokens_proves_the_first_chunk() -> None:
    """Five events and six tokens (the last is the end-of-text token): each event holds one, nothing is
    assumed."""
    records = changed_last(output_tokens=6, requested_output_tokens=6)
    assert "first_chunk_assumed" not in {warned.code for warned in built(*records).warnings}


def test_nothing_answered_is_incomplete_however_it_is_counted() -> None:
    """Ten items, none answered."""
    found = {warned.code: warned.values for warned in built(*TWENTY, evals=(scored(unanswered=10),)).warnings}
    assert found["eval_incomplete"]["answered"] == 0


def test_names_of_doubts_are_their_codes() -> None:
    """A function's name is the code that it gives."""
    raised: dict[str, Callable[..., Any]] = {doubt.__name__: doubt for doubt in DOUBTS}
    assert len(raised) == len(DOUBTS)


def test_acceptance_is_of_the_window_and_absent_where_nobody_speculates() -> None:
    """4 steps, 12 drafted, 6 accepted between the readings: 1 + 6/4 tokens a step, half of the drafts."""
    after = {"counters_before": drafts(5, 9, 3), "counters_after": drafts(9, 21, 9)}
    row = built(*TWENTY, **after)
    found = row.speculation
    assert (found.steps, found.drafted, found.accepted, found.missing) == (4, 12, 6, None)
    plain = row_to_json(row)
    assert value_of(plain, "acceptance_length") == 2.5
    assert value_of(plain, "draft_acceptance_rate") == 0.5
    assert plain["observed"]["engine_counters"]["after"]["spec_accepted"] == 9
    quiet = built(*TWENTY, counters_before=drafts(0, 0, 0), counters_after=drafts(0, 0, 0))
    assert quiet.speculation is None
    assert read(row_to_json(quiet), "acceptance_length").reason == "metrics.absent.speculation"
    unread = built(*TWENTY, declared={"spec_decoding": "mtp"})
    assert unread.speculation.missing == "no_counters"
    assert "speculation_idle" not in {warned.code for warned in unread.warnings}
