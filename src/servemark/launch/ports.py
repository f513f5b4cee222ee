"""Loopback ports: find a free one, never hand out the same twice, and say who holds one that is taken."""

from __future__ import annotations

import errno
import re
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error

_handed_out: set[int] = set()
_lock = threading.Lock()
_SECRET = re.compile(r"(?i)(key|token|secret|passw|credential)")
_LISTEN = "0A"
"""TCP_LISTEN in /proc/net/tcp."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that listens on a port; `command` is cut to 120 characters and values of secret options
    hidden."""

    pid: int
    command: str


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free on `host` a moment ago and that this process has not handed out before.

    The kernel picks it (bind to 0). Another program may still take it before the engine does: the engine then
    ends with a bind error, which the launcher recognises. Raises ServemarkError (layer launch) when none can
    be had.
    """
    held: list[socket.socket] = []
    try:
        for _ in range(256):
            probe = socket.socket(_family(host), socket.SOCK_STREAM)
            held.append(probe)  # kept open until one is found, so that the kernel offers another each time
            probe.bind((host, 0))
            port = int(probe.getsockname()[1])
            with _lock:
                if port not in _handed_out:
                    _handed_out.add(port)
                    return port
    except OSError as error:
        raise ServemarkError("launch.no_port", Layer.LAUNCH, host=host, reason=str(error.strerror)) from error
    finally:
        for probe in held:
            probe.close()
    raise ServemarkError("launch.no_port", Layer.LAUNCH, host=host, reason="EADDRINUSE")


def require_free(port: int, host: str = "127.0.0.1") -> None:
    """Raise ServemarkError (launch.port_taken) when nobody could listen on this port now.

    A connection of an earlier server that is still in TIME_WAIT does not count, as it does not for the
    engines.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise input_error("launch.port_range", port=repr(port)[:40])
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise _refusal(error, port, host) from error


def _refusal(error: OSError, port: int, host: str) -> ServemarkError:
    if error.errno != errno.EADDRINUSE:
        reason = error.strerror or str(error)
        return ServemarkError("launch.port_refused", Layer.LAUNCH, port=port, host=host, reason=reason)
    holder = port_holder(port)
    if holder is None:
        return ServemarkError("launch.port_taken_unknown", Layer.LAUNCH, port=port, host=host)
    return ServemarkError(
        "launch.port_taken", Layer.LAUNCH, port=port, host=host, pid=holder.pid, command=holder.command
    )


def port_holder(port: int) -> Holder | None:
    """Who listens on TCP `port` on this host; None when /proc does not say (other user's process, not
    Linux)."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not inodes:
        return None
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if any(str(handle.readlink()) in inodes for handle in (entry / "fd").iterdir()):
                return Holder(int(entry.name), command_line(int(entry.name)))
        except OSError:
            continue
    return None


def command_line(pid: int) -> str:
    """A process's command line for people: control characters and values of secret options hidden, 120
    characters."""
    try:
        parts = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return "?"
    shown: list[str] = []
    hide_next = False
    for part in parts:
        name, equals, _ = part.partition("=")
        if hide_next:
            shown.append("***")
        elif equals and _SECRET.search(name):
            shown.append(f"{name}=***")
        else:
            shown.append(part)
        hide_next = part.startswith("-") and not equals and _SECRET.search(name) is not None
    text = "".join(char if char.isprintable() else " " for char in " ".join(shown))
    return text if len(text) <= 120 else text[:119] + "…"


def _listening_inodes(port: int) -> list[int]:
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            # fields: slot, local address:port in hex, remote, state, ..., inode is the tenth
            if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.append(int(fields[9]))
    return found


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
