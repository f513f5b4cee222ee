"""`servemark replay` against servers that die, lie or say nothing, and against wrong addresses."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.cli.replay_servers import (
    Answer,
    Body,
    Handler,
    Server,
    Verb,
    environment,
    free_port,
    good,
    serving,
)

from servemark.runs.folder import RunState, inspect

WORK = "random:isl=20,osl=5,requests=12"
CANARY = "sk-canary-7f3a9c51e2"


@pytest.fixture
def verb(tmp_path: Path) -> Verb:
    """The verb with a home of its own."""
    return Verb(tmp_path / "home")


def test_nobody_listens(verb: Verb) -> None:
    """One line that names the address, one that says what to do; no folder, exit code 1."""
    url = f"http://127.0.0.1:{free_port()}"
    for named in ((), ("--model", "m")):
        code, out, err = verb.run("--url", url, *named, WORK)
        assert (code, out) == (1, "") and url in err and len(err.splitlines()) == 2, (code, out, err)
    with serving(good()) as server:
        code, _, err = verb.run("--url", server.url, "--url", url, WORK)
        assert code == 1 and url in err and server.url not in err
    assert verb.folders == []


@pytest.mark.parametrize(
    "url", ["127.0.0.1:80", "ftp://x", "http://", "http://u:pw-secret@h/", "http://h:99999"]
)
def test_no_address_at_all(verb: Verb, url: str) -> None:
    """Exit code 2; a password is not repeated."""
    code, out, err = verb.run("--url", url, WORK)
    assert (code, out) == (2, "") and err and "pw-secret" not in err


def test_a_server_of_several_models_or_none(verb: Verb) -> None:
    """Which one is meant must be said."""
    with serving(good(), models=("one", "two")) as server:
        code, _, err = verb.run("--url", server.url, WORK)
        assert code == 2 and "one, two" in err and "--model" in err
        code, out, _ = verb.run("--url", server.url, "--model", "two", WORK)
        assert code == 0, out
    with serving(good(), models=()) as server:
        code, _, err = verb.run("--url", server.url, WORK)
        assert code in (1, 2) and "--model" in err


def test_an_unknown_model(verb: Verb) -> None:
    """The server refuses it: the server's words are shown, and every refusal is in the records."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        handler.whole({"error": {"message": "The model `x` does not exist"}}, 404)

    with serving(answer) as server:
        code, _, err = verb.run("--url", server.url, "--model", "x", WORK)
    assert code == 1 and "does not exist" in err
    (folder,) = verb.folders
    assert inspect(folder).state is RunState.FAILED
    assert {r["http_status"] for r in verb.records} == {404}


@pytest.mark.parametrize("processes", ["1", "2"])
def test_it_dies_in_the_middle(verb: Verb, processes: str) -> None:
    """After five replies nobody listens any more. A fixed count: every request has its record."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        if number == 5:
            threading.Thread(target=_die, args=(handler.server,)).start()
            handler.server.over.wait(10)
            handler.close_connection = True
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        good()(handler, body, number)

    with serving(answer) as server:
        code, out, err = verb.run("--url", server.url, "--processes", processes, WORK)
    assert code in (0, 1) and err == "", (out, err)
    outcomes = [r["outcome"] for r in verb.records]
    assert len(outcomes) == 12 and outcomes.count("ok") == 5
    row = verb.row
    assert row["counts"]["ok"] == 5 and row["counts"]["planned"] == 12
    assert any(w["code"] == "failed_requests" for w in row["warnings"])


def _die(server: Server) -> None:
    server.shutdown()
    server.socket.close()
    server.over.set()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_it_dies_while_time_runs(verb: Verb, processes: str) -> None:
    """A minute was asked for and the server is gone after a moment: the replay ends long before, partial, and
    does not fill the disk with refused connections."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        if number == 5:
            threading.Thread(target=_die, args=(handler.server,)).start()
        good()(handler, body, number)

    with serving(answer) as server:
        verb.start(
            "--url", server.url, "--processes", processes, "--duration", "60", "--concurrency", "2", WORK
        )
        code, out, _ = verb.end(30)
    assert code == 1 and "partial" in out
    assert verb.row["status"] == "partial"
    assert any(w["code"] == "server_gone" for w in verb.row["warnings"])
    assert len(verb.records) < 2000


