"""What a chat template adds to a prompt: tokens around messages, default system prompt, reply's opening."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from servemark.base.errors import Layer, ServemarkError
from servemark.traces.types import Role, Turn

CountPrompt = Callable[[Sequence[tuple[Role, str]]], int]
"""Messages (role, text) -> prompt tokens as the server counts them: its template applied, generation prompt
included (`usage.prompt_tokens` of a request for one token says it on every engine). Raises ServemarkError for
what the template refuses."""


@dataclass(frozen=True, slots=True)
class TemplateTokens:
    """Tokens that are not of any segment. All 0: the trace's own tokens alone.

    A prompt is [preamble, when its first message is not system], then opening of the role + text + closing
    for every message, then `generation`, which is an assistant message's opening in the templates in use.
    `marker` is the length of the cache-bust marker at the start of the first message's text.
    """

    preamble: int = 0
    system: int = 0
    user: int = 0
    assistant: int = 0
    closing: int = 0
    generation: int = 0
    marker: int = 0

    def opening(self, role: Role) -> int:
        """Tokens before a message's text; a tool message is taken to open like a user's."""
        return {"system": self.system, "assistant": self.assistant}.get(role, self.user)

    def prompt_tokens(self, turn: Turn, *, marked: bool = False) -> int | None:
        """What the server should count for a turn's prompt, with the marker in it where `marked`.

        None where the turn's own tokens are not known, or where it sends tools: a template writes them out in
        its own way.
        """
        own = turn.input_tokens
        if own is None or turn.tools is not None:
            return None
        added = self.generation + (self.marker if marked else 0)
        if turn.messages and turn.messages[0].role != "system":
            added += self.preamble
        return own + added + sum(self.opening(m.role) + self.closing for m in turn.messages)


def measure_template(count: CountPrompt, word: str, marker: int = 0) -> TemplateTokens:
    """Learn a template from five counted prompts of one-token texts. `word` is one of a word table.

    Counting cannot tell everything apart, so three things are assumed: system and user messages open alike,
    the generation prompt is an assistant message's opening, and where a template refuses two user messages in
    a row, user and assistant messages are taken to share their tokens evenly. Prompts in which they
    alternate have exact totals all the same. Raises ServemarkError (layer engine) when the counts contradict
    each other.
    """
    text = f" {word}"
    start: list[tuple[Role, str]] = [("system", text), ("user", text)]
    alone = count([("user", text)])
    pair = count(start)
    four = count([*start, ("assistant", text), ("user", text)])
    longer = count([("system", text), ("user", text * 3)])
    both = four - pair - 2  # one user and one assistant message without their texts
    try:
        user = count([*start, ("user", text)]) - pair - 1
    except ServemarkError:
        user = both // 2
    generation = pair - 2 - 2 * user
    preamble = alone - 1 - user - generation
    closing = max(0, both - user - generation)
    if min(user - closing, both - user, generation, preamble) < 0 or longer - pair != 2:
        counts = ", ".join(map(str, (alone, pair, four, longer)))
        raise ServemarkError("traces.template_not_linear", Layer.ENGINE, counts=counts)
    opening = user - closing
    return TemplateTokens(preamble, opening, opening, both - user - closing, closing, generation, marker)
