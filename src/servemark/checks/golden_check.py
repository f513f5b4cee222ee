"""What every arm of a suite forces, against the golden value of exactly its model, method, sampling and draft tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servemark.base.errors import ServemarkError
from servemark.catalog.nodes import Position, Problem
from servemark.catalog.references import GoldenLength
from servemark.catalog.suite import Suite
from servemark.catalog.yaml_nodes import read_bytes
from servemark.checks.golden import (
    StatedLength,
    belongs,
    close,
    golden_of,
    in_units_of,
    method_of,
    plain_model,
    stated_lengths,
)
from servemark.checks.view import EntryView, World

Verdict = Literal["right", "wrong", "impossible", "no_golden", "no_speculation"]
"""no_golden: nothing was measured for exactly this. impossible: outside 1 .. draft tokens + 1. no_speculation: forced
on a role that does not speculate, or whose number of draft tokens is not stated."""
MAX_COMMENT_LINES = 40
_FIELD = re.compile(
    r"\b(draft_sample_method|rejection_sample_method|temperature|top_p|dataset)[=:]\s*([\w.]+)"
)


@dataclass(frozen=True, slots=True)
class GoldenVerdict:
    """One forced length. `value` counts the bonus token (TensorRT-LLM's variable does not: `written` is one less);
    `wanted` is what the field should say, in its own units."""

    arm: str
    topology: str
    concurrencies: tuple[int, ...]
    name: str
    written: str
    value: float
    method: str
    draft_tokens: int | None
    verdict: Verdict
    golden: tuple[GoldenLength, ...]
    wanted: str
    belongs: str
    at: Position


def golden_verdicts(suite: Suite, problems: list[Problem]) -> list[GoldenVerdict]:
    """Every forced length of every arm, in the suite's order."""
    world = World(suite, suite.golden(problems), arms=tuple(suite.arms.values()))
    views = (EntryView(world, arm, entry) for arm in world.arms for entry in arm.entries)
    return [_judged(view, one) for view in views for one in stated_lengths(view)]


def _judged(view: EntryView, one: StatedLength) -> GoldenVerdict:
    spec, known = one.speculative, golden_of(view, one)
    tokens = None if spec is None else spec.draft_tokens
    if tokens is None:
        verdict: Verdict = "no_speculation"
    elif not 1 <= one.value <= tokens + 1 + 1e-6:
        verdict = "impossible"
    elif not known:
        verdict = "no_golden"
    else:
        verdict = "right" if any(close(golden.length, one.value) for golden in known) else "wrong"
    lengths = {golden.length for golden in known}
    return GoldenVerdict(
        arm=view.arm.key,
        topology=view.entry.label,
        concurrencies=view.entry.concurrencies,
        name=one.name,
        written=one.written,
        value=one.value,
        method="" if spec is None else method_of(spec),
        draft_tokens=tokens,
        verdict=verdict,
        golden=tuple(known),
        wanted=" / ".join(in_units_of(one.name, length) for length in sorted(lengths)),
        belongs="" if verdict in {"right", "no_speculation"} else belongs(view, one),
        at=one.at,
    )


@dataclass(frozen=True, slots=True)
class GoldenCurve:
    """One curve of a golden file: one model in one mode. `draft_sampling` and `rejection_sampling` tell apart curves of
    one model that must not be mixed; None where neither the file's comment nor its name says."""

    file: str
    model: str
    mode: str
    draft_sampling: str | None
    rejection_sampling: str | None
    notes: tuple[str, ...]
    values: dict[int, float]
    """Draft tokens -> acceptance length."""


def golden_curves(
    suite: Suite, problems: list[Problem], model: str | None = None
) -> tuple[list[GoldenCurve], list[str]]:
    """Curves of a suite's golden files, of one model where it is named (owner and precision do not matter), and all
    models that there are."""
    golden = suite.golden(problems)
    models = sorted({one.model for one in golden})
    wanted = None if model is None else plain_model(model)
    curves: dict[tuple[str, str, str], GoldenCurve] = {}
    for one in golden:
        if wanted is not None and plain_model(one.model) != wanted:
            continue
        key = (one.at.file, one.model, one.mode)
        if key not in curves:
            curves[key] = _curve(suite, one)
        curves[key].values[one.draft_tokens] = one.length
    return list(curves.values()), models


def _curve(suite: Suite, one: GoldenLength) -> GoldenCurve:
    notes = _comment(suite, one.at.file)
    said = dict(_FIELD.findall("\n".join(notes)))
    stem = one.at.file.rpartition("/")[2].lower()
    draft = said.get("draft_sample_method") or ("probabilistic" if "probabilistic" in stem else None)
    rejection = said.get("rejection_sample_method") or ("block" if "block" in stem else None)
    return GoldenCurve(one.at.file, one.model, one.mode, draft, rejection, notes, {})


def _comment(suite: Suite, shown: str) -> tuple[str, ...]:
    """The lines of comment at the head of a golden file: how it was measured."""
    path = suite.root / shown.partition("/")[2]
    try:
        lines = read_bytes(Path(path), shown).decode("utf-8", "replace").splitlines()
    except (ServemarkError, OSError):
        return ()
    return tuple(_head(lines))


def _head(lines: Iterable[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        if not line.startswith("#") or len(found) >= MAX_COMMENT_LINES:
            break
        text = line.lstrip("#").strip()
        found += [text[:500]] if text else []
    return found
