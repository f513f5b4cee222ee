"""Where the real suites lie that the tests marked `corpus` read."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def reference_suite() -> Path:
    """A real suite of 208 arms and 469 recipes; skips where it is absent."""
    found = DATA / "inferencex-2026-08"
    if not found.is_dir():
        pytest.skip("the real suite is not on this machine")
    return found


@pytest.fixture(scope="session")
def seed_suite() -> Path:
    """A real arm with a recipe of schema 2; skips where it is absent."""
    found = DATA / "seed" / "suite"
    if not found.is_dir():
        pytest.skip("the real suite is not on this machine")
    return found
