"""requests.jsonl: what is written comes back, damage is named by file and line, a killed writer leaves good
lines."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.replay import records_io
from servemark.replay.record import RECORD_SCHEMA, RequestRecord
from servemark.replay.records_io import (
    RecordWriter,
    decode_record,
    encode_record,
    has_torn_tail,
    read_records,
)

TIMES = st.none() | st.floats(-1e3, 1e7).map(lambda v: round(v, 6))
COUNTS = st.none() | st.integers(0, 10**9)


def full() -> RequestRecord:
    """A record with every field set."""
    return RequestRecord(
        id="r",
        session="会话",
        turn=3,
        phase="eval",
        lane=2,
        intended_send_s=1.0000004,
        connect_s=0.25,
        start_s=1.5,
        first_byte_s=2.0,
        first_text_s=2.1234567,
        end_s=4.0,
        chunk_s=[2.1234567, 3.0, 3.0],
        chunk_tokens=[2, 0, 1],
        requested_output_tokens=9,
        expected_input_tokens=7,
        input_tokens=8,
        output_tokens=3,
        cached_tokens=0,
        tokens_origin="usage",
        outcome="ok",
        http_status=200,
        finish_reason="stop",
        text='a"\n水',
        agent="sub-1",
        parent="sub-0",
        endpoint=1,
        process=0,
        first_reasoning_s=2.05,
        retries=0,
        served_model="m",
        calls=[("look_up", '{"id": 3}')],
    )


def test_line() -> None:
    """One line, every field under its name, times to the microsecond; the record keeps its own times."""
    record = full()
    line = encode_record(record)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    fields = json.loads(line)
    assert list(fields) == list(RequestRecord.__slots__)
    assert fields["intended_send_s"] == 1.0
    assert fields["chunk_s"] == [2.123457, 3.0, 3.0]
    assert fields["error_kind"] is None
    assert record.chunk_s[0] == 2.1234567
    assert fields["calls"] == [["look_up", '{"id": 3}']]
    record.calls = None  # most have none, and it is not written then
    assert list(json.loads(encode_record(record))) == [n for n in RequestRecord.__slots__ if n != "calls"]


@settings(max_examples=50)
@given(
    st.builds(
        RequestRecord,
        id=st.text(),
        session=st.text(),
        turn=st.integers(0, 99),
        phase=st.sampled_from(["warmup", "measured", "eval"]),
        lane=COUNTS,
        schema=st.just(RECORD_SCHEMA),
        intended_send_s=TIMES,
        start_s=TIMES,
        end_s=TIMES,
        chunk_s=st.lists(st.floats(0, 1e6).map(lambda v: round(v, 6))).map(sorted),
        chunk_tokens=st.none(),
        output_tokens=COUNTS,
        cached_tokens=COUNTS,
        text=st.none() | st.text(),
    )
)
def test_round_trip(record: RequestRecord) -> None:
    """Absent stays absent, zero stays zero."""
    assert decode_record(encode_record(record), "f:1") == record


OLD = (
    b'{"id":"m1-0-s","session":"s","turn":0,"phase":"measured","lane":1,"schema":1,"intended_send_s":0.02,'
    b'"connect_s":null,"start_s":0.021,"first_byte_s":0.1,"first_text_s":0.1,"end_s":0.3,"chunk_s":[0.1,0.3],'
    b'"chunk_tokens":null,"requested_output_tokens":2,"expected_input_tokens":9,"input_tokens":10,'
    b'"output_tokens":2,"cached_tokens":4,"tokens_origin":"usage","outcome":"ok","error_kind":null,'
    b'"error_detail":null,"http_status":200,"finish_reason":"length","text":null}\n'
)
"""A line of the first schema, as servemark 0.1 wrote it."""


def test_the_first_schema_is_still_read() -> None:
    """What it did not know is absent, not a default; everything else is as it was."""
    record = decode_record(OLD, "f:1")
    assert (record.id, record.lane, record.chunk_s, record.cached_tokens) == ("m1-0-s", 1, [0.1, 0.3], 4)
    new = ("agent", "parent", "endpoint", "process", "first_reasoning_s", "retries", "served_model")
    assert [getattr(record, name) for name in new] == [None] * len(new)
    assert record.schema == RECORD_SCHEMA
    assert decode_record(encode_record(record), "f:1") == record


def write(path: Path, *lines: bytes) -> Path:
    """A file of these bytes."""
    path.write_bytes(b"".join(lines))
    return path


GOOD = encode_record(full())


def changed(**fields: object) -> bytes:
    """The good line with some fields changed."""
    return json.dumps(json.loads(GOOD) | fields).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b"\n", "replay.record_bad"),
        (b"{}\n", "replay.record_bad"),
        (b"not json\n", "replay.record_bad"),
        (b"[" * 100_000 + b"\n", "replay.record_bad"),
        (b'{"schema":1}\n', "replay.record_bad"),
        (b"\xff\xfe\n", "replay.record_bad"),
        (changed(schema=RECORD_SCHEMA + 1), "replay.record_schema"),
        (changed(schema=0), "replay.record_schema"),
        (changed(schema="1"), "replay.record_bad"),
        (changed(outcome="great"), "replay.record_bad"),
        (changed(start_s="soon"), "replay.record_bad"),
        (changed(end_s=float("nan")), "replay.record_bad"),
        (changed(output_tokens=-1), "replay.record_bad"),
        (changed(output_tokens=2**53), "replay.record_bad"),
        (changed(start_s=-1e308), "replay.record_bad"),
        (changed(chunk_s=[2.0, 3.0, 1e308]), "replay.record_bad"),
        (changed(chunk_tokens=[1, 2**60, 1]), "replay.record_bad"),
        (changed(chunk_s=[2.0, 1.0, 3.0]), "replay.record_bad"),
        (changed(chunk_tokens=[1]), "replay.record_bad"),
        (GOOD[:-1], "replay.record_torn"),
        (GOOD[:40], "replay.record_torn"),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path: Path, line: bytes, key: str) -> None:
    """The third line is bad: two records come out, then an error that names it."""
    path = write(tmp_path / "requests.jsonl", GOOD, GOOD, line)
    numbers = []
    with pytest.raises(ServemarkError) as caught:
        for number, _ in read_records(path):
            numbers.append(number)
    assert numbers == [1, 2]
    assert (caught.value.key, caught.value.where) == (key, f"{path}:3")
    assert caught.value.exit_code == 2
    assert caught.value.next_step("zh")


def test_torn_tail_can_be_left_out(tmp_path: Path) -> None:
    """With allow_torn_tail the good lines come and the file still tells that it was torn."""
    path = write(tmp_path / "r.jsonl", GOOD, GOOD, GOOD[:50])
    assert [n for n, _ in read_records(path, allow_torn_tail=True)] == [1, 2]
    assert has_torn_tail(path)
    assert not has_torn_tail(write(tmp_path / "whole.jsonl", GOOD))
    assert not has_torn_tail(write(tmp_path / "empty.jsonl"))


def test_bad_line_in_the_middle_is_never_left_out(tmp_path: Path) -> None:
    """Only the tail may be torn."""
    path = write(tmp_path / "r.jsonl", GOOD[:50] + b"\n", GOOD)
    with pytest.raises(ServemarkError, match=r"r\.jsonl:1"):
        list(read_records(path, allow_torn_tail=True))


def test_endless_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond the limit is not read to its end."""
    monkeypatch.setattr(records_io, "MAX_LINE_BYTES", 1000)
    path = write(tmp_path / "r.jsonl", b"x" * 1001 + b"\n")
    with pytest.raises(ServemarkError) as caught:
        list(read_records(path))
    assert caught.value.key == "replay.record_too_long"


