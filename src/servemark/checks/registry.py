"""All rules by code: a family's file registers its functions with `rule`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from servemark.checks.model import Edit, Hit, Rule, Scope, Severity

F = TypeVar("F", bound=Callable[[Any], Iterable[Hit]])
_RULES: dict[str, Rule] = {}
_LOADED: list[bool] = []


def numbered(
    code: str, family: str, severity: Severity, message: str, check: Callable[[Any], Iterable[Hit]]
) -> None:
    """Give a code to what the reader finds and words itself."""
    _RULES[code] = Rule(code, family, severity, "schema", check, message=message)


def rule(
    code: str,
    severity: Severity,
    scope: Scope = "entry",
    *,
    wrong: tuple[Edit, ...] = (),
    right: tuple[Edit, ...] = (),
    base: str | None = None,
    on_main: bool = False,
) -> Callable[[F], F]:
    """Register a function as the rule `code`; its family is the name of its file."""

    def register(function: F) -> F:
        if code in _RULES:
            raise ValueError(f"two rules with the code {code}")
        family = function.__module__.rpartition(".")[2].replace("_", "-")
        _RULES[code] = Rule(code, family, severity, scope, function, wrong, right, base=base, on_main=on_main)
        return function

    return register


def all_rules() -> dict[str, Rule]:
    """Code -> rule, in the order of the codes."""
    if not _LOADED:
        folder = Path(__file__).parent / "rules"
        for path in sorted(folder.glob("[a-z]*.py")):
            importlib.import_module(f"servemark.checks.rules.{path.stem}")
        _LOADED.append(True)
        ordered = sorted(_RULES.items())
        _RULES.clear()
        _RULES.update(ordered)
    return _RULES


def rules_of(*scopes: Scope) -> list[Rule]:
    """The rules that look at one kind of thing."""
    return [found for found in all_rules().values() if found.scope in scopes]
