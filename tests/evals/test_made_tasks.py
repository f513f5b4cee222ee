"""The tasks that come with servemark: made the same everywhere, answers right by another way of computing them."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter

import pytest

from servemark.base.errors import ServemarkError
from servemark.evals.arithmetic import arithmetic
from servemark.evals.json_values import fits, schema_faults
from servemark.evals.recall import RECALL_DEPTHS, RECALL_LENGTHS, recall
from servemark.evals.registry import find_task, known_tasks
from servemark.evals.tasks import EvalTask, Reply
from servemark.evals.tool_calls import TOOLS, tool_calls


def digest(task: EvalTask) -> str:
    """Over everything that is sent or expected."""
    said = [[i.id, i.question, i.expected] for i in task.items], list(task.preamble), task.max_tokens
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", [n for n in known_tasks() if n != "basics"])
def test_two_hundred_different_items(name: str) -> None:
    task = find_task(name)
    assert len(task.items) >= 200
    assert len({item.id for item in task.items}) == len(task.items)
    assert len({item.question for item in task.items}) == len(task.items)
    assert digest(task) == digest(find_task(name))
    assert task.constant_share < 0.06
    other = find_task(f"{name}:seed=5")
    assert other.version != task.version
    assert digest(other) != digest(task)


def worked(question: str) -> int:
    """The answer by reading the sentence again."""
    numbers = [int(each) for each in re.findall(r"\d+", question)]
    if "buys" in question and "more" in question:
        return numbers[0] + numbers[1]
    if "gives away" in question:
        return numbers[0] - numbers[1]
    if "in each" in question:
        return numbers[0] * numbers[1]
    if "pays with" in question:
        return numbers[2] - numbers[0] * numbers[1]
    whole, kept, people = numbers
    assert (whole - kept) % people == 0
    return (whole - kept) // people


def test_arithmetic_answers() -> None:
    task = arithmetic()
    for item in task.items:
        assert int(item.expected) == worked(item.question) > 0
        assert task.judge(item, Reply(item.expected, "stop")).correct
    assert Counter(item.kind for item in task.items) == dict.fromkeys(
        ("sum", "difference", "product", "change", "share"), 40
    )


def test_recall_places_codes_where_it_says() -> None:
    """Ten items a length and depth; the code's place in the text is within 0.2 of its depth, and stands there once."""
    task = recall()
    kinds = Counter(item.kind for item in task.items)
    assert kinds == {f"{w}w-d{d:g}": 10 for w in RECALL_LENGTHS for d in RECALL_DEPTHS}
    for item in task.items:
        words, depth = (float(each) for each in item.kind.replace("w-d", " ").split())
        text, _, question = item.question.rpartition("\n\n")
        name = question.removeprefix("What is the code of ").rstrip("?")
        assert text.count(f"The code of {name} is {item.expected}.") == 1
        assert abs(len(text.split()) - words) <= 10  # whole sentences
        place = text.index(f"{name} is") / len(text)
        assert abs(place - depth) < (0.7 if words == 200 else 0.2)  # 150 of 200 words are codes
        assert task.judge(item, Reply(f"The code is {item.expected}.", "stop")).correct


def test_questions_of_a_document_share_its_text() -> None:
    texts = Counter(item.question.rpartition("\n\n")[0] for item in recall().items)
    assert sorted(texts.values()) == [25] * 8


def test_tools_keep_to_their_schemas() -> None:
    task = tool_calls()
    schemas = {}
    for tool in TOOLS:
        function = tool["function"]
        assert isinstance(function, dict)
        assert not list(schema_faults(function["parameters"]))
        schemas[function["name"]] = function["parameters"]
    for item in task.items:
        call = json.loads(item.expected)
        assert fits(schemas[call["name"]], call["arguments"])
        for value in call["arguments"].values():
            assert str(value).lower() in item.question.lower()
        said = Reply("", "tool_calls", ((call["name"], json.dumps(call["arguments"])),))
        assert task.judge(item, said).correct
    assert task.prompt(task.items[0]).tools == task.tools


def test_options_and_what_is_none() -> None:
    task = find_task("recall:lengths=300/5000,depths=0/1,items=40")
    assert {item.kind for item in task.items} == {"300w-d0", "300w-d1", "5000w-d0", "5000w-d1"}
    assert len(task.items) == 40
    assert task.version == "1-items40-lengths300/5000-depths0/1-seed31"
    for bad in (
        "recall:lengths=10", "recall:depths=2", "recall:depths=nan", "recall:lengths=", "recall:words=3",
        "arithmetic:items=0", "arithmetic:lengths=4", "tools:items=3,items=4", "recall:lengths=2000000", "basics:items=x",
        "arithmetic:items=9999999",
    ):  # fmt: skip
        with pytest.raises(ServemarkError) as caught:
            find_task(bad)
        assert (caught.value.key, caught.value.exit_code) == ("evals.bad_option", 2)
    with pytest.raises(ServemarkError) as caught:
        find_task("aritmetic")
    assert "arithmetic" in (caught.value.next_step("en") or "")


def test_limits_are_versions_of_their_own() -> None:
    task = arithmetic()
    assert task.first(None) is task
    assert task.first(999) is task
    cut = task.first(7).with_max_tokens(512)
    assert (len(cut.items), cut.version, cut.max_tokens, cut.stop) == (7, "1-first7-max512", 512, ())