@pytest.mark.parametrize("action", [lambda p: list(read_records(p)), has_torn_tail])
def test_file_that_cannot_be_read(tmp_path: Path, action: Callable[[Path], object]) -> None:
    """Missing, a folder, a ring of links, a pipe that nobody writes to (does not hang)."""
    ring, pipe = tmp_path / "ring.jsonl", tmp_path / "pipe.jsonl"
    ring.symlink_to(ring)
    os.mkfifo(pipe)
    for path, key in (
        (tmp_path / "missing.jsonl", "replay.records_unreadable"),
        (ring, "replay.records_unreadable"),
        (tmp_path, "replay.records_not_a_file"),
        (pipe, "replay.records_not_a_file"),
    ):
        with pytest.raises(ServemarkError) as caught:
            action(path)
        assert caught.value.key == key
        assert "{" not in caught.value.what("zh")


def test_writer_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    """Opening a pipe for writing waits for a reader for ever."""
    os.mkfifo(tmp_path / "r.jsonl")
    with pytest.raises(ServemarkError):
        RecordWriter(tmp_path / "r.jsonl")


def test_a_falling_total_of_tokens_can_be_read_back(tmp_path: Path) -> None:
    """A server that counts down writes a negative difference; the run must not be lost for it."""
    path = write(tmp_path / "r.jsonl", changed(chunk_tokens=[5, -3, 1]))
    assert [record.chunk_tokens for _, record in read_records(path)] == [[5, -3, 1]]


