"""A NIXL READ of GPU memory between two processes: one descriptor, and 1,024 of 56 KiB, as KV blocks are moved.

56 KiB is one layer's block of 16 tokens of a common dense model: many such descriptors, not the link, bound a transfer.
"""

from __future__ import annotations

import importlib
import pickle
import time
from typing import Any

from servemark.preflight.facts import KIB
from servemark.preflight.gpu.copy_child import publish, wait_for
from servemark.preflight.gpu.lines import Writer
from servemark.preflight.gpu.work import UnmeasuredError, Work

NEEDS = {"nixl": {"torch": "no_torch", "nixl._api": "no_nixl"}}
DESCRIPTORS = 1024
DESCRIPTOR_BYTES = 56 * KIB
RUNS = 5


def nixl(work: Work, out: Writer) -> None:
    """Rank 0 owns the data, rank 1 reads it; the same GPU twice where there is only one."""
    torch: Any = importlib.import_module("torch")
    api: Any = importlib.import_module("nixl._api")
    if torch.version.cuda is None:
        raise UnmeasuredError("cpu_torch", str(torch.__version__))
    ordinal = work.rank if len(work.gpus) > 1 else 0
    torch.cuda.set_device(ordinal)
    size = DESCRIPTORS * DESCRIPTOR_BYTES
    wanted = (torch.arange(size, device="cuda") % 251).to(torch.uint8)
    data = wanted.clone() if work.rank == 0 else torch.zeros_like(wanted)
    torch.cuda.synchronize()
    agent = api.nixl_agent(f"servemark-{work.rank}", api.nixl_agent_config(backends=["UCX"]))
    agent.register_memory([data])
    meta, finished = work.folder / "owner", work.folder / "finished"
    if work.rank == 0:
        publish(meta, pickle.dumps((agent.get_agent_metadata(), data.data_ptr(), ordinal)))
        wait_for(finished, work.limit_s)
        return
    # Our own sibling wrote it, into a folder that only this user may enter.
    raw, remote, device = pickle.loads(wait_for(meta, work.limit_s))  # noqa: S301
    name = agent.add_remote_agent(raw)
    for pieces in (1, DESCRIPTORS):
        part = size // pieces
        own, far = (
            agent.get_xfer_descs([(base + n * part, part, place) for n in range(pieces)], "VRAM")
            for base, place in ((data.data_ptr(), ordinal), (remote, device))
        )
        data.zero_()
        torch.cuda.synchronize()
        times = [_read(agent, own, far, name, work.limit_s) for _ in range(RUNS)]
        torch.cuda.synchronize()
        detail: dict[str, object] = {"bytes": size, "descriptors": pieces, "first_s": times[0]}
        out.figure(f"nixl_{pieces}_bytes_per_s", size / min(times), detail=detail)
        if not torch.equal(data, wanted):
            out.trouble("data", f"{pieces} descriptors", outcome="wrong")
    publish(finished, b"")


def _read(agent: Any, own: Any, far: Any, name: object, limit_s: float) -> float:  # noqa: ANN401
    """Seconds of one transfer."""
    handle = agent.initialize_xfer("READ", own, far, name, b"servemark")
    begun = time.perf_counter()
    state = agent.transfer(handle)
    while state == "PROC" and time.perf_counter() - begun < limit_s:
        state = agent.check_xfer_state(handle)
    taken = time.perf_counter() - begun
    agent.release_xfer_handle(handle)
    if state != "DONE":
        raise UnmeasuredError("hang" if state == "PROC" else "error", f"transfer state {state}")
    return taken
