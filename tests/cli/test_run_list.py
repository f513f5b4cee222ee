"""`servemark runs` on a narrow terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.cli.run_list import print_runs
from servemark.runs.folder import RunInfo, RunState


def test_a_long_name_leaves_room_for_the_state(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """State and reason are readable, and no part of the name is lost."""
    monkeypatch.setenv("COLUMNS", "80")
    name = "20261130-093307-" + "-".join(["disaggregated"] * 6) + "-c1"
    failure: dict[str, object] = {"layer": "engine", "key": "no.such.key"}
    print_runs([RunInfo(name, Path(name), RunState.FAILED, None, failure)], 40)
    said = capsys.readouterr().out
    assert "failed" in said
    assert "[engine]" in said
    lines = [line.split()[0] for line in said.splitlines()[2:] if line.split()]
    assert "".join(lines) == name


@pytest.mark.parametrize("columns", ["60", "80"])
def test_a_usual_id_stays_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    """It is copied into the next command, so it is not broken however long the reason is."""
    monkeypatch.setenv("COLUMNS", columns)
    name = "20261130-093307-quickstart-4bfae2-c1"
    failure: dict[str, object] = {"layer": "engine", "key": "no.such.key." * 8}
    print_runs([RunInfo(name, Path(name), RunState.FAILED, None, failure)], 40)
    assert any(line.split()[:1] == [name] for line in capsys.readouterr().out.splitlines())
