"""The recipe of a generated workload: read from a plain mapping, every field checked, every size bounded.

As a mapping (YAML or JSON), all fields required unless a default is given:

    seed: 7                                  # 0..2^63-1
    sessions: 8                              # session trees
    turns: [4, 6]                            # requests of one session, smallest and largest
    system_tokens: 200                       # shared by all sessions
    tools_tokens: 600                        # shared by all sessions; 0 for none
    first_user_tokens: [40, 120]
    tool_result_tokens: {median: 120, sigma: 0.8, min: 20, max: 400}     # lognormal, clipped
    output_tokens: {median: 40, sigma: 0.5, min: 8, max: 96}             # lognormal, clipped
    think_s: {median: 2.4, sigma: 1.2, cap: 60}                          # lognormal, seconds, clipped at cap
    think_scale: 1.0                         # multiplies every think time; default 1
    kind: agentic                            # optional, must be `agentic`
    name: agentic                            # optional
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from servemark.base.errors import ServemarkError, input_error

MAX_SEED = 2**63 - 1
MAX_SESSIONS = 100_000
MAX_TURNS = 5_000
MAX_TOKENS = 2_000_000
"""Of any one message: twice the longest context that anyone serves today."""
MAX_CONTEXT_TOKENS = 10_000_000
"""Of any prompt and its output at their longest."""
MAX_THINK_S = 86_400.0
MAX_MESSAGE_REFS = 20_000_000
"""Message references of all prompts, about sessions x turns^2: 8 bytes each in memory."""


@dataclass(frozen=True, slots=True)
class IntRange:
    """Integers from `min` to `max`, both included, all equally likely."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class LogNormalTokens:
    """Token counts: lognormal with this median and sigma (of the logarithm), rounded, clipped to min..max."""

    median: float
    sigma: float
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class LogNormalSeconds:
    """Seconds: lognormal with this median and sigma (of the logarithm), clipped at `cap`."""

    median: float
    sigma: float
    cap: float


@dataclass(frozen=True, slots=True)
class AgenticRecipe:
    """See the module's docstring for fields and units. Build one with `from_mapping`, which checks."""

    seed: int
    sessions: int
    turns: IntRange
    system_tokens: int
    tools_tokens: int
    first_user_tokens: IntRange
    tool_result_tokens: LogNormalTokens
    output_tokens: LogNormalTokens
    think_s: LogNormalSeconds
    think_scale: float = 1.0
    name: str = "agentic"

    @classmethod
    def from_mapping(cls, data: Mapping[str, object], where: str | None = None) -> AgenticRecipe:
        """Read and check; raises the first of `recipe_problems`. `where` is put before the message."""
        reader = _Reader(data, where)
        recipe = reader.recipe()
        if reader.problems or recipe is None:
            raise reader.problems[0]
        return recipe

    def to_mapping(self) -> dict[str, object]:
        """The mapping that `from_mapping` reads back to an equal recipe; goes into `Workload.source`."""
        plain = asdict(self)
        for field in ("turns", "first_user_tokens"):
            plain[field] = [plain[field]["min"], plain[field]["max"]]
        return {"kind": "agentic", **plain}

    @property
    def worst_context_tokens(self) -> int:
        """Upper bound of prompt + output tokens of any turn, chat template not counted."""
        later = self.turns.max - 1
        grown = later * (self.output_tokens.max + self.tool_result_tokens.max)
        first = self.system_tokens + self.tools_tokens + self.first_user_tokens.max
        return first + grown + self.output_tokens.max


FIELDS = (
    "kind", "name", "seed", "sessions", "turns", "system_tokens", "tools_tokens", "first_user_tokens",
    "tool_result_tokens", "output_tokens", "think_s", "think_scale",
)  # fmt: skip


def recipe_problems(data: Mapping[str, object], where: str | None = None) -> list[ServemarkError]:
    """Everything that is wrong with a recipe's mapping, in the order of its fields; [] when it is good."""
    reader = _Reader(data, where)
    reader.recipe()
    return reader.problems


