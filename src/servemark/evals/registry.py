"""Task names as recipes spell them -> tasks."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from servemark.base.errors import input_error
from servemark.evals.basics import BASICS_ID, basics
from servemark.evals.tasks import EvalTask

TASKS: dict[str, Callable[[], EvalTask]] = {BASICS_ID: basics}


def find_task(name: str, where: str | None = None) -> EvalTask:
    """The task of that name; raises ServemarkError (exit 2) naming the known ones."""
    make = TASKS.get(name)
    if make is None:
        near = difflib.get_close_matches(name, TASKS, n=1)
        raise input_error("evals.no_task", where=where, task=name[:80], known=", ".join(near or TASKS))
    return make()
