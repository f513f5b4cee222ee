"""`result.json`: written, read, changed, damaged, hostile. Real files."""

from __future__ import annotations

import hashlib
import json
import math
import os
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemark.base.errors import Layer, ServemarkError
from servemark.base.messages import LANGUAGES
from servemark.results import serialize
from servemark.results.row import ResultRow
from servemark.results.serialize import (
    SHA_KEY,
    encode_result,
    json_schema,
    read_result,
    row_from_json,
    row_sha256,
    row_to_json,
    signed_json,
    write_result,
)

MADE = runpy.run_path(str(Path(__file__).with_name("make_run.py")))
ROOT = Path(__file__).resolve().parents[2]
EMPTY_PREFIX = {"prefix": True, "bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A whole run folder."""
    folder: Path = MADE["make_point"](tmp_path, 2)
    return folder


def refused(path: Path) -> ServemarkError:
    """The error of reading `path`, after looking at its texts."""
    with pytest.raises(ServemarkError) as caught:
        read_result(path)
    error = caught.value
    assert error.layer is Layer.RESULTS
    assert error.exit_code == 2
    for lang in LANGUAGES:
        assert "{" not in error.what(lang).replace("{}", "")
        assert error.next_step(lang)
    return error


def test_round_trip_keeps_value_and_hash(run: Path) -> None:
    """Read, written and read again: equal rows, equal bytes."""
    row = read_result(run)
    assert encode_result(row) == (run / "result.json").read_bytes()
    assert row_from_json(row_to_json(row)) == row
    write_result(run / "result.json", row)
    assert read_result(run / "result.json") == row


def test_whole_numbers_in_float_fields_keep_the_hash(run: Path) -> None:
    """An int where the type says float (a mean of 3) must not change the hash when read back."""
    row = read_result(run)
    odd = replace(row, window_s=3, phases_s={"launch": 1, "ready": 0})
    write_result(run / "result.json", odd)
    again = read_result(run)
    assert again.window_s == 3.0
    assert signed_json(again) == json.loads((run / "result.json").read_text())


@given(value=st.floats(allow_nan=False, allow_infinity=False), whole=st.integers(0, 2**63))
def test_any_number_survives(value: float, whole: int) -> None:
    """Floats are written so that they read back to the bit; large counts too."""
    row: ResultRow = ROW[0]
    odd = replace(row, window_s=value, tokens={"input": whole, "output": None, "cached": None})
    plain = serialize.verified_json(encode_result(odd), "x")
    assert row_from_json(plain).window_s == value
    assert row_from_json(plain).tokens["input"] == whole


ROW: list[Any] = []


@pytest.fixture(autouse=True, scope="module")
def _one_row(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One row for the property test, made once."""
    if not ROW:
        ROW.append(read_result(MADE["make_point"](tmp_path_factory.mktemp("row"), 1)))


def test_not_a_number_is_not_a_result(run: Path) -> None:
    """NaN never gets into a file, and a file that holds it is refused."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_result(replace(read_result(run), window_s=math.nan))
    text = (run / "result.json").read_text().replace('"schema":1', '"schema":NaN')
    (run / "result.json").write_text(text)
    assert refused(run).key == "results.not_json"


def rewrite(run: Path, change: Callable[[dict[str, Any]], None], *, sign: bool) -> None:
    """Change the row's JSON; with `sign` its hash is made right again, as a forger would."""
    plain = json.loads((run / "result.json").read_text())
    change(plain)
    if sign:
        plain[SHA_KEY] = row_sha256(plain)
    (run / "result.json").write_text(json.dumps(plain))


def test_a_changed_figure_is_noticed(run: Path) -> None:
    """One digit of the window."""
    rewrite(run, lambda plain: plain.update(window_s=1.0), sign=False)
    assert refused(run).key == "results.changed"


def test_formatting_alone_is_no_change(run: Path) -> None:
    """The hash is over canonical JSON: indentation and key order do not matter."""
    plain = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(dict(reversed(plain.items())), indent=3))
    assert read_result(run).concurrency == 2


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda plain: plain.pop(SHA_KEY), "results.no_hash"),
        (lambda plain: plain.update(schema=2), "results.newer_schema"),
        (lambda plain: plain.update(schema=0), "results.not_a_row"),
        (lambda plain: plain.update(schema=True), "results.not_a_row"),
        (lambda plain: plain.update(schema="1"), "results.not_a_row"),
        (lambda plain: plain.update(counts=[]), "results.not_a_row"),
        (lambda plain: plain.update(status="done"), "results.not_a_row"),
        (lambda plain: plain.update(window_s="10"), "results.not_a_row"),
        (lambda plain: plain.pop("evals"), "results.not_a_row"),
        (lambda plain: plain.update(files={"../../etc/passwd": {"sha256": "0"}}), "results.file_outside"),
        (lambda plain: plain.update(files={"/etc/passwd": {"sha256": "0"}}), "results.file_outside"),
        (lambda plain: plain.update(files={"": {"sha256": "0"}}), "results.file_outside"),
        (lambda plain: plain.update(files={"a\0b": {"sha256": "0"}}), "results.file_outside"),
        (lambda plain: plain.update(files={"not-here": {"sha256": "0"}}), "results.file_missing"),
        (lambda plain: plain["files"]["requests.jsonl"].update(sha256=None), "results.file_changed"),
        (lambda plain: plain.update(files={}), "results.file_unlisted"),
        (lambda plain: plain["files"].pop("manifest.json"), "results.file_unlisted"),
        (lambda plain: plain["files"].pop("requests.jsonl"), "results.file_unlisted"),
        (lambda plain: plain["files"].pop("evals.json"), "results.file_unlisted"),
        (lambda plain: plain["files"]["requests.jsonl"].update(EMPTY_PREFIX), "results.file_unlisted"),
        (lambda plain: plain["files"].update({"a" * 300: {"sha256": "0"}}), "results.unreadable"),
        (lambda plain: plain.update(concurrency=0), "results.not_a_row"),
        (lambda plain: plain.update(concurrency=10**6 + 1), "results.not_a_row"),
        (lambda plain: plain["counts"].update(ok=-1), "results.not_a_row"),
        (lambda plain: plain["counts"].update(planned=2**53), "results.not_a_row"),
        (lambda plain: plain["counts"].update(planned=10**400), "results.not_a_row"),
        (lambda plain: plain.update(stalls=-1), "results.not_a_row"),
        (lambda plain: plain.update(gpus_deployed=-1), "results.not_a_row"),
        (lambda plain: plain["tokens"].update(output=-1), "results.not_a_row"),
        (lambda plain: plain["evals"][0].update(correct=101), "results.not_a_row"),
        (lambda plain: plain["evals"][0].update(unanswered=-1), "results.not_a_row"),
    ],
)
def test_a_row_that_is_none(run: Path, change: Callable[[dict[str, Any]], None], key: str) -> None:
    """Signed or not: what has the wrong shape, time or reach is refused by name."""
    rewrite(run, change, sign=key != "results.no_hash")
    assert refused(run).key == key


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"", "results.not_json"),
        (b"{", "results.not_json"),
        (b"[]", "results.not_json"),
        (b"null", "results.not_json"),
        (b"\xff\xfe{}", "results.not_json"),
        (b'{"a":"\\ud800"}', "results.not_json"),
        (b"[" * 100_000, "results.not_json"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "results.not_json"),
        (b"{}", "results.no_hash"),
    ],
)
def test_bytes_that_are_no_result(run: Path, data: bytes, key: str) -> None:
    """Empty, torn, of another kind, not UTF-8, nested without end."""
    (run / "result.json").write_bytes(data)
    assert refused(run).key == key


