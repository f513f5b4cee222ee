"""Fixed lengths with a range ratio: the field's `random` dataset, as a seeded workload of single requests.

The field has two definitions of the range ratio r of a length L, and results of one cannot be compared with the
other's, so the rule has a name: `vllm` (vLLM's benchmark client) draws whole lengths evenly from
floor(L*(1-r)) to ceil(L*(1+r)), 0 <= r < 1, 0 is exact; `sglang` (SGLang's benchmark client, and vLLM's before
2025) draws from floor(L*r) to L, 0 < r <= 1, 1 is exact.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from servemark.base.errors import input_error
from servemark.traces.identity import workload_id
from servemark.traces.rng import SplitMix
from servemark.traces.types import Message, Segment, Session, Turn, Workload

GENERATOR_ID = "random/1"
RangeRule = Literal["vllm", "sglang"]
MAX_TOKENS = 10_000_000
MAX_REQUESTS = 2_000_000


@dataclass(frozen=True, slots=True)
class RandomLengths:
    """`isl`, `osl` in tokens; `prefix_tokens` more are shared by all prompts, before `isl`."""

    isl: int
    osl: int
    requests: int = 1000
    range_ratio: float | None = None
    range_rule: RangeRule = "vllm"
    seed: int = 0
    prefix_tokens: int = 0

    def check(self) -> None:
        """Raises ServemarkError for the first field that is out of range."""
        whole: tuple[tuple[str, int, int, int], ...] = (
            ("isl", self.isl, 1, MAX_TOKENS),
            ("osl", self.osl, 1, MAX_TOKENS),
            ("requests", self.requests, 1, MAX_REQUESTS),
            ("seed", self.seed, 0, 2**63 - 1),
            ("prefix", self.prefix_tokens, 0, MAX_TOKENS),
        )
        for name, value, low, high in whole:
            if not low <= value <= high:
                raise input_error(
                    "traces.option_out_of_range", option=name, value=value, low=f"{low} <= {name}", high=high
                )
        ratio = self.ratio()
        good = 0 <= ratio < 1 if self.range_rule == "vllm" else 0 < ratio <= 1
        if not good:
            low_high = ("0 <= ratio", "< 1") if self.range_rule == "vllm" else ("0 < ratio", "1")
            raise input_error(
                "traces.option_out_of_range", option="ratio", value=ratio, low=low_high[0], high=low_high[1]
            )

    def ratio(self) -> float:
        """The range ratio; exact lengths where none is given."""
        if self.range_ratio is not None:
            return self.range_ratio
        return 0.0 if self.range_rule == "vllm" else 1.0

    def bounds(self, length: int) -> tuple[int, int]:
        """Smallest and largest length that may be drawn around `length`."""
        ratio = self.ratio()
        if self.range_rule == "vllm":
            return max(1, math.floor(length * (1 - ratio))), math.ceil(length * (1 + ratio))
        return max(1, math.floor(length * ratio)), length


def random_workload(lengths: RandomLengths) -> Workload:
    """Sessions of one turn; equal arguments give equal workloads. Raises ServemarkError as `check` does."""
    lengths.check()
    rng = SplitMix([GENERATOR_ID, lengths.seed])
    base = f"{GENERATOR_ID}/{lengths.seed}"
    shared = (Segment(f"{base}/prefix", lengths.prefix_tokens),) if lengths.prefix_tokens else ()
    sessions: list[Session] = []
    for number in range(lengths.requests):
        inputs = rng.integer(*lengths.bounds(lengths.isl))
        outputs = rng.integer(*lengths.bounds(lengths.osl))
        prompt = (Message("user", (*shared, Segment(f"{base}/{number}", inputs))),)
        sessions.append(Session(f"r{number:07d}", (Turn(prompt, outputs),)))
    source: dict[str, object] = {"kind": "random", "generator": GENERATOR_ID, **asdict(lengths)}
    source["range_ratio"] = lengths.ratio()
    return Workload(workload_id(sessions), f"random {lengths.isl}/{lengths.osl}", tuple(sessions), source)


def parse_spec(spec: str) -> RandomLengths:
    """`random:isl=1000,osl=100,requests=500,ratio=0.2,rule=vllm,seed=0,prefix=0` as an object; isl and osl are
    required. Raises ServemarkError for a field that nobody reads, twice the same, or no number."""
    values: dict[str, str] = {}
    known = ("isl", "osl", "requests", "ratio", "rule", "seed", "prefix")
    for part in spec.removeprefix("random:").split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in known or name in values:
            raise input_error("traces.random_spec", part=part[:60], known=", ".join(known))
        values[name] = value
    rule = values.pop("rule", "vllm")
    if rule not in get_args(RangeRule):
        raise input_error("traces.random_spec", part=f"rule={rule}"[:60], known="vllm, sglang")
    numbers: dict[str, float] = {}
    for name, value in values.items():
        try:
            numbers[name] = float(value) if name == "ratio" else int(value[:20])
        except ValueError:
            raise input_error(
                "traces.random_spec", part=f"{name}={value}"[:60], known=", ".join(known)
            ) from None
    for name in ("isl", "osl"):
        if name not in numbers:
            raise input_error("traces.random_spec", part=f"{name}=", known=", ".join(known))
    found = RandomLengths(
        int(numbers["isl"]),
        int(numbers["osl"]),
        int(numbers.get("requests", 1000)),
        numbers.get("ratio"),
        "vllm" if rule == "vllm" else "sglang",
        int(numbers.get("seed", 0)),
        int(numbers.get("prefix", 0)),
    )
    found.check()
    return found
