"""`basics`: three small things that a working chat model of any size does far better than chance.

*pick*: of three words of different sorts, name the one of the sort asked for. *copy*: repeat a made-up word,
which nothing but the prompt can tell. *field*: give one of two values of a short JSON record, as an agent
reads a tool's reply. Worked examples of all three come before every question, always the same ones, so
prompts are short where prefixes are cached. Damaged weights, a wrong chat template or a cache that gives back
another prompt's keys and values bring the score down at once; a constant answer scores below 0.05.
"""

from __future__ import annotations

from servemark.evals.tasks import ChatMessage, EvalItem, EvalTask
from servemark.traces.rng import SplitMix

BASICS_ID = "basics"
BASICS_VERSION = "1"
"""Changes with anything that changes a prompt or an expected answer: scores of two versions are not
compared."""
BASICS_ITEMS = 102
_EXAMPLES = 6
_SEED = 20
_MAX_TOKENS = 8

_SORTS = {
    "color": ("red", "blue", "green", "black", "white", "yellow", "brown", "pink", "gray", "orange"),
    "animal": ("cat", "dog", "horse", "bird", "fish", "cow", "sheep", "goat", "duck", "rabbit"),
    "city": ("Paris", "Rome", "Oslo", "Cairo", "Lima", "Delhi", "Tokyo", "Berlin", "Madrid", "Vienna"),
    "food": ("bread", "rice", "soup", "cake", "apple", "pear", "cheese", "egg", "corn", "bean"),
    "number": ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
}
_FIELDS = ("color", "animal", "city")


def basics(items: int = BASICS_ITEMS, seed: int = _SEED) -> EvalTask:
    """The task with `items` questions, a third of each kind in turn. No question comes twice, and none is a
    worked example. The published score is the one of the default arguments."""
    rng = SplitMix([BASICS_ID, BASICS_VERSION, seed])
    asked: set[str] = set()
    made = [_fresh(rng, number, asked) for number in range(_EXAMPLES + items)]
    preamble: list[ChatMessage] = [("system", "Answer with one word.")]
    for example in made[:_EXAMPLES]:
        preamble += [("user", example.question), ("assistant", example.expected)]
    standard = items == BASICS_ITEMS and seed == _SEED
    version = BASICS_VERSION if standard else f"{BASICS_VERSION}-{items}-{seed}"
    return EvalTask(BASICS_ID, version, tuple(preamble), tuple(made[_EXAMPLES:]), _MAX_TOKENS)


def _fresh(rng: SplitMix, number: int, asked: set[str]) -> EvalItem:
    """An item whose question was not asked before; the questions in stock are thousands of times more."""
    make = (_pick, _copy, _field)[number % 3]
    while True:
        kind, question, expected = make(rng)
        if question not in asked:
            asked.add(question)
            return EvalItem(f"{kind}-{number - _EXAMPLES:04d}", kind, question, expected)


def _pick(rng: SplitMix) -> tuple[str, str, str]:
    sorts = rng.sample(tuple(_SORTS), 3)
    words = [rng.choice(_SORTS[sort]) for sort in sorts]
    wanted = rng.integer(0, 2)
    return "pick", f"{', '.join(words)}. Which is the {sorts[wanted]}?", words[wanted]


def _copy(rng: SplitMix) -> tuple[str, str, str]:
    word = "".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(3))
    return "copy", f"copy: {word}", word


def _field(rng: SplitMix) -> tuple[str, str, str]:
    names = rng.sample(_FIELDS, 2)
    values = [rng.choice(_SORTS[name]) for name in names]
    wanted = rng.integer(0, 1)
    record = ", ".join(f'"{name}": "{value}"' for name, value in zip(names, values, strict=True))
    return "field", f'{{{record}}}\n"{names[wanted]}":', values[wanted]
