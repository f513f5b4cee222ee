"""Seeded agentic session trees whose statistics match the published ones of recorded coding-agent sessions.

Published figures (corpus cc-traces-weka-062126 and replays of its 256k variant; the defaults of `TreeRecipe`
aim at them, `PUBLISHED` states them): prompts of main turns 134,000 tokens in the mean, of sub-agents 59,000;
replies 1,240 and 694; 51 % of requests by sub-agents, about 5 turns a sub-agent stream, sub-agents in 45 % of
sessions; gaps with median 2.4 s and mean 35 s (main), 1.7 s and 7 s (sub-agents); an unbounded prefix cache
would give back 0.969 of all prompt tokens.

A main stream starts with system, tools and a task, grows by the reply and a tool result each turn, and is cut
back to its front and a summary when it reaches the longest context. A sub-agent group is some streams that
start together from a front which all sub-agents of the session share. Nothing here is taken from a recorded
session but those figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from servemark.base.errors import input_error
from servemark.traces.rng import SplitMix
from servemark.traces.weka import WekaRow, WekaSession

GENERATOR_ID = "agentic-tree/1"
"""Changes whenever equal recipes would give other bytes."""
BLOCK = 64
MODEL = "synthetic"
PUBLISHED: dict[str, float] = {
    "isl_mean": 93_600, "isl_main_mean": 134_000, "isl_sub_agent_mean": 59_000,
    "osl_mean": 936, "osl_main_mean": 1_240, "osl_sub_agent_mean": 694,
    "sub_agent_request_share": 0.51, "sub_agent_turns_mean": 5, "sessions_with_sub_agents_share": 175 / 393,
    "requests_per_session_median": 75, "gap_main_p50_s": 2.4, "gap_main_mean_s": 35,
    "gap_sub_agent_p50_s": 1.7, "gap_sub_agent_mean_s": 7, "hit_ceiling": 0.969,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A lognormal law by its median and the sigma of the logarithm, clipped to low..high."""

    median: float
    sigma: float
    low: float
    high: float

    def draw(self, rng: SplitMix, scale: float = 1.0) -> float:
        """One value, times `scale`."""
        return min(self.high, max(self.low, rng.lognormal(self.median, self.sigma))) * scale


@dataclass(frozen=True, slots=True)
class TreeRecipe:
    """`scale` multiplies every length (also `max_context_tokens`), `think_scale` every gap; the rest of a
    session stays. `seed` and `sessions` are free; session i does not depend on how many follow it."""

    sessions: int
    seed: int = 0
    scale: float = 1.0
    think_scale: float = 1.0
    max_context_tokens: int = 256_000
    name: str = "agentic-tree"

    def check(self) -> None:
        """Raises ServemarkError for the first field out of range."""
        for field, value, low, high in (
            ("sessions", self.sessions, 1, 100_000),
            ("seed", self.seed, 0, 2**63 - 1),
            ("scale", self.scale, 0.001, 10.0),
            ("think_scale", self.think_scale, 0.0, 1000.0),
            ("max_context", self.max_context_tokens, 100_000, 4_000_000),
        ):
            if not low <= value <= high:
                raise input_error(
                    "traces.option_out_of_range",
                    option=field,
                    value=value,
                    low=f"{low} <= {field}",
                    high=high,
                )

    def to_mapping(self) -> dict[str, object]:
        """JSON-ready; with the generator's id."""
        return {"generator": GENERATOR_ID, **asdict(self)}


_MAIN_TURNS = LogNormal(46, 1.05, 20, 2_000)
_GROUPS = LogNormal(7.4, 0.75, 1, 80)
_STREAMS = LogNormal(4.2, 0.45, 1, 16)
_STREAM_TURNS = LogNormal(4.4, 0.5, 1, 40)
_SYSTEM = LogNormal(13_000, 0.15, 10_000, 17_000)
_TASK = LogNormal(9_000, 0.8, 300, 60_000)
_MAIN_GROWTH = LogNormal(1_300, 1.0, 64, 40_000)
_SUMMARY = LogNormal(45_000, 0.3, 5_000, 90_000)
_SUB_FRONT = LogNormal(54_500, 0.25, 15_000, 120_000)
_SUB_TASK = LogNormal(900, 0.7, 64, 8_000)
_SUB_GROWTH = LogNormal(600, 1.0, 64, 20_000)
_MAIN_OUT = LogNormal(478, 1.4, 4, 32_000)
_SUB_OUT = LogNormal(266, 1.4, 4, 32_000)
_MAIN_GAP = LogNormal(2.4, 2.4, 0.0, 3_600.0)
_SUB_GAP = LogNormal(1.7, 1.72, 0.0, 1_800.0)
_WITH_SUB_AGENTS = 175 / 393
_BACKGROUND = 0.15
_SECONDS_A_TOKEN = 0.012


