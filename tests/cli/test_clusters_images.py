"""`servemark clusters` and `servemark images` as their user meets them, without a cluster."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from servemark.cli.main import run_cli

CLUSTERS = """
launch:
  here: {launcher: local, image-cache: CACHE}
  big:
    launcher: slurm
    partition: batch
    gpus-per-node: 8
    labels: [gb, hopper]
    budgets-s: {images: 3600, replay: 90.5}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a clusters file and an image cache of one whole and one cut file."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (tmp_path / "clusters.yaml").write_text(CLUSTERS.replace("CACHE", str(cache)), encoding="utf-8")
    head = b"hsqs" + bytes(36) + struct.pack("<Q", 200) + bytes(48)
    (cache / "org_image_v1.sqsh").write_bytes(head + bytes(104))
    (cache / "org_cut_v1.sqsh").write_bytes(head)
    monkeypatch.setenv("SERVEMARK_HOME", str(tmp_path))
    monkeypatch.delenv("SERVEMARK_CLUSTERS", raising=False)
    return tmp_path


def test_clusters_are_listed_and_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables for people, JSON lines for programs; a misspelt name is met with the nearest."""
    assert run_cli(["clusters", "list"]) == 0
    assert "batch" in capsys.readouterr().out
    assert run_cli(["clusters", "show", "big", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus-per-node"] == 8
    assert run_cli(["clusters", "show", "big"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "budgets-s: {images: 3600, replay: 90.5}" in lines
    assert "labels: [gb, hopper]" in lines and "exclusive: true" in lines
    assert run_cli(["clusters", "show", "bgi"]) == 2
    assert "did you mean big" in capsys.readouterr().err
    assert run_cli(["clusters", "check", "here"]) == 0


def test_check_without_slurm_says_so(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback where Slurm's commands are missing."""
    monkeypatch.setenv("PATH", str(home))
    assert run_cli(["clusters", "check", "big"]) == 1
    assert "scontrol is not installed" in capsys.readouterr().err


def test_images_are_verified_adopted_and_pruned(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cut file fails the check; one that was adopted and then changed is corrupt, and only that one is pruned."""
    assert run_cli(["images", "verify", "--cluster", "here"]) == 1
    assert "DAMAGED  org_cut_v1.sqsh" in capsys.readouterr().out
    (home / "cache" / "org_cut_v1.sqsh").unlink()
    assert run_cli(["images", "verify", "--cluster", "here", "--adopt", "org/image:v1"]) == 0
    assert run_cli(["images", "import", "docker.io/org/image:v1", "--cluster", "here"]) == 0
    assert "here already" in capsys.readouterr().out
    file = home / "cache" / "org_image_v1.sqsh"
    data = bytearray(file.read_bytes())
    data[150] = 1
    file.write_bytes(bytes(data))
    assert run_cli(["images", "prune", "--cluster", "here", "--dry-run"]) == 0
    assert "would be removed" in capsys.readouterr().out and file.exists()
    assert run_cli(["images", "prune", "--cluster", "here"]) == 0
    assert list(file.parent.iterdir()) == []


def test_import_without_a_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is not there cannot be brought, and bad names are bad use."""
    assert run_cli(["images", "import", "org/other:v1", "--cluster", "here"]) == 1
    assert "no import command" in capsys.readouterr().err
    assert run_cli(["images", "import", "a b", "--cluster", "here"]) == 2
    assert run_cli(["images", "list"]) == 2


def test_file_names_cannot_steer_a_terminal(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cache is written by many."""
    (home / "cache" / "x\x1b[31m\ny.sqsh").write_bytes(b"")
    for verb in ("list", "verify"):
        run_cli(["images", verb, "--cache", str(home / "cache")])
        assert "x\\x1b[31m\\ny.sqsh" in capsys.readouterr().out


def test_clusters_of_the_suite_that_one_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where home has no clusters file, the suite's own is read, as a run would read it."""
    (tmp_path / "suite.yaml").write_text("name: s\nmasters: []\nclusters: c.yaml\n")
    (tmp_path / "c.yaml").write_text(CLUSTERS.replace("CACHE", "/cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SERVEMARK_CLUSTERS", raising=False)
    assert run_cli(["clusters", "list"]) == 0 and "big" in capsys.readouterr().out
    assert run_cli(["clusters", "show", "big"]) == 0
    (tmp_path / "c.yaml").unlink()
    assert run_cli(["clusters", "list"]) == 2 and "no clusters file" in capsys.readouterr().err
