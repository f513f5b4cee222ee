"""The score of one accuracy task: what evals make, results keep and analysis compares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EvalScore:
    """One accuracy task at this point. `score` is the share of `n` items judged correct; `stderr` its
    standard error sqrt(p(1-p)/n); items that got no answer count as wrong and are also counted in
    `unanswered`. `duration_s` is in seconds."""

    task: str
    version: str
    n: int
    expected_n: int
    correct: int
    score: float
    stderr: float
    unanswered: int
    truncated: int
    duration_s: float

    @property
    def answered(self) -> bool:
        """False when no item got an answer: `score` then counts failures and is no accuracy."""
        return self.unanswered < self.n
