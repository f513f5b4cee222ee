"""Why an engine ended: the first lines of its log that matter, known signatures, and what the kernel says.

A log is untrusted text: it is read within bounds and control characters never reach a terminal.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from pathlib import Path

from servemark.launch.process import ExitStatus
from servemark.launch.secret_env import redact

MAX_LINES = 4
MAX_LINE_CHARS = 240

_LOG_ERROR = re.compile(
    r"(?i)\b(errors?|fatal|exception|failed|failure|abort(ed)?|panic|cannot|can't|could ?n[o']t|unable to|"
    r"no such file|not found|denied|invalid|illegal|out of memory|killed)\b|^\S+ E |[A-Za-z]+Error\b"
)
_TRACEBACK = re.compile(r"^\s*Traceback \(most recent call last\)")

SIGNATURES: tuple[tuple[str, str], ...] = (
    (
        "port_in_use",
        r"(?i)address already in use|EADDRINUSE|could ?n[o']t bind|failed to bind|bind\(\) failed",
    ),
    ("no_package", r"ModuleNotFoundError: No module named|ImportError: cannot import name"),
    ("old_system", r"version `(GLIBC|GLIBCXX|CXXABI)[^']*' not found"),
    ("illegal_instruction", r"(?i)illegal instruction"),
    (
        "huge_pages",
        r"(?i)(hugetlb|hugepages?)\b.*(fail|not enough|insufficient|cannot|unable|errno)|MAP_HUGETLB|"
        r"mmap failed, size=\d+, errno=12",
    ),
    ("registration", r"(?i)fi_mr_reg|ibv_reg_mr|failed to register (local )?memory|register_?memory.*fail"),
    (
        "memory",
        r"(?i)std::bad_alloc|\bMemoryError\b|out of memory|failed to allocate|unable to allocate|"
        r"cannot allocate memory|failed to create context|OutOfMemoryError",
    ),
    ("disk_full", r"(?i)no space left on device|ENOSPC|disk quota exceeded"),
    (
        "nccl",
        r"(?i)NCCL (error|WARN)|ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError",
    ),
    (
        "registry",
        r"(?i)failed to import docker image|toomanyrequests|manifest unknown|pull access denied|"
        r"could not resolve host",
    ),
    (
        "bad_argument",
        r"(?i)unrecogni[sz]ed arguments?|unknown command line flag|no such option|invalid choice|unknown argument",
    ),
    (
        "model",
        r"(?i)failed to load model|error loading model|failed to read magic|invalid gguf|model is corrupted|"
        r"gguf_init_from|unknown model architecture",
    ),
    ("missing_file", r"(?i)no such file or directory|FileNotFoundError"),
)
"""Kind -> what a log shows. The first kind in this order wins: a port in use also says "failed"."""


def known_signature(log: str) -> str | None:
    """The kind of a failure that a log shows, None when it shows none of the known ones."""
    for kind, pattern in SIGNATURES:
        if re.search(pattern, log):
            return kind
    return None


def signal_kind(status: ExitStatus, *, oom_kills: int | None) -> str | None:
    """What a fatal signal means. `oom_kills`: how far the kernel's counter rose while the engine lived.

    The counter is the host's: a rise is strong but not certain evidence, which the message says.
    """
    if status.signal == signal.SIGKILL:
        return "oom_killed" if oom_kills else "killed"
    if status.signal == signal.SIGILL:
        return "illegal_instruction"
    if status.signal in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE):
        return "crashed"
    return None


def oom_kill_count() -> int | None:
    """Processes that the kernel's OOM killer has killed since boot, memory groups included; None where
    unknown."""
    try:
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError):
        return None
    return None


def printable(line: str, limit: int = MAX_LINE_CHARS) -> str:
    """One log line for people: tabs to spaces, other control characters dropped, cut to `limit`
    characters."""
    text = "".join(char for char in redact(line).replace("\t", " ") if char.isprintable()).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def relevant_lines(log: str) -> list[str]:
    """The first lines that speak of an error (of a Python traceback its last line); else the last lines at
    all."""
    found: list[str] = []
    for line in _without_tracebacks(log.splitlines()):
        if _LOG_ERROR.search(line) and (shown := printable(line)) and shown not in found:
            found.append(shown)
            if len(found) == MAX_LINES:
                return found
    if found:
        return found
    return [shown for line in log.splitlines()[-20:] if (shown := printable(line))][-MAX_LINES:]


def _without_tracebacks(lines: Iterable[str]) -> Iterable[str]:
    """Lines of a log in order, of each Python traceback only the line that names the exception."""
    inside = False
    for line in lines:
        if _TRACEBACK.match(line):
            inside = True
        elif not inside or (line and not line[0].isspace()):
            # What follows the indented frames names the exception.
            inside = False
            yield line