def test_an_error_inside_a_good_status(verb: Verb) -> None:
    """Status 200 and an error object, in one piece or in the stream: errors, not replies."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        if number % 3 == 0:
            return good()(handler, body, number)
        if number % 3 == 1:
            return handler.whole({"error": {"message": "out of memory", "code": 500}})
        handler.head()
        handler.word()
        return handler.event({"error": {"message": "engine died"}})

    with serving(answer) as server:
        code, _, err = verb.run("--url", server.url, WORK)
    assert (code, err) == (0, "")
    counts = verb.row["counts"]
    assert (counts["ok"], counts["ok"] + counts["error"] + counts["incomplete"]) == (4, 12)
    said = {r["error_detail"] for r in verb.records if r["outcome"] != "ok"}
    assert any("out of memory" in (s or "") for s in said) and any("engine died" in (s or "") for s in said)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": float("nan"), "completion_tokens": float("nan")},
        {"prompt_tokens": -5, "completion_tokens": 1e300},
        {"prompt_tokens": "many", "completion_tokens": [1]},
        {"prompt_tokens": True, "completion_tokens": 10**30},
        "none",
        [],
    ],
)
def test_usage_that_cannot_be(verb: Verb, usage: object) -> None:
    """It counts as no usage: replies are ok, tokens are counted by content events, and the row says so."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        handler.head()
        for _ in range(5):
            handler.word()
        handler.finish(usage)

    with serving(answer) as server:
        code, out, err = verb.run("--url", server.url, WORK)
    assert (code, err) == (0, ""), out
    row = verb.row
    assert row["counts"]["ok"] == 12
    assert {r["tokens_origin"] for r in verb.records} == {"chunks"}
    assert row["tokens"]["output"] == 60 and row["tokens"]["input"] is None


def test_another_model_answers(verb: Verb) -> None:
    """The reply names another model than was asked: said as a doubt, with both names."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        handler.head()
        handler.word(model="cheap-model")
        handler.finish({"prompt_tokens": 20, "completion_tokens": 1}, model="cheap-model")

    with serving(answer) as server:
        code, out, _ = verb.run("--url", server.url, WORK)
    assert code == 0 and "cheap-model" in out
    assert any("cheap-model" in json.dumps(w) for w in verb.row["warnings"])


def test_it_never_answers(verb: Verb) -> None:
    """It takes connections and requests and says nothing: each request ends by the idle time-out, and the run
    says why it failed. The questions beforehand do not add up to minutes."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        handler.server.over.wait(60)

    with serving(answer) as server:
        verb.start("--url", server.url, "--idle-timeout", "0.5", "--concurrency", "4", WORK)
        code, _, err = verb.end(30)
    assert code == 1 and "idle_timeout" in err
    assert {r["outcome"] for r in verb.records} == {"timeout"} and len(verb.records) == 12


