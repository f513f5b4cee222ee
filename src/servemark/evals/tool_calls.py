"""`tools`: four tools with schemas are on offer, and every question needs one call of one of them with exact arguments.

Four kinds, 50 items each: *weather* (a city and one of two units), *convert* (an amount between two currencies), *remind*
(a text, a day and an hour) and *search* (a word, a number of results, and a language). The call must come where calls
belong (`tool_calls`), as clients read it: one that is written in the text is wrong, and says so (`evals.suspect`).
"""

from __future__ import annotations

import json

from servemark.base.canonical import canonical_json
from servemark.evals.judges import tool_call
from servemark.evals.tasks import EvalItem, EvalTask
from servemark.traces.rng import SplitMix

TOOLS_ID = "tools"
TOOLS_VERSION = "1"
TOOLS_ITEMS = 200
_SEED = 41
_MAX_TOKENS = 96

_CITIES = ("Paris", "Rome", "Oslo", "Cairo", "Lima", "Delhi", "Tokyo", "Berlin", "Madrid", "Vienna", "Lagos", "Quito",
           "Seoul", "Perth", "Dublin", "Prague")  # fmt: skip
_UNITS = ("celsius", "fahrenheit")
_MONEY = ("EUR", "USD", "JPY", "GBP", "CNY", "INR", "BRL", "CHF")
_ERRANDS = ("water the plants", "call the dentist", "pay the rent", "buy bread", "send the letter", "feed the cat",
            "renew the passport", "book a table")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOPICS = (
    "volcanoes",
    "bicycles",
    "glaciers",
    "orchids",
    "bridges",
    "comets",
    "penguins",
    "lighthouses",
    "windmills",
    "owls",
)
_LANGUAGES = ("English", "French", "Spanish", "German", "Chinese", "Arabic")


def _schema(**properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _tool(name: str, description: str, parameters: dict[str, object]) -> dict[str, object]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


_TEXT = {"type": "string"}
TOOLS = (
    _tool("get_weather", "The weather in a city.", _schema(city=_TEXT, unit={"type": "string", "enum": list(_UNITS)})),
    _tool(
        "convert_money",
        "Convert an amount of money between currencies.",
        _schema(
            amount={"type": "integer", "minimum": 1},
            source={"type": "string", "enum": list(_MONEY)},
            target={"type": "string", "enum": list(_MONEY)},
        ),
    ),
    _tool(
        "set_reminder",
        "Remind the user of something.",
        _schema(
            text=_TEXT,
            day={"type": "string", "enum": list(_DAYS)},
            hour={"type": "integer", "minimum": 0, "maximum": 23},
        ),
    ),
    _tool(
        "search_articles",
        "Find articles about a topic.",
        _schema(
            topic=_TEXT,
            results={"type": "integer", "minimum": 1, "maximum": 50},
            language={"type": "string", "enum": list(_LANGUAGES)},
        ),
    ),
)  # fmt: skip


def tool_calls(items: int = TOOLS_ITEMS, seed: int = _SEED) -> EvalTask:
    """The task with `items` questions, a quarter of each kind in turn; none comes twice. The published score is that of
    the default arguments."""
    rng = SplitMix([TOOLS_ID, TOOLS_VERSION, seed])
    asked: set[str] = set()
    made = tuple(_fresh(rng, number, asked) for number in range(items))
    standard = items == TOOLS_ITEMS and seed == _SEED
    version = TOOLS_VERSION if standard else f"{TOOLS_VERSION}-items{items}-seed{seed}"
    system = "Use one of the tools for every request. Take names and numbers from the request as they are."
    return EvalTask(
        id=TOOLS_ID,
        version=version,
        preamble=(("system", system),),
        items=made,
        max_tokens=_MAX_TOKENS,
        stop=(),
        judge=tool_call,
        tools=json.dumps(TOOLS).encode(),
        calls=True,
    )


def _fresh(rng: SplitMix, number: int, asked: set[str]) -> EvalItem:
    make = (_weather, _convert, _remind, _search)[number % 4]
    while True:
        kind, question, name, arguments = make(rng)
        if question not in asked:
            asked.add(question)
            expected = canonical_json({"name": name, "arguments": arguments})
            return EvalItem(f"{kind}-{number:05d}", kind, question, expected)


_Made = tuple[str, str, str, dict[str, object]]


def _weather(rng: SplitMix) -> _Made:
    city, unit = rng.choice(_CITIES), rng.choice(_UNITS)
    lead = rng.choice(
        ("What is the weather in", "Tell me the weather in", "How warm is it in", "I need the temperature in")
    )
    return "weather", f"{lead} {city}, in {unit}?", "get_weather", {"city": city, "unit": unit}


def _convert(rng: SplitMix) -> _Made:
    (source, target), amount = rng.sample(_MONEY, 2), rng.integer(2, 999)
    wanted: dict[str, object] = {"amount": amount, "source": source, "target": target}
    return "convert", f"How much is {amount} {source} in {target}?", "convert_money", wanted


def _remind(rng: SplitMix) -> _Made:
    text, day, hour = rng.choice(_ERRANDS), rng.choice(_DAYS), rng.integer(0, 23)
    wanted: dict[str, object] = {"text": text, "day": day, "hour": hour}
    return "remind", f"Set a reminder on {day} at hour {hour} with the text: {text}", "set_reminder", wanted


def _search(rng: SplitMix) -> _Made:
    topic, results, language = rng.choice(_TOPICS), rng.integer(1, 50), rng.choice(_LANGUAGES)
    wanted: dict[str, object] = {"topic": topic, "results": results, "language": language}
    return "search", f"Find {results} articles about {topic} in {language}.", "search_articles", wanted
