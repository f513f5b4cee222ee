"""How a reply becomes an answer and an answer right or wrong: the written rules, case by case."""

from __future__ import annotations

import pytest

from servemark.evals.tasks import EvalItem, EvalTask, exact_match, first_line, normalise


@pytest.mark.parametrize(
    ("reply", "finish", "answer"),
    [
        ("Rome", "stop", "Rome"),
        ("  Rome \n", "stop", "Rome"),
        ("\n\nRome\nis a city", "stop", "Rome"),
        ("Rome\nand then it went on and", "length", "Rome"),  # the first line had ended
        ("Rome and then it went", "length", None),  # cut before its end
        ("Rome", None, "Rome"),  # a server that gives no reason
        ("", "stop", None),
        (" \n ", "stop", None),
        (None, "stop", None),
        (None, "length", None),
    ],
)
def test_first_line(reply: str | None, finish: str | None, answer: str | None) -> None:
    assert first_line(reply, finish) == answer


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("Rome.", "rome"),
        ('"Rome"', "rome"),
        ("\u201cROME\u201d!", "rome"),
        ("the   red\tone", "the red one"),
        ("\uff32ome", "rome"),  # full-width R
        ("3.5", "3.5"),
        ("...", ""),
    ],
)
def test_normalise(given: str, plain: str) -> None:
    assert normalise(given) == plain


def test_exact_match_gives_no_partial_credit() -> None:
    assert exact_match("Rome", "rome.")
    assert not exact_match("Rome", "It is Rome")
    assert not exact_match("Rome", "Rom")


def test_prompt_and_constant_share() -> None:
    items = tuple(EvalItem(str(i), "k", f"q{i}", e) for i, e in enumerate(["a", "A.", "b", "c"]))
    task = EvalTask("t", "1", (("system", "s"),), items, 8)
    prompt = task.prompt(items[2], 1)
    assert prompt.messages == (("system", "s"), ("user", "q2"))
    assert (prompt.item, prompt.attempt, prompt.max_tokens, prompt.stop) == ("2", 1, 8, ("\n",))
    assert prompt.temperature == 0
    assert task.constant_share == 0.5
    assert EvalTask("t", "1", (), (), 8).constant_share == 0
