"""Task names as recipes and the command line spell them -> tasks: `NAME`, `NAME:option=value,…` or a task file.

Values of one option are separated by `/`: `recall:lengths=4000/32000,depths=0/0.5/1,items=400`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from servemark.base.errors import input_error
from servemark.evals.arithmetic import ARITHMETIC_ID, arithmetic
from servemark.evals.basics import BASICS_ID, basics
from servemark.evals.recall import RECALL_ID, recall
from servemark.evals.tasks import EvalTask
from servemark.evals.tool_calls import TOOLS_ID, tool_calls

TASKS: Final[Mapping[str, Callable[..., EvalTask]]] = {
    BASICS_ID: basics,
    ARITHMETIC_ID: arithmetic,
    RECALL_ID: recall,
    TOOLS_ID: tool_calls,
}
MAX_ITEMS: Final = 1_000_000
_COUNTS: Final = frozenset({"items", "seed"})
_LISTS: Final[Mapping[str, Callable[[str], float]]] = {"lengths": int, "depths": float}
_OPTIONS: Final[Mapping[str, frozenset[str]]] = {RECALL_ID: _COUNTS | set(_LISTS)}


def find_task(spec: str, where: str | None = None) -> EvalTask:
    """The task of that name with its options, or of that file. Raises ServemarkError (exit 2) naming the known ones, or
    what is wrong with an option or a line of the file."""
    name, _, options = spec.partition(":")
    make = TASKS.get(name)
    if make is None:
        if spec.endswith((".yaml", ".yml")):
            from servemark.evals.task_files import read_task  # noqa: PLC0415 - libyaml is loaded when YAML is read

            return read_task(Path(spec))
        near = difflib.get_close_matches(name[:80], TASKS, n=1)
        raise input_error("evals.no_task", where=where, task=spec[:80], known=", ".join(near or TASKS))
    given = _options(name, options, where)
    try:
        return make(**given)
    except ValueError as error:
        raise input_error(
            "evals.bad_option", where=where, task=name, option=options[:80], reason=error
        ) from None


def _options(name: str, text: str, where: str | None) -> dict[str, Any]:
    """`option=value,…` as keyword arguments."""
    known = _OPTIONS.get(name, _COUNTS)
    found: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        option, _, value = part.partition("=")
        if option not in known or option in found:
            reason = ", ".join(sorted(known))
            raise input_error("evals.bad_option", where=where, task=name, option=part[:80], reason=reason)
        try:
            found[option] = _count(option, value) if option in _COUNTS else _list(_LISTS[option], value)
        except ValueError:
            raise input_error(
                "evals.bad_option", where=where, task=name, option=part[:80], reason=value[:40] or "?"
            ) from None
    return found


def _count(option: str, value: str) -> int:
    number = int(value)
    least = 1 if option == "items" else 0
    if not least <= number <= MAX_ITEMS:
        raise ValueError
    return number


def _list(read: Callable[[str], float], value: str) -> list[float]:
    numbers = [read(each) for each in value.split("/")]
    if not all(math.isfinite(each) for each in numbers) or len(numbers) > 100:
        raise ValueError
    return numbers


def known_tasks() -> tuple[str, ...]:
    """The names of the tasks that come with servemark."""
    return tuple(TASKS)