def test_every_truncation_is_refused(run: Path) -> None:
    """Cut at any place, the file is never taken for whole."""
    data = (run / "result.json").read_bytes()
    for cut in range(0, len(data) - 1, 97):
        (run / "result.json").write_bytes(data[:cut])
        refused(run)


def test_missing_folder_huge_and_odd_files(tmp_path: Path, run: Path) -> None:
    """Nothing there, 64 MiB of nothing (not read into memory), a pipe (does not hang), a folder."""
    assert refused(tmp_path / "nowhere").key == "results.missing_file"
    (run / "result.json").unlink()
    assert refused(run).key == "results.missing_file"
    with (run / "result.json").open("wb") as stream:
        stream.truncate(64 * 2**20)
    assert refused(run).key == "results.too_large"
    (run / "result.json").unlink()
    os.mkfifo(run / "result.json")
    assert refused(run).key == "results.not_a_file"
    (run / "result.json").unlink()
    (run / "result.json").mkdir()
    assert refused(run).key == "results.not_a_file"


def test_evidence_that_changed_or_went_away_is_named(run: Path) -> None:
    """One byte of requests.jsonl; evals.json gone; both by name."""
    raw = bytearray((run / "requests.jsonl").read_bytes())
    raw[10] ^= 1
    (run / "requests.jsonl").write_bytes(raw)
    error = refused(run)
    assert error.key == "results.file_changed"
    assert "requests.jsonl" in error.what("en")
    assert read_result(run, verify_files=False).concurrency == 2
    (run / "requests.jsonl").unlink()
    assert "requests.jsonl" in refused(run).what("zh")


