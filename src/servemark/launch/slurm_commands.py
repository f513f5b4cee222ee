"""Slurm's own command line: asked with a clean environment, a time limit, and patience for a silent controller."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.failure import printable

KEPT_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "SLURM_CONF", "SLURM_CONF_SERVER")
"""What Slurm's commands get of our environment. `sbatch` stores the rest on the controller's disk, and `SBATCH_…` or
`SLURM_…` settings of the shell would change what is asked for."""
_TRANSIENT = re.compile(
    r"(?i)unable to contact slurm controller|socket timed out|zero bytes were transmitted|connection refused|"
    r"slurmctld.*not (responding|respond)|controller.*(not respond|backup)|resource temporarily unavailable|"
    r"communication connection failure|slurm_persist_conn|unable to establish control machine"
)
_PAUSE_S = 0.5
_TIMEOUT_RC = 124
_CANNOT_RC = 126
_LASTING = (errno.E2BIG, errno.EACCES, errno.ENOEXEC)
"""A command line that is too long, a program that may not or cannot run: asked again it is the same."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What one command said. `rc` 124: it did not answer in time; 126: it cannot be started like this."""

    rc: int
    out: str
    err: str

    @property
    def transient(self) -> bool:
        """Whether the controller was out of reach, so that the same question may be answered later."""
        return self.rc != 0 and (self.rc == _TIMEOUT_RC or _TRANSIENT.search(self.err + self.out) is not None)

    @property
    def reason(self) -> str:
        """The first line of the complaint that says something, without the program's name."""
        for line in (self.err + "\n" + self.out).splitlines():
            shown = printable(re.sub(r"^\w+: (error: |fatal: )?", "", line.strip()))
            if shown:
                return shown
        return f"exit {self.rc}"


def clean_env() -> dict[str, str]:
    """The environment that Slurm's commands get."""
    found = {name: os.environ[name] for name in KEPT_ENV if name in os.environ}
    found.setdefault("PATH", os.defpath)
    return found


class SlurmCommands:
    """Runs `sbatch`, `squeue`, `scontrol` and the like. No state beside the version, so threads may share one."""

    def __init__(self, *, timeout_s: float = 30.0, patience_s: float = 60.0) -> None:
        """`timeout_s`: one command; `patience_s`: how long a controller out of reach is asked again."""
        self.timeout_s = timeout_s
        self.patience_s = patience_s
        self._version: tuple[int, int] | None = None

    def once(self, argv: Sequence[str], *, timeout_s: float | None = None) -> Reply:
        """Ask once, for at most `timeout_s` (else the object's own).

        Raises ServemarkError (layer install) where Slurm's commands are not installed.
        """
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            done = subprocess.run(
                list(argv),
                env=clean_env(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise ServemarkError("launch.slurm_missing", Layer.INSTALL, program=argv[0]) from error
        except subprocess.TimeoutExpired:
            return Reply(_TIMEOUT_RC, "", f"{argv[0]}: no answer within {timeout_s:g} s")
        except OSError as error:
            rc = _CANNOT_RC if error.errno in _LASTING else _TIMEOUT_RC
            return Reply(rc, "", f"{argv[0]}: {error.strerror}")
        return Reply(
            done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        )

    def ask(
        self,
        argv: Sequence[str],
        *,
        patience_s: float | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Reply:
        """Ask until the controller answers or patience ends; the last reply either way."""
        deadline = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        while True:
            reply = self.once(argv)
            if not reply.transient or time.monotonic() >= deadline or (cancelled is not None and cancelled()):
                return reply
            time.sleep(_PAUSE_S)

    def version(self) -> tuple[int, int]:
        """(year, month) of the installed Slurm, such as (22, 5); (0, 0) when it does not say."""
        if self._version is None:
            found = re.search(r"(\d+)\.(\d+)", self.once(["sbatch", "--version"]).out)
            self._version = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
        return self._version

    def hostnames(self, hostlist: str) -> tuple[str, ...]:
        """`n[1-3]` -> n1, n2, n3; Slurm expands its own notation (no controller is asked)."""
        if not hostlist or hostlist in ("(null)", "None"):
            return ()
        return tuple(self.once(["scontrol", "show", "hostnames", hostlist]).out.split())
