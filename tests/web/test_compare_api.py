"""`/api/v1/compare` over a real store: the same verdicts as the terminal's, and refusals in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from servemark.cli.main import run_cli

Made = dict[str, Any]


@pytest.fixture(name="filled", scope="module")
def _filled(tmp_path_factory: pytest.TempPathFactory, made: Made) -> Path:
    """Five loads on a b200; on a later day at 60 % of the speed; and on an h200 at 50 %."""
    home = tmp_path_factory.mktemp("compared") / "home"

    def slower(share: float, **changes: object) -> bytes:
        rows = json.loads(made["rows"](**changes))
        for row in rows:
            for name in row["metrics"]:
                row["metrics"][name] *= share if name.endswith("per_gpu") else 1 / share
        return json.dumps(rows).encode()

    made["fill"](home, made["rows"](), "a.json")
    later = {"date": "2026-05-09", "run_url": "https://example.org/actions/runs/1002"}
    made["fill"](home, slower(0.6, **later), "b.json")
    other = {"hardware": "h200", "run_url": "https://example.org/actions/runs/1003"}
    made["fill"](home, slower(0.5, **other), "c.json")
    return home


def asked(made: Made, home: Path, **query: str) -> Any:  # noqa: ANN401 - JSON
    return made["ask"](made["app_of"](home), f"/api/v1/compare?{urlencode(query)}")


def test_two_days_as_the_terminal_tells_them(
    filled: Path, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """One analysis behind both: the same pairs, verdicts, effects and sentences."""
    served = asked(made, filled, a="@2026-05-02", b="@2026-05-10", hardware="b200", lang="en")
    assert served.status_code == 200
    assert run_cli(
        [
            "compare",
            "@2026-05-02",
            "@2026-05-10",
            "hardware=b200",
            "--json",
            "--home",
            str(filled),
            "--lang",
            "en",
        ]
    ) in {0, 1}
    told = json.loads(capsys.readouterr().out)
    told.pop("problems")
    assert served.json() == told
    assert len(told["pairs"]) == 5
    (rate,) = [each for each in told["metrics"] if each["address"] == "total_tokens_per_s_per_gpu"]
    assert rate["mean_percent"] == pytest.approx(-40)
    assert rate["counts"].get("worse", 0) + rate["counts"].get("cannot_tell", 0) == 5


def test_two_kinds_of_hardware_need_no_further_word(filled: Path, made: Made) -> None:
    view = asked(made, filled, a="hardware=b200", b="hardware=h200").json()
    assert {pair["level"] for pair in view["pairs"]} == {"fields"}
    assert view["curves"][0]["x"]["better"] == "higher"
    empty = asked(made, filled, a="hardware=b200", b="hardware=h200", by="engine").json()
    assert empty["pairs"] == []
    zh = asked(made, filled, a="hardware=b200", b="hardware=h200", lang="zh").json()
    assert zh["headline"] != view["headline"]


@pytest.mark.parametrize(
    "query",
    [
        {"a": "hardware=b200"}, {"a": "", "b": ""}, {"a": "/etc/passwd", "b": "hardware=b200"},
        {"a": "HEAD:results", "b": "hardware=b200"}, {"a": "@tomorrow", "b": "@2026-05-01"},
        {"a": "colour=red", "b": "hardware=b200"}, {"a": "overlay:ffffffffffff", "b": "hardware=b200"},
        {"a": "hardware=b200", "b": "hardware=h200", "by": "scenario"},
        {"a": "hardware=b200", "b": "hardware=h200", "metrics": "window_s"},
        {"a": "hardware=b200", "b": "hardware=h200", "min_effect": "-1"},
        {"a": "hardware=b200", "b": "hardware=h200", "x": "nothing"},
    ],
)  # fmt: skip
def test_refusals_say_what_to_do(filled: Path, made: Made, query: dict[str, str]) -> None:
    """No path, commit or run folder of the server's machine can be named from outside."""
    answer = asked(made, filled, **query)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["title"] and answer.json()["detail"]
