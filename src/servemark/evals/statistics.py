"""What the samples of one task at one concurrency add up to, counted as they come: memory does not grow with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from servemark.evals.samples import SampleRecord
from servemark.metrics.accuracy import EvalScore, binomial_stderr, wilson_interval


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """Counts of one task at one concurrency and what follows from them.

    `expected_n` items were written down before the first request; `n` is the same number, since an item without an
    answer is a wrong one; `missing` of them have no sample at all, `failed` ended without a reply, `unanswered` (which
    includes both) have no answer that could be judged, `truncated` were cut off by the token limit, `refused` were
    declined by the model, `retried` were asked more than once. `low` and `high` are Wilson's 95 % interval.
    `suspects` counts the reasons why wrong verdicts may be the deployment's fault.
    """

    n: int
    expected_n: int
    correct: int
    score: float
    stderr: float
    low: float
    high: float
    unanswered: int
    truncated: int
    refused: int
    failed: int
    retried: int
    missing: int
    suspects: dict[str, int]

    @property
    def complete(self) -> bool:
        """Every expected item has its sample."""
        return self.missing == 0


class Tally:
    """Adds samples up one at a time."""

    def __init__(self, expected_n: int) -> None:
        if expected_n < 1:
            raise ValueError("a task needs items")
        self.expected_n = expected_n
        self.seen = self.correct = self.answered = 0
        self.truncated = self.refused = self.failed = self.retried = 0
        self.suspects: Counter[str] = Counter()

    def add(self, sample: SampleRecord) -> None:
        """One more sample. Raises ValueError when there are more than items."""
        self.seen += 1
        if self.seen > self.expected_n:
            raise ValueError(f"{self.seen} samples of {self.expected_n} items")
        self.correct += sample.correct
        self.answered += sample.extracted is not None
        self.truncated += sample.truncated
        self.refused += sample.refused
        self.failed += sample.outcome != "ok"
        self.retried += bool(sample.failures)
        if sample.suspect is not None:
            self.suspects[sample.suspect] += 1

    def statistics(self) -> TaskStatistics:
        """What has been added so far, of all that was expected."""
        low, high = wilson_interval(self.correct, self.expected_n)
        return TaskStatistics(
            n=self.expected_n,
            expected_n=self.expected_n,
            correct=self.correct,
            score=self.correct / self.expected_n,
            stderr=binomial_stderr(self.correct, self.expected_n),
            low=low,
            high=high,
            unanswered=self.expected_n - self.answered,
            truncated=self.truncated,
            refused=self.refused,
            failed=self.failed,
            retried=self.retried,
            missing=self.expected_n - self.seen,
            suspects=dict(sorted(self.suspects.items())),
        )


def statistics_of(expected_n: int, samples: Iterable[SampleRecord]) -> TaskStatistics:
    """The statistics of samples that are at hand; they may be an iterator over a file."""
    tally = Tally(expected_n)
    for sample in samples:
        tally.add(sample)
    return tally.statistics()


def score_of(
    task: str, version: str, found: TaskStatistics, duration_s: float, concurrency: int | None
) -> EvalScore:
    """The part that a result row keeps."""
    return EvalScore(
        task=task,
        version=version,
        n=found.n,
        expected_n=found.expected_n,
        correct=found.correct,
        score=found.score,
        stderr=found.stderr,
        unanswered=found.unanswered,
        truncated=found.truncated,
        duration_s=duration_s,
        refused=found.refused,
        concurrency=concurrency,
    )
