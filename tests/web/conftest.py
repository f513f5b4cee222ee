"""What the tests of the server share."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

MADE = runpy.run_path(str(Path(__file__).with_name("made_site.py")))


@pytest.fixture(scope="session")
def made() -> dict[str, Any]:
    """Names of `made_site.py`."""
    return MADE


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with five points that no test changes."""
    home = tmp_path_factory.mktemp("served") / "home"
    MADE["fill"](home, MADE["rows"]())
    return home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the same five points, for one test."""
    MADE["fill"](tmp_path / "home", MADE["rows"]())
    return tmp_path / "home"
