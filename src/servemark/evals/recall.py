"""`recall`: five-digit codes hidden at chosen depths of texts of chosen lengths, to be given back on request.

For every length there are documents of plain sentences; every document holds five codes, each for another place name, at
every depth. The question comes after the document, so all questions of one document share its text: with a prefix cache it
is computed once, and a cache that gives back another prompt's keys and values shows at once. Lengths are in words (about
1.3 tokens each), depths 0 (the beginning) to 1 (the end). No document says a code twice, and a code that is made up or
belongs to another name is wrong; a constant answer scores below 0.01.
"""

from __future__ import annotations

from collections.abc import Sequence

from servemark.evals.judges import needle
from servemark.evals.tasks import EvalItem, EvalTask
from servemark.traces.rng import SplitMix

RECALL_ID = "recall"
RECALL_VERSION = "1"
RECALL_ITEMS = 200
RECALL_LENGTHS = (200, 400, 800, 1600)
"""Words of a document."""
RECALL_DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
MAX_WORDS = 1_000_000
_NEEDLES = 5
"""Codes at one depth of one document."""
_NEEDLE_WORDS = 6
_SEED = 31
_MAX_TOKENS = 16

_STARTS = (
    "bra",
    "cor",
    "del",
    "fen",
    "gal",
    "hor",
    "kel",
    "lun",
    "mar",
    "nor",
    "pol",
    "ros",
    "sil",
    "tam",
    "ver",
    "wen",
)
_ENDS = (
    "dale",
    "ford",
    "holm",
    "mere",
    "port",
    "stad",
    "ton",
    "wick",
    "burg",
    "haven",
    "field",
    "gate",
    "moor",
    "well",
)
_SUBJECTS = ("The ferry", "A baker", "The old bridge", "Our neighbour", "The library", "A small boat", "The morning train",
             "The gardener", "A grey cat", "The school choir", "The market", "A carpenter")  # fmt: skip
_VERBS = (
    "waits near",
    "looks over",
    "passes by",
    "was painted like",
    "belongs to",
    "stands behind",
    "returns to",
    "opens onto",
)
_OBJECTS = ("the river", "a row of trees", "the quiet square", "the wooden fence", "the harbour wall", "an empty field",
            "the long road", "the red roof", "a stone stair", "the winter garden")  # fmt: skip
_TIMES = (
    "in spring",
    "before noon",
    "every Sunday",
    "after the rain",
    "without a sound",
    "for many years",
    "at dusk",
    "as always",
)


def recall(
    items: int = RECALL_ITEMS,
    lengths: Sequence[int] = RECALL_LENGTHS,
    depths: Sequence[float] = RECALL_DEPTHS,
    seed: int = _SEED,
) -> EvalTask:
    """The task with `items` questions, spread evenly over lengths and depths. Raises ValueError for a length that is too
    short for its codes or longer than `MAX_WORDS`, or a depth outside 0..1."""
    least = _NEEDLES * _NEEDLE_WORDS * len(depths)
    if not lengths or not depths or items < 1:
        raise ValueError("lengths, depths and items are needed")
    if any(not least <= words <= MAX_WORDS for words in lengths):
        raise ValueError(f"lengths are {least}..{MAX_WORDS} words")
    if any(not 0 <= depth <= 1 for depth in depths):
        raise ValueError("depths are 0..1")
    per_document = _NEEDLES * len(depths)
    documents = -(-items // per_document)
    made: list[EvalItem] = []
    for number in range(documents):
        words = lengths[number % len(lengths)]
        made += _document(SplitMix([RECALL_ID, RECALL_VERSION, seed, number, words]), number, words, depths)
    standard = (items, tuple(lengths), tuple(depths), seed) == (
        RECALL_ITEMS,
        RECALL_LENGTHS,
        RECALL_DEPTHS,
        _SEED,
    )
    version = RECALL_VERSION if standard else f"{RECALL_VERSION}-{_named(items, lengths, depths, seed)}"
    preamble = (("system", "Read the text, then answer the question with the code only."),)
    return EvalTask(RECALL_ID, version, preamble, tuple(made[:items]), _MAX_TOKENS, judge=needle)  # type: ignore[arg-type]


def _named(items: int, lengths: Sequence[int], depths: Sequence[float], seed: int) -> str:
    spread = "/".join(map(str, lengths)), "/".join(f"{depth:g}" for depth in depths)
    return f"items{items}-lengths{spread[0]}-depths{spread[1]}-seed{seed}"


def _document(rng: SplitMix, number: int, words: int, depths: Sequence[float]) -> list[EvalItem]:
    """The items of one document, in the order of their depth."""
    count = _NEEDLES * len(depths)
    names = rng.sample([f"{a}{b}".capitalize() for a in _STARTS for b in _ENDS], count)
    codes: list[str] = []
    while len(codes) < count:
        code = str(rng.integer(10_000, 99_999))
        if code not in codes:
            codes.append(code)
    filler = _filler(rng, words - count * _NEEDLE_WORDS)
    placed = [
        (depth, f"The code of {name} is {code}.")
        for depth, name, code in zip([d for d in depths for _ in range(_NEEDLES)], names, codes, strict=True)
    ]
    lines: list[str] = []
    at = 0
    for depth, line in sorted(placed, key=lambda each: each[0]):
        upto = round(depth * len(filler))
        lines += [*filler[at:upto], line]
        at = upto
    text = " ".join([*lines, *filler[at:]])
    return [
        EvalItem(
            f"{words}w-d{depth:g}-{number:04d}-{place:03d}",
            f"{words}w-d{depth:g}",
            f"{text}\n\nWhat is the code of {name}?",
            code,
        )
        for place, ((depth, _), name, code) in enumerate(zip(placed, names, codes, strict=True))
    ]


def _filler(rng: SplitMix, words: int) -> list[str]:
    """Sentences of `words` words, but for the last one's."""
    made: list[str] = []
    while words > 0:
        sentence = (
            f"{rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_OBJECTS)} {rng.choice(_TIMES)}."
        )
        made.append(sentence)
        words -= len(sentence.split())
    return made