def test_a_shared_log_may_grow_but_not_change(run: Path) -> None:
    """With `prefix` the first n bytes count: appended lines are fine, an edited or cut beginning is not."""
    (run / "logs").mkdir()
    log = run / "logs" / "engine.log"
    log.write_bytes(b"ready\n")
    entry = {"sha256": hashlib.sha256(b"ready\n").hexdigest(), "bytes": 6, "prefix": True}
    rewrite(run, lambda plain: plain["files"].update({"logs/engine.log": entry}), sign=True)
    assert read_result(run).concurrency == 2
    log.write_bytes(b"ready\nmore\n")
    assert read_result(run).concurrency == 2
    for hurt in (b"steady\nmore\n", b"ready"):
        log.write_bytes(hurt)
        assert refused(run).key == "results.file_changed"


def test_a_link_that_leads_out_of_the_folder_is_not_followed(run: Path, tmp_path: Path) -> None:
    """A run folder from elsewhere must not make us read what lies beside it."""
    outside = tmp_path / "secret"
    outside.write_bytes((run / "evals.json").read_bytes())
    (run / "evals.json").unlink()
    (run / "evals.json").symlink_to(outside)
    assert refused(run).key == "results.file_outside"


@pytest.mark.parametrize("name", ["result.json", "requests.jsonl", "evals.json", "manifest.json"])
def test_a_ring_of_links_and_a_pipe_are_damage(run: Path, name: str) -> None:
    """Neither a traceback nor a wait for ever, whichever file it is."""
    (run / name).unlink()
    (run / name).symlink_to(run / name)
    assert refused(run).key == "results.unreadable"
    (run / name).unlink()
    os.mkfifo(run / name)
    assert refused(run).key in {"results.not_a_file", "results.file_missing"}


def test_a_partial_row_may_lack_evidence(run: Path) -> None:
    """Only a complete row must list all of it."""
    rewrite(run, lambda plain: plain.update(files={}, status="partial"), sign=True)
    assert read_result(run).status == "partial"


def test_a_row_from_before_the_largest_lag_was_kept(run: Path) -> None:
    """The field is absent, not zero."""
    rewrite(run, lambda plain: plain["client"].pop("loop_lag_max_s"), sign=True)
    assert read_result(run).client.loop_lag_max_s is None


def test_an_older_schema_is_brought_up_step_by_step(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schema 1 -> 2 -> 3 through two steps; without the second step the row is too old to read."""
    row = read_result(run)
    monkeypatch.setattr(serialize, "ROW_SCHEMA", 3)
    steps = {
        1: lambda plain: {**plain, "schema": 2, "arm": plain["arm"] + "!"},
        2: lambda plain: {**plain, "schema": 3, "arm": plain["arm"] + "?"},
    }
    monkeypatch.setattr(serialize, "MIGRATIONS", steps)
    assert read_result(run).arm == row.arm + "!?"
    monkeypatch.setattr(serialize, "MIGRATIONS", {1: steps[1]})
    assert refused(run).key == "results.too_old_schema"


def test_unknown_extra_fields_are_ignored(run: Path) -> None:
    """A field that a later servemark adds without a new schema number does not lock older ones out."""
    rewrite(run, lambda plain: plain.update(novelty={"a": 1}), sign=True)
    assert read_result(run).concurrency == 2


def test_the_published_schema_is_the_code_s(run: Path) -> None:
    """docs/result.schema.json is what `json_schema` generates, and it names every field of a real row."""
    published = json.loads((ROOT / "docs" / "result.schema.json").read_text(encoding="utf-8"))
    assert published == json_schema(), "generate it again: servemark.results.serialize.json_schema"
    plain = json.loads((run / "result.json").read_text())
    assert set(plain) <= set(published["properties"])
    assert set(published["required"]) <= set(plain)
