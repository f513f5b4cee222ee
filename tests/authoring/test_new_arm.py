"""New arms by byte-safe insertion: what is written, what is refused, and that nothing is half-written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.authoring.conftest import CHANGELOG, MASTER, RECIPE, edit

from servemark.authoring.insertion import Setting, copied_block, setting_of, with_settings
from servemark.authoring.new_arm import FileEdit, write_all
from servemark.authoring.request_text import half_faults
from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.suite import load_suite
from servemark.cli.main import run_cli


def new(root: Path, *more: str, name: str = "one-tp2") -> int:
    return run_cli(
        ["new", "arm", "--suite", str(root), "--from", "one", "--name", name, "--lang", "en", *more]
    )


TP2 = (
    "--set", "prefill.tp=2", "--set", "conc-list=4,8", "--set", "recipe.gpus=2", "--set", "recipe.tensor-parallel-size=2",
)  # fmt: skip


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*.yaml")}


def test_all_three_files_and_every_other_byte(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The block of `one` (14 lines) stands again behind itself, with three values set; what is around it is as it was."""
    assert new(suite, *TP2, "--description", "Two GPUs.") == 0
    block = MASTER[MASTER.index("one:") : MASTER.index("gone:")]
    copy = (
        block.replace("one:", "one-tp2:", 1)
        .replace("[1, 2]", "[4, 8]")
        .replace("tp: 1, ep: 1, dp-attn: false, add", "tp: 2, ep: 1, dp-attn: false, add")
    )
    copy = copy.replace("recipes/one.yaml", "recipes/one-tp2.yaml")
    assert (suite / "configs" / "x-master.yaml").read_text() == MASTER.replace(block, block + copy)
    recipe = (
        RECIPE.replace("name: one", "name: one-tp2")
        .replace("gpus: 1", "gpus: 2")
        .replace("size: 1", "size: 2")
    )
    assert (suite / "recipes" / "one-tp2.yaml").read_text() == recipe
    log = (suite / "perf-changelog.yaml").read_text()
    assert (
        log
        == CHANGELOG + '\n- config-keys:\n    - one-tp2\n  description:\n    - "Two GPUs."\n  pr-link: XXX\n'
    )
    arm = load_suite(suite).arm("one-tp2")
    assert arm.entries[0].concurrencies == (4, 8) and arm.entries[0].prefill.tp == 2
    out = capsys.readouterr()
    # two agentic points on 2 GPUs: 2 x 2 x (1 h + 0.25 h) = 5 GPU-hours
    assert "Points to run: 2, about 5.00 GPU-hours" in out.out and "Written" in out.err


def test_a_dry_run_writes_nothing(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(suite)
    assert new(suite, *TP2, "--dry-run") == 0
    assert files(suite) == before
    assert "one-tp2" in capsys.readouterr().out


def test_new_errors_are_refused(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """tp 2 in the master and 1 in the recipe contradict each other; the user may insist."""
    before = files(suite)
    assert new(suite, "--set", "prefill.tp=2") == 1
    assert files(suite) == before and "Nothing was written" in capsys.readouterr().err
    assert new(suite, "--set", "prefill.tp=2", "--allow-errors") == 0
    assert files(suite) != before


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (("--set", "prefil.tp=2"), "n"), (("--set", "tp=2"), "n"), (("--set", "tp"), "n"),
        (("--set", "prefill.tp=two"), "n"),
        ((), "one"), ((), "gone"), ((), "a b"), ((), "../x"), ((), "-x"), (("--set", "image=a\nb: c"), "n"),
        (("--set", "recipe.nothing=1"), "n"), (("--set", "conc-list=4,x"), "n"),
    ],
)  # fmt: skip
def test_what_is_refused_leaves_everything(
    suite: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], name: str
) -> None:
    before = files(suite)
    assert new(suite, *more, name=name) == 2
    assert files(suite) == before
    err = capsys.readouterr().err
    assert "Traceback" not in err and err


def test_a_value_stays_one_value(suite: Path) -> None:
    """What would be YAML of its own is quoted; a text that looks like a number stays a text."""
    edit(suite / "configs" / "x-master.yaml", "  model: Qwen/Qwen3-8B\n", "  model: Qwen/Qwen3-8B # why\n")
    assert new(suite, "--set", "image=1.0", "--set", 'model=a: {b} # "c"', "--allow-errors") == 0
    text = (suite / "configs" / "x-master.yaml").read_text()
    assert 'image: "1.0"' in text and '  model: "a: {b} # \\"c\\"" # why\n' in text
    arm = load_suite(suite).arm("one-tp2")
    assert arm.image == "1.0" and arm.model == 'a: {b} # "c"'


