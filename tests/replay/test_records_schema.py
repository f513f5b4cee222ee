"""The published schema of a request record, against records that were written and docs that were made."""

from __future__ import annotations

import json
from pathlib import Path

from servemark.replay.record import RequestRecord
from servemark.replay.records_io import encode_record, records_schema

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_published_schema_is_the_codes() -> None:
    """docs/requests.schema.json is made by scripts/docs."""
    assert json.loads((DOCS / "requests.schema.json").read_text(encoding="utf-8")) == records_schema()


def test_every_field_of_a_line_is_described() -> None:
    """No field is missing, none is made up; what a fresh record leaves out has a default of null or empty."""
    schema = records_schema()
    record = RequestRecord("r", "s", 0, "measured")
    assert "calls" not in json.loads(
        encode_record(record)
    )  # written only where there were calls that were kept
    record.calls = [("f", "{}")]
    line = json.loads(encode_record(record))
    assert set(schema["properties"]) == set(line)
    assert set(schema["required"]) == {"id", "session", "turn", "phase"}
    for name, value in line.items():
        described = schema["properties"][name]
        if value is None:
            assert {"type": "null"} in described["anyOf"], name
        elif isinstance(value, str) and "enum" in described:
            assert value in described["enum"], name
