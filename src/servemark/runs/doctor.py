"""Whether a home folder is sound: the store, run folders, sweeps, kept bytes; and what stands in it that nobody would see.

A finding is `broken` when something was lost, changed or cannot be read; all else is told so that a person may act on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.results.serialize import RESULT_NAME, read_result
from servemark.runs.folder import RunInfo, RunState, list_runs
from servemark.runs.sweep_attempts import WriterLock
from servemark.store.database import Store
from servemark.store.overview import left_out, orphans, quarantined, wanted_blobs, without_evals
from servemark.store.raw_files import RawFiles
from servemark.store.sweep_rows import SweepState
from servemark.store.sweeps import SweepStore

MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: message `runs.doctor.<kind>` with `values`; `count` things, some of their names, or an error."""

    kind: str
    broken: bool
    count: int = 1
    names: tuple[str, ...] = ()
    values: dict[str, object] = field(default_factory=dict)
    error: ServemarkError | None = None


def examine(home: Home) -> Iterator[Finding]:
    """Everything that is found, in the order: store, runs, sweeps, raw bytes, points. Writes nothing."""
    runs = list_runs(home.runs)
    yield from _runs(runs)
    yield from _sweeps(home)
    if not home.store.exists() or not home.store.stat().st_size:
        yield from _without_store(home, runs)
        return
    try:
        with Store.open(home.store, read_only=True) as store:
            yield from _store(store, home, runs)
    except ServemarkError as error:
        yield Finding("store", error.key != "store.older_schema", error=error)


def _without_store(home: Home, runs: list[RunInfo]) -> Iterator[Finding]:
    """No store, or an empty file: nothing was lost where nothing was ever imported."""
    kept = [str(path) for _, path in RawFiles(home.raw).all()]
    if kept:
        values: dict[str, object] = {"path": str(home.store), "folder": str(home.raw)}
        yield Finding("store_lost", True, len(kept), tuple(kept[:MAX_NAMES]), values)
    if any(run.state is RunState.COMPLETE for run in runs):
        values = {"path": str(home.store), "folder": str(home.runs)}
        yield Finding("no_store", False, values=values)


def _names(kind: str, broken: bool, names: list[str]) -> Iterator[Finding]:
    if names:
        yield Finding(kind, broken, len(names), tuple(names[:MAX_NAMES]))


def _runs(runs: list[RunInfo]) -> Iterator[Finding]:
    """Run folders: without a result, and with files that are not what their hashes say."""
    by_state: dict[RunState, list[str]] = {}
    for run in runs:
        by_state.setdefault(run.state, []).append(run.run_id)
    unfinished = [
        *by_state.get(RunState.FAILED, ()),
        *by_state.get(RunState.INTERRUPTED, ()),
        *by_state.get(RunState.DIED, ()),
    ]
    yield from _names("run_without_result", False, sorted(unfinished))
    changed = by_state.get(RunState.DAMAGED, [])
    for run in runs:
        if run.state is RunState.COMPLETE:
            try:
                read_result(run.path / RESULT_NAME)
            except ServemarkError:
                changed.append(run.run_id)
    yield from _names("run_changed", True, sorted(changed))


def _sweeps(home: Home) -> Iterator[Finding]:
    """Sweeps that are wanted, but nobody works on."""
    try:
        found = SweepStore.read(home.sweeps)
        if found is None:
            return
        with found:
            some = [one.sweep_id for one in found.sweeps() if one.state is SweepState.RUNNING]
    except ServemarkError as error:
        yield Finding("sweeps", True, error=error)
        return
    stopped = [one for one in some if WriterLock.holder(home.sweeps / one) is None]
    yield from _names("sweep_stopped", False, stopped)


def _store(store: Store, home: Home, runs: list[RunInfo]) -> Iterator[Finding]:
    problems = store.check()
    if problems:
        yield Finding("integrity", True, len(problems), tuple(problems[:MAX_NAMES]))
    there = {run.run_id: run for run in runs}
    kept = {row.run_id: row for row in store.rows()}
    missing = [
        run_id for run_id, run in there.items() if run.state is RunState.COMPLETE and run_id not in kept
    ]
    if missing:
        told = tuple(sorted(missing)[:MAX_NAMES])
        yield Finding("run_not_in_store", False, len(missing), told, {"folder": str(home.runs)})
    yield from _names("result_without_run", False, sorted(kept.keys() - there.keys()))
    yield from _names("run_without_evals", False, sorted(each for each, row in kept.items() if not row.evals))
    total, bare = without_evals(store)
    if bare:
        yield Finding("point_without_evals", False, bare, values={"of": total})
    yield from _raw(store, RawFiles(home.raw))
    for gate, severity, count in quarantined(store):
        yield Finding(f"gate_{severity}", False, count, (gate,), {"gate": gate})
    for each in left_out(store):
        values: dict[str, object] = {"status": each.status, "reason": each.reason, "values": each.values}
        yield Finding("left_out", False, each.rows, (), values)


def _raw(store: Store, raw: RawFiles) -> Iterator[Finding]:
    """Kept bytes, all of them read."""
    bad: dict[str, list[str]] = {"missing": [], "changed": []}
    for sha256, name in wanted_blobs(store).items():
        state = raw.check(sha256)
        if state != "ok":
            bad[state].append(f"{raw.path(sha256)} ({name})")
    for state, names in bad.items():
        yield from _names(f"raw_{state}", True, names)
    yield from _names("raw_orphan", False, [str(raw.path(sha256)) for sha256 in orphans(store, raw)])
    yield from _names("raw_leftover", False, [str(path) for path in raw.leftovers()])
