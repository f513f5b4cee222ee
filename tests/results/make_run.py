"""Synthetic yet valid run folders for tests: a small queueing model makes the times, the project's own code
makes the rows. `make_line` writes three points (concurrency 1, 2, 4) with failures, a stall and an accuracy
task.

Not a test module. Load it by path (`importlib`), or run `python make_run.py FOLDER` to look at what it
writes.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from dataclasses import asdict
from pathlib import Path

from servemark.base.canonical import content_hash
from servemark.evals.io import write_evals
from servemark.evals.runner import TaskOutcome
from servemark.evals.samples import SampleRecord, write_samples
from servemark.evals.statistics import score_of, statistics_of
from servemark.launch.engines.protocol import EngineCounters
from servemark.replay.record import RequestRecord
from servemark.results.build import LoopFigures, RowInputs, build_row
from servemark.results.serialize import encode_result
from servemark.results.summary import summarise

CONCURRENCIES = (1, 2, 4)
LINE = "20261130-010000-smollm2-cpu-1a2b"
SUITE, ARM = "quickstart", "smollm2-cpu"
SHARED_TOKENS = 640
TASK, TASK_VERSION, TASK_ITEMS = "word-sort", "1", 100


def _request(  # noqa: PLR0917 - a test helper, called in one place
    rng: random.Random, name: str, session: str, turn: int, lane: int, at_s: float, busy: int
) -> RequestRecord:
    """One ok request that starts at `at_s` while `busy` sessions share the engine (about 8k prompt tok/s)."""
    prompt = SHARED_TOKENS + 180 * (turn + 1) + rng.randrange(40)
    cached = SHARED_TOKENS + 180 * turn if turn else SHARED_TOKENS
    output = rng.choice((24, 32, 48, 64))
    ttft = 0.012 + (prompt - cached) * busy / 8000 * rng.uniform(0.9, 1.25)
    step = 0.0065 * (1 + 0.38 * (busy - 1)) * rng.uniform(0.95, 1.1)
    chunks = [at_s + ttft]
    for _ in range(output - 1):
        chunks.append(chunks[-1] + step * rng.uniform(0.8, 1.3))
    return RequestRecord(
        id=name,
        session=session,
        turn=turn,
        phase="measured",
        lane=lane,
        intended_send_s=at_s - 0.0002,
        connect_s=0.0004 if turn == 0 else None,
        start_s=at_s,
        first_byte_s=at_s + ttft * 0.98,
        first_text_s=chunks[0],
        end_s=chunks[-1] + 0.0008,
        chunk_s=[round(moment, 6) for moment in chunks],
        requested_output_tokens=output,
        expected_input_tokens=prompt - 12,
        input_tokens=prompt,
        output_tokens=output,
        cached_tokens=cached,
        tokens_origin="usage",
        outcome="ok",
        http_status=200,
        finish_reason="length",
    )


def _spoil(record: RequestRecord, how: str) -> None:
    """Turn an ok record into one that failed as `how` says, or that stalled."""
    if how == "stall":
        half = len(record.chunk_s) // 2
        record.chunk_s = [t if i < half else t + 1.7 for i, t in enumerate(record.chunk_s)]
        record.end_s = record.chunk_s[-1] + 0.0008
        return
    record.input_tokens = record.output_tokens = record.cached_tokens = None
    record.tokens_origin, record.finish_reason = "none", None
    if how == "error":
        record.outcome, record.http_status = "error", 500
        record.error_kind, record.error_detail = "http_status", '{"error": "slot <0> failed & was reset"}'
        record.chunk_s, record.first_text_s = [], None
        record.end_s = record.first_byte_s
    elif how == "timeout":
        record.outcome, record.error_kind = "timeout", "first_byte"
        record.error_detail = "no byte for 30 s"
        record.http_status = record.first_byte_s = record.first_text_s = None
        record.chunk_s, record.end_s = [], (record.start_s or 0.0) + 2.0
    else:
        record.outcome, record.error_kind = "incomplete", "stream_ended"
        record.error_detail = "the stream ended before [DONE]"
        record.chunk_s = record.chunk_s[:5]
        record.end_s = record.chunk_s[-1] + 0.0001


def make_records(concurrency: int, sessions: int, turns: int, rng: random.Random) -> list[RequestRecord]:
    """Warm-up and measured records of one point: `concurrency` lanes take sessions in order."""
    warm = _request(rng, f"w{concurrency}", "warmup", 0, 0, -2.0, 1)
    warm.phase = "warmup"
    records, free = [warm], [0.05 * lane for lane in range(concurrency)]
    spoils = {2: {5: "incomplete"}, 4: {7: "error", 13: "timeout", 22: "stall"}}.get(concurrency, {})
    for number in range(sessions):
        lane = min(range(concurrency), key=lambda each: free[each])
        now = free[lane]
        for turn in range(turns):
            index = number * turns + turn
            record = _request(
                rng, f"c{concurrency}-s{number:02d}-t{turn}", f"s{number:02d}", turn, lane, now, concurrency
            )
            if index in spoils:
                _spoil(record, spoils[index])
            records.append(record)
            now = (record.end_s or now) + 0.03
        free[lane] = now
    return sorted(records, key=lambda r: r.end_s or 0.0)


def make_evals(rng: random.Random, share: float) -> TaskOutcome:
    """An accuracy task whose replies are right with probability `share`; two of a hundred got no answer."""
    samples = []
    for number in range(TASK_ITEMS):
        words = rng.sample(["pear", "apple", "fig", "kiwi", "plum", "lime"], 3)
        expected = " ".join(sorted(words))
        answered = number not in (41, 77)
        reply = (expected if rng.random() < share else " ".join(words[::-1])) if answered else None
        samples.append(
            SampleRecord(
                item=f"{TASK}-{number:03d}",
                kind="sort",
                prompt=f"Sort these words: {' '.join(words)}\n<answer only>",
                expected=expected,
                reply=reply,
                extracted=reply,
                correct=reply == expected,
                outcome="ok" if answered else "timeout",
                error_kind=None if answered else "first_byte",
                finish_reason="stop" if answered else None,
                latency_s=round(rng.uniform(0.05, 0.2), 4),
                input_tokens=30 if answered else None,
                output_tokens=6 if answered else None,
                cached_tokens=0 if answered else None,
                task=TASK,
                version=TASK_VERSION,
            )
        )
    found = statistics_of(TASK_ITEMS, samples)
    score = score_of(TASK, TASK_VERSION, found, 12.5, None)
    return TaskOutcome(score, found, tuple(samples), (), "complete")


def _hashed(data: bytes) -> dict[str, object]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _write(folder: Path, name: str, data: bytes) -> dict[str, object]:
    (folder / name).write_bytes(data)
    return _hashed(data)


def _line_of(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _counters(prompt: float, cached: float, generated: float) -> EngineCounters:
    return EngineCounters(prompt, cached, generated)


def _said() -> tuple[dict[str, object], dict[str, object]]:
    """(declared, observed) provenance: one field disagrees, one was not declared."""
    declared: dict[str, object] = {
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "engine": "llamacpp",
        "engine_version": "b6100",
        "hardware": "cpu",
        "gpus": 0,
        "engine_args": {"ctx-size": 8192, "parallel": 4},
    }
    observed: dict[str, object] = {
        "engine": {
            "engine": "llamacpp",
            "version": "b6101",
            "build": "b6101-0a1b2c3",
            "served_model": "smollm2-135m",
            "model_file": "SmolLM2-135M-Instruct-Q4_K_M.gguf",
            "model_sha256": "ab" * 32,
            "details": {"slots": 4},
        },
        "host": {"cpu": "Example CPU @ 2.4 GHz", "cores": 2, "kernel": "6.1.0", "memory_bytes": 8 * 2**30},
        "packages": {"httptools": "0.6.4", "uvloop": "0.21.0"},
    }
    return declared, observed


def make_point(
    folder: Path, concurrency: int, *, seed: int = 0, sessions: int = 12, turns: int = 5, line: str = LINE
) -> Path:
    """Write one whole run folder below `folder` and return it; every byte depends on the arguments alone."""
    rng = random.Random(f"{seed}/{concurrency}")
    run_id = f"{line}-c{concurrency}"
    target = folder / run_id
    target.mkdir(parents=True)
    records = make_records(concurrency, sessions, turns, rng)
    outcome = make_evals(rng, 0.62)
    write_samples(target / "samples.jsonl", outcome.samples)
    write_evals(target / "evals.json", [outcome])
    point_id, series_id = content_hash(["point", concurrency], 16), content_hash(["series", concurrency], 16)
    manifest = {
        "schema": 1,
        "run_id": run_id,
        "point_id": point_id,
        "series_id": series_id,
        "concurrency": concurrency,
        "created_utc": f"2026-11-30T0{concurrency}:00:00Z",
        "expected": {
            "requests": sessions * turns,
            "evals": [{"task": TASK, "version": TASK_VERSION, "n": TASK_ITEMS}],
            "line_runs": [f"{line}-c{each}" for each in CONCURRENCIES],
        },
        "line_id": line,
        "suite": SUITE,
        "arm": ARM,
    }
    files = {
        "manifest.json": _write(target, "manifest.json", _line_of(manifest)),
        "requests.jsonl": _write(
            target, "requests.jsonl", b"".join(_line_of(asdict(record)) for record in records)
        ),
        "evals.json": _hashed((target / "evals.json").read_bytes()),
        "samples.jsonl": _hashed((target / "samples.jsonl").read_bytes()),
    }
    ok = [r for r in records if r.phase == "measured" and r.outcome == "ok"]
    prompt, cached = sum(r.input_tokens or 0 for r in ok), sum(r.cached_tokens or 0 for r in ok)
    declared, observed = _said()
    row = build_row(
        RowInputs(
            run_id=run_id,
            point_id=point_id,
            series_id=series_id,
            concurrency=concurrency,
            started_utc=f"2026-11-30T0{concurrency}:00:00Z",
            finished_utc=f"2026-11-30T0{concurrency}:01:30Z",
            identity={"model": "SmolLM2-135M-Instruct", "engine": "llamacpp", "concurrency": concurrency},
            declared=declared,
            observed=observed,
            workload={
                "id": content_hash(["workload", seed], 12),
                "name": "agentic-small",
                "source": {"generator": "agentic", "seed": seed},
                "sessions": sessions,
                "requests": sessions * turns,
                "input_tokens": sum(r.expected_input_tokens or 0 for r in records),
                "output_tokens": sum(r.requested_output_tokens or 0 for r in records),
            },
            cache_state={"kind": "marked", "marker_scope": "session"},
            gpus_deployed=0,
            planned_requests=sessions * turns,
            seen=summarise(records),
            loop=LoopFigures(
                0.21, sum(len(r.chunk_s) for r in records), loop_lag_p50_s=0.0001, loop_lag_p99_s=0.0012
            ),
            counters_before=_counters(1000, 0, 50),
            counters_after=_counters(
                1000 + prompt, cached * 1.005, 50 + sum(r.output_tokens or 0 for r in ok)
            ),
            theoretical=cached / prompt + 0.011,
            theoretical_blocks=cached / prompt - 0.012,
            evals=(outcome.score,),
            expected_evals=(TASK,),
            phases_s={
                "launch": 1.2,
                "ready": 0.9,
                "warmup": 0.4,
                "replay": 21.5,
                "evals": 12.5,
                "collect": 0.1,
            },
            files=files,
            versions={"servemark": "0.1.0"},
            line_id=line,
            suite=SUITE,
            arm=ARM,
        )
    )
    (target / "result.json").write_bytes(encode_result(row))
    return target


def make_failed(folder: Path, concurrency: int, *, seed: int = 0, line: str = LINE) -> Path:
    """A run folder of a run that failed in the engine: manifest, failure and half the records, but no
    result."""
    target = make_point(folder, concurrency, seed=seed, line=line)
    (target / "result.json").unlink()
    (target / "evals.json").unlink()
    raw = (target / "requests.jsonl").read_bytes()
    (target / "requests.jsonl").write_bytes(raw[: len(raw) // 2])
    failure = {
        "layer": "engine",
        "key": "results.missing_file",
        "values": {"path": "engine.log"},
        "at_utc": f"2026-11-30T0{concurrency}:00:21Z",
    }
    (target / "failure.json").write_bytes(_line_of(failure))
    return target


def make_line(folder: Path, seed: int = 0) -> list[Path]:
    """Three whole run folders of one line, in the order of concurrency 1, 2, 4."""
    return [make_point(folder, concurrency, seed=seed) for concurrency in CONCURRENCIES]


if __name__ == "__main__":
    for made in make_line(Path(sys.argv[1])):
        sys.stdout.write(f"{made}\n")