class _Reader:
    """Reads typed fields out of an untrusted mapping and collects what is wrong."""

    def __init__(self, data: object, where: str | None) -> None:
        self.where = where
        self.problems: list[ServemarkError] = []
        self.data: Mapping[object, object] = data if isinstance(data, Mapping) else {}
        if not isinstance(data, Mapping):
            self.add("traces.recipe_not_mapping", got=_kind(data))

    def add(self, key: str, **values: object) -> None:
        self.problems.append(input_error(key, where=self.where, **values))

    def unknown(self, mapping: Mapping[object, object], known: tuple[str, ...], prefix: str = "") -> None:
        for field in mapping:
            if field not in known:
                said = _shown(field)
                near = difflib.get_close_matches(said, known, n=1, cutoff=0.5)
                key = "traces.recipe_unknown_field_near" if near else "traces.recipe_unknown_field"
                values = {"field": prefix + said, "known": ", ".join(known)}
                self.add(key, **values, **({"near": prefix + near[0]} if near else {}))

    def number(self, value: object, field: str, low: float, high: float, whole: bool) -> float | None:
        of_kind = isinstance(value, int) if whole else isinstance(value, int | float)
        if not isinstance(value, int | float) or isinstance(value, bool) or not of_kind:
            said = "integer" if whole else "number"
            self.add("traces.recipe_wrong_type", field=field, expected=said, got=_kind(value))
            return None
        if not low <= value <= high:  # also false for NaN
            limits = {"low": f"{low:.12g}", "high": f"{high:.12g}"}
            self.add("traces.recipe_out_of_range", field=field, value=_shown(value), **limits)
            return None
        return value

    def whole(self, field: str, low: int, high: int) -> int | None:
        if field not in self.data:
            self.add("traces.recipe_missing_field", field=field)
            return None
        found = self.number(self.data[field], field, low, high, True)
        return None if found is None else int(found)

    def range(self, field: str, low: int, high: int) -> IntRange | None:
        if field not in self.data:
            self.add("traces.recipe_missing_field", field=field)
            return None
        value = self.data[field]
        if not isinstance(value, list | tuple) or len(value) != 2:
            self.add("traces.recipe_not_pair", field=field, got=_kind(value))
            return None
        ends = [self.number(v, field, low, high, True) for v in value]
        if ends[0] is None or ends[1] is None:
            return None
        if ends[0] > ends[1]:
            self.add("traces.recipe_reversed", field=field, low=ends[0], high=ends[1])
            return None
        return IntRange(int(ends[0]), int(ends[1]))

    def parts(self, field: str, known: tuple[str, ...]) -> Mapping[object, object] | None:
        if field not in self.data:
            self.add("traces.recipe_missing_field", field=field)
            return None
        value = self.data[field]
        if not isinstance(value, Mapping):
            self.add("traces.recipe_not_parts", field=field, parts=", ".join(known), got=_kind(value))
            return None
        self.unknown(value, known, f"{field}.")
        missing = [name for name in known if name not in value]
        for name in missing:
            self.add("traces.recipe_missing_field", field=f"{field}.{name}")
        return None if missing else value

    def tokens(self, field: str, low: int) -> LogNormalTokens | None:
        value = self.parts(field, ("median", "sigma", "min", "max"))
        if value is None:
            return None
        median = self.number(value["median"], f"{field}.median", 1, MAX_TOKENS, False)
        sigma = self.number(value["sigma"], f"{field}.sigma", 0, 5, False)
        least = self.number(value["min"], f"{field}.min", low, MAX_TOKENS, True)
        most = self.number(value["max"], f"{field}.max", low, MAX_TOKENS, True)
        if median is None or sigma is None or least is None or most is None:
            return None
        if least > most:
            self.add("traces.recipe_reversed", field=field, low=least, high=most)
            return None
        return LogNormalTokens(float(median), float(sigma), int(least), int(most))

    def seconds(self, field: str) -> LogNormalSeconds | None:
        value = self.parts(field, ("median", "sigma", "cap"))
        if value is None:
            return None
        median = self.number(value["median"], f"{field}.median", 0, MAX_THINK_S, False)
        sigma = self.number(value["sigma"], f"{field}.sigma", 0, 5, False)
        cap = self.number(value["cap"], f"{field}.cap", 0, MAX_THINK_S, False)
        if median is None or sigma is None or cap is None:
            return None
        return LogNormalSeconds(float(median), float(sigma), float(cap))

    def name(self) -> str:
        kind = self.data.get("kind", "agentic")
        if kind != "agentic":
            self.add("traces.recipe_kind", value=_shown(kind))
        value = self.data.get("name", "agentic")
        if not isinstance(value, str) or not value.strip() or len(value) > 100:
            self.add("traces.recipe_name", got=_kind(value))
            return "agentic"
        return value

    def recipe(self) -> AgenticRecipe | None:
        """The recipe, or None with at least one problem noted."""
        if self.problems:
            return None
        self.unknown(self.data, FIELDS)
        name = self.name()
        seed = self.whole("seed", 0, MAX_SEED)
        sessions = self.whole("sessions", 1, MAX_SESSIONS)
        turns = self.range("turns", 1, MAX_TURNS)
        system = self.whole("system_tokens", 1, MAX_TOKENS)
        tools = self.whole("tools_tokens", 0, MAX_TOKENS)
        first = self.range("first_user_tokens", 1, MAX_TOKENS)
        result = self.tokens("tool_result_tokens", 1)
        output = self.tokens("output_tokens", 1)
        think = self.seconds("think_s")
        scale = self.number(self.data.get("think_scale", 1.0), "think_scale", 0, 1000, False)
        if seed is None or sessions is None or turns is None or system is None or tools is None:
            return None
        if first is None or result is None or output is None or think is None or scale is None:
            return None
        refs = sessions * turns.max * (turns.max + 1)
        if refs > MAX_MESSAGE_REFS:
            self.add("traces.recipe_too_large", sessions=sessions, turns=turns.max, limit=MAX_MESSAGE_REFS)
            return None
        made = AgenticRecipe(
            seed, sessions, turns, system, tools, first, result, output, think, float(scale), name
        )
        if made.worst_context_tokens > MAX_CONTEXT_TOKENS:
            self.add("traces.recipe_too_long", tokens=made.worst_context_tokens, limit=MAX_CONTEXT_TOKENS)
            return None
        return made


_KINDS: tuple[tuple[Callable[[object], bool], str], ...] = (
    (lambda v: v is None, "null"),
    (lambda v: isinstance(v, bool), "boolean"),
    (lambda v: isinstance(v, int), "integer"),
    (lambda v: isinstance(v, float), "number"),
    (lambda v: isinstance(v, str), "text"),
    (lambda v: isinstance(v, Mapping), "mapping"),
    (lambda v: isinstance(v, list | tuple), "list"),
)


def _kind(value: object) -> str:
    """The YAML name of a value's type, for messages."""
    return next((name for test, name in _KINDS if test(value)), type(value).__name__)


def _shown(value: object) -> str:
    """A value as a message shows it: short, and safe for integers that Python refuses to print."""
    if isinstance(value, int) and value.bit_length() > 200:
        return "±2^200…"
    return str(value)[:60] if isinstance(value, str | int | float) else _kind(value)
