"""`eval` against a server that somebody else runs: tasks at concurrencies, into a folder that can be taken up again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from servemark.evals.expected import ExpectedSet, ExpectedTask
from servemark.evals.io import write_evals
from servemark.evals.runner import Earlier, TaskOutcome, run_task
from servemark.evals.samples import SAMPLES_NAME, SampleRecord, SampleWriter
from servemark.evals.suspect import SERIOUS_SHARE
from servemark.evals.tasks import EvalTask
from servemark.replay.client import ChatRequest, Client, Target, run
from servemark.replay.stop import StopSignal
from servemark.runs.eval_folder import EVALS, SUMMARY, Key, begin, locked, resume, write_json
from servemark.runs.eval_send import sender
from servemark.runs.host import host_facts, package_versions
from servemark.runs.manifest import utc_now
from servemark.runs.replay_run import Signals

ITEM_TIMEOUT_S = 600.0
LEAST_TEMPLATE_TOKENS = 4
"""A chat template adds at least its role marks to a message of one letter: fewer prompt tokens are no template."""
_LEAST_ITEMS = 20
_SAME_SHARE = 0.8
_REPLIES_WATCHED = 5000

Progress = Callable[[str, int, int, int, int], None]
"""(task, concurrency, done, expected, correct)."""


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """What is asked of which server. `options` are those that change what is asked, kept in the manifest."""

    target: Target
    tasks: tuple[EvalTask, ...]
    concurrencies: tuple[int, ...]
    options: dict[str, object]
    command: tuple[str, ...] = ()
    item_timeout_s: float = ITEM_TIMEOUT_S

    @property
    def expected(self) -> ExpectedSet:
        """Every task at every concurrency."""
        return ExpectedSet.of(self.tasks, self.concurrencies)


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a score may be the deployment's fault; words under `evals.suspect.<code>`. `count` of `n` items show it."""

    code: str
    task: str
    concurrency: int | None
    count: int
    n: int


@dataclass(slots=True)
class EvalResult:
    """What became of an eval. `missing`: scores that were expected and are not there."""

    folder: Path
    outcomes: list[TaskOutcome] = field(default_factory=list)
    missing: tuple[ExpectedTask, ...] = ()
    doubts: list[Doubt] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Every expected score is there, of every item."""
        return not self.missing and all(each.ended == "complete" for each in self.outcomes)


def run_eval(
    request: EvalRequest, folder: Path, *, take_up: bool, on_progress: Progress | None = None
) -> EvalResult:
    """Ask everything and keep it in `folder`; with `take_up` go on with what an earlier attempt left there. One Ctrl-C
    ends it in order: what was answered is kept. Raises ServemarkError."""
    result = EvalResult(folder)
    with locked(folder):
        manifest = _manifest(request)
        earlier: dict[Key, Earlier] = {}
        if take_up:
            earlier = resume(folder, manifest, request.expected)
        else:
            begin(folder, manifest)
        stop = StopSignal()
        with SampleWriter(folder / SAMPLES_NAME) as samples, Signals(stop):
            run(_ask_all(request, earlier, samples, stop, result, on_progress))
        found = [each.score for each in result.outcomes]
        result.missing = request.expected.missing(found)
        write_evals(folder / EVALS, result.outcomes)
        write_json(folder / SUMMARY, summary(request, result))
    return result


async def _ask_all(  # noqa: PLR0917 - the state of one eval
    request: EvalRequest,
    earlier: dict[Key, Earlier],
    samples: SampleWriter,
    stop: StopSignal,
    result: EvalResult,
    on_progress: Progress | None,
) -> None:
    async with Client(request.target) as client:
        if await _no_template(client):
            result.doubts.append(Doubt("no_template", "", None, 1, 1))
        for concurrency in request.concurrencies:
            for task in request.tasks:
                if stop.mode is not None:
                    return
                before = earlier.get((task.id, task.version, concurrency))
                watch = _Watch(task, concurrency, samples, on_progress, before)
                ended = asyncio.Event()
                with stop.watched(ended.set):
                    outcome = await run_task(
                        task, sender(client, task), concurrency, watch.note, ended,
                        item_timeout_s=request.item_timeout_s, earlier=before, keep=0,
                    )  # fmt: skip
                result.outcomes.append(outcome)
                result.doubts += _doubts(task, concurrency, outcome, watch)
                if outcome.ended == "dead":
                    return


class _Watch:
    """Keeps samples as they come and sees whether one reply is given to everything."""

    def __init__(
        self,
        task: EvalTask,
        concurrency: int,
        samples: SampleWriter,
        on_progress: Progress | None,
        earlier: Earlier | None,
    ) -> None:
        self.task, self.concurrency = task, concurrency
        self.samples, self.on_progress = samples, on_progress
        self.correct = earlier.tally.correct if earlier else 0
        self.replies: Counter[str] = Counter()
        self.answered = 0

    def note(self, sample: SampleRecord, done: int, expected: int) -> None:
        """One more item ended."""
        self.samples.write(sample)
        self.correct += sample.correct
        if sample.outcome == "ok":
            self.answered += 1
            reply = (sample.reply or "")[:200]
            if reply in self.replies or len(self.replies) < _REPLIES_WATCHED:
                self.replies[reply] += 1
        if self.on_progress is not None:
            self.on_progress(self.task.id, self.concurrency, done, expected, self.correct)


def _doubts(task: EvalTask, concurrency: int, outcome: TaskOutcome, watch: _Watch) -> list[Doubt]:
    """Reasons to look at the deployment before believing a task's score."""
    found = outcome.statistics
    doubts = [
        Doubt(code, task.id, concurrency, count, found.n)
        for code, count in found.suspects.items()
        if count >= SERIOUS_SHARE * found.n
    ]
    most = watch.replies.most_common(1)
    same = watch.answered >= _LEAST_ITEMS and most[0][1] >= _SAME_SHARE * watch.answered
    if same and task.constant_share < _SAME_SHARE and not (task.calls and not most[0][0]):
        doubts.append(Doubt("same_reply", task.id, concurrency, most[0][1], watch.answered))
    if found.n >= _LEAST_ITEMS and found.complete and found.high < task.constant_share:
        doubts.append(Doubt("below_constant", task.id, concurrency, found.correct, found.n))
    return doubts


