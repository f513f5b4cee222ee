"""A store's path that is no regular file: opening it must not hang, nor speak of a failing disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.store.database import Store


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_it_is_refused_at_once(tmp_path: Path, kind: str, read_only: bool) -> None:
    path = tmp_path / "store.sqlite"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(ServemarkError) as found:
        Store.open(path, read_only)
    assert found.value.key == "store.not_a_database"
