"""`arithmetic`: word problems of one and two steps with whole numbers, made from a seed.

Five kinds, 40 items each: *sum* and *difference* of two numbers below 100, *product* of two below 13, *change* of a
payment (a product and a difference), *share* (a product of which so much is given away and the rest divided evenly). Four
worked examples come before every question and answer with the number alone, so that a reply costs a few tokens; models
that think first get room with `--max-tokens`. The answers are spread widely: one that never changes scores below 0.06.
"""

from __future__ import annotations

from servemark.evals.judges import numeric
from servemark.evals.tasks import ChatMessage, EvalItem, EvalTask
from servemark.traces.rng import SplitMix

ARITHMETIC_ID = "arithmetic"
ARITHMETIC_VERSION = "1"
ARITHMETIC_ITEMS = 200
_EXAMPLES = 5
_SEED = 11
_MAX_TOKENS = 16

_NAMES = ("Ana", "Ben", "Chen", "Dina", "Emil", "Fatima", "Goran", "Hana", "Ivan", "Julia", "Kofi", "Lena")
_THINGS = ("apples", "books", "stamps", "pencils", "marbles", "cards", "shells", "coins", "stones", "tickets")
_BOXES = ("boxes", "bags", "shelves", "baskets", "drawers", "crates")


def arithmetic(items: int = ARITHMETIC_ITEMS, seed: int = _SEED) -> EvalTask:
    """The task with `items` questions, a fifth of each kind in turn; none comes twice. The published score is that of
    the default arguments."""
    rng = SplitMix([ARITHMETIC_ID, ARITHMETIC_VERSION, seed])
    asked: set[str] = set()
    made = [_fresh(rng, number, asked) for number in range(_EXAMPLES + items)]
    system = "Solve the problem. Answer with the number only."
    preamble: list[ChatMessage] = [("system", system)]
    for example in made[:_EXAMPLES]:
        preamble += [("user", example.question), ("assistant", example.expected)]
    standard = items == ARITHMETIC_ITEMS and seed == _SEED
    version = ARITHMETIC_VERSION if standard else f"{ARITHMETIC_VERSION}-items{items}-seed{seed}"
    return EvalTask(
        ARITHMETIC_ID, version, tuple(preamble), tuple(made[_EXAMPLES:]), _MAX_TOKENS, judge=numeric()
    )


def _fresh(rng: SplitMix, number: int, asked: set[str]) -> EvalItem:
    make = (_sum, _difference, _product, _change, _share)[number % 5]
    while True:
        kind, question, answer = make(rng)
        if question not in asked:
            asked.add(question)
            return EvalItem(f"{kind}-{number - _EXAMPLES:05d}", kind, question, str(answer))


def _sum(rng: SplitMix) -> tuple[str, str, int]:
    name, thing, a, b = rng.choice(_NAMES), rng.choice(_THINGS), rng.integer(11, 99), rng.integer(11, 99)
    return "sum", f"{name} has {a} {thing} and buys {b} more. How many {thing} does {name} have now?", a + b


def _difference(rng: SplitMix) -> tuple[str, str, int]:
    name, thing, a = rng.choice(_NAMES), rng.choice(_THINGS), rng.integer(31, 99)
    b = rng.integer(5, a - 10)
    return "difference", f"{name} has {a} {thing} and gives away {b}. How many {thing} are left?", a - b


def _product(rng: SplitMix) -> tuple[str, str, int]:
    box, thing, a, b = rng.choice(_BOXES), rng.choice(_THINGS), rng.integer(3, 12), rng.integer(3, 12)
    return "product", f"There are {a} {box} with {b} {thing} in each. How many {thing} are there?", a * b


def _change(rng: SplitMix) -> tuple[str, str, int]:
    name, thing, a, b = rng.choice(_NAMES), rng.choice(_THINGS), rng.integer(2, 9), rng.integer(3, 15)
    paid = a * b + rng.integer(1, 60)
    question = (
        f"{name} buys {a} {thing} for {b} coins each and pays with {paid} coins. How many coins come back?"
    )
    return "change", question, paid - a * b


def _share(rng: SplitMix) -> tuple[str, str, int]:
    name, thing, people, each = rng.choice(_NAMES), rng.choice(_THINGS), rng.integer(2, 9), rng.integer(3, 25)
    kept = rng.integer(2, 20)
    question = (
        f"{name} has {people * each + kept} {thing}, keeps {kept} and shares the rest evenly among {people} friends. "
        f"How many {thing} does each friend get?"
    )
    return "share", question, each
