"""Learning a chat template by counting: templates written out here, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.traces.template import TemplateTokens, measure_template
from servemark.traces.types import Role


def chatml(messages: Sequence[tuple[Role, str]]) -> int:
    """<start> role newline … <end> newline; `assistant` is two tokens; a default system prompt of 16
    words."""
    total = 3 + 16 + 2 if messages[0][0] != "system" else 0
    for role, text in messages:
        total += (4 if role == "assistant" else 3) + len(text.split()) + 2
    return total + 4


def test_chatml() -> None:
    expected = TemplateTokens(preamble=21, system=3, user=3, assistant=4, closing=2, generation=4, marker=9)
    assert measure_template(chatml, "the", 9) == expected


def test_a_template_that_refuses_two_users_in_a_row() -> None:
    """[INST] text [/INST] reply </s>, system text as a message of its own: 2 around both, no reply's
    opening."""

    def count(messages: Sequence[tuple[Role, str]]) -> int:
        roles = [role for role, _ in messages]
        if any(a == b == "user" for a, b in pairwise(roles)):
            raise ServemarkError("traces.template_not_linear", Layer.ENGINE, counts="refused")
        return sum(2 + len(text.split()) for _, text in messages)

    found = measure_template(count, "the")
    assert (found.preamble, found.generation) == (0, 0)
    assert found.user + found.assistant + 2 * found.closing == 4


def test_counts_that_make_no_sense() -> None:
    for count in (lambda m: 7, lambda m: 100 - len(m), lambda m: sum(5 * len(t.split()) for _, t in m)):
        with pytest.raises(ServemarkError) as caught:
            measure_template(count, "the")
        assert caught.value.key == "traces.template_not_linear"
        assert caught.value.what("zh")
