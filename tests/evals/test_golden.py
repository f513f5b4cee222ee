"""Golden entries from counters; standard errors worked out by hand, files compared byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.evals.acceptance import Acceptance
from servemark.evals.golden import GoldenEntry, append_entry, entry_of, entry_text

REAL = Acceptance(2.5, 0.5, 400, 1200, 600, (0.8, 0.5, 0.2))


def entry(tokens: int = 3, model: str = "owl-2", mode: str = "thinking_on") -> GoldenEntry:
    return entry_of(REAL, model, mode, tokens, "mtp")


def test_standard_error_by_position() -> None:
    """E[X] = 1.5; E[X^2] = 1*0.8 + 3*0.5 + 5*0.2 = 3.3; variance 3.3 - 2.25 = 1.05; sqrt(1.05/400) = 0.05123."""
    found = entry()
    assert (found.length, found.steps, found.exact) == (2.5, 400, True)
    assert found.stderr == pytest.approx(0.051235, abs=1e-6)
    bound = entry_of(Acceptance(2.5, 0.5, 400, 1200, 600), "owl-2", "thinking_on", 3, "mtp")
    assert bound.stderr == pytest.approx((1.5 * 1.5 / 400) ** 0.5)  # m (K - m) = 1.5 * 1.5
    assert not bound.exact
    assert "<=" in bound.comment


@pytest.mark.parametrize(
    ("counted", "tokens", "key"),
    [
        (Acceptance(3.36, 0.59, 200, 800, 472, (1.0, 1.0, 0.36, 0.0)), 4, "evals.forced.counters"),
        (Acceptance(None, None, 0, 0, 0, missing="nothing_drafted"), 4, "evals.no_length.nothing_drafted"),
        (
            Acceptance(None, None, None, None, None, gauge_length=3.0, missing="gauge_only"),
            4,
            "evals.no_length.gauge_only",
        ),
        (Acceptance(2.5, 0.5, 20, 60, 30), 3, "evals.golden_few_steps"),
        (REAL, 2, "evals.golden_more_drafts"),
    ],
)
def test_refused(counted: Acceptance, tokens: int, key: str) -> None:
    with pytest.raises(ServemarkError) as caught:
        entry_of(counted, "owl-2", "thinking_on", tokens, "mtp")
    assert caught.value.key == key
    assert caught.value.next_step()


def test_names_that_would_break_the_file() -> None:
    for bad in ("a: b", "", "x\ny", "#", "- a"):
        with pytest.raises(ServemarkError) as caught:
            entry_of(REAL, bad, "thinking_on", 3, "mtp")
        assert caught.value.key == "evals.golden_name"


LINE = "3: 2.50  # mtp, n=400 steps, s.e. 0.051"
FILE = (
    "# how it was measured\nowl-2:   # a comment\n  thinking_on:\n    1: 1.80\n    4: 2.90 # kept\n"
    "  thinking_off:\n    1: 1.7\n"
)


def test_a_value_is_put_in_and_every_other_byte_stays(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text(FILE)
    append_entry(path, entry())
    assert path.read_text() == FILE.replace("    1: 1.80\n", f"    1: 1.80\n    {LINE}\n")
    with pytest.raises(ServemarkError) as caught:
        append_entry(path, entry())
    assert caught.value.key == "evals.golden_there"
    assert f"{path}:5:" in str(caught.value.where)


def test_before_the_first_a_new_mode_and_a_new_model(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text("owl-2:\n  thinking_on:\n    4: 2.90")
    append_entry(path, entry())
    assert path.read_text() == f"owl-2:\n  thinking_on:\n    {LINE}\n    4: 2.90"
    append_entry(path, entry(mode="thinking_off"))
    append_entry(path, entry(model="owl-3"))
    first = f"owl-2:\n  thinking_on:\n    {LINE}\n    4: 2.90\n  thinking_off:\n    {LINE}\n"
    expected = f"{first}owl-3:\n  thinking_on:\n    {LINE}"
    assert path.read_text() == expected


def test_carriage_returns_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_bytes(FILE.replace("\n", "\r\n").encode())
    append_entry(path, entry(tokens=9))
    assert path.read_bytes().count(b"\r\n") == path.read_bytes().count(b"\n") == 8


def test_a_new_file_and_an_empty_one(tmp_path: Path) -> None:
    new, empty = tmp_path / "new.yaml", tmp_path / "empty.yaml"
    empty.write_text("# nothing yet\n")
    append_entry(new, entry())
    append_entry(empty, entry())
    assert new.read_text() == entry_text(entry())
    assert empty.read_text() == "# nothing yet\n" + entry_text(entry())


@pytest.mark.parametrize(
    "text", ["owl-2: {thinking_on: {1: 1.8}}\n", "owl-2:\n  thinking_on: {1: 1.8}\n", "- 1\n", "owl-2: 3\n"]
)
def test_other_layouts_are_refused_and_untouched(tmp_path: Path, text: str) -> None:
    path = tmp_path / "g.yaml"
    path.write_text(text)
    with pytest.raises(ServemarkError):
        append_entry(path, entry())
    assert path.read_text() == text


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_text("owl-2:\n  thinking_on:\n    1: 1.50\n", encoding="utf-8")
    link.symlink_to(real)
    append_entry(link, entry())
    assert link.is_symlink()
    assert "3: 2.50" in real.read_text(encoding="utf-8")


def test_links_in_a_circle_and_files_marked_read_only_are_refused(tmp_path: Path) -> None:
    loop, kept = tmp_path / "loop.yaml", tmp_path / "kept.yaml"
    loop.symlink_to(loop)
    kept.write_text("owl-2:\n  thinking_on:\n    1: 1.50\n", encoding="utf-8")
    kept.chmod(0o444)
    for path, key in ((loop, "evals.golden_link"), (kept, "evals.golden_read_only")):
        with pytest.raises(ServemarkError) as caught:
            append_entry(path, entry())
        assert caught.value.key == key
    assert "2.50" not in kept.read_text(encoding="utf-8")
