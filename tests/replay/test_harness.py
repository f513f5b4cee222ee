"""Our arguments as another harness's command line, and its summary as figures. No harness is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servemark.base.errors import ServemarkError
from servemark.replay.arrivals import parse_arrivals
from servemark.replay.harness import HarnessJob, command_line
from servemark.replay.harness_summary import read_summary
from servemark.replay.profiles import find_profile
from servemark.replay.target import Target
from servemark.traces.random_lengths import parse_spec

TARGET = Target("http://127.0.0.1:8000/v1", "m")


def job(**changed: Any) -> HarnessJob:  # noqa: ANN401 - any field
    """Fixed lengths in a closed loop."""
    base: dict[str, Any] = {
        "harness": "aiperf", "target": TARGET, "profile": find_profile("plain"), "concurrency": 4, "arrivals": None,
        "max_requests": None, "max_in_flight": None, "tokenizer": Path("/tok"), "limits": {},
        "lengths": parse_spec("random:isl=100,osl=20,requests=30"), "trace_format": None,
    }  # fmt: skip
    return HarnessJob(**base | changed)


def line(**changed: Any) -> str:  # noqa: ANN401 - any field
    """Its command line in one string."""
    return " ".join(command_line(job(**changed), "aiperf", Path("/f")))


def test_fixed_lengths_in_a_closed_loop() -> None:
    """Every argument that aiperf 0.13 took in a real run of this very job."""
    made = line(limits={"ttft_s": 2.0, "tpot_s": 0.05})
    for part in (
        "aiperf profile --model m --url http://127.0.0.1:8000 --endpoint-type chat --streaming",
        "--isl 100 --isl-stddev 0 --osl 20 --osl-stddev 0 --num-dataset-entries 30",
        "--concurrency 4 --request-count 30",
        "--random-seed 42",
        "--goodput time_to_first_token:2000 inter_token_latency:50",
        "--tokenizer /tok",
        "--output-artifact-dir /f/artifacts",
    ):
        assert part in made


def test_rates_and_durations() -> None:
    profile = replace(find_profile("plain"), duration_s=60.0, grace_s=5.0)
    made = line(arrivals=parse_arrivals("poisson:2.5"), max_in_flight=9, profile=profile)
    assert "--request-rate 2.5 --arrival-pattern poisson --concurrency 9" in made
    assert "--benchmark-duration 60 --benchmark-grace-period 5" in made
    assert "--request-count" not in made


@pytest.mark.parametrize(
    ("harness", "profile", "scenario"),
    [
        ("aiperf", "inferencex-mvp", "inferencex-agentx-mvp"),
        ("agentx", "agentx", "agentx"),
    ],
)
def test_scenarios(harness: str, profile: str, scenario: str) -> None:
    made = line(harness=harness, profile=find_profile(profile), lengths=None, trace_format="weka")
    assert f"--scenario {scenario} --unsafe-override" in made
    assert "--custom-dataset-type weka-trace --input-file /f/input" in made


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"target": replace(TARGET, retries=3)}, "--retries 3"),
        ({"target": replace(TARGET, sticky=True)}, "--sticky"),
        ({"target": replace(TARGET, api_key_env="KEY")}, "--api-key-env"),
        ({"lengths": parse_spec("random:isl=10,osl=5,ratio=0.5")}, "ratio=0.5"),
        ({"lengths": parse_spec("random:isl=10,osl=5,prefix=3")}, "prefix=3"),
        ({"arrivals": parse_arrivals("ramp:1-5")}, "ramp:1-5"),
        ({"profile": replace(find_profile("plain"), replies="live")}, "--replies live"),
        ({"profile": replace(find_profile("plain"), cache_bust="request")}, "--cache-bust request"),
        ({"profile": find_profile("agentx")}, "--profile agentx"),
        ({"harness": "agentx"}, "--profile plain"),
        ({"limits": {"itl_s": 1.0}}, "--slo itl_s"),
        ({"tokenizer": None}, "--tokenizer"),
        ({"lengths": None, "trace_format": "sharegpt"}, "sharegpt"),
        ({"lengths": None, "trace_format": "mooncake", "scale_think": 0.5}, "--scale-think 0.5"),
        ({"changed": ("--link",)}, "--link"),
    ],
)
def test_what_cannot_be_asked_is_named(changed: dict[str, Any], named: str) -> None:
    """An error, never an argument left out."""
    with pytest.raises(ServemarkError) as caught:
        line(**changed)
    assert caught.value.exit_code == 2
    assert named in caught.value.what()


def test_summary(tmp_path: Path) -> None:
    """Milliseconds become seconds; what is no number is left out."""
    path = tmp_path / "s.json"
    body = {
        "aiperf_version": "0.13.0",
        "time_to_first_token": {"unit": "ms", "p50": 50.0, "p90": 80.0, "p99": None},
        "inter_token_latency": {"unit": "furlongs", "p50": 5.0},
        "request_count": {"unit": "requests", "avg": 40.0},
        "error_summary": [{"count": 2}, "x"],
        "is_complete": True,
    }
    path.write_text(json.dumps(body))
    found = read_summary(path)
    assert found.latencies == {"ttft_s": {"p50": pytest.approx(0.05), "p90": pytest.approx(0.08)}}
    assert (found.ok, found.errors, found.complete) == (40, 2, True)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_no_summary(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(content)
    with pytest.raises(ServemarkError):
        read_summary(path)
