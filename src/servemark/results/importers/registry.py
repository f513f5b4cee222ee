"""All importers by the module that holds them; a module is loaded when importers are asked for, not before.

Each module has a constant `IMPORTER`. One line an importer, in the order of their names.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from servemark.results.importers.base import Importer
from servemark.results.importers.registry_tools import TOOLS

MODULES = (
    "servemark.results.importers.inferencex",
    "servemark.results.importers.own",
)


@cache
def importers() -> tuple[Importer, ...]:
    """Every importer, loaded on the first call."""
    named = (*((module, "IMPORTER") for module in MODULES), *TOOLS)
    return tuple(getattr(import_module(module), attribute) for module, attribute in named)


def importer_of(name: str) -> Importer | None:
    """The importer with this id; None when there is none."""
    return next((one for one in importers() if one.id == name), None)


def __getattr__(name: str) -> tuple[Importer, ...]:
    """`IMPORTERS`, loaded when it is first asked for."""
    if name == "IMPORTERS":
        return importers()
    raise AttributeError(name)
