"""Typing a page's blocks into a shell, and holding what is printed to the shape of what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tests.docs.doc_pages import ROOT, Block

_VALUE = re.compile(r"\d[\d.,:]*|[─│┤●○·█░]+")


def shape(line: str) -> str:
    """A line with its numbers, rules and spaces made alike: what is the same at every run on every machine."""
    return re.sub(r"\s+", " ", _VALUE.sub("#", line)).strip()


def missing_lines(shown: str, printed: str) -> list[str]:
    """Lines of `shown` that do not occur in `printed` in this order; a line's shape may begin a longer one."""
    rest = [shape(line) for line in printed.splitlines()]
    missing = []
    for line in shown.splitlines():
        wanted = shape(line)
        if not wanted.strip("# "):
            continue
        at = next((n for n, each in enumerate(rest) if wanted in each), None)
        if at is None:
            missing.append(line)
        else:
            rest = rest[at + 1 :]
    return missing


@dataclass(slots=True)
class Shell:
    """Types blocks one after another; folder, variables and positional words last from one to the next."""

    folder: Path
    timeout_s: float = 800
    source: Path = ROOT / "src"
    """The program that `servemark` is."""
    lang: str = "C.UTF-8"
    """The locale in which it is typed."""

    def environment(self) -> dict[str, str]:
        """`servemark` is this checkout's, English unless said, no terminal, git without the user's settings."""
        bin_folder = self.folder.parent / "bin"
        bin_folder.mkdir(exist_ok=True)
        file = bin_folder / "servemark"
        if not file.exists():
            file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m servemark "$@"\n')
            file.chmod(0o755)
        names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a",
                 "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": os.devnull}  # fmt: skip
        dropped = {"SERVEMARK_HOME", "LC_ALL", "LANGUAGE", "COLUMNS"}
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        path = f"{bin_folder}:{os.environ['PATH']}"
        return {**kept, **names, "PATH": path, "PYTHONPATH": str(self.source), "LANG": self.lang}

    def type(self, block: Block) -> str:
        """Type one block; what it printed. Fails with the output when a command fails."""
        state = self.folder.parent / "state"
        before = f'[ -e "{state}" ] && . "{state}"\n'
        names = 'declare -p | grep -E "^declare -[-a] [a-z]+=" || true'
        after = f'\n{{ {names}; printf "cd %q\\n" "$PWD"; printf "set --"; printf " %q" "$@"; echo; }} > "{state}"'
        script = f"set -eo pipefail\n{before}{block.body}{after}"
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=self.timeout_s, check=False)  # fmt: skip
        assert done.returncode == 0, f"{block.body}\n{done.stdout}"
        return done.stdout

    def serve(self) -> str:
        """`servemark serve` on a free port without a browser: the page and a front are asked for, then Ctrl-C."""
        asked = ["servemark", "serve", "--port", "0", "--no-open", "--json"]
        server = subprocess.Popen(
            asked, cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            address = re.search(r'"(http://[^"]+)"', server.stdout.readline())
            assert address is not None
            said = ""
            for path in ("", "api/v1/front"):
                with urllib.request.urlopen(address[1] + path, timeout=60) as answer:
                    assert answer.status == 200
                    said += answer.read(200).decode(errors="ignore")  # the cut may halve a letter
        finally:
            server.send_signal(signal.SIGINT)
            deadline = time.monotonic() + 20
            while server.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            server.kill()
            server.communicate()
        assert server.returncode in {0, 130}  # ended by Ctrl-C
        return said
