"""Reading a commit's files from git: no shell, no checkout, no network; the working tree may be in any
state."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from servemark.base.errors import ServemarkError, input_error
from servemark.catalog.yaml_nodes import MAX_BYTES

TIMEOUT_S = 30.0
_QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}


@dataclass(frozen=True, slots=True)
class GitTree:
    """The files of one commit below one folder. Paths are relative to the folder, whatever they are named."""

    folder: Path
    ref: str
    commit: str
    blobs: dict[str, str]
    """Path -> object id, of regular files (links are left out)."""
    algorithm: str
    limit: int = MAX_BYTES
    """Bytes of the largest file that is read."""
    _read: dict[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, folder: Path, ref: str, limit: int = MAX_BYTES) -> GitTree:
        """Read the list of files at `ref` below `folder`. ServemarkError (exit 2): no git, no repository,
        no ref."""
        commit = _resolve(folder, ref)
        prefix = _git(folder, "rev-parse", "--show-prefix").decode("utf-8", "surrogateescape").rstrip("\n")
        listed = _git(folder, "ls-tree", "-r", "-z", "--full-tree", commit, "--", prefix or ".")
        blobs = {}
        for line in listed.split(b"\0"):
            facts, tab, name = line.partition(b"\t")
            mode, _, rest = facts.partition(b" ")
            if tab and mode in {b"100644", b"100755"}:
                path = os.fsdecode(name)
                blobs[path.removeprefix(prefix)] = rest.split(b" ")[1].decode("ascii")
        return cls(folder, ref, commit, blobs, "sha256" if len(commit) == 64 else "sha1", limit)

    def same(self, path: str, data: bytes) -> bool:
        """Whether the commit holds exactly these bytes at a path."""
        digest = hashlib.new(self.algorithm, b"blob %d\0" % len(data), usedforsecurity=False)
        digest.update(data)
        return self.blobs.get(path) == digest.hexdigest()

    def fetch(self, paths: list[str]) -> None:
        """Read several blobs at once, so that `read` of each costs nothing."""
        wanted = list(dict.fromkeys(self.blobs[p] for p in paths if p in self.blobs))
        wanted = [name for name in wanted if name not in self._read]
        if not wanted:
            return
        answer = _git(self.folder, "cat-file", "--batch", stdin="".join(f"{w}\n" for w in wanted).encode())
        start = 0
        for name in wanted:
            end = answer.find(b"\n", start)
            header = answer[start:end].split(b" ")
            if end < 0 or len(header) != 3 or not header[2].isdigit():
                raise input_error("plan.git_no_object", object=name, ref=self.ref)
            size = int(header[2])
            if size > self.limit:
                raise input_error("catalog.too_large", path=name, size=size, limit=self.limit)
            self._read[name] = answer[end + 1 : end + 1 + size]
            start = end + size + 2

    def sizes(self, paths: list[str]) -> dict[str, int]:
        """Bytes of each of the paths that the commit holds, without reading them."""
        wanted = [path for path in paths if path in self.blobs]
        if not wanted:
            return {}
        asked = "".join(f"{self.blobs[path]}\n" for path in wanted).encode()
        answer = _git(self.folder, "cat-file", "--batch-check=%(objectsize)", stdin=asked).split(b"\n")
        found = {}
        for path, line in zip(wanted, answer, strict=False):
            if not line.isdigit():
                raise input_error("plan.git_no_object", object=self.blobs[path], ref=self.ref)
            found[path] = int(line)
        return found

    def read(self, path: str) -> bytes | None:
        """A file's bytes at the commit; None when it is not there."""
        if path not in self.blobs:
            return None
        self.fetch([path])
        return self._read[self.blobs[path]]


def _resolve(folder: Path, ref: str) -> str:
    if ref.startswith("-") or "\0" in ref or not ref:
        raise input_error("plan.git_bad_ref", ref=ref)
    try:
        found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except ServemarkError as error:
        if error.key != "plan.git_failed" or error.values.get("reason"):
            raise
        shallow = _git(folder, "rev-parse", "--is-shallow-repository").strip() == b"true"
        key = "plan.git_shallow" if shallow else "plan.git_no_ref"
        raise input_error(key, ref=ref, folder=str(folder)) from None
    return found.decode("ascii").strip()


def top_of(folder: Path) -> Path:
    """The folder that a repository's working tree begins at. ServemarkError (exit 2) where there is none."""
    found = _git(folder, "rev-parse", "--show-toplevel").decode("utf-8", "surrogateescape")
    return Path(found.removesuffix("\n"))


def changed_paths(folder: Path, one: str, other: str, *, below: bool = False) -> list[str]:
    """Paths, from the repository's top, of everything that differs between two commits: links, modes and submodules
    too; a renamed file is two. `below`: of what lies below the folder alone, relative to it."""
    first, second = _resolve(folder, one), _resolve(folder, other)
    listed = _git(
        folder,
        "diff-tree",
        "-r",
        "-z",
        "--name-only",
        "--no-renames",
        "--relative" if below else "--no-relative",
        first,
        second,
    )
    return sorted(os.fsdecode(name) for name in listed.split(b"\0") if name)


def uncommitted(folder: Path, commit: str) -> int:
    """Files below a folder that are changed or new and not committed; 0 where `commit` is not what is checked out."""
    if _resolve(folder, "HEAD") != commit:
        return 0
    said = _git(folder, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", ".")
    return sum(1 for line in said.split(b"\0") if line)


def merge_base(folder: Path, one: str, other: str) -> str:
    """The commit that two references both grew from. ServemarkError (exit 2) when a reference is none, or they share
    no history."""
    first, second = _resolve(folder, one), _resolve(folder, other)
    try:
        found = _git(folder, "merge-base", first, second)
    except ServemarkError as error:
        if error.key != "plan.git_failed" or error.values.get("reason"):
            raise
        raise input_error("plan.git_no_base", one=one, other=other, folder=str(folder)) from None
    return found.decode("ascii").split()[0]


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
            env=inherited | _QUIET,
        )
    except FileNotFoundError:
        raise input_error("plan.no_git") from None
    except subprocess.TimeoutExpired:
        raise input_error("plan.git_slow", seconds=int(TIMEOUT_S), folder=str(folder)) from None
    if done.returncode:
        reason = " ".join(done.stderr.decode("utf-8", "replace").split())
        if "not a git repository" in reason:
            raise input_error("plan.no_repository", folder=str(folder))
        if "dubious ownership" in reason:
            raise input_error("plan.git_ownership", folder=str(folder))
        raise input_error("plan.git_failed", folder=str(folder), reason=reason[:500])
    return done.stdout
