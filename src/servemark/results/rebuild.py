"""The row's figures made again from the raw files of a run, for whoever doubts them.

What no raw file holds (the client's own health, the theoretical cache share) is absent here, not copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from servemark.evals.io import read_evals
from servemark.evals.runner import TaskOutcome
from servemark.metrics.derive import Row, field_value
from servemark.replay.record import RequestRecord
from servemark.replay.records_io import read_records
from servemark.results.row import ResultRow, WindowTokens
from servemark.results.serialize import EVALS_NAME, REQUESTS_NAME, row_to_json
from servemark.results.summary import Questions, Summary
from servemark.results.summary_file import summarise_file


@dataclass(frozen=True, slots=True)
class Raw:
    """The raw files of one run: the records as one pass saw them, and the file to look into again for a single
    one, since they may be too many to keep."""

    requests: Path
    seen: Summary
    tasks: tuple[TaskOutcome, ...]
    stored: Row
    """The row as JSON."""

    def measured(self) -> Iterator[tuple[int, RequestRecord]]:
        """(line number from 1, record) of each measured request, read now, in the file's order."""
        for line, record in read_records(self.requests):
            if record.phase == "measured":
                yield line, record

    def ok(self) -> Iterator[tuple[int, RequestRecord]]:
        """The same for those that ended well."""
        for line, record in self.measured():
            if record.outcome == "ok":
                yield line, record


def read_raw(folder: Path, row: ResultRow) -> Raw:
    """Read requests.jsonl, and evals.json where the row lists it. Raises ServemarkError naming a damaged
    file."""
    stored = row_to_json(row)
    return Raw(
        requests=folder / REQUESTS_NAME,
        seen=summarise_file(folder / REQUESTS_NAME, _questions(stored)),
        tasks=read_evals(folder / EVALS_NAME) if EVALS_NAME in row.files else (),
        stored=stored,
    )


def _questions(stored: Row) -> Questions:
    """The row's windows, of which only the moments are taken from it, and its limits."""
    windows = [window for which in ("window", "steady") if (window := _window(stored, which)) is not None]
    return Questions(tuple(dict.fromkeys(windows)), _limits(stored))


def _window(stored: Row, which: str) -> tuple[float, float] | None:
    start = field_value(stored, f"replayed.{which}.start_s")
    end = field_value(stored, f"replayed.{which}.end_s")
    return None if start is None or end is None else (start, end)


def _limits(stored: Row) -> dict[str, float]:
    replay = stored.get("replayed")
    asked = replay.get("slo") if isinstance(replay, dict) else None
    return dict(asked["limits"]) if isinstance(asked, dict) else {}


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


def _speculation(stored: Row) -> dict[str, float | None]:
    """Rises of the speculation counters that the row keeps, as in `evals.acceptance`: one that the first reading lacks
    began at 0."""
    place = "observed.engine_counters"
    found: dict[str, float | None] = {}
    for name in ("steps", "drafted", "accepted"):
        before, after = (field_value(stored, f"{place}.{when}.spec_{name}") for when in ("before", "after"))
        found[name] = None if after is None else after - (before or 0.0)
    return found


def _scores(tasks: Sequence[TaskOutcome]) -> list[dict[str, Any]]:
    """Each task's counts as they were made again from its samples while they were read."""
    names = ("correct", "n", "score", "unanswered")
    return [
        {"task": task.score.task, **{name: getattr(task.statistics, name) for name in names}}
        for task in tasks
    ]


def _inside(raw: Raw, which: str) -> WindowTokens | None:
    """Tokens within a window of the row, counted again."""
    window = _window(raw.stored, which)
    return None if window is None else raw.seen.tokens_inside(*window)


def rebuild(raw: Raw) -> dict[str, Any]:
    """A row-shaped mapping made from raw files alone; only the number of GPUs is taken from the stored
    row."""
    timed, steady = _inside(raw, "window"), _inside(raw, "steady")
    outcomes = ("ok", "error", "timeout", "incomplete", "cancelled")
    seen = raw.seen
    slo = seen.slo()
    return {
        "gpus_deployed": raw.stored.get("gpus_deployed"),
        "distributions": {name: asdict(each) for name, each in seen.distributions().items()},
        "window_s": seen.window_s() if timed is None else timed.window_s,
        "tokens": seen.row_tokens(timed),
        "replayed": {
            "steady": None if steady is None else asdict(steady),
            "slo": None if slo is None else asdict(slo),
        },
        "counts": {name: seen.outcomes[name] for name in outcomes},
        "stalls": seen.stalls,
        "achieved_concurrency": seen.live_sessions()[0],
        "cache": {"usage": seen.usage_cache_share(), "engine": _engine_share(raw.stored)},
        "speculation": _speculation(raw.stored),
        "evals": _scores(raw.tasks),
    }
