"""One probe in a process of its own: `python -m servemark.preflight.gpu.child PROBE`.

It loads what it needs, says so, waits for its job as one JSON line on stdin, and writes lines (`lines.Writer`) as
figures come. It ends with its parent. Whatever a library prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from servemark.preflight.gpu.driver import CudaError, NoCudaError
from servemark.preflight.gpu.lines import Writer
from servemark.preflight.gpu.work import UnmeasuredError, Work

PR_SET_PDEATHSIG = 1
HOME = "servemark.preflight.gpu"
MODULES = {
    "nvml": "nvml_child",
    "watch": "nvml_child",
    "cuda": "copy_child",
    "memory": "copy_child",
    "host_copy": "copy_child",
    "peer": "copy_child",
    "ipc": "copy_child",
    "pin": "pin_child",
    "bf16": "torch_child",
    "fp8": "torch_child",
    "nccl": "torch_child",
    "nixl": "nixl_child",
}
"""Probe -> module; in it a function of the probe's name does the work and `NEEDS[probe]` names libraries to load."""


Probe = Callable[[Work, Writer], None]


def main(arguments: list[str]) -> int:
    """Load, wait, measure. Exit code 0 whatever was found; what went wrong is a line."""
    probe = arguments[0]
    end_with_parent(signal.SIGTERM if probe == "pin" else signal.SIGKILL)
    out = Writer()
    try:
        module = importlib.import_module(f"{HOME}.{MODULES[probe]}")
        for name, reason in module.NEEDS.get(probe, {}).items():
            _load(name, reason)
        out.ready()
        work = _work(json.loads(sys.stdin.readline() or "{}"))
        out.gpus = list(work.gpus)
        run: Probe = getattr(module, probe)
        run(work, out)
    except UnmeasuredError as refusal:
        out.trouble(refusal.reason, refusal.detail)
    except NoCudaError as error:
        out.trouble("no_cuda", str(error))
    except CudaError as error:
        out.trouble("cuda_error", str(error))
    except Exception as error:
        out.trouble("error", f"{type(error).__name__}: {error}")
    out.done()
    sys.stderr.flush()
    os._exit(0)  # a library's own clean-up may hang, and there is nothing left to keep


def _load(name: str, reason: str) -> None:
    try:
        importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise UnmeasuredError(reason, str(error)) from None


def _work(job: Mapping[str, object]) -> Work:
    """What our own parent wrote."""
    gpus, cpus, options = job.get("gpus"), job.get("cpus"), job.get("options")
    if isinstance(cpus, list) and cpus:
        with contextlib.suppress(OSError):  # a container may not have the CPUs beside its GPU
            os.sched_setaffinity(0, [int(cpu) for cpu in cpus])
    return Work(
        gpus=tuple(int(one) for one in gpus) if isinstance(gpus, list) else (),
        rank=int(str(job.get("rank", 0))),
        ranks=int(str(job.get("ranks", 1))),
        folder=Path(str(job.get("folder", "."))),
        limit_s=float(str(job.get("limit_s", 10))),
        options=options if isinstance(options, dict) else {},
    )


def end_with_parent(number: int) -> None:
    """Have the kernel send a signal to this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
