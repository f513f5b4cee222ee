"""Imports go one way: a room may import rooms that stand before it, never after; no module cycle at all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "servemark"
ORDER = [
    *(
        "base",
        "metrics",
        "catalog",
        "sizing",
        "checks",
        "plan",
        "traces",
        "preflight",
        "launch",
        "replay",
        "evals",
    ),
    *("results", "store", "analysis", "predict", "runs", "authoring", "report", "web", "cli"),
]


def modules() -> dict[str, Path]:
    """Dotted name -> file, of every module of the package."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = ["servemark", *path.relative_to(SRC).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, name: str, known: dict[str, Path]) -> set[str]:
    """Modules of the package that a module imports, lazily or not."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                if deeper in known:
                    found.add(deeper)
                elif node.module in known:
                    found.add(node.module)
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}:{node.lineno}: relative import; write the whole name")
    return found - {name}


def room_of(name: str) -> str | None:
    """The room a module belongs to; None for the package itself and its entry point."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else None


@pytest.mark.parametrize("name", [n for n in modules() if room_of(n)])
def test_room_imports_only_earlier_rooms(name: str) -> None:
    """Order from the architecture; a room that is not in the list has to be put there first."""
    known = modules()
    room = room_of(name)
    assert room in ORDER, f"{name}: the room {room!r} is not in the order"
    for target in imports_of(known[name], name, known):
        other = room_of(target)
        if other is not None and other != room:
            assert ORDER.index(other) < ORDER.index(room), f"{name} imports {target}, which stands after it"


def test_no_module_cycle() -> None:
    """Depth-first search over all imports, lazy ones included."""
    known = modules()
    graph = {name: imports_of(path, name, known) for name, path in known.items()}
    state: dict[str, int] = {}

    def visit(name: str, trail: list[str]) -> None:
        state[name] = 1
        for target in sorted(graph[name]):
            if state.get(target) == 1:
                raise AssertionError("import cycle: " + " -> ".join([*trail, name, target]))
            if target not in state:
                visit(target, [*trail, name])
        state[name] = 2

    for name in graph:
        if name not in state:
            visit(name, [])
    assert len(state) == len(known)


def test_every_room_says_what_it_owns() -> None:
    """A room's __init__ has a docstring and nothing that costs import time."""
    for room in sorted(
        p for p in SRC.iterdir() if p.is_dir() and p.name != "__pycache__" and p.name in ORDER
    ):
        tree = ast.parse((room / "__init__.py").read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), f"{room.name}/__init__.py has no docstring"
        assert len(tree.body) == 1, f"{room.name}/__init__.py should hold its docstring only"
        assert len(list(room.rglob("*.py"))) > 1, f"{room.name} is an empty room"
