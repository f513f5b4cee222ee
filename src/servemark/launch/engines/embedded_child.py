"""The embedded engine's process: llama.cpp's own HTTP server in this interpreter, run as a script.

`python -P embedded_child.py CONFIG`, CONFIG a JSON object: `set` maps dotted parameters to values (a member
of an enumeration is `{"enum": name, "member": name}`, a list of them `{"enum": name, "members": [...]}`, a set
of texts `{"texts": [...]}`), `make_folder` is a folder to make first, or null.
It imports xllamacpp and the standard library only. SIGTERM and SIGINT keep
the kernel's default action, so that they end it at once, whatever it computes. When its stdin is a pipe and
reaches its end, whoever started it is gone and it ends too.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

REPORT_TAG = "servemark="
"""Prefix of the model tag in which the server reports what it runs; read back through /v1/models."""


def _end_with_stdin() -> None:
    """Block until stdin ends, then end the process without a word to anybody: there is nobody."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def _apply(params: Any, module: Any, settings: dict[str, Any]) -> None:  # noqa: ANN401 - a C extension's objects
    """Set each dotted parameter; an unknown one ends the process with a line in the log."""
    for path, raw in settings.items():
        *parents, name = path.split(".")
        target = params
        for parent in parents:
            target = getattr(target, parent)
        value = raw
        if isinstance(raw, dict):
            value = set(raw["texts"]) if "texts" in raw else _members(module, raw)
        if not hasattr(target, name):
            sys.exit(f"error: this xllamacpp has no parameter {path}")
        setattr(target, name, value)


def _members(module: Any, raw: dict[str, Any]) -> Any:  # noqa: ANN401 - a C extension module
    """The named member of an enumeration, or a list of them."""
    kind = getattr(module, raw["enum"])
    return (
        [getattr(kind, name) for name in raw["members"]] if "members" in raw else getattr(kind, raw["member"])
    )


def _report(module: Any) -> str:  # noqa: ANN401 - a C extension module
    """What runs here, as one compact JSON text."""
    devices = [str(device.get("description", device.get("name"))) for device in module.get_device_info()]
    return json.dumps(
        {
            "package": module.__version__,
            "build": module.BUILD_INFO,
            "system_info": module.get_system_info().strip(" |"),
            "devices": devices,
            "python": platform.python_version(),
        },
        separators=(",", ":"),
        default=str,
    )


def _let_log_drain() -> None:
    """Wait until the log has been still for 0.3 s, at most 3 s.

    llama.cpp writes its log from a thread of its own; an exit right after a failure would lose the lines
    that say why, which a busy machine shows now and then.
    """
    size, still = -1, 0
    for _ in range(60):
        now = os.fstat(2).st_size
        still = still + 1 if now == size else 0
        if still == 6:
            return
        size = now
        time.sleep(0.05)


def main() -> None:
    """Serve until killed."""
    config = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    import xllamacpp  # noqa: PLC0415 - after the watch on stdin

    params = xllamacpp.CommonParams()
    _apply(params, xllamacpp, config["set"])
    params.model_tags = {REPORT_TAG + _report(xllamacpp)}
    if config.get("make_folder"):
        Path(config["make_folder"]).mkdir(parents=True, exist_ok=True)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        _let_log_drain()
        sys.exit(f"error: {error}")
    print("servemark: serving on", server.listening_address, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
