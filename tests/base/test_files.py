"""Files appear whole or not at all, and the disk's refusals are named."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import disk_error, make_folder, sha256_file, write_atomic


def test_replaces_whole_content(tmp_path: Path) -> None:
    """The second content replaces the first; nothing else is left in the folder."""
    target = tmp_path / "a.json"
    write_atomic(target, b"first, and longer")
    write_atomic(target, b"second")
    assert target.read_bytes() == b"second"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_too_large_leaves_old_content(tmp_path: Path) -> None:
    """A write that the kernel cuts (file size limit) keeps the old file and leaves no temporary one."""
    target = tmp_path / "a.bin"
    write_atomic(target, b"old")
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, old_limit[1]))
        with pytest.raises(ServemarkError) as caught:
            write_atomic(target, b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert caught.value.key == "base.file_too_large"
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_kill_in_the_middle_leaves_old_or_new(tmp_path: Path) -> None:
    """A writer killed at any moment leaves one of the contents that were written whole."""
    target = tmp_path / "a.txt"
    script = (
        "import sys; from pathlib import Path; from servemark.base.files import write_atomic\n"
        "n = 0\n"
        "while True:\n"
        "    write_atomic(Path(sys.argv[1]), (str(n % 10) * 200_000).encode()); n += 1\n"
        "    if n == 1: print('go', flush=True)\n"
    )
    for delay in (0.0, 0.003, 0.011, 0.02):
        with subprocess.Popen([sys.executable, "-c", script, str(target)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(delay)
            process.kill()
        content = target.read_text()
        assert len(content) == 200_000 and len(set(content)) == 1


@pytest.mark.parametrize(
    ("number", "key"),
    [
        (errno.ENOSPC, "base.disk_full"),
        (errno.EROFS, "base.read_only"),
        (errno.EACCES, "base.no_permission"),
        (errno.ENOTDIR, "base.not_a_folder"),
        (errno.EIO, "base.file_failed"),
    ],
)
def test_refusals_are_named(number: int, key: str) -> None:
    """Each refusal has its own message, in both languages, with what to do."""
    error = disk_error(OSError(number, "why"), "/some/where")
    assert error.key == key and error.layer is Layer.HOME
    assert "/some/where" in error.what("en") and "/some/where" in error.what("zh")
    assert "--home" in (error.next_step("en") or "") and "--home" in (error.next_step("zh") or "")


def test_folder_below_a_file(tmp_path: Path) -> None:
    """A path through a file is a clear refusal."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ServemarkError) as caught:
        make_folder(tmp_path / "file" / "sub")
    assert caught.value.key == "base.not_a_folder"


def test_sha256_of_known_bytes(tmp_path: Path) -> None:
    """The digest of "abc" is published in FIPS 180-2, appendix B.1."""
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert sha256_file(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_only_ordinary_files_are_replaced(tmp_path: Path) -> None:
    """A device, a pipe or a folder under the name is left alone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path):
        with pytest.raises(ServemarkError) as caught:
            write_atomic(target, b"x")
        assert caught.value.key == "base.not_a_file"
    assert pipe.is_fifo()