def test_writer_appends_whole_lines(tmp_path: Path) -> None:
    """Each record is in the file before `write` returns; a second writer goes on where the first ended."""
    path = tmp_path / "r.jsonl"
    with RecordWriter(path) as writer:
        writer.write(full())
        assert path.read_bytes() == GOOD
        writer.write(full())
        assert writer.count == 2
    with RecordWriter(path) as writer:
        writer.write(full())
    assert len(list(read_records(path))) == 3


def test_writer_does_not_build_on_a_torn_line(tmp_path: Path) -> None:
    """Appending would make two damaged records of one."""
    path = write(tmp_path / "r.jsonl", GOOD, GOOD[:9])
    with pytest.raises(ServemarkError) as caught:
        RecordWriter(path)
    assert caught.value.key == "replay.record_torn"
    assert path.read_bytes() == GOOD + GOOD[:9]


def test_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    """The system takes half of the second line and then no more: the half is taken back, and the error is
    plain."""
    path = tmp_path / "r.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with RecordWriter(path) as writer:
            writer.write(full())
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(GOOD) + 30, limits[1]))
            with pytest.raises(ServemarkError) as caught:
                writer.write(full())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.key == "base.file_too_large"
    assert path.read_bytes() == GOOD


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_no_space_left() -> None:
    """The device that is always full."""
    with RecordWriter(Path("/dev/full")) as writer, pytest.raises(ServemarkError) as caught:
        writer.write(full())
    assert caught.value.key == "base.disk_full"


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    """Said at once, not at the first record."""
    with pytest.raises(ServemarkError):
        RecordWriter(tmp_path / "no" / "r.jsonl")


KILLED = """
import os, sys
from pathlib import Path
from servemark.replay.record import RECORD_SCHEMA, RequestRecord
from servemark.replay.records_io import RecordWriter
writer = RecordWriter(Path(sys.argv[1]))
n = 0
while True:
    writer.write(RequestRecord(f"r{n}", "s", n, "measured", chunk_s=[float(i) for i in range(500)]))
    n += 1
    if n == 20:
        print("go", flush=True)
"""


def test_kill_9_loses_nothing_that_was_written(tmp_path: Path) -> None:
    """A writer is killed in the middle of its work: the 20 records it told of, at least, are there."""
    path = tmp_path / "r.jsonl"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    argv = [sys.executable, "-c", KILLED, str(path)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    with process.stdout as told:
        assert told.readline() == b"go\n"
        process.kill()
    process.wait()
    turns = [record.turn for _, record in read_records(path, allow_torn_tail=True)]
    assert turns == list(range(len(turns)))
    assert len(turns) >= 20