async def _no_template(client: Client) -> bool:
    """A message of one letter costs a chat template's marks too; False where the server gives no usage."""
    record = await client.send(
        ChatRequest("probe", "eval-probe", 0, "eval", [{"role": "user", "content": "a"}], 1, keep_text=True)
    )
    tokens = record.input_tokens
    return record.outcome == "ok" and tokens is not None and 0 < tokens < LEAST_TEMPLATE_TOKENS


def _manifest(request: EvalRequest) -> dict[str, object]:
    return {
        "schema": 1,
        "kind": "eval",
        "created_utc": utc_now(),
        "urls": list(request.target.urls),
        "model": request.target.model,
        "expected": {"evals": request.expected.plain()},
        "options": request.options,
        "host": host_facts(),
        "packages": package_versions(),
        "command": list(request.command),
    }


def summary(request: EvalRequest, result: EvalResult) -> dict[str, object]:
    """The eval in short, as JSON."""
    return {
        "schema": 1,
        "folder": str(result.folder),
        "model": request.target.model,
        "complete": result.complete,
        "tasks": [
            {
                "task": o.score.task,
                "version": o.score.version,
                "concurrency": o.score.concurrency,
                "ended": o.ended,
                "duration_s": round(o.score.duration_s, 3),
                **asdict(o.statistics),
            }
            for o in result.outcomes
        ],
        "missing": [asdict(each) for each in result.missing],
        "doubts": [asdict(each) for each in result.doubts],
    }


def parse_concurrencies(said: str) -> tuple[int, ...]:
    """`1,4` as numbers, in that order, each once. Raises ValueError."""
    found = [int(each) for each in said.split(",")]
    if not found or len(found) != len(set(found)) or not all(1 <= each <= 100_000 for each in found):
        raise ValueError(said)
    return tuple(found)


def first_of(tasks: Sequence[EvalTask], limit: int | None, max_tokens: int | None) -> tuple[EvalTask, ...]:
    """The tasks with the command line's limits."""
    return tuple(task.first(limit).with_max_tokens(max_tokens) for task in tasks)
