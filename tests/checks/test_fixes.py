"""`--fix`: only the span of the edit changes, whatever the file looks like; a refusing disk leaves every file whole."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.catalog.nodes import Position
from servemark.catalog.yaml_nodes import parse_yaml
from servemark.checks.check import check_suite
from servemark.checks.example import AGG, MASTER, write
from servemark.checks.fixes import Edited, applied, as_meant, edits_for, span_of
from servemark.checks.model import Fix
from servemark.checks.places import Places

INSTALLED, STATED = 'install: true, version: "1.3.0"', b'dynamo: "1.3.1", sglang'
RECIPE = "recipes/owl/agg.yaml"
OLD_ROUTER, NEW_ROUTER = (
    b'version: "1.3.1"}\n  multinode: true\n  scenarios',
    b'version: "1.3.0"}\n  multinode: true\n  scenarios',
)


def fix(folder: Path) -> list[Edited]:
    """The files with their fixes, all of which can be made."""
    report = check_suite(folder)
    edited, skipped = edits_for(report.findings, Places.of(report.suite), unsafe=False)
    assert skipped == 0
    return edited


def wrong_recipe() -> str:
    """The aggregated recipe, which installs another version than it and the master state."""
    return AGG.replace('install: true, version: "1.3.1"', INSTALLED)


REMARKS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 40), REMARKS), max_size=5),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(['"{}"', "'{}'"]),
)
def test_only_the_span_changes(
    remarks: list[tuple[int, str]], crlf: bool, bom: bool, final: bool, quotes: str
) -> None:
    """Remarks in any letters, CR LF, a byte order mark, no final newline, either quotes: the bytes around the span stay,
    the result is read again, the finding is gone, a second run changes nothing, and the diff is what is written."""
    text = wrong_recipe().replace('{dynamo: "1.3.1"', "{dynamo: " + quotes.format("1.3.1"))
    lines = text.split("\n")[:-1]
    for at, said in remarks:
        lines.insert(min(at, len(lines)), f"# {said}")
    end = "\r\n" if crlf else "\n"
    data = ("\ufeff" * bom + end.join(lines) + end * final).encode()
    with tempfile.TemporaryDirectory() as name:
        folder = write(Path(name) / "suite")
        path = folder / RECIPE
        path.write_bytes(data)
        edited = {one.path.name: one for one in fix(folder)}
        assert set(edited) == {"agg.yaml", "masters.yaml"}
        span = b"{dynamo: " + quotes.format("1.3.1").encode()
        assert data.count(span) == 1
        assert edited["agg.yaml"].after == data.replace(span, span.replace(b"1.3.1", b"1.3.0"))
        assert edited["masters.yaml"].after == MASTER.encode().replace(OLD_ROUTER, NEW_ROUTER)
        other = write(Path(name) / "patched")
        (other / RECIPE).write_bytes(data)
        for one in edited.values():
            target = other / one.path.relative_to(folder)
            diff = "".join(f"{line}\n" for line in one.diff()).encode("utf-8", "surrogateescape")
            subprocess.run(
                ["patch", "--binary", "-s", str(target)],
                input=diff,
                check=True,
                timeout=20,
                capture_output=True,
            )
            assert target.read_bytes() == one.after
        for one in edited.values():
            one.write()
        assert {f.code for f in check_suite(folder).findings} <= {"SCH013", "SCH014"}
        assert fix(folder) == []


def test_a_link_is_followed(tmp_path: Path) -> None:
    """The file that a link names is edited, once, though it has two names; the link stays one; permissions stay."""
    write(tmp_path, ((RECIPE, 'install: true, version: "1.3.1"', INSTALLED),))
    real = tmp_path / "recipes" / "owl" / "other.yaml"
    (tmp_path / RECIPE).rename(real)
    (tmp_path / RECIPE).symlink_to("other.yaml")
    real.chmod(0o750)
    for one in fix(tmp_path):
        one.write()
    assert (tmp_path / RECIPE).is_symlink() and real.stat().st_mode & 0o777 == 0o750
    assert real.read_bytes() == wrong_recipe().encode().replace(STATED, STATED.replace(b"1.3.1", b"1.3.0"))


def test_what_lies_outside_is_left_alone(tmp_path: Path) -> None:
    """A recipe that is a link out of the suite is not written, whatever it says."""
    folder = write(tmp_path / "suite", ((RECIPE, 'install: true, version: "1.3.1"', INSTALLED),))
    outside = tmp_path / "outside.yaml"
    (folder / RECIPE).rename(outside)
    (folder / RECIPE).symlink_to(outside)
    before = outside.read_bytes()
    report = check_suite(folder)
    for one in edits_for(report.findings, Places.of(report.suite), unsafe=True)[0]:
        one.write()
    assert outside.read_bytes() == before


def test_a_read_only_file_stays(tmp_path: Path) -> None:
    """Its owner made it read-only: it is told, not replaced, although the folder would allow it."""
    write(tmp_path, ((RECIPE, 'install: true, version: "1.3.1"', INSTALLED),))
    (tmp_path / RECIPE).chmod(0o444)
    before = (tmp_path / RECIPE).read_bytes()
    one = next(one for one in fix(tmp_path) if one.path.name == "agg.yaml")
    with pytest.raises(ServemarkError, match="read-only"):
        one.write()
    assert (tmp_path / RECIPE).read_bytes() == before


def test_a_full_disk(tmp_path: Path) -> None:
    """A disk that takes 1,000 bytes and no more (a limit on a file's size acts as one): one message, every file as it was,
    nothing left beside them."""
    write(tmp_path, ((RECIPE, 'install: true, version: "1.3.1"', INSTALLED),))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = subprocess.run(
        [sys.executable, "-m", "servemark", "check", str(tmp_path), "--fix"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert done.returncode != 0 and done.stderr, done.stdout
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 3
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_anchor_is_not_edited() -> None:
    """A value that stands for two places is not changed for one of them, nor a text made a number."""
    data = b"a: &v one\nb: *v\nc: one\n"
    assert not as_meant(data, data.replace(b"&v one", b"&v two"), 1)
    assert as_meant(data, data.replace(b"c: one", b"c: two"), 1)
    assert not as_meant(data, data.replace(b"c: one", b"c: 2.0"), 1)
    assert not as_meant(data, data.replace(b"c: one", b'c: "one'), 1)


@given(st.text(max_size=30), st.text(min_size=1, max_size=10), st.text(max_size=10), st.integers(1, 40))
def test_any_fix(line: str, old: str, new: str, column: int) -> None:
    """Any fix of any line: it is placed and changes these bytes only, or it is not placed."""
    data = f"# first\nkey: {line}\nlast: 1".encode("utf-8", "surrogatepass")
    edit = span_of(data, Fix(Position("x", 2, column), old, new))
    if edit is not None:
        after = applied(data, [edit])
        assert after[: edit.start] == data[: edit.start] and after.endswith(data[edit.end :])
        assert data[edit.start : edit.end] == old.encode("utf-8", "surrogatepass")
        if as_meant(data, after, 1):
            assert parse_yaml(after, "")[0].kind == "mapping" or parse_yaml(data, "")[0].kind != "mapping"
