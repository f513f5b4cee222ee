"""Which scores there must be: every task at every concurrency, written down before the first request is sent.

One concurrency of two that ran is not a pass: what is expected and not there has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servemark.evals.tasks import EvalTask
from servemark.metrics.accuracy import EvalScore


@dataclass(frozen=True, slots=True)
class ExpectedTask:
    """One score that must be there: `n` items of this version of the task at this concurrency."""

    task: str
    version: str
    n: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class ExpectedSet:
    """All scores that must be there, in the order in which they are made."""

    tasks: tuple[ExpectedTask, ...]

    @classmethod
    def of(cls, tasks: Iterable[EvalTask], concurrencies: Sequence[int]) -> ExpectedSet:
        """Every task at every concurrency: all tasks at the first concurrency, then all at the next."""
        listed = tuple(tasks)
        return cls(
            tuple(ExpectedTask(t.id, t.version, len(t.items), c) for c in concurrencies for t in listed)
        )

    def plain(self) -> list[dict[str, object]]:
        """As manifests keep it: a list of {task, version, n, concurrency}."""
        return [
            {"task": each.task, "version": each.version, "n": each.n, "concurrency": each.concurrency}
            for each in self.tasks
        ]

    def missing(self, scores: Iterable[EvalScore]) -> tuple[ExpectedTask, ...]:
        """Those without a score of the same task, version, concurrency and number of items."""
        found = {(s.task, s.version, s.expected_n, s.concurrency) for s in scores}
        return tuple(
            each for each in self.tasks if (each.task, each.version, each.n, each.concurrency) not in found
        )


def read_expected(plain: object) -> ExpectedSet | None:
    """What a manifest's list says; None where it is none or an entry has no concurrency (older manifests)."""
    if not isinstance(plain, list):
        return None
    found = []
    for each in plain:
        if not isinstance(each, dict):
            return None
        task, version, n, concurrency = (each.get(name) for name in ("task", "version", "n", "concurrency"))
        if not isinstance(task, str) or not isinstance(version, str):
            return None
        if type(n) is not int or type(concurrency) is not int or n < 1 or concurrency < 1:
            return None
        found.append(ExpectedTask(task, version, n, concurrency))
    return ExpectedSet(tuple(found))
