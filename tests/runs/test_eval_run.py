"""`eval --url` against real servers on real sockets: kept, taken up again, and doubted where the server deserves it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from servemark.base.errors import ServemarkError
from servemark.cli.main import run_cli
from servemark.evals.arithmetic import arithmetic
from servemark.evals.forced import Forced
from servemark.evals.io import read_evals
from servemark.evals.samples import read_samples
from servemark.evals.tasks import EvalItem, EvalTask
from servemark.evals.tool_calls import tool_calls
from servemark.replay.client import Target
from servemark.runs.eval_folder import resume
from servemark.runs.eval_run import EvalRequest, EvalResult, run_eval

ROOT = Path(__file__).resolve().parents[2]
Answer = Callable[[dict[str, Any], int], dict[str, Any] | int]
"""(body, number of the request) -> message fields, or an HTTP status."""
RIGHT = {item.question: item.expected for item in arithmetic().items}


@contextmanager
def server(answer: Answer, prompt_tokens: int = 300, port: int = 0) -> Iterator[str]:
    """A chat server that answers without streaming what `answer` says."""
    count = 0
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            nonlocal count
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                count += 1
                number = count
            said = answer(body, number)
            status = said if isinstance(said, int) else 200
            found: dict[str, Any] = {"error": {"message": "no"}}
            if not isinstance(said, int):
                finish = said.pop("finish_reason", "stop")
                usage = said.pop("usage", {"prompt_tokens": prompt_tokens, "completion_tokens": 3})
                found = {"choices": [{"index": 0, "message": said, "finish_reason": finish}], "usage": usage}
                found = said.get("whole", found)
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as served:
        served.daemon_threads = True
        thread = threading.Thread(target=served.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{served.server_port}"
        finally:
            served.shutdown()
            thread.join()


def right(body: dict[str, Any], _: int) -> dict[str, Any]:
    """Every arithmetic question answered as it should be."""
    return {"content": RIGHT.get(body["messages"][-1]["content"], "?")}


def ask(
    url: str, folder: Path, *tasks: EvalTask, at: tuple[int, ...] = (4,), take_up: bool = False
) -> EvalResult:
    request = EvalRequest(Target(url, "m"), tasks or (arithmetic().first(40),), at, {})
    return run_eval(request, folder, take_up=take_up)


def codes(result: EvalResult) -> set[str]:
    return {doubt.code for doubt in result.doubts}


def test_every_task_at_every_concurrency(tmp_path: Path) -> None:
    """Forty items at 1 and 4: two scores of 40, eighty samples, the expected set in the manifest before."""
    seen: list[object] = []

    def answer(body: dict[str, Any], number: int) -> dict[str, Any]:
        if number == 1:  # what is expected was written down before the first request
            seen.append(json.loads((tmp_path / "e" / "manifest.json").read_text())["expected"]["evals"])
        return right(body, number)

    with server(answer) as url:
        result = ask(url, tmp_path / "e", at=(1, 4))
    assert result.complete
    assert not result.doubts
    assert seen == [
        [{"task": "arithmetic", "version": "1-first40", "n": 40, "concurrency": c} for c in (1, 4)]
    ]
    found = read_evals(tmp_path / "e" / "evals.json")
    assert [(o.score.concurrency, o.score.correct, o.score.n) for o in found] == [(1, 40, 40), (4, 40, 40)]
    assert len(list(read_samples(tmp_path / "e" / "samples.jsonl"))) == 80
    with pytest.raises(ServemarkError) as caught:
        ask("http://127.0.0.1:9", tmp_path / "e")
    assert caught.value.key == "evals.folder_used"


def test_a_server_that_dies_and_comes_back(tmp_path: Path) -> None:
    """From the 21st request on nothing but 503; taken up, only what is missing is asked, failures stay written down."""

    def dying(body: dict[str, Any], number: int) -> dict[str, Any] | int:
        return 503 if number > 21 else right(body, number)  # the first is the probe

    with server(dying) as url:
        first = ask(url, tmp_path / "e", at=(1, 2))
    assert not first.complete
    assert first.outcomes[0].ended == "dead"
    assert first.outcomes[0].score.correct == 20
    assert [each.concurrency for each in first.missing] == [2]
    asked = 0

    def counting(body: dict[str, Any], number: int) -> dict[str, Any]:
        nonlocal asked
        asked = number
        return right(body, number)

    with server(counting, port=int(url.rpartition(":")[2])) as url:
        second = ask(url, tmp_path / "e", at=(1, 2), take_up=True)
    assert second.complete
    assert asked == 1 + 20 + 40
    one, two = read_evals(tmp_path / "e" / "evals.json")
    assert (one.score.correct, two.score.correct) == (40, 40)
    assert one.retried == 4  # those that failed while the server was dead
    failed = [s for s in read_samples(tmp_path / "e" / "samples.jsonl") if s.failures]
    assert [len(s.failures) for s in failed] == [2] * 4


def test_kill_at_any_time_and_take_up(tmp_path: Path) -> None:
    """kill -9 of the real command while samples come in; the same command line with --resume ends it, each item once."""

    def slow(body: dict[str, Any], number: int) -> dict[str, Any]:
        time.sleep(0.02)
        return right(body, number)

    samples = tmp_path / "e" / "samples.jsonl"
    with server(slow) as url:
        command = [
            sys.executable, "-m", "servemark", "eval", "--url", url, "--model", "m", "--task", "arithmetic",
            "--limit", "60", "--concurrency", "2", "--out", str(tmp_path / "e"),
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not (samples.exists() and samples.stat().st_size > 4000):
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert not (tmp_path / "e" / "evals.json").exists()
        with samples.open("ab") as stream:  # half a line, as a power cut leaves it
            stream.write(b'{"item": "su')
        done = subprocess.run(
            [*command, "--resume", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["complete"], said["tasks"][0]["correct"], said["tasks"][0]["n"]) == (True, 60, 60)
    items = [sample.item for sample in read_samples(samples)]
    assert len(items) == len(set(items)) == 60


def test_only_the_same_eval_is_taken_up(tmp_path: Path) -> None:
    with server(right) as url:
        ask(url, tmp_path / "e")
        for tasks, at in (((arithmetic().first(39),), (4,)), ((arithmetic().first(40),), (4, 5))):
            with pytest.raises(ServemarkError) as caught:
                ask(url, tmp_path / "e", *tasks, at=at, take_up=True)
            assert caught.value.key == "evals.resume_other"
        with pytest.raises(ServemarkError) as caught:
            ask("http://127.0.0.1:9", tmp_path / "e", take_up=True)
        assert caught.value.key == "evals.resume_other"  # another server may be another deployment
        with pytest.raises(ServemarkError) as caught:
            ask(url, tmp_path / "none", take_up=True)
        assert caught.value.key == "evals.no_eval_here"
        (tmp_path / "e" / "manifest.json").write_text("[")
        with pytest.raises(ServemarkError) as caught:
            ask(url, tmp_path / "e", take_up=True)
        assert caught.value.key == "evals.no_eval_here"


def test_an_error_under_200(tmp_path: Path) -> None:
    """200 with an error object is a failure: asked twice, no answer, and not a wrong answer of the model."""

    def lying(body: dict[str, Any], number: int) -> dict[str, Any]:
        return {"whole": {"error": {"message": "overloaded"}}} if number % 3 == 0 else right(body, number)

    with server(lying) as url:
        result = ask(url, tmp_path / "e", at=(1,))
    (outcome,) = result.outcomes
    assert outcome.score.correct == 40
    assert outcome.retried > 10


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"content": "", "reasoning_content": "think"}, "reasoning_only"),
        ({"content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, "calls_only"),
        ({"content": None}, "swallowed"),
        ({"content": "x<|im_end|>"}, "template_marks"),
        ({"content": "1", "usage": {"prompt_tokens": 9, "completion_tokens": 1}}, "context_cut"),
        ({"content": "1 and", "finish_reason": "length"}, "cut"),
        ({"content": "0"}, "same_reply"),
        ({"content": "1", "usage": {"prompt_tokens": 2, "completion_tokens": 1}}, "no_template"),
    ],
)
def test_broken_deployments(tmp_path: Path, message: dict[str, Any], code: str) -> None:
    with server(lambda _, __: dict(message)) as url:
        result = ask(url, tmp_path / "e")
    assert result.complete
    assert code in codes(result)


def test_a_context_that_is_too_short_is_no_dead_server(tmp_path: Path) -> None:
    """Every second prompt is rejected with 400: all are asked, once each."""
    with server(lambda body, number: 400 if number % 2 else right(body, number)) as url:
        result = ask(url, tmp_path / "e", at=(1,))
    (outcome,) = result.outcomes
    assert (outcome.ended, outcome.score.correct, outcome.failed, outcome.retried) == ("complete", 20, 20, 0)
    assert codes(result) == {"rejected"}


def test_tool_calls_come_through(tmp_path: Path) -> None:
    """Right calls in `tool_calls` score 1; the same calls in the text score 0 and say why."""
    task = tool_calls(24)
    wanted = {item.question: json.loads(item.expected) for item in task.items}

    def call(body: dict[str, Any], _: int) -> dict[str, Any]:
        question = body["messages"][-1]["content"]
        if question not in wanted:  # the probe
            return {"content": "x"}
        assert len(body["tools"]) == 4
        found = wanted[question]
        function = {"name": found["name"], "arguments": json.dumps(found["arguments"])}
        return {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}

    def written(body: dict[str, Any], _: int) -> dict[str, Any]:
        found = wanted.get(body["messages"][-1]["content"], {})
        return {"content": json.dumps(found)}

    with server(call, prompt_tokens=600) as url:
        assert ask(url, tmp_path / "a", task).outcomes[0].score.correct == 24
    with server(written, prompt_tokens=600) as url:
        result = ask(url, tmp_path / "b", task)
    assert result.outcomes[0].score.correct == 0
    assert codes(result) == {"call_in_text"}


def test_turns_keep_the_model_s_own_replies(tmp_path: Path) -> None:
    """The counter task: each turn adds a number; the model's replies so far are sent back to it."""
    items = tuple(
        EvalItem(f"i{n}", "k", "Total?", str(3 * n + 3), (f"add {n}", f"add {n + 1}", f"add {n + 2}"))
        for n in range(20)
    )
    task = EvalTask("state", "1", (("system", "Add."),), items, 8)

    def adding(body: dict[str, Any], _: int) -> dict[str, Any]:
        messages = body["messages"]
        numbers = [int(n) for m in messages if m["role"] == "user" for n in re.findall(r"\d+", m["content"])]
        replies = [m["content"] for m in messages if m["role"] == "assistant"]
        assert replies == [str(sum(numbers[: i + 1])) for i in range(len(replies))]
        return {"content": str(sum(numbers))}

    with server(adding) as url:
        result = ask(url, tmp_path / "e", task)
    assert result.outcomes[0].score.correct == 20
    first = min(read_samples(tmp_path / "e" / "samples.jsonl"), key=lambda s: s.item)
    assert first.before == (
        ("user", "add 0"), ("assistant", "0"), ("user", "add 1"), ("assistant", "1"), ("user", "add 2"), ("assistant", "3"),
    )  # fmt: skip