def test_a_listener_that_is_no_http_server(verb: Verb) -> None:
    """Connections are taken and nothing is ever read or said, with and without a named model."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        verb.start("--url", url, "--model", "m", "--idle-timeout", "0.5", "--concurrency", "12", WORK)
        code, _, err = verb.end(40)
        assert code == 1 and "idle_timeout" in err, err
        code, _, err = verb.run("--url", url, WORK)
        assert code == 1 and url in err


@pytest.mark.parametrize(("processes", "tokenizer"), [("1", "words"), ("2", "words"), ("1", "auto")])
def test_the_key_is_nowhere(verb: Verb, processes: str, tokenizer: str) -> None:
    """The server gets it, and says it back wherever it can; no file of the home, no output holds it."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        key = handler.headers["Authorization"]
        if number % 4 == 0:
            return handler.whole({"error": {"message": f"bad key {key}", "code": key}}, 401)
        if number % 4 == 1:
            return handler.whole({"error": {"message": key, "type": CANARY}})
        handler.head()
        handler.word(f"your key is {key}", model=CANARY)
        handler.finish({"prompt_tokens": 20, "completion_tokens": 1}, model=CANARY)
        return None

    verb.options = ["--tokenizer", tokenizer]
    with serving(answer) as server:
        code, out, err = verb.run(
            "--url", server.url, "--model", "m", "--api-key-env", "MY_KEY", "--processes", processes,
            "--concurrency", "2", "--replies", "live", WORK, MY_KEY=CANARY,
        )  # fmt: skip
        assert {headers["Authorization"] for headers, _ in server.seen} == {f"Bearer {CANARY}"}
    assert code == 0, (out, err)
    assert CANARY not in out + err
    held = [path for path in verb.home.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert held == []
    assert len(verb.records) == 12


def test_a_key_that_is_refused_is_not_in_the_message(verb: Verb) -> None:
    """All replies are refusals that repeat the key: the failure and its message hold none."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        handler.whole({"error": {"message": f"bad key {handler.headers['Authorization']}"}}, 401)

    with serving(answer) as server:
        code, out, err = verb.run("--url", server.url, "--api-key-env", "MY_KEY", WORK, MY_KEY=CANARY)
    assert code == 1 and "401" in err + out + json.dumps(verb.records)
    held = [path for path in verb.home.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert held == [] and CANARY not in out + err
    assert verb.run("--url", "http://127.0.0.1:1", "--api-key-env", "NO_SUCH_KEY_SET", WORK)[0] == 2


def test_a_full_folder_is_told(verb: Verb) -> None:
    """A home that cannot be written to: said before anything is sent."""
    verb.home.write_text("a file")
    with serving(good()) as server:
        code, out, err = verb.run("--url", server.url, WORK)
        assert code != 0 and out == "" and str(verb.home) in err
        assert server.seen == []


def counting(tokens_of: dict[str, int], *, template: int = 7, usage: bool = True) -> Answer:
    """A server whose tokenizer cuts some words into several tokens, and whose template adds `template`."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        text = " ".join(m["content"] for m in body["messages"])
        prompt = template + sum(tokens_of.get(word, 2 if len(word) > 6 else 1) for word in text.split())
        said = {"prompt_tokens": prompt, "completion_tokens": 1} if usage else None
        if body.get("stream"):
            handler.head()
            handler.word()
            return handler.finish(said)
        choice = {"message": {"content": "a"}, "finish_reason": "length"}
        return handler.whole({"model": "m", "choices": [choice], "usage": said})

    return answer


def test_texts_are_calibrated_by_usage(verb: Verb) -> None:
    """No /tokenize and no file, but usage: words of more than six letters are two tokens there, so that plain
    words would miss. With usage every prompt has its planned 50 tokens and the template's 7, and the row
    says where that is from and how exact it was."""
    verb.options = []
    work = ("--cache-bust", "none", "random:isl=50,osl=1,requests=10")
    with serving(counting({})) as server:
        code, out, err = verb.run("--url", server.url, *work)
        assert (code, err) == (0, ""), (out, err)
        asked = len(server.seen) - 10
        assert asked < 80  # questions are few and small
    said = verb.row["observed"]["text_lengths"]
    assert (said["source"], said["template_tokens"]) == ("usage", 7)
    assert said["probe"] == {"asked": 1, "exact": 1, "worst_tokens": 0}
    assert said["prompts"] == {"asked": 10, "exact": 10, "worst_tokens": 0}
    assert {r["input_tokens"] for r in verb.records} == {57}
    assert len(verb.records) == 10  # none of the questions


def test_text_sources_that_are_asked_for(verb: Verb) -> None:
    """`words` asks nothing; `server` and `usage` say what is missing; `auto` without usage falls back to words
    and says why."""
    work = ("--cache-bust", "none", "random:isl=50,osl=1,requests=3")
    with serving(counting({}, usage=False)) as server:
        for asked, code in (("server", 1), ("usage", 1), ("auto", 0), ("words", 0)):
            verb.options = ["--tokenizer", asked]
            before = len(server.seen)
            found, _, err = verb.run("--url", server.url, *work)
            assert found == code and (asked in err) == bool(code), (asked, err)
            if asked == "words":
                assert len(server.seen) - before == 3
    rows = [json.loads((f / "result.json").read_text()) for f in verb.folders]
    # Two runs of one second stand in no order: the one that says why comes first here.
    lengths = sorted(
        (row["observed"]["text_lengths"] for row in rows), key=lambda each: not each["why_not_better"]
    )
    assert [each["source"] for each in lengths] == ["words", "words"]
    assert "usage" in lengths[0]["why_not_better"] and lengths[1]["why_not_better"] is None
    assert lengths[0]["prompts"] is None


def test_a_stall_is_listed(verb: Verb) -> None:
    """One reply of ten words stops for 1.3 s before its sixth: the summary and `show stalls --why` name the
    request, the place and the moment."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        handler.head()
        for n in range(10):
            if number == 2 and n == 5:
                handler.server.over.wait(1.3)
            handler.word()
        handler.finish({"prompt_tokens": 20, "completion_tokens": 10})

    with serving(answer) as server:
        code, out, err = verb.run("--url", server.url, "random:isl=20,osl=10,requests=4")
    assert code == 0, (out, err)
    assert verb.row["stalls"] == 1
    (stalled,) = [r for r in verb.records if r["chunk_s"][5] - r["chunk_s"][4] > 1]
    assert stalled["id"] in out and "before event 5" in out
    done = subprocess.run(
        [sys.executable, "-m", "servemark", "show", "latest", "stalls", "--why", "--home", str(verb.home)],
        capture_output=True, text=True, check=True, env=environment(),
    )  # fmt: skip
    assert stalled["id"] in done.stdout and "chunk_s[5]" in done.stdout
    assert f"{stalled['chunk_s'][5]:.6f}" in done.stdout


@pytest.mark.parametrize("path", ["/v1/models", "/metrics"])
def test_a_server_that_drips_its_head(verb: Verb, path: str) -> None:
    """One byte a second of a head that never ends: each question has a limit as a whole, not one a read.

    Without a model the first question ends the verb; asked for counters, the replay goes on without them.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            words = peer.recv(65536).split(b" ")
            if len(words) < 2:  # somebody only looked whether anybody is here
                return
            asked = words[1].decode()
            if asked != path:
                body = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'
                if asked == "/v1/models":
                    body = b'{"data":[{"id":"m"}]}'
                peer.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
                    % (len(body), body)
                )
                return
            peer.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not stop.wait(1.0):
                peer.sendall(b"a")

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    model = () if path == "/v1/models" else ("--model", "m")
    verb.options = ["--tokenizer", "words"]
    begun = time.monotonic()
    code, out, err = verb.run("--url", url, *model, "random:isl=5,osl=1,requests=2")
    stop.set()
    listening.close()
    assert time.monotonic() - begun < 25
    assert code == 1 if path == "/v1/models" else code in (0, 1), (out, err)
    assert "Traceback" not in err


