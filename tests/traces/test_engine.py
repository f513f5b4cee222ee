"""Against the real engine: texts have exactly their tokens, prompts what the template adds, and the theory
what the engine's own counters say."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from servemark.traces.agentic_tree import TreeRecipe
from servemark.traces.generator import generate
from servemark.traces.open import open_workload
from servemark.traces.recipe import AgenticRecipe
from servemark.traces.template import TemplateTokens, measure_template
from servemark.traces.text import TextMaker, build_word_table, verify_exact
from servemark.traces.theory import theoretical_hit
from servemark.traces.tokenizers import server_tokenizer, usage_tokenizer
from servemark.traces.types import CacheBust, Role, Segment, Workload
from servemark.traces.write import write_made

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

RECIPE = {
    "seed": 3,
    "sessions": 2,
    "turns": [3, 3],
    "system_tokens": 60,
    "tools_tokens": 60,
    "first_user_tokens": [20, 30],
    "tool_result_tokens": {"median": 40, "sigma": 0.5, "min": 20, "max": 60},
    "output_tokens": {"median": 8, "sigma": 0.2, "min": 4, "max": 12},
    "think_s": {"median": 0, "sigma": 0, "cap": 0},
}
MARKER_TOKENS = 5


class Server:
    """The few endpoints that are needed here, by the standard library's client."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON reply."""
        asked = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=120) as reply:
            found: dict[str, Any] = json.load(reply)
            return found

    def tokenize(self, text: str) -> list[int]:
        """Token ids."""
        found: list[int] = self.post("/tokenize", {"content": text})["tokens"]
        return found

    def chat(self, messages: Sequence[tuple[Role, str]], tokens: int = 1) -> tuple[int, int]:
        """(prompt tokens, cached prompt tokens) of a request, as usage says."""
        listed = [{"role": role, "content": text} for role, text in messages]
        body = {"messages": listed, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        usage = self.post("/v1/chat/completions", body)["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def counters(self) -> tuple[float, float]:
        """(computed, cached) prompt tokens since the start."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as reply:
            page = reply.read().decode()
        names = ("prompt_tokens_total", "prompt_tokens_cached_total")
        found = [re.search(rf"^llamacpp:{name} (\S+)$", page, re.MULTILINE) for name in names]
        assert found[0]
        assert found[1]
        return float(found[0][1]), float(found[1][1])


@pytest.fixture(scope="module")
def server(engine: str) -> Server:
    """The engine's endpoints."""
    return Server(engine)


@pytest.fixture(scope="module")
def words(server: Server) -> list[str]:
    """A word table for SmolLM2."""
    return build_word_table(server.tokenize)


@pytest.fixture(scope="module")
def template(server: Server, words: list[str]) -> TemplateTokens:
    """SmolLM2's template, learnt by counting."""
    return measure_template(lambda messages: server.chat(messages)[0], words[0], MARKER_TOKENS)


def test_texts_are_exact(server: Server, words: list[str]) -> None:
    assert len(words) == 512
    workload = generate(AgenticRecipe.from_mapping({**RECIPE, "sessions": 20, "tools_tokens": 3000}))
    assert verify_exact(TextMaker(words, 1), server.tokenize, workload, samples=30) == 0


def test_template_of_smollm2(server: Server, template: TemplateTokens) -> None:
    """By eye from the server's own rendering: <|im_start|> role newline and <|im_end|> newline around a text;
    the tokenizer splits `assistant` in two."""
    assert (template.system, template.user, template.assistant) == (3, 3, 4)
    assert (template.closing, template.generation) == (2, 4)
    rendered = server.post("/apply-template", {"messages": [{"role": "user", "content": " the"}]})["prompt"]
    default = rendered[: rendered.index("<|im_start|>user")]
    counted = server.post("/tokenize", {"content": default, "parse_special": True})["tokens"]
    assert template.preamble == len(counted)


@pytest.mark.parametrize("scope", ["none", "session", "request"])
def test_theory_is_what_the_engine_counts(
    server: Server, words: list[str], template: TemplateTokens, scope: CacheBust
) -> None:
    """A small workload, replayed request by request on one slot that holds nothing of it yet: every prompt
    has the planned length, and the counters' hit rate lies within one point of the theory."""
    workload = generate(AgenticRecipe.from_mapping(RECIPE))
    maker = TextMaker(words, f"{scope} {time.time_ns()}")
    before = server.counters()
    expected = replay(server, workload, maker, template, scope)
    computed, cached = (after - b for after, b in zip(server.counters(), before, strict=True))
    assert computed + cached == expected
    theory = theoretical_hit(workload, scope, template)
    assert theory.total_tokens == expected
    assert theory.tokens is not None
    assert abs(cached / expected - theory.tokens) < 0.01


def replay(
    server: Server, workload: Workload, maker: TextMaker, template: TemplateTokens, scope: CacheBust
) -> int:
    """Send every turn with its marker; returns the planned prompt tokens, each checked against usage."""
    total = 0
    for session in workload.sessions:
        for number, turn in enumerate(session.turns):
            messages: list[tuple[Role, str]] = [(m.role, maker.message(m)) for m in turn.messages]
            if scope != "none":
                name = session.id if scope == "session" else f"{session.id}/{number}"
                marker = maker.text(Segment(f"marker {name}", MARKER_TOKENS))
                messages[0] = (messages[0][0], marker + messages[0][1])
            prompt, _ = server.chat(messages, turn.output_tokens or 1)
            assert prompt == template.prompt_tokens(turn, marked=scope != "none")
            total += prompt
    return total


def test_hashed_blocks_reach_the_engine_exactly(
    server: Server, words: list[str], template: TemplateTokens, tmp_path: Path
) -> None:
    """The longest and the first prompts of made sessions, with sub-agents and assistant stand-ins: the engine's
    usage is the planned length, and where nothing but usage is known the lengths agree with its tokenizer."""
    write_made(TreeRecipe(3, 4, scale=0.008), tmp_path / "t.jsonl", "weka")
    workload = open_workload(tmp_path / "t.jsonl")
    maker = TextMaker(words, 9)
    assert verify_exact(maker, server.tokenize, workload) == 0
    for session in workload.sessions:
        for _, turns in list(session.streams())[:2]:
            for turn in (turns[0], max(turns, key=lambda t: t.input_tokens or 0)):
                messages: list[tuple[Role, str]] = [(m.role, maker.message(m)) for m in turn.messages]
                assert server.chat(messages)[0] == template.prompt_tokens(turn)
    counted = usage_tokenizer(lambda text: server.chat([("user", text)])[0])
    sample = maker.message(workload.sessions[0].turns[0].messages[0])
    assert len(counted(sample)) == len(server.tokenize(sample)) > 0
    asked = server_tokenizer(lambda body: server.post("/tokenize", dict(body)), "llamacpp")
    assert list(asked(sample)) == server.tokenize(sample)
