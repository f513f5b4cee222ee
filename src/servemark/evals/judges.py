"""Judges: how an answer is found in a reply and when it is right, each rule written down; partial credit does not exist.

A reply that the token limit cut off holds an answer only where the part that counts had ended before. What is extracted
is kept with every sample, so that a verdict can be looked at again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Final

from servemark.evals.bounded_regex import BoundedRegex
from servemark.evals.json_values import fits, json_in, parse_json, same_value
from servemark.evals.tasks import EvalItem, Judge, Reply, Verdict, exact_match, first_line, normalise

LETTERS: Final = "ABCDEFGHIJ"
"""Answers of a multiple choice; no task offers more than ten."""

_NUMBER: Final = re.compile(r"[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d{1,40})(?:\.\d{1,40})?(?:[eE][-+]?\d{1,3})?")
_MARK: Final = re.compile(
    r"(?:####|answer(?:\s+is)?\s*[:=]?|\u7b54\u6848[\u662f\u4e3a\u70ba]?\s*[:\uff1a]?)\s*", re.IGNORECASE
)
_LETTER: Final = re.compile(r"(?<![A-Za-z0-9])\(?([A-J])\)?(?![A-Za-z0-9])")
_ASCII_LETTER_FIRST: Final = re.compile(r"\(?([A-Ja-j])(?:[).:,\s]|$)")
_SEARCHED: Final = 10_000
"""Characters of a reply in which an answer is looked for; `samples.MAX_REPLY_CHARS` is the same."""


def number_of(text: str) -> float | None:
    """A finite number as replies write it: thousands with commas, a sign that may be the minus of typesetting."""
    try:
        value = float(text.replace(",", "").replace("\u2212", "-"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def numeric(absolute: float = 0.0, relative: float = 0.0) -> Judge:
    """A number within max(absolute, relative * |expected|) of the expected one: the first after the last "answer" or
    "####" of the reply, else the last of the reply. A reply that was cut off counts up to its last whole line."""

    def judge(item: EvalItem, reply: Reply) -> Verdict:
        text = reply.text[:_SEARCHED]
        if reply.truncated:
            text = text.rpartition("\n")[0]
        marks = list(_MARK.finditer(text))
        found = _NUMBER.search(text, marks[-1].end()) if marks else None
        if found is None:
            every = _NUMBER.findall(text)
            said = every[-1] if every else None
        else:
            said = found[0]
        value, wanted = (None if each is None else number_of(each) for each in (said, item.expected))
        if said is None or value is None or wanted is None:
            return Verdict(None)
        allowed = max(absolute, relative * abs(wanted))
        return Verdict(said, abs(value - wanted) <= allowed * (1 + 1e-12))

    return judge


def choice(item: EvalItem, reply: Reply) -> Verdict:
    """The letter of an answer on offer: the first after the last "answer" of the reply, else the reply's first word where
    that is one, else the only capital letter on offer that stands alone; or the words of exactly one answer."""
    if reply.truncated and not reply.text.strip():
        return Verdict(None)
    text = reply.text.strip()[:_SEARCHED]
    offered = LETTERS[: len(item.choices)]
    letter = _offered_letter(text, offered)
    if letter is None:
        said = normalise(first_line(text, None) or "")
        same = [LETTERS[n] for n, words in enumerate(item.choices) if normalise(words) == said]
        letter = same[0] if len(same) == 1 else None
    return Verdict(letter, letter is not None and letter == item.expected)


def _offered_letter(text: str, offered: str) -> str | None:
    marks = list(_MARK.finditer(text))
    after = _LETTER.search(text, marks[-1].end()) if marks else None
    if after is not None and after[1] in offered:
        return after[1]
    first = _ASCII_LETTER_FIRST.match(text)
    if first is not None and first[1].upper() in offered and (first[1].isupper() or len(text) < 3):
        return first[1].upper()
    alone = {found for found in _LETTER.findall(text) if found in offered}
    return alone.pop() if len(alone) == 1 else None


def regex(pattern: BoundedRegex) -> Judge:
    """The pattern's group `answer`, or its first, or the whole match is the answer. An item whose expected answer is
    empty is right whenever the pattern matches."""

    def judge(item: EvalItem, reply: Reply) -> Verdict:
        found = pattern.search(reply.text)
        if found is None:
            return Verdict(None)
        groups = found.groupdict()
        said = groups["answer"] if "answer" in groups else found[1] if found.re.groups else found[0]
        if said is None:
            return Verdict(None)
        return Verdict(said, not item.expected or exact_match(item.expected, said))

    return judge


def json_schema(schema: Mapping[str, object]) -> Judge:
    """The reply is one JSON value that keeps to the schema and, where the item says one, equals the expected value."""

    def judge(item: EvalItem, reply: Reply) -> Verdict:
        there, value = json_in(reply.text)
        if not there:
            return Verdict(None)
        said = json.dumps(value, ensure_ascii=False)
        right = fits(schema, value)
        if right and item.expected:
            right = same_value(parse_json(item.expected)[1], value)
        return Verdict(said, right)

    return judge


def tool_call(item: EvalItem, reply: Reply) -> Verdict:
    """Exactly one call, of the expected tool with the expected arguments. A call that stands in the text instead of
    where calls belong is no call: clients would never make it."""
    if not reply.calls:
        return Verdict(None)
    said = json.dumps(
        [{"name": name, "arguments": arguments} for name, arguments in reply.calls], ensure_ascii=False
    )
    _, wanted = parse_json(item.expected)
    if len(reply.calls) != 1 or not isinstance(wanted, dict):
        return Verdict(said)
    name, arguments = reply.calls[0]
    there, value = parse_json(arguments or "{}")
    return Verdict(said, there and name == wanted.get("name") and same_value(wanted.get("arguments"), value))


def needle(item: EvalItem, reply: Reply) -> Verdict:
    """The expected words stand in the reply, as whole words."""
    text = normalise(reply.text[:_SEARCHED])
    if not text:
        return Verdict(None)
    place = f" {_words(text)} ".find(f" {_words(normalise(item.expected))} ")
    return Verdict(reply.text.strip()[:200], place >= 0)


def _words(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text))


def last_line(item: EvalItem, reply: Reply) -> Verdict:
    """The last line of a reply that was not cut off is the expected answer."""
    line = reply.text.strip().rpartition("\n")[2].strip()
    if reply.truncated or not line:
        return Verdict(None)
    return Verdict(line, exact_match(item.expected, line))
