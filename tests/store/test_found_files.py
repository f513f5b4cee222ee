"""What a user names: files, folders, zips, stdin, all of them hostile where they can be."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.base.messages import LANGUAGES
from servemark.store import found_files
from servemark.store.found_files import Found, Refused, find


def names(argument: Path | str, spool: Path, stdin: bytes = b"") -> tuple[dict[str, bytes], dict[str, str]]:
    """(files by their last name with their bytes, refused ones by their last name with the key's end)."""
    good, bad = {}, {}
    for each in find(str(argument), spool, io.BytesIO(stdin)):
        short = each.name.replace("!", "/").rsplit("/", 1)[-1]
        if isinstance(each, Found):
            with each.open() as stream:
                good[short] = stream.read()
            assert each.size == len(good[short])
        else:
            assert isinstance(each, Refused)
            for lang in LANGUAGES:
                assert each.error.what(lang)
            bad[short] = each.error.key.rsplit(".", 1)[-1]
    return good, bad


def test_a_folder_with_links_pipes_and_runs(tmp_path: Path) -> None:
    """Plain files below it; of a run folder its result; links, pipes and runs without a result with a word."""
    home = tmp_path / "in"
    (home / "deep").mkdir(parents=True)
    (home / "deep" / "b.json").write_bytes(b"b")
    (home / "a.json").write_bytes(b"a")
    (home / ".hidden").write_bytes(b"h")
    (tmp_path / "secret").write_bytes(b"s")
    (home / "out").symlink_to(tmp_path / "secret")
    (home / "loop").symlink_to(home)
    os.mkfifo(home / "pipe")
    for name, files in (
        ("run1", ("manifest.json", "result.json", "requests.jsonl")),
        ("run2", ("manifest.json",)),
    ):
        (home / name).mkdir()
        for file in files:
            (home / name / file).write_bytes(file.encode())
    good, bad = names(home, tmp_path)
    assert good == {"a.json": b"a", "b.json": b"b", "result.json": b"result.json"}
    assert bad == {"out": "link", "loop": "link", "pipe": "not_a_file", "run2": "run_without_result"}


def test_files_beside_are_there_when_asked_for(tmp_path: Path) -> None:
    """A summary finds its records; nothing is read before."""
    (tmp_path / "a.json").write_bytes(b"a")
    (tmp_path / "a.jsonl").write_bytes(b"records")
    (found,) = find(str(tmp_path / "a.json"), tmp_path, io.BytesIO())
    assert isinstance(found, Found)
    assert list(found.beside) == ["a.jsonl"]
    with found.beside["a.jsonl"].open() as stream:
        assert stream.read() == b"records"


def make_zip(path: Path) -> None:
    """One good file, a run folder, and one of each kind that is refused."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/good.json", b"good")
        archive.writestr("run/manifest.json", b"m")
        archive.writestr("run/result.json", b"r")
        archive.writestr("run/logs/engine.log", b"l")
        archive.writestr("../escape.json", b"e")
        archive.writestr("/absolute.json", b"e")
        archive.writestr("bomb.json", b"\0" * (found_files.RATIO_FROM + 1))
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as nested:
            nested.writestr("z", b"z")
        archive.writestr("nested.zip", inner.getvalue())
        link = zipfile.ZipInfo("link.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")


def test_a_hostile_zip(tmp_path: Path) -> None:
    """The good are read, the others named; nothing is written."""
    path = tmp_path / "a.zip"
    make_zip(path)
    good, bad = names(path, tmp_path)
    assert good == {"good.json": b"good", "result.json": b"r"}
    assert bad == {
        "escape.json": "zip_outside",
        "absolute.json": "zip_outside",
        "bomb.json": "zip_bomb",
        "nested.zip": "nested_zip",
        "link.json": "link",
    }
    assert [each.name for each in tmp_path.iterdir()] == ["a.zip"]
    assert names("-", tmp_path / "spool", path.read_bytes()) == (good, bad)
    assert list((tmp_path / "spool").iterdir()) == []


def test_the_directory_of_a_zip_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many members are opened, some of them at once; a member that is asked for later still opens."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(40):
            archive.writestr(f"x/{number:02}.json", str(number))
    read: list[object] = []

    class Counted(zipfile.ZipFile):
        def _RealGetContents(self) -> None:  # noqa: N802 - the standard library's name
            read.append(self)
            super()._RealGetContents()  # type: ignore[misc]

    monkeypatch.setattr(zipfile, "ZipFile", Counted)
    kept: list[Found] = []
    for each in find(str(path), tmp_path, io.BytesIO()):
        assert isinstance(each, Found)
        assert each.name.endswith(f"{len(kept):02}.json")
        with each.open() as one, each.open() as again:
            assert (one.read(), again.read()) == (str(len(kept)).encode(),) * 2
        assert len(each.beside) == 39
        assert each.name.rpartition("/")[2] not in each.beside
        kept.append(each)
    assert len(kept) == 40
    assert len(read) == 1
    with kept[0].beside["07.json"].open() as stream:
        assert stream.read() == b"7"
    assert len(read) == 2


@pytest.mark.parametrize("cut", [10, 200, -30])
def test_a_truncated_zip(tmp_path: Path, cut: int) -> None:
    """Refused as a whole."""
    path = tmp_path / "a.zip"
    make_zip(path)
    path.write_bytes(path.read_bytes()[:cut])
    assert names(path, tmp_path) == ({}, {"a.zip": "bad_zip"})


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many bytes on stdin, in a file, in a zip."""
    path = tmp_path / "a.zip"
    make_zip(path)
    monkeypatch.setattr(found_files, "MAX_UNPACKED_BYTES", 1000)
    assert names(path, tmp_path)[1] == {"a.zip": "zip_too_large"}
    monkeypatch.setattr(found_files, "MAX_FILE_BYTES", 10)
    assert names(path, tmp_path)[1] == {"a.zip": "too_large"}
    monkeypatch.setattr(found_files, "MAX_STDIN_BYTES", 10)
    with pytest.raises(ServemarkError) as caught:
        names("-", tmp_path / "spool", b"x" * 11)
    assert caught.value.exit_code == 2
    assert list((tmp_path / "spool").iterdir()) == []


@pytest.mark.parametrize("argument", ["nowhere", "a\0b", "/dev/null"])
def test_arguments_that_are_no_files(tmp_path: Path, argument: str) -> None:
    """Bad use, in words."""
    with pytest.raises(ServemarkError) as caught:
        names(argument, tmp_path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_a_damaged_member_does_not_hide_the_others(tmp_path: Path, method: int) -> None:
    """Flipped bytes in one member: it is refused by its name, and the next one is read."""
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.json", bytes(range(256)) * 4)
        archive.writestr("b.json", b"good")
    data = bytearray(path.read_bytes())
    for place in range(60, 90):
        data[place] ^= 0x5A
    path.write_bytes(bytes(data))
    good, bad = dict[str, bytes](), list[str]()
    for each in find(str(path), tmp_path, io.BytesIO()):
        try:
            assert isinstance(each, Found)
            with each.open() as stream:
                good[each.name.rsplit("!", 1)[-1]] = stream.read()
        except (AssertionError, OSError):
            bad.append(each.name.rsplit("!", 1)[-1])
    assert (good, bad) == ({"b.json": b"good"}, ["a.json"])


def test_an_empty_name_is_not_the_folder_where_one_stands(tmp_path: Path) -> None:
    """`servemark import "$UNSET"` takes nothing in."""
    with pytest.raises(ServemarkError):
        list(find("", tmp_path, io.BytesIO()))
