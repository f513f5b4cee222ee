"""The row's figures made again from the raw files of a run, for whoever doubts them.

What no raw file holds (the client's own health, the theoretical cache share) is absent here, not copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from servemark.evals.io import read_evals
from servemark.evals.runner import TaskOutcome
from servemark.metrics.derive import Row, field_value
from servemark.replay.record import RequestRecord
from servemark.replay.records_io import read_records
from servemark.results import measures
from servemark.results.row import ResultRow, WindowTokens
from servemark.results.serialize import EVALS_NAME, REQUESTS_NAME, row_to_json


@dataclass(frozen=True, slots=True)
class Raw:
    """The raw files of one run. `lines` maps a record's identity in memory to its line number, from 1."""

    measured: tuple[RequestRecord, ...]
    ok: tuple[RequestRecord, ...]
    lines: dict[int, int]
    tasks: tuple[TaskOutcome, ...]
    stored: Row
    """The row as JSON."""

    def line(self, record: RequestRecord) -> int:
        """Line number of a record that came from this `Raw`."""
        return self.lines[id(record)]


def read_raw(folder: Path, row: ResultRow) -> Raw:
    """Read requests.jsonl, and evals.json where the row lists it. Raises ServemarkError naming a damaged
    file."""
    numbered = [
        (line, record) for line, record in read_records(folder / REQUESTS_NAME) if record.phase == "measured"
    ]
    records = [record for _, record in numbered]
    return Raw(
        measured=tuple(records),
        ok=tuple(measures.only_ok(records)),
        lines={id(record): line for line, record in numbered},
        tasks=read_evals(folder / EVALS_NAME) if EVALS_NAME in row.files else (),
        stored=row_to_json(row),
    )


def _engine_share(stored: Row) -> float | None:
    """The engine's cache share from the counter readings that the row keeps."""
    place = "observed.engine_counters"
    before, after = (
        field_value(stored, f"{place}.{when}.cached_prompt_tokens") for when in ("before", "after")
    )
    first, last = (field_value(stored, f"{place}.{when}.prompt_tokens") for when in ("before", "after"))
    if before is None or after is None or first is None or last is None or last <= first:
        return None
    return (after - before) / (last - first)


def _scores(tasks: Sequence[TaskOutcome]) -> list[dict[str, Any]]:
    """Each task's score counted again from its samples; items without a sample count as wrong."""
    found = []
    for task in tasks:
        n, correct = task.score.expected_n, sum(sample.correct for sample in task.samples)
        answered = sum(sample.extracted is not None for sample in task.samples)
        score = correct / n if n else None
        found.append(
            {
                "task": task.score.task,
                "correct": correct,
                "n": n,
                "score": score,
                "unanswered": n - answered,
            }
        )
    return found


def _inside(raw: Raw, which: str) -> WindowTokens | None:
    """Tokens within a window of the row, counted again; only its two moments are taken from the row."""
    start = field_value(raw.stored, f"replayed.{which}.start_s")
    end = field_value(raw.stored, f"replayed.{which}.end_s")
    return None if start is None or end is None else measures.tokens_inside(raw.measured, start, end)


def _slo(raw: Raw) -> dict[str, Any] | None:
    """Good requests by the row's limits, counted again."""
    replay = raw.stored.get("replayed")
    asked = replay.get("slo") if isinstance(replay, dict) else None
    if not isinstance(asked, dict):
        return None
    return asdict(measures.slo_of(raw.measured, asked["limits"]))


def rebuild(raw: Raw) -> dict[str, Any]:
    """A row-shaped mapping made from raw files alone; only the number of GPUs is taken from the stored
    row."""
    timed, steady = _inside(raw, "window"), _inside(raw, "steady")
    outcomes = ("ok", "error", "timeout", "incomplete", "cancelled")
    return {
        "gpus_deployed": raw.stored.get("gpus_deployed"),
        "distributions": {name: asdict(each) for name, each in measures.distributions(raw.ok).items()},
        "window_s": measures.window_s(raw.measured) if timed is None else timed.window_s,
        "tokens": measures.row_tokens(raw.ok, timed),
        "replayed": {"steady": None if steady is None else asdict(steady), "slo": _slo(raw)},
        "counts": {name: sum(record.outcome == name for record in raw.measured) for name in outcomes},
        "stalls": sum(measures.stalls_of(record) for record in raw.ok),
        "achieved_concurrency": measures.live_sessions(raw.measured)[0],
        "cache": {"usage": measures.usage_cache_share(raw.ok), "engine": _engine_share(raw.stored)},
        "evals": _scores(raw.tasks),
    }
