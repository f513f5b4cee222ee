"""What a replay did, as plain values: the same for every way of replaying, and mergeable over processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from servemark.replay.health import LoopHealth
from servemark.replay.stop import StopMode
from servemark.replay.timeline import IdleShift


@dataclass(frozen=True, slots=True)
class LiveSample:
    """Live session trees and requests in flight at one moment of the client's clock."""

    at_s: float
    trees: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One client process of several. `offset_s` is how far its monotonic clock reads ahead of the first
    process's, known to within `offset_error_s`; `lost` says that it ended without a word."""

    process: int
    sent: int
    lag_p99_s: float | None
    cpu_s: float | None
    cpu_share_max: float | None
    offset_s: float | None
    offset_error_s: float | None
    lost: bool


@dataclass(frozen=True, slots=True)
class LoopOutcome:
    """What a replay did. `planned == sent + not_sent`; `sent` counts the measured records handed to the sink.
    For a replay that ends by time `planned` is what was sent.

    The window lasts from the start of the first lane to the moment when the last one let go of its session,
    just after its last reply, in seconds since the client's zero; for a replay that ends by time, to the end
    of that time. The steady window is the part in which every lane held a session. `lane_live_s` is the time
    that lanes held a session, summed over lanes. `stop_mode` is None when nobody stopped the replay.
    `cut_off` lists requests that were given up at the end of a grace, by id.
    """

    planned: int
    sent: int
    not_sent: int
    concurrency: int
    window_start_s: float
    window_end_s: float
    lane_live_s: float
    max_in_flight: int
    health: LoopHealth
    stop_mode: StopMode | None
    stop_reason: str | None
    steady_start_s: float | None = None
    steady_end_s: float | None = None
    timed: bool = False
    passes: int = 1
    shifts: Sequence[IdleShift] = ()
    live: Sequence[LiveSample] = ()
    live_interval_s: float = 1.0
    cut_off: Sequence[str] = ()
    warmup_cut_off: Sequence[str] = ()
    held_by_cap: int = 0
    processes: Sequence[ProcessFacts] = field(default=())

    @property
    def window_s(self) -> float:
        """Length of the window."""
        return self.window_end_s - self.window_start_s

    @property
    def achieved_concurrency(self) -> float | None:
        """Sessions live on average over the window; None for a window without length."""
        return self.lane_live_s / self.window_s if self.window_s > 0 else None

    @property
    def partial(self) -> bool:
        """True when the replay did not come to its own end: it was stopped, or a process was lost."""
        return self.stop_mode is not None or any(process.lost for process in self.processes)


ReplayOutcome = LoopOutcome
