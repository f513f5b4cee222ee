"""Each judge's written rules, case by case; the expected verdicts are worked out by reading the reply."""

from __future__ import annotations

import json
import threading

import pytest

from servemark.base.errors import ServemarkError
from servemark.evals.bounded_regex import MAX_PATTERN, BoundedRegex, RegexError
from servemark.evals.json_values import fits, json_in, same_value, schema_faults
from servemark.evals.judges import choice, json_schema, last_line, needle, numeric, regex, tool_call
from servemark.evals.tasks import EvalItem, Judge, Reply


def verdict(
    judge: Judge, expected: str, text: str, finish: str = "stop", choices: tuple[str, ...] = ()
) -> object:
    """(extracted, correct)."""
    found = judge(EvalItem("i", "k", "q", expected, choices=choices), Reply(text, finish))
    return found.extracted, found.correct


@pytest.mark.parametrize(
    ("text", "finish", "found"),
    [
        ("1,234", "stop", ("1,234", True)),
        ("12 boxes of 100 and 34 make 1234 apples.", "stop", ("1234", True)),  # the last number
        ("The answer is 1234, since 2 * 617 = 1234 and 5 is odd", "stop", ("1234", True)),  # after "answer"
        ("#### 1234\n", "stop", ("1234", True)),
        ("\u7b54\u6848\uff1a1234", "stop", ("1234", True)),
        ("1234.0", "stop", ("1234.0", True)),
        ("\u22121234", "stop", ("\u22121234", False)),
        ("1235", "stop", ("1235", False)),
        ("12", "length", (None, False)),  # cut within a number, perhaps
        ("1234\nand then", "length", ("1234", True)),  # its line had ended
        ("1e999", "stop", (None, False)),  # infinite
        ("nan", "stop", (None, False)),
        ("none", "stop", (None, False)),
        ("", "stop", (None, False)),
    ],
)
def test_numeric(text: str, finish: str, found: object) -> None:
    assert verdict(numeric(), "1234", text, finish) == found


def test_numeric_tolerance() -> None:
    """5 % of 200 is 10: 210 is in, 210.1 is out; an absolute one of 12 takes over where it is larger."""
    assert verdict(numeric(relative=0.05), "200", "210") == ("210", True)
    assert verdict(numeric(relative=0.05), "200", "210.1") == ("210.1", False)
    assert verdict(numeric(12, 0.05), "200", "212") == ("212", True)
    assert verdict(numeric(0.1), "0.3", "0.4") == ("0.4", True)  # not lost to binary fractions


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("B", ("B", True)),
        ("b", ("B", True)),
        ("(B) Oslo", ("B", True)),
        ("B. Oslo", ("B", True)),
        ("The answer is B.", ("B", True)),
        ("A is wrong, C too. Answer: (B)", ("B", True)),
        ("oslo", ("B", True)),  # the words of one answer
        ("A big city", ("A", False)),  # the first word is a letter on offer
        ("a big city", (None, False)),
        ("either B or C", (None, False)),
        ("D", (None, False)),  # not on offer
        ("", (None, False)),
    ],
)
def test_choice(text: str, found: object) -> None:
    assert verdict(choice, "B", text, choices=("Rome", "Oslo", "Lima")) == found


def test_needle_and_last_line() -> None:
    assert verdict(needle, "48213", "The code is 48213.") == ("The code is 48213.", True)
    assert verdict(needle, "48213", "148213") == ("148213", False)  # whole words
    assert verdict(needle, "red fox", "a Red, Fox!") == ("a Red, Fox!", True)
    assert verdict(needle, "48213", "  ") == (None, False)
    assert verdict(last_line, "Oslo", "Let me think.\nOslo.\n") == ("Oslo.", True)
    assert verdict(last_line, "Oslo", "Let me think.\nOslo", "length") == (None, False)


def test_regex_and_its_limits() -> None:
    judge = regex(BoundedRegex(r"color[:=] (?P<answer>\w+)"))
    assert verdict(judge, "red", "the color: Red") == ("Red", True)
    assert verdict(judge, "", "color= blue") == ("blue", True)  # a match is enough
    assert verdict(judge, "red", "no such thing") == (None, False)
    for bad in ("(", "a" * (MAX_PATTERN + 1), "(?P<answer>a)(?P<answer>b)", "a{99999999999999999999}"):
        with pytest.raises(RegexError):
            BoundedRegex(bad)


