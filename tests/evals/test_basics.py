"""The task `basics`: the same everywhere, every question answerable from the prompt alone, and hard to
guess."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter

from servemark.base.canonical import content_hash
from servemark.evals.basics import BASICS_ITEMS, basics
from servemark.evals.tasks import EvalItem, exact_match

KNOWN = "1127b2311b96d85f91a70588e7f35807c148c5268922e31e76ecbb7a571c20a5"
SORTS = {
    "color": "red blue green black white yellow brown pink gray orange",
    "animal": "cat dog horse bird fish cow sheep goat duck rabbit",
    "city": "Paris Rome Oslo Cairo Lima Delhi Tokyo Berlin Madrid Vienna",
    "food": "bread rice soup cake apple pear cheese egg corn bean",
    "number": "one two three four five six seven eight nine ten",
}


def fingerprint() -> str:
    """Hash of every prompt and expected answer."""
    task = basics()
    asked = [[i.id, i.question, i.expected] for i in task.items]
    return content_hash([task.id, task.version, list(task.preamble), task.max_tokens, list(task.stop), asked])


def test_same_task_in_every_process() -> None:
    """The hash is written down here: a change of it needs a new BASICS_VERSION, or scores are not
    comparable."""
    assert fingerprint() == KNOWN
    code = "from servemark.evals.basics import basics; print(repr(basics().items))"
    for seed in ("0", "5"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == repr(basics().items)


def solve(question: str) -> str:
    """The right answer, read from the question by rules of this test's own."""
    if question.startswith("copy: "):
        return question.removeprefix("copy: ")
    if question.startswith("{"):
        record, key = question.split("\n")
        answer: str = json.loads(record)[json.loads(key.removesuffix(":"))]
        return answer
    words, sort = re.fullmatch(r"(.*)\. Which is the (\w+)\?", question).groups()  # type: ignore[union-attr]
    (found,) = [w for w in words.split(", ") if w in SORTS[sort].split()]
    return found


def test_every_question_has_one_right_answer() -> None:
    task = basics()
    assert len(task.items) == BASICS_ITEMS >= 100
    assert len({i.id for i in task.items}) == len({i.question for i in task.items}) == BASICS_ITEMS
    assert all(solve(i.question) == i.expected for i in task.items)
    examples = [text for role, text in task.preamble if role == "user"]
    answers = [text for role, text in task.preamble if role == "assistant"]
    assert [solve(q) for q in examples] == answers
    assert not set(examples) & {i.question for i in task.items}
    assert Counter(i.kind for i in task.items) == {"pick": 34, "copy": 34, "field": 34}


def test_guessing_scores_near_chance() -> None:
    """A constant answer reaches less than 0.06. A random one of the words that are offered gets a third of
    *pick* and half of *field*; it cannot know that *copy* wants its only word, so that part is left out
    here."""
    task = basics()
    assert task.constant_share < 0.06
    source = random.Random(1)

    def guess(item: EvalItem) -> str:
        words = " ".join(SORTS.values()).split()
        offered = [str(w) for w in re.findall(r"\w+", item.question) if w in words]
        return source.choice(offered or ["?"])

    rounds = 40
    for kind, chance in (("pick", 1 / 3), ("field", 1 / 2), ("copy", 0)):
        items = [i for i in task.items if i.kind == kind] * rounds
        share = sum(exact_match(i.expected, guess(i)) for i in items) / len(items)
        assert abs(share - chance) < 0.06


def test_other_sizes_and_seeds_are_other_versions() -> None:
    assert basics(30).version != basics().version != basics(seed=1).version
    assert basics(seed=1).items != basics().items
    assert len(basics(500).items) == 500
