"""`servemark trace` as its user meets it: two languages, 80 columns, JSON, and errors of one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servemark.base.messages import set_language
from servemark.cli.main import run_cli
from servemark.cli.text_table import columns_of
from servemark.cli.trace_view import stats_lines
from servemark.traces.agentic_tree import TreeRecipe
from servemark.traces.messages_format import ROLES, ChildLine, SegmentsMessage, SessionLine, TurnLine
from servemark.traces.open import open_workload
from servemark.traces.stats import trace_stats
from servemark.traces.write import write_made

ROOT = Path(__file__).resolve().parents[2]


def test_make_show_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, other = str(tmp_path / "m.jsonl"), str(tmp_path / "o.jsonl")
    assert run_cli(["trace", "make", made, "--sessions", "3", "--scale", "0.02", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["sessions"] == 3
    assert run_cli(["trace", "show", made, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["requests"], shown["kind"]) == (first["requests"], "weka")
    assert run_cli(["trace", "convert", made, other, "--to", "messages"]) == 0
    assert "lost:" in capsys.readouterr().out
    assert run_cli(["trace", "make", made]) == 2
    assert "--force" in capsys.readouterr().err
    assert run_cli(["trace", "show", str(tmp_path / "none")]) == 2
    assert run_cli(["trace", "--help"]) == 0


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("colour", [False, True])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, lang: str, colour: bool) -> None:
    write_made(TreeRecipe(6, 3, scale=0.05), tmp_path / "m.jsonl", "weka")
    csv = tmp_path / "a.csv"
    csv.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,30,4\n2023-11-16 18:17:09,9,4\n"
    )
    set_language(lang)
    try:
        for path in (tmp_path / "m.jsonl", csv):
            workload = open_workload(path)
            lines = stats_lines(trace_stats(workload), workload.source, 80, colour=colour)
            assert any("\x1b[" in line for line in lines) == colour
            plain = [line.replace("\x1b[36m", "").replace("\x1b[0m", "") for line in lines]
            assert max(map(columns_of, plain)) <= 80
            assert not any("\x1b" in line for line in plain)
    finally:
        set_language("en")


def test_the_schema_in_the_docs_names_what_the_reader_takes() -> None:
    """Field for field: the reader refuses every other, so a field in one of them alone is a mistake."""
    found = json.loads((ROOT / "docs" / "messages.schema.json").read_text(encoding="utf-8"))
    parts = found["$defs"]
    for described, taken in (
        (found, SessionLine),
        (parts["turn"], TurnLine),
        (parts["child"], ChildLine),
        (parts["segments_message"], SegmentsMessage),
    ):
        assert set(described["properties"]) == set(taken.__struct_fields__)
        assert described["additionalProperties"] is False
    assert parts["role"]["enum"] == list(ROLES)