def test_a_pattern_that_backtracks_is_ended_and_then_refused() -> None:
    """(a+)+b on forty letters needs 2^40 steps; two replies are given up, at the third the task ends."""
    judge = regex(BoundedRegex("(a+)+b"))
    text = "a" * 40
    assert verdict(judge, "", text) == (None, False)
    assert verdict(judge, "", "aab") == ("aa", True)
    assert verdict(judge, "", text) == (None, False)
    with pytest.raises(ServemarkError) as caught:
        verdict(judge, "", text)
    assert caught.value.key == "evals.regex_slow"
    assert caught.value.next_step("zh")


def test_a_pattern_is_not_searched_where_it_cannot_be_timed() -> None:
    keys: list[str] = []

    def search() -> None:
        try:
            BoundedRegex("a").search("a")
        except ServemarkError as error:
            keys.append(error.key)

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert keys == ["evals.regex_thread"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Here:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}),
        ('The call is {"a": [1]} as asked.', {"a": [1]}),
        ("[1, 2]", [1, 2]),
    ],
)
def test_json_in_replies(text: str, value: object) -> None:
    assert json_in(text) == (True, value)


@pytest.mark.parametrize("text", ["", "{", '{"a": NaN}', "1e999", "[" * 5000, '{"a":' * 3000, "9" * 5000])
def test_what_is_no_json(text: str) -> None:
    assert json_in(text) == (False, None)


SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "unit": {"enum": ["C", "F"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ({"city": "Oslo", "days": 3, "unit": "C", "tags": ["a"]}, True),
        ({"city": "Oslo", "days": 3.0}, True),  # an integer by value
        ({"days": 3}, False),
        ({"city": "O"}, False),
        ({"city": "Oslo", "days": 0}, False),
        ({"city": "Oslo", "days": 8}, False),
        ({"city": "Oslo", "days": 2.5}, False),
        ({"city": "Oslo", "days": True}, False),
        ({"city": "Oslo", "unit": "K"}, False),
        ({"city": "Oslo", "more": 1}, False),
        ({"city": "Oslo", "tags": ["a", "b", "c"]}, False),
        ({"city": "Oslo", "tags": [1]}, False),
        ([], False),
        (None, False),
    ],
)
def test_schema(value: object, good: bool) -> None:
    assert fits(SCHEMA, value) is good
    text = f"Sure: {json.dumps(value)}" if value is not None else "null"
    assert verdict(json_schema(SCHEMA), "", text) == (json.dumps(value), good)


def test_schema_and_expected_value() -> None:
    judge = json_schema(SCHEMA)
    assert verdict(judge, '{"city":"oslo","days":3}', '{"days":3,"city":"Oslo"}')[1] is True  # type: ignore[index]
    assert verdict(judge, '{"city":"oslo","days":3}', '{"days":4,"city":"Oslo"}')[1] is False  # type: ignore[index]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"}, {"pattern": "a"}, {"$ref": "#"}, {"minimum": "1"}, {"properties": []}, {"enum": []},
        {"items": {"oneOf": []}}, {"anyOf": [3]}, {"required": "a"}, [], {"minLength": -1}, {"minItems": True},
    ],
)  # fmt: skip
def test_schemas_that_are_refused(schema: object) -> None:
    assert list(schema_faults(schema))
    assert not list(schema_faults(SCHEMA))


def test_same_value() -> None:
    assert same_value({"a": 3, "b": ["X y"]}, {"b": ["x  Y"], "a": 3.0})
    for other in ({"a": 3}, {"a": True, "b": ["X y"]}, {"a": 3, "b": "X y"}, None):
        assert not same_value({"a": 3, "b": ["X y"]}, other)
    assert not same_value(1, True)


CALL = '{"name": "f", "arguments": {"city": "Oslo", "days": 3}}'


@pytest.mark.parametrize(
    ("calls", "good"),
    [
        ([("f", '{"days": 3, "city": "oslo"}')], True),
        ([("g", '{"days": 3, "city": "Oslo"}')], False),
        ([("f", '{"days": 3}')], False),
        ([("f", '{"days": 3, "city": "Oslo", "x": 1}')], False),
        ([("f", '{"days": 3, "city": ')], False),
        ([("f", "")], False),
        ([("f", '{"days": 3, "city": "Oslo"}')] * 2, False),
    ],
)
def test_tool_call(calls: list[tuple[str, str]], good: bool) -> None:
    found = tool_call(EvalItem("i", "k", "q", CALL), Reply("", "tool_calls", tuple(calls)))
    assert found.correct is good
    assert found.extracted is not None


def test_a_call_in_the_text_is_none() -> None:
    assert verdict(tool_call, CALL, CALL) == (None, False)