def make_sessions(recipe: TreeRecipe) -> Iterator[WekaSession]:
    """The sessions of a recipe, one by one: equal recipes give equal sessions. Raises ServemarkError as `check`."""
    recipe.check()
    for index in range(recipe.sessions):
        yield _Maker(recipe, index).session()


class _Maker:
    """Makes one session. Ids count up in the order in which blocks are first seen."""

    def __init__(self, recipe: TreeRecipe, index: int) -> None:
        self.recipe = recipe
        self.index = index
        self.rng = SplitMix([GENERATOR_ID, recipe.seed, index])
        self.next_id = 0
        self.agents = 0
        self.sub_front: list[int] = []

    def blocks(self, law: LogNormal) -> int:
        return max(1, round(law.draw(self.rng, self.recipe.scale) / BLOCK))

    def fresh(self, count: int) -> list[int]:
        made = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        return made

    def gap_s(self, law: LogNormal) -> float:
        return round(law.draw(self.rng, self.recipe.think_scale), 3)

    def row(self, t: float, ids: list[int], out: LogNormal, gap: float | None) -> WekaRow:
        output = max(1, round(out.draw(self.rng, self.recipe.scale)))
        ttft = round(0.2 + len(ids) * BLOCK * 2e-6, 3)
        return WekaRow(
            t=round(t, 3),
            type="s",
            model=MODEL,
            in_=len(ids) * BLOCK,
            out=output,
            hash_ids=list(ids),
            api_time=round(ttft + output * _SECONDS_A_TOKEN, 3),
            think_time=gap,
            ttft=ttft,
        )

    def session(self) -> WekaSession:
        rng = self.rng
        turns = round(_MAIN_TURNS.draw(rng))
        front = self.fresh(self.blocks(_SYSTEM))
        ids = front + self.fresh(self.blocks(_TASK))
        at = self._groups(turns) if rng.uniform() < _WITH_SUB_AGENTS else {}
        limit = round(self.recipe.max_context_tokens * self.recipe.scale / BLOCK)
        rows: list[WekaRow] = []
        clock = 0.0
        for number in range(turns):
            gap = self.gap_s(_MAIN_GAP) if number else None
            clock += gap or 0.0
            rows.append(self.row(clock, ids, _MAIN_OUT, gap))
            end = clock = rows[-1].t + (rows[-1].api_time or 0.0)
            for _ in range(at.get(number, 0)):
                group, group_end = self.group(end)
                rows.append(group)
                if rng.uniform() >= _BACKGROUND:
                    clock = max(clock, group_end)
            grown = self.fresh(max(1, (rows[-1].out or 0) // BLOCK) + self.blocks(_MAIN_GROWTH))
            if len(ids) + len(grown) > limit:
                ids = front + self.fresh(min(self.blocks(_SUMMARY), limit - len(front) - len(grown)))
            ids = ids + grown
        return WekaSession(
            f"{self.recipe.name}-{self.recipe.seed}-{self.index:05d}", BLOCK, "local", rows, [MODEL],
            0, len(front) * BLOCK,
        )  # fmt: skip

    def _groups(self, turns: int) -> dict[int, int]:
        """Turn -> groups that it starts: more in longer sessions."""
        law = _GROUPS
        count = max(1, round(law.draw(self.rng) * turns / 90))
        at: dict[int, int] = {}
        for _ in range(count):
            turn = self.rng.integer(0, turns - 1)
            at[turn] = at.get(turn, 0) + 1
        return at

    def group(self, start: float) -> tuple[WekaRow, float]:
        """A sub-agent group that starts soon after `start`, and when it has ended."""
        rng = self.rng
        if not self.sub_front:
            self.sub_front = self.fresh(self.blocks(_SUB_FRONT))
        self.agents += 1
        begin = start + 0.05
        rows: list[WekaRow] = []
        for _ in range(round(_STREAMS.draw(rng))):
            ids = self.sub_front + self.fresh(self.blocks(_SUB_TASK))
            clock = begin
            for number in range(max(1, round(_STREAM_TURNS.draw(rng)))):
                gap = self.gap_s(_SUB_GAP) if number else None
                clock += gap or 0.0
                rows.append(self.row(clock, ids, _SUB_OUT, gap))
                clock = rows[-1].t + (rows[-1].api_time or 0.0)
                ids = ids + self.fresh(max(1, (rows[-1].out or 0) // BLOCK) + self.blocks(_SUB_GROWTH))
        rows.sort(key=lambda r: r.t)
        end = max(r.t + (r.api_time or 0.0) for r in rows)
        group = WekaRow(
            t=round(begin, 3),
            type="subagent",
            agent_id=f"agent-{self.agents}",
            subagent_type="worker",
            duration_ms=round((end - begin) * 1000),
            total_tokens=sum((r.in_ or 0) + (r.out or 0) for r in rows),
            tool_use_count=len(rows),
            status="completed",
            models=[MODEL],
            requests=rows,
            tool_tokens=0,
            system_tokens=len(self.sub_front) * BLOCK,
        )
        return group, end
