"""What a run is made from before anything starts: the workload of any trace, and the scenario that `plan` shows too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.selector import parse_selector
from servemark.plan.points import choose
from servemark.runs.request import RunOptions, prepare, scenario_of, suite_scenario
from servemark.traces.open import TraceOptions, open_workload

WEKA = {
    "id": "a", "block_size": 64, "hash_id_scope": "local",
    "requests": [
        {"t": 0.0, "type": "s", "model": "m", "in": 100, "out": 5, "hash_ids": [0, 1], "api_time": 1.0},
        {"t": 3.0, "type": "s", "model": "m", "in": 150, "out": 5, "hash_ids": [0, 1, 2], "api_time": 1.0},
    ],
}  # fmt: skip
MOONCAKE = [
    {"timestamp": 1000 * i, "input_length": 600 + 512 * i, "output_length": 5, "hash_ids": list(range(2 + i))}
    for i in range(5)
]
FILES: dict[str, list[Any]] = {
    "weka": [WEKA],
    "mooncake": MOONCAKE,
    "sharegpt": [
        [{"id": "c", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}]
    ],
    "messages": [{"messages": [{"role": "user", "content": "Hi"}]}],
    "azure": ["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,100,5"],
    "burstgpt": [
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "5,ChatGPT,100,5,105,Conversation log",
    ],
}


def write(folder: Path, kind: str) -> Path:
    """A small trace of a format, under a name that does not tell."""
    path = folder / "trace"
    lines = [line if isinstance(line, str) else json.dumps(line) for line in FILES[kind]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", list(FILES))
def test_any_format_is_the_workload_that_replay_opens(tmp_path: Path, kind: str) -> None:
    """The same id as `open_workload` gives with the same options; the file stands among the inputs, hashed."""
    path = write(tmp_path, kind)
    sessions = 1
    request = prepare("quickstart", RunOptions(trace=path, sessions=sessions))
    think = 0.01 if kind == "mooncake" else 1.0
    options = TraceOptions(sessions=sessions, think_scale=think, link=kind == "mooncake")
    assert request.workload.id == open_workload(path, options).id
    assert request.inputs["trace"]["bytes"] == path.stat().st_size
    scenario = request.points[0].identity.canonical["scenario"]
    assert isinstance(scenario, dict)
    assert scenario["dataset"] == request.workload.id


def test_options_reach_the_trace(tmp_path: Path) -> None:
    """Half the lengths, and a gap of 2 s (think time is not recorded: from the end at 1 s to 3 s) ten times faster."""
    path = write(tmp_path, "weka")
    request = prepare("quickstart", RunOptions(trace=path, scale_lengths=0.5, scale_think=0.1))
    turns = request.workload.sessions[0].turns
    assert [turn.input_tokens for turn in turns] == [50, 75]
    assert [turn.think_s for turn in turns] == [0.0, 0.2]


def test_a_folder_and_fixed_lengths(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(WEKA))
    request = prepare("quickstart", RunOptions(trace=folder))
    assert request.workload.requests == 2
    assert request.inputs["sessions"]["sha256"] == request.workload.source["sha256"]
    assert prepare("quickstart", RunOptions(trace="random:isl=50,osl=5,requests=3")).workload.requests == 3


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "trace"),
        (b"no trace at all\n", "no trace at all"),
        (b'{"requests": []}\n', "trace:1"),
        (json.dumps(MOONCAKE[0]).encode() + b'\n{"timestamp": 1}\n', "trace:2"),
    ],
)
def test_bad_traces_are_named(tmp_path: Path, content: bytes, named: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(ServemarkError) as caught:
        prepare("quickstart", RunOptions(trace=path))
    assert caught.value.exit_code == 2
    assert named in caught.value.what()


def test_options_that_fixed_lengths_have_no_use_for() -> None:
    options = RunOptions(trace="random:isl=50,osl=5", sessions=3, scale_lengths=0.5)
    with pytest.raises(ServemarkError) as caught:
        prepare("quickstart", options)
    assert "--sessions, --scale-lengths" in caught.value.what()


def test_plan_names_what_run_runs(make_suite: Callable[..., Path]) -> None:
    """`plan` works out the scenario alone; `run` prepares everything. One id, or a planned point is never found."""
    selector = f"{make_suite()}:tiny"
    request = prepare(selector, RunOptions())
    choice = choose(parse_selector(selector), None)
    planned = suite_scenario(choice.suite, choice.deployment)
    assert planned == scenario_of(request.workload, request.cache_bust, request.cold)
    assert all(point.identity.canonical["scenario"] == planned for point in request.points)


def test_selector_without_suite_means_the_folder(
    make_suite: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a suite's folder an arm alone names it; a shipped suite of that name still comes first."""
    monkeypatch.chdir(make_suite())
    assert choose(parse_selector("tiny")).arm.key == "tiny"
    assert choose(parse_selector("quickstart")).suite.name == "quickstart"
    monkeypatch.chdir("..")
    with pytest.raises(ServemarkError):
        choose(parse_selector("tiny"))
