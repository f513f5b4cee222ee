"""A run whose terminal is closed goes on to its end: what is drawn there is for who looks on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cli.replay_servers import environment, good, serving

from servemark.cli.lasting_stderr import LastingStderr


def test_a_closed_terminal_ends_no_replay(tmp_path: Path) -> None:
    """The terminal goes while requests are in flight: all 20 end well."""
    ours, theirs = os.openpty()
    with serving(good(0.02)) as server:
        line = ["replay", "--home", str(tmp_path), "--tokenizer", "words", "--json", "--requests", "20"]
        line += ["--url", f"http://127.0.0.1:{server.server_address[1]}", "random:isl=20,osl=8"]
        with subprocess.Popen(
            [sys.executable, "-m", "servemark", *line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            env=environment(TERM="xterm"),
            start_new_session=True,
        ) as process:
            os.close(theirs)
            drawn = b""
            while b"0/20" not in drawn and b"1/20" not in drawn:
                drawn += os.read(ours, 4096)
            os.close(ours)
            out, _ = process.communicate(timeout=60)
    row = json.loads(out)
    assert (process.returncode, row["status"], row["counts"]["ok"]) == (0, "complete", 20)


def test_nothing_is_kept_for_a_reader_that_went_away() -> None:
    """A full device takes no line; ten thousand more are not kept in memory for it."""
    with Path("/dev/full").open("wb", buffering=0) as full:
        stream = LastingStderr(full, "utf-8", line_buffering=True)
        assert {stream.write("a line\n") for _ in range(10_000)} == {7}
        stream.flush()
