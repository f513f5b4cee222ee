"""The server under the application: its socket, its limits against slow and many clients, and its quick end."""

from __future__ import annotations

import errno
import gc
import socket
import sys
from dataclasses import dataclass

import uvicorn

from servemark.base.errors import Layer, ServemarkError
from servemark.web.app import App
from servemark.web.http_protocol import GuardedProtocol

GRACE_S = 1
KEEP_ALIVE_S = 20
BACKLOG = 512
SWITCH_S = 0.001
"""How long a thread that makes an answer may keep those waiting that are finished."""

GC_THRESHOLDS = (20_000, 20, 50)
"""Answers leave hardly any cycles behind; a search for them through all points that are kept takes longer than an answer."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 lets the system choose."""

    host: str
    port: int

    def url(self, port: int) -> str:
        """For a browser on this machine."""
        name = "127.0.0.1" if self.host == "0.0.0.0" else "::1" if self.host == "::" else self.host  # noqa: S104
        return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


def listen(address: Address) -> socket.socket:
    """A listening socket. Raises ServemarkError (layer input): the port is taken, forbidden, or the host is none of this
    machine's."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise _refused("serve.bad_host", address, error) from error
    family, kind, protocol, _, where = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        keys = {errno.EADDRINUSE: "serve.port_taken", errno.EACCES: "serve.port_forbidden"}
        raise _refused(keys.get(error.errno or 0, "serve.bad_host"), address, error) from error
    return sock


def _refused(key: str, address: Address, error: Exception) -> ServemarkError:
    reason = getattr(error, "strerror", None) or str(error)
    return ServemarkError(key, Layer.INPUT, exit_code=2, host=address.host, port=address.port, reason=reason)


def settings(app: App) -> uvicorn.Config:
    """How uvicorn serves the application. A proxy on this machine is believed about who asked it."""
    return uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        proxy_headers=True,
        forwarded_allow_ips="127.0.0.1,::1",
        lifespan="on",
    )


def run_server(app: App, sock: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; requests under way get `GRACE_S` seconds."""
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    uvicorn.Server(settings(app)).run(sockets=[sock])
