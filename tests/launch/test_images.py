"""Images: one key an image, one import however many ask, retries that can help, files proven by a full read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.cluster_launch import ImageImport
from servemark.launch.images import (
    ImageCache,
    cache_key,
    canonical_image,
    read_record,
    record_path,
    spelled,
    uri,
)
from servemark.launch.images_check import State, adopt, check_all, prune, removable
from servemark.launch.images_import import Progress, ensure_image, failure_kind

IMPORTER = """
import json, os, sys, time
output, uri, plan = sys.argv[1:4]
with open(plan + ".calls", "a") as calls:
    calls.write(uri + "\\n")
steps = json.load(open(plan))
said = steps[min(sum(1 for _ in open(plan + ".calls")), len(steps)) - 1]
if said == "hang":
    time.sleep(60)
if said not in ("ok", "nothing", "torn"):
    sys.stderr.write("[ERROR] " + said + "\\n")
    sys.exit(1)
if said != "nothing":
    data = open(plan + ".image", "rb").read()
    open(output, "wb").write(data[: len(data) // 2] if said == "torn" else data)
    print("Digest: sha256:" + "ab" * 32)
"""
IMAGE = canonical_image("vllm/vllm-openai:v0.11.0")


@pytest.fixture(scope="module")
def squash(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real image made by mksquashfs of 256 KiB of random bytes, which do not compress."""
    if shutil.which("mksquashfs") is None:
        pytest.skip("mksquashfs is not installed (Debian: squashfs-tools)")
    folder = tmp_path_factory.mktemp("squash")
    (folder / "root").mkdir()
    (folder / "root" / "data").write_bytes(os.urandom(1 << 18))
    argv = ["mksquashfs", str(folder / "root"), str(folder / "x.sqsh"), "-quiet", "-no-progress"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return (folder / "x.sqsh").read_bytes()


class Registry:
    """A stand-in importer: says what it is told, in turn, and counts its calls."""

    def __init__(self, folder: Path, squash: bytes) -> None:
        self.plan = folder / "plan.json"
        (folder / "plan.json.image").write_bytes(squash)
        self.script = folder / "importer.py"
        self.script.write_text(IMPORTER, encoding="utf-8")
        self.cache = ImageCache(folder / "cache")

    def how(self, *said: str, timeout_s: int = 20, attempts: int = 4) -> ImageImport:
        """An import command that behaves so."""
        self.plan.write_text(json.dumps(said), encoding="utf-8")
        (self.plan.parent / "plan.json.calls").unlink(missing_ok=True)
        argv = (sys.executable, "-I", "-S", str(self.script), "{output}", "{uri}", str(self.plan))
        return ImageImport(argv, timeout_s=timeout_s, attempts=attempts)

    @property
    def calls(self) -> list[str]:
        """URIs that were asked for."""
        return (self.plan.parent / "plan.json.calls").read_text(encoding="utf-8").split()


@pytest.fixture
def registry(tmp_path: Path, squash: bytes) -> Registry:
    """The stand-in with an empty cache."""
    return Registry(tmp_path, squash)


def test_spellings_of_one_image_have_one_key() -> None:
    """By docker's rules of reference: no registry is Docker Hub, no namespace `library`, no tag `latest`."""
    same = ["ubuntu", "ubuntu:latest", "docker.io/library/ubuntu", "docker://docker.io#library/ubuntu:latest"]
    assert {spelled(canonical_image(one)) for one in same} == {"docker.io/library/ubuntu:latest"}
    ghcr = ["ghcr.io/a/b:t", "ghcr.io#a/b:t", "docker://GHCR.io/a/b:t"]
    assert len({cache_key(canonical_image(one)) for one in ghcr}) == 1
    assert uri(canonical_image("ghcr.io/a/b:t")) == "docker://ghcr.io#a/b:t"
    # Marks that a `_` rule would fold into one name stay apart.
    assert cache_key(canonical_image("x.io/a/b_c:t")) != cache_key(canonical_image("x.io/a_b/c:t"))


@pytest.mark.parametrize(
    "bad", ["", "/images/x.sqsh", "a/b:t;rm -rf", "../x/y:1", "a/b@sha256:12", "x.io/a/b:$(id)"]
)
def test_what_is_no_reference(bad: str) -> None:
    """Bad input, exit code 2."""
    with pytest.raises(ServemarkError) as caught:
        canonical_image(bad)
    assert caught.value.exit_code == 2


def test_import_records_what_came(registry: Registry, squash: bytes) -> None:
    """The record's figures are those of the file; a second request imports nothing."""
    found = ensure_image(registry.cache, IMAGE, registry.how("ok"))
    record = read_record(found.image.path)
    assert record is not None and not found.other_spelling
    assert (record.size, record.digest) == (len(squash), "sha256:" + "ab" * 32)
    assert registry.calls == ["docker://vllm/vllm-openai:v0.11.0"]
    ensure_image(registry.cache, canonical_image("docker.io/vllm/vllm-openai:v0.11.0"), None)
    assert sorted(path.suffix for path in registry.cache.folder.iterdir()) == [".json", ".sqsh"]


@pytest.mark.parametrize(
    "said",
    [
        "curl: (6) Could not resolve host: auth.docker.io",
        "TLS handshake timeout",
        "curl: (28) Operation timed out",
        "received unexpected HTTP status: 503 Service Unavailable",
        "toomanyrequests: 429 Too Many Requests",
        "Checksum mismatch: expected 12, got 13",
        "torn",
    ],
)
def test_what_is_tried_again(registry: Registry, said: str) -> None:
    """Twice this failure, then success; every retry is told."""
    told: list[Progress] = []
    ensure_image(registry.cache, IMAGE, registry.how(said, said, "ok"), tell=told.append, pause_s=0.01)
    assert len(registry.calls) == 3
    assert [one.attempt for one in told if one.kind == "retry"] == [1, 2]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("HTTP 401 Unauthorized", "unauthorised"),
        ("HTTP 403 Forbidden", "unauthorised"),
        ("HTTP 404: manifest unknown", "not_found"),
        ("write: No space left on device", "no_space"),
        ("something else", "unknown"),
    ],
)
def test_what_is_not_tried_again(registry: Registry, said: str, kind: str) -> None:
    """One call, one error that says why, and nothing in the cache."""
    with pytest.raises(ServemarkError) as caught:
        ensure_image(registry.cache, IMAGE, registry.how(said), pause_s=0.01)
    assert caught.value.key == f"launch.image_import.{kind}" and caught.value.layer is Layer.IMAGE
    assert said.split(":", maxsplit=1)[0] in caught.value.what() and len(registry.calls) == 1
    assert list(registry.cache.folder.iterdir()) == []


def test_attempts_end(registry: Registry) -> None:
    """The last attempt's lines are shown; an importer that hangs is ended by its time limit."""
    with pytest.raises(ServemarkError) as caught:
        ensure_image(registry.cache, IMAGE, registry.how("hang", timeout_s=1, attempts=2), pause_s=0.01)
    assert caught.value.key == "launch.image_import_gave_up" and "timed out" in caught.value.what()
    assert list(registry.cache.folder.iterdir()) == []


def test_many_ask_and_one_imports(registry: Registry) -> None:
    """Eight at once: one call of the importer, one file, eight answers."""
    how, found = registry.how("ok"), []

    def ask() -> None:
        found.append(ensure_image(registry.cache, IMAGE, how).image.path)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and len(found) == 8 and len(registry.calls) == 1


def test_importer_that_was_killed_leaves_no_block(registry: Registry) -> None:
    """Its partial file and its lock file lie there; the next import takes over and cleans up."""
    target = registry.cache.path_of(IMAGE)
    registry.cache.folder.mkdir()
    for name in (f".{target.name}.abc.partial", f".{target.name}.lock"):
        target.with_name(name).write_bytes(b"half")
    ensure_image(registry.cache, IMAGE, registry.how("ok"))
    assert sorted(path.name for path in registry.cache.folder.iterdir()) == [
        target.name,
        f"{target.name}.json",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "vllm_vllm-openai_v0.11.0",
        "docker.io_vllm_vllm-openai_v0.11.0",
        "vllm+vllm-openai+v0.11.0",
        "docker___vllm_vllm-openai_v0.11.0",
    ],
)
def test_file_of_another_spelling_is_found(registry: Registry, squash: bytes, name: str) -> None:
    """Nothing is pulled again because of one character; the file is used where it lies, and never pruned."""
    registry.cache.folder.mkdir()
    file = registry.cache.folder / f"{name}.sqsh"
    file.write_bytes(squash)
    found = ensure_image(registry.cache, IMAGE, None)
    assert found.image.path == file and found.other_spelling
    assert registry.cache.find(canonical_image("vllm/vllm-openai:v0.11.1")) is None
    assert registry.cache.find(canonical_image("ghcr.io/vllm/vllm-openai:v0.11.0")) is None
    assert removable(registry.cache, unused_days=0) == []
    adopt(found.image, spelled(IMAGE))
    assert [one.state for one in check_all(registry.cache)] == [State.GOOD]


