"""Gates on accuracy and on speculative decoding: evals of the same run and recipe, and whose acceptance it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from servemark.results.gates.base import Context, Gate, GateFinding, Severity
from servemark.results.gates.counts import is_whole, when
from servemark.results.gates.read import passed, plain, short, skips
from servemark.results.point import Eval, Point

FORCED = frozenset({"golden", "forced", "synthetic", "simulated"})
"""Acceptance policies in which the engine accepts drafts by a rule and not by verification."""
LENGTH_TOLERANCE = 0.02
"""Golden acceptance lengths are given to two decimals; the engine's counters round once more."""


def line_evals(points: Iterable[Point]) -> tuple[Eval, ...]:
    """The evals that stand for a line: of every task those of the latest attempt that has any; sorted, so that the
    order of the points is nothing."""
    latest: dict[str, tuple[tuple[int, str, str], set[Eval]]] = {}
    for point in points:
        if not point.evals or not is_whole(point):
            continue
        for each in point.evals:
            known = latest.get(each.task)
            moment = when(point)
            if known is None or moment[0] > known[0][0]:
                latest[each.task] = (moment, {each})
            elif moment[0] == known[0][0]:
                known[1].add(each)
    found = [each for _, some in latest.values() for each in some]
    return tuple(
        sorted(found, key=lambda e: (e.task, e.metric, e.score, str(e.passed), e.n or 0, e.stderr or 0.0))
    )


def _evals(point: Point, context: Context) -> tuple[Eval, ...]:
    if context.evals is not None:
        return context.evals
    if context.line:
        return line_evals([*context.line, point])
    return point.evals


_FAILED_SKIP, _FAILED_UNJUDGED = skips("eval_failed", "no_evals", "no_threshold")
_FAILED_OK = passed("eval_failed")


def eval_failed(point: Point, context: Context) -> GateFinding:
    """No eval of the same run and configuration failed its threshold: speed of a deployment that answers wrongly is not
    speed. Where there is no eval nothing is judged."""
    found = _evals(point, context)
    if not found:
        return _FAILED_SKIP
    judged = False
    for each in found:
        if each.passed is False:
            values: dict[str, object] = {
                "task": each.task,
                "metric": each.metric,
                "score": short(each.score),
                "n": "—" if each.n is None else each.n,
            }
            return GateFinding("eval_failed", Severity.QUARANTINE, values)
        judged = judged or each.passed is True
    return _FAILED_OK if judged else _FAILED_UNJUDGED


def _wanted(expected: object) -> dict[tuple[str, int | None], float | None]:
    """(task, concurrency) -> items planned; None where nobody said which or how many."""
    if isinstance(expected, Mapping):
        return {(str(task), None): plain(items) for task, items in expected.items()}
    wanted: dict[tuple[str, int | None], float | None] = {}
    for each in expected if isinstance(expected, list | tuple) else ():
        if isinstance(each, str):
            wanted[each, None] = None
        elif isinstance(each, Mapping) and isinstance(each.get("task"), str):
            at = each.get("concurrency")
            wanted[str(each["task"]), at if isinstance(at, int) else None] = plain(each.get("n"))
    return wanted


_MISSING_SKIP = skips("eval_missing", "nothing_expected")[0]
_MISSING_OK = passed("eval_missing")


def eval_missing(point: Point, context: Context) -> GateFinding:
    """Every eval that was written down before the run is there, with as many items as planned: `expected["evals"]`
    lists tasks (names, or `{task, n}` as our own manifests do), or maps a task to its items. One item of ten that
    passes is not a pass; what was promised and is not there keeps a point off every front."""
    wanted = _wanted(point.expected.get("evals"))
    if not wanted:
        return _MISSING_SKIP
    items: dict[tuple[str, int | None], int | None] = {}
    for each in _evals(point, context):
        for key in {(each.task, None), (each.task, each.concurrency)}:
            known = items.get(key)
            items[key] = each.n if known is None else max(known, each.n or 0)
    short_of = []
    for (task, at), planned in wanted.items():
        ran = items.get((task, at))
        if (task, at) not in items or (planned is not None and ran is not None and ran < planned):
            short_of.append(task if at is None else f"{task} c{at}")
    if not short_of:
        return _MISSING_OK
    values: dict[str, object] = {
        "tasks": ", ".join(sorted(short_of)),
        "n": len(short_of),
        "expected": len(wanted),
    }
    return GateFinding("eval_missing", Severity.QUARANTINE, values)


def _policy(value: object) -> str | None:
    return value.strip().lower() if isinstance(value, str) and value.strip() else None