def test_carriage_returns_and_a_missing_last_line_end() -> None:
    data = b"a:\r\n  x: 1\r\n# c\r\nb:\r\n  x: 2"
    copied, block, line = copied_block(data, "m", "b", "c")
    assert (
        copied == data + b"\r\nc:\r\n  x: 2\r\n"
        or copied == data + b"\nc:\r\n  x: 2\n"
        or copied.startswith(data)
    )
    assert block.startswith(b"c:") and line == 6
    copied, _, _ = copied_block(b"a:\n  x: 1\n\n# of b\nb:\n  x: 2\n", "m", "a", "c")
    assert copied == b"a:\n  x: 1\n\nc:\n  x: 1\n\n# of b\nb:\n  x: 2\n"


def test_an_anchor_stays_where_it_was() -> None:
    """`b` goes on meaning the 1 of `a`; an edit that would take an anchor away from its alias is refused."""
    copied, _, _ = copied_block(b"a:\n  x: &v 1\nb:\n  x: *v\n", "m", "a", "c")
    after = with_settings(copied, "m", "c", [Setting("x", "2")])
    assert after == b"a:\n  x: &v 1\nc:\n  x: 2\nb:\n  x: *v\n"
    with pytest.raises(ServemarkError):
        with_settings(b"a:\n  x: &v 1\nb:\n  x: *v\n", "m", "a", [Setting("x", "2")])
    with pytest.raises(ServemarkError) as caught:
        with_settings(b"a:\n  x: &v 1\nb:\n  x: *v\n", "m", "b", [Setting("x", "2")])
    assert caught.value.key == "authoring.new.not_safe"


def test_a_merged_value_is_overridden_in_its_own_mapping() -> None:
    data = b"roles:\n  p: &r\n    workers: 1\n    gpus: 8\n  d:\n    <<: *r\n"
    after = with_settings(data, "m", None, [Setting("roles.d.workers", "2")])
    assert after == b"roles:\n  p: &r\n    workers: 1\n    gpus: 8\n  d:\n    workers: 2\n    <<: *r\n"


def test_every_place_that_a_key_fits() -> None:
    data = b"a: {t: 1, l: [{t: 2}]}\n"
    with pytest.raises(ServemarkError) as caught:
        with_settings(data, "m", "a", [setting_of("l.t=3")])
    assert caught.value.key == "authoring.new.no_key"
    assert with_settings(data, "m", None, [setting_of("*.t=3")]) == b"a: {t: 3, l: [{t: 3}]}\n"
    assert (
        with_settings(b"a:\n- {t: 1}\n- {t: 2}\n", "m", None, [setting_of("*.t=3")])
        == b"a:\n- {t: 3}\n- {t: 3}\n"
    )


def test_a_failure_in_the_middle_puts_everything_back(tmp_path: Path) -> None:
    """A file stands where the second one's folder has to be: the first file is gone again."""
    (tmp_path / "no").write_text("")
    edits = [FileEdit("new/folder/a.yaml", None, b"1\n"), FileEdit("no/b.yaml", None, b"2\n")]
    with pytest.raises(ServemarkError):
        write_all(tmp_path, edits)
    assert list(tmp_path.iterdir()) == [tmp_path / "no"]


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"theirs\n")
    with pytest.raises(ServemarkError) as caught:
        write_all(tmp_path, [FileEdit("b.yaml", None, b"1\n"), FileEdit("a.yaml", b"read\n", b"mine\n")])
    assert caught.value.key == "authoring.new.changed_since"
    assert not (tmp_path / "b.yaml").exists() and (tmp_path / "a.yaml").read_bytes() == b"theirs\n"


def test_the_request_says_the_same_in_both_halves(suite: Path, tmp_path: Path) -> None:
    out = tmp_path / "request.md"
    assert new(suite, *TP2, "--request", str(out)) == 0
    body = out.read_text()
    assert half_faults(body, ["one", "one-tp2"]) == ()
    assert "5.00" in body
    wrong = body.replace("5.00 GPU 小时", "50.00 GPU 小时")
    assert [(one.kind, one.value, one.there) for one in half_faults(wrong, ["one", "one-tp2"])] == [
        ("figure", "5.00", "en"),
        ("figure", "50.00", "zh"),
    ]
    other = body[: body.index("servemark:zh")] + body[body.index("servemark:zh") :].replace(
        "one-tp2", "one-tp4"
    )
    assert ("arm", "one-tp2") in [
        (one.kind, one.value) for one in half_faults(other, ["one", "one-tp2", "one-tp4"])
    ]


@pytest.mark.parametrize(
    "body", ["", "<!-- servemark:en -->x", "<!-- servemark:en -->a<!-- servemark:en -->b"]
)
def test_a_half_is_missing(body: str) -> None:
    with pytest.raises(ServemarkError) as caught:
        half_faults(body, [])
    assert caught.value.key == "authoring.no_halves"