def test_a_server_that_repeats_the_key_or_names_no_text(verb: Verb) -> None:
    """A status line with the key in it, a model named after it, and a model whose id is half a surrogate pair."""
    key = "sk-canary-1234567890"
    replies = {
        "status": f"{key} hello\r\n\r\n".encode(),
        "model": b'{"data":[{"id":"m-' + key.encode() + b'"}]}',
        "surrogate": b'{"data":[{"id":"a\\ud800b"}]}',
    }
    for name, body in replies.items():
        if name != "status":
            body = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)  # noqa: PLW2901
        listening = socket.create_server(("127.0.0.1", 0))

        def answer(listening: socket.socket = listening, body: bytes = body) -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer = listening.accept()[0]
                    with peer:
                        peer.recv(65536)
                        peer.sendall(body)

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        code, out, err = verb.run(
            "--url", url, "--api-key-env", "KEY", "random:isl=5,osl=1,requests=2", KEY=key
        )
        listening.close()
        assert code in (1, 2) and key not in out + err and "Traceback" not in err, (name, err)
        assert not list(verb.home.glob("runs/*"))


def test_a_stop_ends_the_wait_for_another_attempt(verb: Verb) -> None:
    """The server asks for a minute; Ctrl-C after a second ends the run within seconds, its requests as refused."""
    listening = socket.create_server(("127.0.0.1", 0))
    refusal = b"HTTP/1.1 429 Busy\r\nRetry-After: 60\r\nContent-Length: 2\r\n\r\n{}"

    def refuse(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            while peer.recv(65536):
                peer.sendall(refusal)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=refuse, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    verb.options = ["--tokenizer", "words", "--model", "m"]
    verb.start("--url", url, "--retries", "3", "random:isl=5,osl=1,requests=2")
    assert verb.process is not None
    with pytest.raises(subprocess.TimeoutExpired):
        verb.process.wait(3)
    verb.signal(signal.SIGINT)
    begun = time.monotonic()
    code, out, err = verb.end(20)
    listening.close()
    assert code != 0 and time.monotonic() - begun < 10 and "Traceback" not in err, (out, err)
