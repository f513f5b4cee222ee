"""A pruned plan as a sweep takes it: the output of `plan --prune --json`, read with care, since a file may hold anything."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import ServemarkError, input_error
from servemark.base.messages import find_text
from servemark.base.printable import one_line
from servemark.results.serialize import read_bounded
from servemark.store.sweep_rows import Failure

LAYER = "predict"
"""What a point that is not run names as the part that decided so."""
_KEYS = "plan.prune."
MAX_SAID = 500
MAX_VALUES = 20


@dataclass(frozen=True, slots=True)
class PrunedPlan:
    """The plan's points by id: those to run, and why each of the others is not. `root` is the folder of its suite."""

    path: str
    root: str | None
    runs: frozenset[str]
    gone: Mapping[str, Failure]

    def suite_folder(self) -> str | None:
        """The folder that the file names. Raises ServemarkError (exit 2) where it is not here: the file may come from
        another machine, or the suite has moved."""
        if self.root is not None and not os.path.isdir(self.root):  # noqa: PTH112 - pathlib raises for some forged names
            raise input_error("runs.sweep.no_plan_suite", path=self.path, root=one_line(self.root)[:300])
        return self.root

    def require_known(self, ids: Iterable[str], *, whole: bool) -> None:
        """Raises ServemarkError (exit 2) where the suite has points that the plan does not know, or, with `whole`, the plan
        has points that the suite does not: it is of another state of the suite."""
        here = set(ids)
        known = self.runs | self.gone.keys()
        new, lost = here - known, (known - here if whole else set())
        if new or lost:
            raise input_error("runs.sweep.other_plan", path=self.path, new=len(new), lost=len(lost))


def read_pruned_plan(path: Path) -> PrunedPlan:
    """Read the file. Raises ServemarkError (exit 2) for one that is no pruned plan."""
    shown = one_line(str(path))[:300]
    try:
        body = json.loads(read_bounded(path))
    except OSError as error:
        reason = error.strerror or str(error)
        raise input_error("runs.sweep.bad_plan", path=shown, reason=reason) from error
    except (ValueError, RecursionError) as error:
        raise input_error("runs.sweep.bad_plan", path=shown, reason=one_line(str(error))[:200]) from error
    except ServemarkError as error:
        raise input_error("runs.sweep.bad_plan", path=shown, reason=error.what()) from error
    if not isinstance(body, dict) or not all(isinstance(body.get(n), list) for n in ("points", "pruned")):
        raise input_error("runs.sweep.bad_plan", path=shown, reason="points, pruned")
    root = body.get("root")
    runs = frozenset(_id(each, shown) for each in body["points"])
    gone = {_id(each, shown): _failure(each) for each in body["pruned"]}
    return PrunedPlan(shown, root if isinstance(root, str) and root else None, runs - gone.keys(), gone)


def _id(said: object, path: str) -> str:
    found = said.get("point_id") if isinstance(said, dict) else None
    if not isinstance(found, str) or not found or len(found) > 64:
        raise input_error("runs.sweep.bad_plan", path=path, reason="point_id")
    return found


def _failure(said: dict[str, object]) -> Failure:
    """The reason as a point keeps it: by key and values where they make a sentence here, so that it is told in the reader's
    language; else the words that the file has."""
    why = said.get("prune")
    found: Mapping[str, object] = why if isinstance(why, dict) else {}
    key, values, words = found.get("key"), found.get("values"), found.get("said")
    if (
        isinstance(key, str)
        and key.startswith(_KEYS)
        and isinstance(values, dict)
        and len(values) <= MAX_VALUES
    ):
        kept = {
            str(name)[:40]: one_line(value)[:200] if isinstance(value, str) else value
            for name, value in values.items()
            if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
        }
        try:
            told = find_text(f"{key}.short") is not None  # what a pruning says, not another sentence
            if kept and told and find_text(key, None, **kept) is not None:
                return {"layer": LAYER, "key": key, "values": kept}
        except (
            ArithmeticError,
            LookupError,
            ValueError,
            TypeError,
        ):  # other placeholders than this version's
            pass
    said_words = one_line(words)[:MAX_SAID] if isinstance(words, str) and words else "plan --prune"
    return {"layer": LAYER, "what": said_words}