def test_figures_beside_chinese_letters_and_names() -> None:
    """3 and 1,024 are figures in both; tp8 and v2 are names."""
    body = "<!-- servemark:en -->3 arms of 1,024 tokens, tp8, v2\n<!-- servemark:zh -->共3个arm、每个1024词元、tp8、v2"
    assert half_faults(body, []) == ()


def test_the_recipe_is_named_by_config_file(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The master and the file agree on the name that was asked for; no other recipe is left behind."""
    assert new(suite, *TP2, "--set", "CONFIG_FILE=recipes/h200/tp2-c8.yaml") == 0
    assert (suite / "recipes" / "h200" / "tp2-c8.yaml").read_text().startswith("schema: 2\nname: one-tp2\n")
    assert not (suite / "recipes" / "one-tp2.yaml").exists()
    entry = load_suite(suite).arm("one-tp2").entries[0]
    assert entry.config_file == "recipes/h200/tp2-c8.yaml"
    assert "added recipes/h200/tp2-c8.yaml" in capsys.readouterr().out


def test_a_recipe_that_is_there_is_shared_and_not_changed(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(suite)
    there = "CONFIG_FILE=recipes/one.yaml"
    assert new(suite, "--set", there, "--set", "recipe.gpus=2") == 2
    assert files(suite) == before and "would share" in capsys.readouterr().err
    assert new(suite, "--set", there, "--set", "conc-list=4") == 0
    assert sorted(files(suite)) == sorted(before) and load_suite(suite).arm("one-tp2").entries[0].config_file


@pytest.mark.parametrize("value", ["../x.yaml", "recipes/../../x.yaml", "/x.yaml", "recipes/x.txt"])
def test_a_recipe_outside_of_the_suite_is_refused(suite: Path, value: str) -> None:
    before = files(suite)
    assert new(suite, *TP2, "--set", f"CONFIG_FILE={value}") == 2
    assert files(suite) == before and not (suite.parent / "x.yaml").exists()


@pytest.mark.parametrize("place", ["nowhere/request.md", "."])
def test_a_request_that_cannot_be_written_leaves_the_suite(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    """Exit code 2 before anything is written, not an arm without its text."""
    before = files(suite)
    assert new(suite, *TP2, "--request", str(tmp_path / place)) == 2
    assert files(suite) == before and str(tmp_path / place) in capsys.readouterr().err


def test_a_refused_arm_ends_with_its_errors(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both places of the contradiction stand last, and no text of a request that nobody can open."""
    assert new(suite, "--set", "prefill.tp=2") == 1
    said = capsys.readouterr()
    assert "TOP202" in said.err and "recipes/one-tp2.yaml:" in said.err
    assert "servemark:en" not in said.out


@pytest.mark.parametrize(
    ("value", "code"), [("image=", "SCH025"), ("conc-list=0", "SCH027"), ("conc-list=9000000", "SCH028")]
)
def test_an_entry_that_cannot_be_read_is_the_only_error(
    suite: Path, capsys: pytest.CaptureFixture[str], value: str, code: str
) -> None:
    """The changelog names an arm whose entry stands in the master: not a second error, about an unknown arm."""
    assert new(suite, "--set", value) == 1
    err = capsys.readouterr().err
    assert code in err and "CHG431" not in err


def test_new_notes_are_told(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An image that the recipe's container may not be is only a note, which would be seen nowhere else."""
    edit(suite / "recipes" / "one.yaml", '"img:1"', "some-alias")
    assert new(suite, "--set", "image=img:2", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "### New notes" in out and "- note IDN103 " in out


def test_keys_that_are_nowhere(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The word's own neighbours where no key is alike, and that recipes have keys of their own."""
    assert new(suite, "--set", "concurrency=4") == 2
    err = capsys.readouterr().err
    assert "among them are conc-list" in err and "recipe." in err


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice is about the suite, not about where runs are kept."""

    def refuse(path: Path, data: bytes, mode: int = 0o644) -> None:
        raise ServemarkError("base.read_only", Layer.HOME, path=str(path), reason="")

    monkeypatch.setattr("servemark.authoring.new_arm.write_atomic", refuse)
    with pytest.raises(ServemarkError) as raised:
        write_all(tmp_path, [FileEdit("a.yaml", None, b"a: 1\n")])
    assert raised.value.key == "authoring.new.not_written"
    assert "read-only" in raised.value.what() and "--home" not in (raised.value.next_step() or "--home")


def test_the_request_says_what_was_set(suite: Path, tmp_path: Path) -> None:
    request = tmp_path / "request.md"
    assert new(suite, *TP2, "--request", str(request)) == 0
    body = request.read_text()
    assert body.count("prefill.tp=2, conc-list=4,8, recipe.gpus=2, recipe.tensor-parallel-size=2") == 2