_SYNTHETIC_NONE, _SYNTHETIC_REAL = skips("eval_synthetic", "no_evals", "acceptance_real")
_SYNTHETIC_OK = passed("eval_synthetic")


def eval_synthetic(point: Point, _context: Context) -> GateFinding:
    """Evals ran with real verification. Under forced acceptance the text is not the model's, so its score is refused.
    `observed["eval_acceptance"]` says what the evals ran with; where the point itself ran forced and nobody says, that
    is a warning."""
    if not point.evals:
        return _SYNTHETIC_NONE
    speculation = point.identity.speculation
    own = _policy(speculation.acceptance) if speculation is not None else None
    used = _policy(point.observed.get("eval_acceptance")) or _policy(point.declared.get("eval_acceptance"))
    values: dict[str, object] = {
        "tasks": ", ".join(sorted({each.task for each in point.evals})),
        "policy": used or "—",
        "point_policy": own or "—",
    }
    if used in FORCED:
        return GateFinding("eval_synthetic", Severity.QUARANTINE, values)
    if own not in FORCED:
        return _SYNTHETIC_REAL
    return _SYNTHETIC_OK if used is not None else GateFinding("eval_synthetic", Severity.WARNING, values)


_FORCED_NONE = skips("forced_acceptance", "no_speculation")[0]
_FORCED_OK = passed("forced_acceptance")


def forced_acceptance(point: Point, _context: Context) -> GateFinding:
    """Marks rows whose acceptance lengths were forced (golden): they compare deployments at one acceptance length, and
    say nothing of what users would see."""
    speculation = point.identity.speculation
    if speculation is None or speculation.method in ("", "none"):
        return _FORCED_NONE
    policy = _policy(speculation.acceptance)
    if policy not in FORCED:
        return _FORCED_OK
    values: dict[str, object] = {
        "method": speculation.method,
        "policy": policy or "—",
        "draft_tokens": "—" if speculation.draft_tokens is None else speculation.draft_tokens,
    }
    return GateFinding("forced_acceptance", Severity.WARNING, values)


def _forced_framed(point: Point) -> GateFinding:
    return forced_acceptance(point, _NO_CONTEXT)


_NO_CONTEXT = Context()
_LENGTH_NONE = skips("acceptance_length", "no_acceptance_length")[0]
_LENGTH_OK = passed("acceptance_length")


def acceptance_length(point: Point, _context: Context) -> GateFinding:
    """1 <= acceptance length <= draft tokens + 1 (the bonus token counts), and what the engine's counters give is what
    was declared. A length from another draft length or curve lands outside, or reads back differently."""
    speculation = point.identity.speculation
    if speculation is None:
        return _LENGTH_NONE
    declared = plain(point.declared.get("acceptance_length"))
    observed = plain(point.observed.get("acceptance_length"))
    found = [each for each in (declared, observed) if each is not None]
    if not found:
        return _LENGTH_NONE
    drafts = speculation.draft_tokens
    most = None if drafts is None or drafts < 0 else drafts + 1
    outside = any(
        each < 1 - LENGTH_TOLERANCE or (most is not None and each > most + LENGTH_TOLERANCE) for each in found
    )
    forced = _policy(speculation.acceptance) in FORCED
    apart = (
        forced
        and declared is not None
        and observed is not None
        and abs(declared - observed) > LENGTH_TOLERANCE * (1 + 1e-9)
    )
    if not outside and not apart:
        return _LENGTH_OK
    values: dict[str, object] = {
        "declared": "—" if declared is None else short(declared),
        "observed": "—" if observed is None else short(observed),
        "most": "—" if most is None else most,
        "tolerance": LENGTH_TOLERANCE,
    }
    return GateFinding("acceptance_length", Severity.QUARANTINE if outside else Severity.WARNING, values)


GATES = (
    Gate("eval_failed", 1, eval_failed, None, "the threshold of the task", idle=("scores", _FAILED_SKIP)),
    Gate("eval_missing", 2, eval_missing, 0.0, "the run's own manifest", idle=("expected", _MISSING_SKIP)),
    Gate(
        "eval_synthetic", 1, eval_synthetic, None, "golden acceptance policy", idle=("evals", _SYNTHETIC_NONE)
    ),
    Gate(
        "forced_acceptance",
        1,
        forced_acceptance,
        None,
        "golden acceptance policy",
        idle=("speculation", _FORCED_NONE),
        framed=_forced_framed,
    ),
    Gate(
        "acceptance_length",
        1,
        acceptance_length,
        LENGTH_TOLERANCE,
        "golden lengths have two decimals",
        idle=("speculation", _LENGTH_NONE),
    ),
)
"""The family in the order of its tables."""
