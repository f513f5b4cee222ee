"""`servemark replay` is stopped: once drains, twice ends now, in every phase; nothing that was sent is lost."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.replay_servers import Body, Handler, Verb, environment, good, serving, wait_until

from servemark.runs.folder import RunState, inspect

LONG = "random:isl=20,osl=400,requests=40"
SHORT = "random:isl=20,osl=10,requests=40"
BUILT = ("--model", "m", "--processes", "1")


@pytest.fixture
def verb(tmp_path: Path) -> Verb:
    """The verb with a home of its own."""
    return Verb(tmp_path / "home")


def partial(verb: Verb, code: int) -> Body:
    """The row of a run that ended early, after what every such run must hold to."""
    assert code == 1
    row = verb.row
    assert row["status"] == "partial"
    (folder,) = verb.folders
    assert inspect(folder).state is RunState.PARTIAL
    records = verb.records
    measured = [r for r in records if r["phase"] == "measured"]
    counts = row["counts"]
    by_outcome = {name: sum(r["outcome"] == name for r in measured) for name in ("ok", "cancelled", "error")}
    assert {name: counts[name] for name in by_outcome} == by_outcome
    assert len({r["id"] for r in records}) == len(records)
    return row


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_drains(verb: Verb, processes: str, number: int) -> None:
    """Four lanes with a reply of half a second each: what is in flight ends well, nothing new is sent."""
    with serving(good(0.05)) as server:
        verb.start("--url", server.url, "--processes", processes, "--concurrency", "4", SHORT)
        wait_until(lambda: len(server.seen) >= 6)
        verb.signal(number)
        code, out, err = verb.end()
        row = partial(verb, code)
        assert "partial" in out and err == ""
        assert row["counts"]["cancelled"] == 0 and row["counts"]["ok"] == len(server.seen) < 40
        assert len(verb.records) == len(server.seen)


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)])
def test_twice_ends_now(verb: Verb, processes: str, numbers: tuple[int, int]) -> None:
    """Replies of 20 s: the second signal gives them up; they are in the records as cancelled, with what had
    come, and those that had ended count."""
    calls = iter(range(10**6))

    def answer(handler: Handler, body: Body, number: int) -> None:
        good(0.001 if next(calls) < 4 else 0.05)(handler, body, number)

    with serving(answer) as server:
        verb.start("--url", server.url, "--processes", processes, "--concurrency", "2", LONG)
        wait_until(lambda: len(server.seen) >= 6)
        verb.signal_group(numbers[0])
        with pytest.raises(subprocess.TimeoutExpired):
            assert verb.process is not None
            verb.process.wait(0.5)
        verb.signal_group(numbers[1])
        code, _, _ = verb.end(10)
        row = partial(verb, code)
        assert row["counts"]["ok"] == 4 and row["counts"]["cancelled"] == 2
        late = [r for r in verb.records if r["outcome"] == "cancelled"]
        assert all(r["chunk_s"] for r in late)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_now_before_any_reply_has_ended(verb: Verb, processes: str) -> None:
    """Nothing ended well, so there is no latency; the result still says what was sent and that it was cut."""
    with serving(good(0.05)) as server:
        verb.start("--url", server.url, "--processes", processes, "--concurrency", "2", LONG)
        wait_until(lambda: len(server.seen) >= 2)
        verb.signal(signal.SIGINT)
        assert verb.process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            verb.process.wait(0.4)
        verb.signal(signal.SIGTERM)
        code, out, err = verb.end(10)
        row = partial(verb, code)
        assert row["counts"]["cancelled"] == 2 and row["distributions"] == {}, (out, err)


def test_while_it_connects(verb: Verb) -> None:
    """A listener whose queue is full answers no connection: one signal is enough, since nothing was sent."""
    with contextlib.ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(2):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        verb.start("--url", url, *BUILT, SHORT)
        assert verb.process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            verb.process.wait(1.5)
        verb.signal(signal.SIGINT)
        code, out, err = verb.end(12)
        assert code == 130 and out == "" and len(err.splitlines()) <= 2, (code, out, err)


def trace(tmp_path: Path) -> Path:
    """Two weka sessions of six turns 10 s apart: with start points their streams are warmed up first."""
    folder = tmp_path / "trace"
    folder.mkdir()
    for name in ("a", "b"):
        requests = [
            {
                "t": 10.0 * n, "type": "s", "model": "m", "in": 64 * (n + 1), "out": 5,
                "hash_ids": list(range(n + 1)), "input_types": [], "output_types": [], "stop": "end_turn",
            }
            for n in range(6)
        ]  # fmt: skip
        session = {
            "id": name, "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 0,
            "system_tokens": 0, "requests": requests,
        }  # fmt: skip
        (folder / f"{name}.json").write_text(json.dumps(session))
    return folder


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("times", [1, 2])
def test_in_the_warm_up(verb: Verb, tmp_path: Path, processes: str, times: int) -> None:
    """Warm-up requests of 3 s: stopped there, nothing was measured. The run counts as interrupted, says so,
    and its records hold what was sent."""
    with serving(good(3.0, words=2)) as server:
        verb.start(
            "--url", server.url, "--profile", "agentx", "--concurrency", "2", "--processes", processes,
            str(trace(tmp_path)),
        )  # fmt: skip
        wait_until(lambda: len(server.seen) >= 2)
        for n in range(times):
            if n:
                with pytest.raises(subprocess.TimeoutExpired):
                    assert verb.process is not None
                    verb.process.wait(0.4)
            verb.signal(signal.SIGINT)
        code, _, err = verb.end(12)
        assert code == 130, err
        assert "before" in err and len(err.splitlines()) <= 2
        (folder,) = verb.folders
        assert inspect(folder).state is RunState.INTERRUPTED
        assert {r["phase"] for r in verb.records} == {"warmup"}
        assert len(verb.records) == len(server.seen)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_in_the_grace(verb: Verb, processes: str) -> None:
    """The duration is over and replies are still coming: a stop ends the grace, the result is whole but for
    them."""
    calls = iter(range(10**6))

    def answer(handler: Handler, body: Body, number: int) -> None:
        good(0.002 if next(calls) < 6 else 0.2)(handler, body, number)

    with serving(answer) as server:
        verb.start(
            "--url", server.url, "--duration", "1.5", "--grace", "60", "--concurrency", "2", "--processes",
            processes, "random:isl=20,osl=100,requests=40",
        )  # fmt: skip
        wait_until(lambda: len(server.seen) >= 8)
        assert verb.process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            verb.process.wait(2.5)
        verb.signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            verb.process.wait(0.4)
        verb.signal(signal.SIGINT)
        code, _, _ = verb.end(10)
        row = partial(verb, code)
        assert row["counts"]["ok"] == 6 and row["counts"]["cancelled"] == 2


@pytest.mark.parametrize("law", ["constant:20", "constant:200"])
def test_open_loop_once_and_twice(verb: Verb, law: str) -> None:
    """The same for sends by time."""
    with serving(good(0.05)) as server:
        verb.start("--url", server.url, "--arrivals", law, "--duration", "60", SHORT)
        wait_until(lambda: len(server.seen) >= 5)
        verb.signal(signal.SIGINT)
        code, _, _ = verb.end()
        row = partial(verb, code)
        assert row["counts"]["ok"] == len(server.seen) and row["counts"]["cancelled"] == 0


def test_a_partial_run_is_listed_as_partial(verb: Verb) -> None:
    """In the table, with `--state` and with `--json`; `show` reads its figures and says that it is partial."""
    with serving(good(0.02)) as server:
        verb.start("--url", server.url, SHORT)
        wait_until(lambda: len(server.seen) >= 3)
        verb.signal(signal.SIGINT)
        assert verb.end()[0] == 1

    def said(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "servemark", *args, "--home", str(verb.home)],
            capture_output=True, text=True, check=True, env=environment(),
        )  # fmt: skip
        return done.stdout

    assert "partial" in said("runs") and "complete" not in said("runs")
    assert json.loads(said("runs", "--json", "--state", "partial"))["state"] == "partial"
    assert said("runs", "--json", "--state", "complete") == ""
    assert "部分完成" in said("runs", "--lang", "zh")
    assert "partial" in said("show", "latest")
    assert json.loads(said("show", "latest", "--json"))["status"] == "partial"


def test_a_client_process_that_is_killed_makes_a_partial_result(verb: Verb) -> None:
    """kill -9 on one of two: the other goes on, and the records of both are kept."""
    with serving(good(0.02)) as server:
        verb.start("--url", server.url, "--processes", "2", "--concurrency", "2", SHORT)
        wait_until(lambda: len(server.seen) >= 6)
        assert verb.process is not None
        found = [pid for pid in _children(verb.process.pid) if b"spawn_main" in _command(pid)]
        assert len(found) == 2
        _kill(found[1])
        code, _, _ = verb.end()
        row = partial(verb, code)
        assert [p["lost"] for p in row["replayed"]["processes"]] == [False, True]
        assert sum(r["process"] == 0 for r in verb.records) == 20
        assert any(r["process"] == 1 for r in verb.records)


def _children(parent: int) -> list[int]:
    path = Path(f"/proc/{parent}/task/{parent}/children")
    if not path.exists():
        pytest.skip("no /proc to find the client's processes in")
    return [int(pid) for pid in path.read_text().split()]


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _kill(pid: int) -> None:
    import os

    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_the_client_processes_start(verb: Verb, number: int) -> None:
    """The whole group is signalled while they still import: none dies of it, none is left, nothing was sent."""
    with serving(good()) as server:
        verb.start("--url", server.url, "--processes", "2", "--concurrency", "2", SHORT)
        wait_until(lambda: bool(verb.folders) and (verb.folders[0] / "manifest.json").exists())
        verb.signal_group(number)
        code, out, err = verb.end(10)
        assert code == 128 + number and out == "" and len(err.splitlines()) == 2, (code, out, err)
        (folder,) = verb.folders
        assert inspect(folder).state is RunState.INTERRUPTED
        assert server.seen == []
