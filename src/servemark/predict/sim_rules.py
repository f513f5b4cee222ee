"""What a simulated replay obeys: the rules of `replay/` as plain values, and the deployment that answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from servemark.base.errors import input_error
from servemark.replay.arrivals import Arrivals
from servemark.replay.profiles import Profile
from servemark.replay.timeline import IdleCaps
from servemark.traces.types import CacheBust

Routing = Literal["sticky", "least_loaded", "round_robin", "random"]
"""Which worker takes a request. sticky: the one that the session tree's first request met, itself the least loaded.
least_loaded: the fewest requests waiting or running. round_robin: in turn. random: drawn by the seed."""

RAMP_S = 1.0
RAMP_STEP_S = 0.02
"""As in `replay.loop`: lanes start at most 20 ms apart and all within a second."""


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """How the workload is replayed. Times are seconds. Raises ServemarkError for what cannot be replayed.

    Closed loop: `concurrency` session trees are live. Open loop: `arrivals` says when requests come, and `concurrency` is
    None. All others mean what they mean in `replay.loop.LoopPlan` and `replay.open_loop.OpenPlan`. `client_s` is what the
    client itself adds between the moment at which a turn is due and its send.
    """

    concurrency: int | None
    arrivals: Arrivals | None = None
    duration_s: float | None = None
    max_requests: int | None = None
    grace_s: float | None = None
    start_share: tuple[float, float] | None = None
    start_seed: int = 42
    pressure_requests: int = 0
    warmup_grace_s: float = 1800.0
    idle_caps: IdleCaps = field(default_factory=IdleCaps)
    cache_bust: CacheBust = "session"
    think_scale: float = 1.0
    ramp_s: float | None = None
    max_in_flight: int | None = None
    client_s: float = 0.0

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.arrivals is None):
            raise input_error("predict.replay.one_load")
        if self.concurrency is not None and self.concurrency < 1:
            raise input_error("replay.bad_concurrency", value=self.concurrency)
        if not 0 <= self.think_scale < math.inf:
            raise input_error("replay.bad_think_scale", value=self.think_scale)
        if self.ramp_s is not None and not 0 <= self.ramp_s < math.inf:
            raise input_error("replay.bad_ramp", value=self.ramp_s)
        if self.duration_s is not None and not 0 < self.duration_s < math.inf:
            raise input_error("replay.bad_duration", value=self.duration_s)
        for count in (self.max_requests, self.max_in_flight):
            if count is not None and count < 1:
                raise input_error("replay.bad_requests", value=count)
        if self.arrivals is not None and self.arrivals.kind == "ramp" and self.duration_s is None:
            raise input_error("replay.open_endless")
        if self.start_share is not None:
            _at_least("start_share", self.start_share[0], 0.0)
            _at_least("start_share", self.start_share[1], self.start_share[0])
        for name in ("grace_s", "warmup_grace_s", "client_s", "pressure_requests"):
            _at_least(name, getattr(self, name), 0.0)
        _at_least("tree_s", self.idle_caps.tree_s, 0.0)
        _at_least("system_s", self.idle_caps.system_s, 0.0)

    @property
    def repeats(self) -> bool:
        """True when sessions come again until the end."""
        return self.duration_s is not None or self.max_requests is not None

    def lanes(self, sessions: int) -> int:
        """Lanes that can ever be live."""
        lanes = self.concurrency or 0
        return lanes if self.repeats else min(lanes, sessions)

    def ramp_step_s(self, sessions: int) -> float:
        """Seconds between the starts of neighbouring lanes."""
        lanes = self.lanes(sessions)
        if lanes < 2:
            return 0.0
        return (
            self.ramp_s / (lanes - 1) if self.ramp_s is not None else min(RAMP_STEP_S, RAMP_S / (lanes - 1))
        )


def rules_of(profile: Profile, concurrency: int) -> ReplayRules:
    """A named profile's rules at one concurrency."""
    return ReplayRules(
        concurrency,
        duration_s=profile.duration_s,
        grace_s=profile.grace_s,
        start_share=profile.start_share,
        start_seed=profile.seed,
        pressure_requests=profile.pressure_requests,
        warmup_grace_s=profile.warmup_grace_s,
        idle_caps=profile.idle_caps,
        cache_bust=profile.cache_bust,
    )


@dataclass(frozen=True, slots=True)
class Deployment:
    """The engines. With `decode_workers` 0 each of `workers` does both; else `workers` prefill and `decode_workers`
    decode (1P1D, xPyD). Raises ServemarkError for what cannot serve.

    `gpus`: of all workers together, None where they are not known. `max_running`: requests that one worker runs at once.
    `kv_tokens`: what one worker's KV pool holds; None: no limit. A
    simulated cache that knows its own pool takes its place. `decode_kv_tokens`: a decode worker's; None: as
    `kv_tokens`. `chunk_tokens`: prompt tokens that one step carries at most. `prefills_at_once`: prompts that a worker
    computes at the same time, each in its own time; None: no limit, for step times whose prefill already holds the wait
    for other prompts (times to first token that were measured under load); a prefill worker's then depend on the streams
    of the decode workers.
    `kv_bytes_per_token` and `kv_bytes_fixed` (state that does not grow with the prompt) go from prefill to decode at
    `transfer_bytes_per_s`, one prompt after the other from each prefill worker, after `transfer_s`. What a cache loads
    from a lower tier comes at `load_bytes_per_s`. None: in no time.
    """

    workers: int = 1
    decode_workers: int = 0
    gpus: int | None = None
    max_running: int = 256
    kv_tokens: int | None = None
    decode_kv_tokens: int | None = None
    chunk_tokens: int = 8192
    prefills_at_once: int | None = 1
    routing: Routing = "sticky"
    seed: int = 42
    kv_bytes_per_token: float = 0.0
    kv_bytes_fixed: float = 0.0
    transfer_bytes_per_s: float | None = None
    transfer_s: float = 0.0
    load_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "workers",
            "max_running",
            "chunk_tokens",
            "gpus",
            "kv_tokens",
            "decode_kv_tokens",
            "prefills_at_once",
        ):
            _at_least(name, getattr(self, name), 1)
        for name in ("decode_workers", "kv_bytes_per_token", "kv_bytes_fixed", "transfer_s"):
            _at_least(name, getattr(self, name), 0)
        for name in ("transfer_bytes_per_s", "load_bytes_per_s"):
            _at_least(name, getattr(self, name), 1)
        if self.routing not in ("sticky", "least_loaded", "round_robin", "random"):
            raise input_error("predict.replay.bad_routing", value=self.routing)


def _at_least(name: str, value: float | None, low: float) -> None:
    """Raises ServemarkError for a number below `low`, an infinite one or none; None passes."""
    if value is not None and not low <= value < math.inf:
        raise input_error("predict.replay.bad_rule", field=name, value=value, low=f"{low:g}")