def test_failures_outlive_a_second_kill(tmp_path: Path) -> None:
    """Items that fail, a --resume that is killed before it asks anything, and another: the failures stay written down."""
    dead = True

    def sometimes(body: dict[str, Any], number: int) -> dict[str, Any] | int:
        return 503 if dead else right(body, number)

    with server(sometimes) as url:
        first = ask(url, tmp_path / "e")
        manifest = json.loads((tmp_path / "e" / "manifest.json").read_text())
        expected = EvalRequest(Target(url, "m"), (arithmetic().first(40),), (4,), {}).expected
        resume(tmp_path / "e", manifest, expected)  # and no more: as a kill at this moment leaves it
        assert not list(read_samples(tmp_path / "e" / "samples.jsonl"))
        dead = False
        last = ask(url, tmp_path / "e", take_up=True)
    assert not first.complete
    assert (last.complete, last.outcomes[0].score.correct) == (True, 40)
    assert last.outcomes[0].retried == 4


def test_bad_words_are_told_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Thresholds and references that are not there cost no eval; a verdict is part of the one JSON object."""
    asked = 0

    def counting(body: dict[str, Any], number: int) -> dict[str, Any]:
        nonlocal asked
        asked = number
        return right(body, number)

    limits = tmp_path / "limits.yaml"
    limits.write_text("default:\n  arithmetic: 0.5\n")
    with server(counting) as url:
        base = ["eval", "--url", url, "--model", "m", "--task", "arithmetic", "--limit", "5"]
        more = ["--home", str(tmp_path), "--out", str(tmp_path / "e")]
        for wrong in (["--thresholds", str(tmp_path / "none.yaml")], ["--against", "nothing"]):
            assert run_cli([*base, *wrong, *more]) == 2
        for wrong in (["--determinism"], ["--against", "x"], ["--thresholds", str(limits)]):
            assert run_cli(["eval", "--url", url, "--model", "m", "--task", "lm_eval:x", *wrong, *more]) == 2
        assert asked == 0
        capsys.readouterr()
        assert run_cli([*base, "--thresholds", str(limits), "--json", *more]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["complete"], said["verdict"]["judged"][0]["passed"]) == (True, True)
    assert run_cli(["eval", "--of", str(tmp_path / "e"), "--against", str(tmp_path / "e")]) == 2
    assert "itself" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--determinism"], ["--json"], []])
def test_an_engine_that_forces_acceptance_is_asked_nothing(
    tmp_path: Path, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whichever way: scores, the determinism probe or lm-evaluation-harness."""
    monkeypatch.setattr(
        "servemark.evals.forced.forced_by_server", lambda _: Forced("engine", "x", length=2.5)
    )
    asked = 0

    def counting(body: dict[str, Any], number: int) -> dict[str, Any]:
        nonlocal asked
        asked = number
        return right(body, number)

    with server(counting) as url:
        tasks = ("arithmetic",) if more else ("arithmetic", "lm_eval:gsm8k")
        for task in tasks:
            words = ["eval", "--url", url, "--model", "m", "--task", task, "--limit", "2", *more]
            assert run_cli([*words, "--home", str(tmp_path), "--out", str(tmp_path / "e")]) == 2
    assert asked == 0
