"""Seeded agentic sessions: a shared system prompt and tool list, then a context that grows turn by turn.

Turn k's prompt is everything that went before it: system and tools, the task, and for every earlier turn a
stand-in of the recorded length for the assistant's reply and a tool result. Tool results travel as user
messages, because every chat template accepts system, user and assistant, and not every one accepts tool.
"""

from __future__ import annotations

from servemark.traces.identity import workload_id
from servemark.traces.recipe import AgenticRecipe, LogNormalTokens
from servemark.traces.rng import SplitMix
from servemark.traces.types import Message, Role, Segment, Session, Turn, Workload

GENERATOR_ID = "agentic/1"
"""Changes whenever equal recipes would give another workload."""


def generate(recipe: AgenticRecipe) -> Workload:
    """The workload of a recipe: equal recipes give equal workloads, on every machine and Python version.

    Think times are rounded to whole milliseconds. Raises nothing for a recipe made by `from_mapping`.
    """
    base = f"{GENERATOR_ID}/{recipe.seed}"
    shared = [Segment(f"{base}/system/{recipe.system_tokens}", recipe.system_tokens)]
    if recipe.tools_tokens:
        shared.append(Segment(f"{base}/tools/{recipe.tools_tokens}", recipe.tools_tokens))
    system = Message("system", tuple(shared))
    sessions = tuple(_session(recipe, system, index) for index in range(recipe.sessions))
    source: dict[str, object] = {"kind": "agentic", "generator": GENERATOR_ID, "recipe": recipe.to_mapping()}
    return Workload(workload_id(sessions), recipe.name, sessions, source)


def _session(recipe: AgenticRecipe, system: Message, index: int) -> Session:
    rng = SplitMix([GENERATOR_ID, recipe.seed, index])
    base = f"{GENERATOR_ID}/{recipe.seed}/s{index}"

    def message(role: Role, part: str, tokens: int) -> Message:
        return Message(role, (Segment(f"{base}/{part}", tokens),))

    first = rng.integer(recipe.first_user_tokens.min, recipe.first_user_tokens.max)
    context = [system, message("user", "task", first)]
    turns: list[Turn] = []
    output = 0
    for number in range(rng.integer(recipe.turns.min, recipe.turns.max)):
        think_s = 0.0
        if number:
            result = _tokens(rng, recipe.tool_result_tokens)
            context.append(message("assistant", f"t{number - 1}/reply", output))
            context.append(message("user", f"t{number}/result", result))
            drawn = rng.lognormal(recipe.think_s.median, recipe.think_s.sigma)
            think_s = round(min(recipe.think_s.cap, drawn) * recipe.think_scale, 3)
        output = _tokens(rng, recipe.output_tokens)
        turns.append(Turn(tuple(context), output, think_s))
    return Session(f"s{index:04d}", tuple(turns))


def _tokens(rng: SplitMix, law: LogNormalTokens) -> int:
    return max(law.min, min(law.max, round(rng.lognormal(law.median, law.sigma))))
