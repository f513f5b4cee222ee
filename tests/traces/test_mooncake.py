"""The Mooncake reader: good rows as they are, everything else refused with file and line, nothing crashes
it."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.traces import mooncake
from servemark.traces.mooncake import MooncakeRow, read_mooncake

ROW = '{"timestamp": 27000, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]}'


def refused(path: Path) -> ServemarkError:
    """The error of reading `path`; its texts must exist in both languages."""
    with pytest.raises(ServemarkError) as caught:
        read_mooncake(path)
    assert caught.value.exit_code == 2
    assert caught.value.what("zh")
    assert caught.value.next_step("zh")
    return caught.value


def test_rows_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    other = '{"hash_ids":[0],"output_length":0,"input_length":512,"timestamp":1.5,"more":{}}'
    path.write_text(f"{ROW}\n\n{other}")
    assert read_mooncake(path) == [
        MooncakeRow(1, 27000, 600, 52, (46, 47)),
        MooncakeRow(3, 1.5, 512, 0, (0,)),
    ]


def test_gzip_is_read_and_a_cut_one_refused(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join([ROW] * 500).encode())
    whole, cut, junk = tmp_path / "a.gz", tmp_path / "b.gz", tmp_path / "c.gz"
    whole.write_bytes(packed)
    cut.write_bytes(packed[:-20])
    junk.write_bytes(packed[:10] + b"\xff" * 50)
    assert len(read_mooncake(whole)) == 500
    assert refused(cut).key == "traces.bad_gzip"
    assert refused(junk).key == "traces.bad_gzip"


@pytest.mark.parametrize(
    ("line", "key", "shown"),
    [
        ("{", "bad_json", ""),
        ("NaN", "bad_json", ""),
        ('{"timestamp": NaN}', "bad_json", ""),
        ("[1]", "row_not_object", ""),
        ("null", "row_not_object", ""),
        ("[" * 200_000, "bad_json", ""),
        ("\x00\x01\x02", "bad_json", ""),
        (ROW.replace('"input_length": 600, ', ""), "row_missing_field", "`input_length`"),
        (ROW.replace("27000", '"27000"'), "row_wrong_type", "`timestamp`"),
        (ROW.replace("27000", "-1"), "row_out_of_range", "-1"),
        (ROW.replace("27000", "1e300"), "row_out_of_range", "1e+300"),
        (ROW.replace("27000", "1e999"), "bad_json", ""),
        (ROW.replace("600", "600.0"), "row_wrong_type", "`input_length`"),
        (ROW.replace("600", "true"), "row_wrong_type", "`input_length`"),
        (ROW.replace("600", "0"), "row_out_of_range", "`input_length` is 0"),
        (ROW.replace("600", "9" * 18), "row_out_of_range", "`input_length`"),
        (ROW.replace("600", "9" * 5000), "bad_json", ""),
        (ROW.replace("52", "-3"), "row_out_of_range", "`output_length` is -3"),
        (ROW.replace("52", "null"), "row_wrong_type", "`output_length`"),
        (ROW.replace("[46, 47]", "46"), "row_wrong_type", "`hash_ids`"),
        (ROW.replace("[46, 47]", "{}"), "row_wrong_type", "`hash_ids`"),
        (ROW.replace("47", '"47"'), "row_wrong_type", "`hash_ids[1]`"),
        (ROW.replace("47", "-47"), "row_out_of_range", "`hash_ids[1]` is -47"),
        (ROW.replace("46, 47", ""), "row_wrong_blocks", "0 block hashes"),
        (ROW.replace("46, 47", "46"), "row_wrong_blocks", "600 tokens make 2 blocks of 512"),
        (ROW.replace("46, 47", "46, 47, 48"), "row_wrong_blocks", "3 block hashes"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, key: str, shown: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{ROW}\n{line}\n{ROW}\n")
    error = refused(path)
    assert error.key == f"traces.{key}"
    assert error.where == f"{path}:2"
    assert shown in error.what("en")


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n \n")
    assert refused(empty).key == "traces.empty_file"
    assert refused(tmp_path).key == "traces.not_a_file"
    assert refused(tmp_path / "none").key == "traces.no_such_file"
    assert refused(Path("a\0b")).key == "traces.no_such_file"
    assert refused(empty / "below").key == "traces.cannot_read"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refused(pipe).key == "traces.not_a_file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(ROW)
    path.chmod(0)
    assert refused(path).key == "traces.cannot_read"


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{ROW}\n" * 4)
    monkeypatch.setattr(mooncake, "MAX_ROWS", 3)
    assert refused(path).key == "traces.too_many_rows"
    monkeypatch.setattr(mooncake, "MAX_ROWS", 10)
    monkeypatch.setattr(mooncake, "MAX_BLOCKS", 7)
    assert refused(path).key == "traces.too_many_rows"
    monkeypatch.setattr(mooncake, "MAX_BLOCKS", 8)
    assert len(read_mooncake(path)) == 4
    monkeypatch.setattr(mooncake, "MAX_FILE_BYTES", 3 * len(ROW))
    assert refused(path).key == "traces.file_too_long"
    monkeypatch.setattr(mooncake, "MAX_LINE_BYTES", 20)
    assert refused(path).key == "traces.line_too_long"


def test_a_gzip_bomb_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 MB of blank lines in 60 kB: the bound on the text stops it, not the memory."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\n" * 60_000_000, compresslevel=1))
    monkeypatch.setattr(mooncake, "MAX_FILE_BYTES", 100_000)
    assert refused(path).key == "traces.file_too_long"


STRANGE = ["null", "-1", "1e999", "[]", "{}", '"x"', "9" * 400, "\\ud800", "[[["]


def mutant(source: random.Random) -> bytes:
    """A good row with one to four bytes changed, removed, doubled, or a value exchanged for a strange one."""
    line = bytearray(ROW.encode())
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(line))
        match source.randrange(4):
            case 0:
                line[at] = source.randrange(256)
            case 1:
                del line[at]
            case 2:
                line[at:at] = line[at : at + source.randint(1, 30)]
            case _:
                strange = source.choice(STRANGE)
                line[at : at + source.randint(0, 6)] = strange.encode()
    return bytes(line) or b"x"


@settings(max_examples=84, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_mutants_are_rows_or_errors(tmp_path: Path, seed: int) -> None:
    """2,100 mutants: each is read, or refused with its position."""
    source = random.Random(seed)
    path = tmp_path / "m.jsonl"
    for _ in range(25):
        path.write_bytes(ROW.encode() + b"\n" + mutant(source))
        try:
            rows = read_mooncake(path)
        except ServemarkError as error:
            assert error.exit_code == 2
            assert error.where is not None
            assert error.where.startswith(f"{path}:")
            assert error.what("zh")
        else:
            for row in rows:
                assert len(row.hash_ids) == -(-row.input_length // 512)
                json.dumps(row.timestamp_ms, allow_nan=False)
