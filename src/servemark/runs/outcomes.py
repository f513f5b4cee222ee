"""How the runs of a home folder ended, as `analysis.reliability` counts them."""

from __future__ import annotations

from pathlib import Path

from servemark.analysis.reliability import RUN, Outcome, failure_words
from servemark.catalog.hardware import gpu_of_label
from servemark.runs.folder import RunInfo, RunState, list_runs

NEWEST = 1000
"""Runs that are looked at; each is read and checked against its hashes."""
_LAYERS = {RunState.PARTIAL: "partial", RunState.DIED: "died", RunState.DAMAGED: "damaged"}


def run_outcomes(runs: Path, newest: int = NEWEST) -> list[Outcome]:
    """The newest runs below a folder that ended. Those that go on, or that somebody ended by hand, say nothing about
    reliability and are left out. Raises ServemarkError (layer home) for a folder that cannot be read."""
    return [one for info in list_runs(runs, newest) if (one := outcome_of(info)) is not None]


def outcome_of(info: RunInfo) -> Outcome | None:
    """One run's outcome; None where it does not count or nobody says when it was."""
    manifest = info.manifest or {}
    declared = manifest.get("declared")
    runner = str(declared.get("hardware") or "") if isinstance(declared, dict) else ""
    gpu = gpu_of_label(runner)
    hardware = (gpu.name if gpu is not None else runner) or "unknown"
    day = str(manifest.get("created_utc") or "")[:10] or _day_of_id(info.run_id)
    if info.state in (RunState.RUNNING, RunState.INTERRUPTED) or len(day) != len("2026-01-01"):
        return None
    if info.state is RunState.COMPLETE:
        return Outcome(RUN, hardware, day, 1, 1)
    if info.state is RunState.FAILED:
        layer, what, values = failure_words(info.failure or {})
        return Outcome(RUN, hardware, day, 0, 1, layer, what, values)
    layer = _LAYERS[info.state]
    return Outcome(RUN, hardware, day, 0, 1, layer, f"reliability.{layer}")


def _day_of_id(run_id: str) -> str:
    """Run ids begin with their time: `20261130-...`."""
    stamp = run_id[:8]
    if not (stamp.isascii() and stamp.isdigit()):
        return ""
    return f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:]}"
