"""`servemark golden`: the real suite's curves and forced lengths, and entries from a run that is made here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from servemark.cli.golden import golden
from servemark.cli.main import run_cli

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "inferencex-2026-08"


def real() -> str:
    """The real suite, where there is one."""
    if not REAL.is_dir():
        pytest.skip("the real suite is not on this machine")
    return str(REAL)


@pytest.mark.corpus
def test_four_of_47_values_are_of_another_draft_length() -> None:
    """Counted by hand in the masters: SYNTHETIC_ACCEPTANCE_LENGTH in 47 entries, 2.49 (3 drafts) with 2 drafts in four."""
    done = CliRunner().invoke(golden, ["check", real(), "--json"], standalone_mode=False)
    assert done.return_value == 1
    forced = json.loads(done.stdout)["forced"]
    master = [each for each in forced if each["name"] == "SYNTHETIC_ACCEPTANCE_LENGTH"]
    wrong = [each for each in forced if each["verdict"] == "wrong"]
    assert (len(master), len(wrong)) == (47, 4)
    assert {(w["written"], w["wanted"], w["draft_tokens"]) for w in wrong} == {("2.49", "2.27", 2)}
    assert all(w["belongs"].endswith("dsv4_mtp.yaml: thinking_on 3") for w in wrong)
    trt = [each for each in forced if each["name"].startswith("TLLM_")]
    assert trt
    assert all(float(each["written"]) == pytest.approx(each["value"] - 1) for each in trt)
    assert {each["verdict"] for each in trt} == {"right"}


@pytest.mark.corpus
def test_two_curves_of_one_model_are_told_apart() -> None:
    """Of 4 draft tokens: 3.22 with the engine's own sampling, 3.36 with probabilistic drafts and block verification."""
    done = CliRunner().invoke(
        golden, ["show", real(), "Moonshot/Kimi-K3-NVFP4", "--json"], standalone_mode=False
    )
    curves = json.loads(done.stdout)["curves"]
    assert [(c["draft_sampling"], c["rejection_sampling"], c["values"]["4"]) for c in curves] == [
        (None, None, 3.22),
        ("probabilistic", "block", 3.36),
    ]


def test_what_cannot_be_shown_or_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 2 and one line that says what to do."""
    measure = ["golden", "measure", "--model", "m", "--draft-tokens", "3", "--method", "mtp"]
    for arguments, part in (
        (["golden", "show", "quickstart"], "golden-acceptance-lengths"),
        (measure, "--url"),
        ([*measure, "--url", "nonsense"], "http://host:port"),
        ([*measure, "--url", "http://127.0.0.1:9", "--watch", "nan"], "finite"),
    ):
        assert run_cli([*arguments, "--home", str(tmp_path)]) == 2
        assert part in capsys.readouterr().err
