"""Step times that the caller assumes, for a deployment that nobody has measured, and two limits: an engine with fixed
times, and one that takes no time at all.

Whoever shows a figure made with these says that its speed was assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from servemark.base.errors import input_error
from servemark.predict.types import StepTimes


@dataclass(frozen=True, slots=True)
class AssumedTimes:
    """A step takes `overhead_s`, `weights_s` (reading the weights), and for each stream `stream_s` and
    `context_s_per_token` for each token of its context; a prompt takes `prompt_s`, `prefill_s_per_token` for each token
    that is not cached, and `beside_s` for each stream that decodes beside it. Tokens of prompts in a step take
    `prefill_s_per_token` each too. `accepted` tokens a step (1: no speculation).

    The form is that of a roofline with a constant: weights once a step, the KV cache once a stream. Raises ServemarkError
    for what is negative or no number.
    """

    overhead_s: float = 0.0
    weights_s: float = 0.0
    stream_s: float = 0.0
    context_s_per_token: float = 0.0
    prompt_s: float = 0.0
    prefill_s_per_token: float = 0.0
    beside_s: float = 0.0
    accepted: float = 1.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least = 1.0 if each.name == "accepted" else 0.0
            if not least <= value < math.inf:
                raise input_error("predict.replay.bad_assumed", field=each.name, value=value, low=least)

    def prefill_s(self, new_tokens: int, cached_tokens: int, decoding: int) -> float:
        """See StepTimes; cached tokens cost nothing here."""
        return self.prompt_s + self.prefill_s_per_token * new_tokens + self.beside_s * decoding

    def step_s(self, decoding: int, context_tokens: float, prefill_tokens: float) -> float:
        """See StepTimes."""
        return (
            self.overhead_s
            + self.weights_s
            + decoding * (self.stream_s + self.context_s_per_token * context_tokens)
            + self.prefill_s_per_token * prefill_tokens
        )

    def tokens_per_step(self) -> float:
        """See StepTimes."""
        return self.accepted


def fixed_times(ttft_s: float, token_s: float) -> AssumedTimes:
    """An engine whose every first token takes `ttft_s` and every further one `token_s`, whatever else it does."""
    return AssumedTimes(overhead_s=token_s, prompt_s=ttft_s)


def no_time() -> AssumedTimes:
    """An engine that is infinitely fast: what is left is the replay's own time."""
    return AssumedTimes()


@dataclass(frozen=True, slots=True)
class ScaledTimes:
    """Another's times, all times `factor`: how much an error of the speed model changes."""

    of: StepTimes
    factor: float

    def prefill_s(self, new_tokens: int, cached_tokens: int, decoding: int) -> float:
        """See StepTimes."""
        return self.factor * self.of.prefill_s(new_tokens, cached_tokens, decoding)

    def step_s(self, decoding: int, context_tokens: float, prefill_tokens: float) -> float:
        """See StepTimes."""
        return self.factor * self.of.step_s(decoding, context_tokens, prefill_tokens)

    def tokens_per_step(self) -> float:
        """See StepTimes."""
        return self.of.tokens_per_step()