def test_hole_in_the_middle_is_seen(registry: Registry) -> None:
    """64 KiB of zeros in the middle: the file still lists its names, only the full read tells."""
    path = ensure_image(registry.cache, IMAGE, registry.how("ok")).image.path
    with path.open("r+b") as stream:
        stream.seek(1 << 16)
        stream.write(bytes(1 << 16))
    (checked,) = check_all(registry.cache)
    assert checked.state is State.CORRUPT and "sha256" in checked.reason
    (item,) = removable(registry.cache)
    prune([item])
    assert item.why == "corrupt" and list(registry.cache.folder.iterdir()) == []


def test_short_file_is_imported_again(registry: Registry, squash: bytes) -> None:
    """Cut in half: a length that is not the record's is as good as no file."""
    path = ensure_image(registry.cache, IMAGE, registry.how("ok")).image.path
    path.write_bytes(squash[: len(squash) // 2])
    ensure_image(registry.cache, IMAGE, registry.how("ok"))
    assert path.read_bytes() == squash


def test_prune_takes_leftovers_only(registry: Registry) -> None:
    """A partial file of two hours ago and a record without its file go; a fresh partial and a good image stay."""
    path = ensure_image(registry.cache, IMAGE, registry.how("ok")).image.path
    old, fresh = (path.with_name(f".{path.name}.{name}.partial") for name in ("old", "fresh"))
    for one in (old, fresh):
        one.write_bytes(b"x")
    os.utime(old, (time.time() - 7200,) * 2)
    lonely = record_path(path.with_name("gone.sqsh"))
    lonely.write_text("{}", encoding="utf-8")
    items = removable(registry.cache)
    assert {(item.path, item.why) for item in items} == {(old, "partial"), (lonely, "record")}
    prune(items)
    assert path.exists() and fresh.exists() and not old.exists() and not lonely.exists()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"reference": 1}', "9" * 100])
def test_broken_record_is_no_record(registry: Registry, content: str) -> None:
    """Nothing that a file can hold gives a traceback."""
    path = ensure_image(registry.cache, IMAGE, registry.how("ok")).image.path
    record_path(path).write_text(content, encoding="utf-8")
    assert read_record(path) is None


def test_kinds_that_no_retry_mends_come_first() -> None:
    """A 404 that also says `timeout` somewhere is a 404."""
    assert failure_kind("timeout=30\nHTTP 404 Not Found") == ("not_found", False)
    assert failure_kind("HTTP 500") == ("server", True)
