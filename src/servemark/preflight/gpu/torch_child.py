"""Matrix products and collectives through torch: the rate that an engine's own products can reach.

Products are of random data, as zeros draw less power and run faster. NVLink multicast stays off (`jobs.ENVIRONMENT`).
With the option `device: cpu` the same code runs on the CPU and with gloo, for a check of the code itself.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from servemark.preflight.facts import MIB
from servemark.preflight.gpu.lines import Writer
from servemark.preflight.gpu.work import UnmeasuredError, Work

NEEDS = {name: {"torch": "no_torch"} for name in ("bf16", "fp8")} | {
    "nccl": {"torch": "no_torch", "torch.distributed": "no_torch"}
}
SIDE = 8192
"""Rows and columns of the square matrices."""
BATCH = 20
BATCHES = 5
SUSTAINED_SECONDS = 1.5
CORNER = 16
FP8_CAPABILITY = (8, 9)
REDUCE_BYTES = 256 * MIB
EXCHANGE_BYTES = 128 * MIB
SMALL_CALLS = 100


def _torch(work: Work) -> tuple[Any, Any]:
    """The library and the device; UnmeasuredError when this torch cannot use the GPU."""
    torch: Any = importlib.import_module("torch")
    if work.options.get("device") == "cpu":
        return torch, torch.device("cpu")
    if torch.version.cuda is None:
        raise UnmeasuredError("cpu_torch", str(torch.__version__))
    torch.cuda.init()
    return torch, torch.device("cuda", 0)


def _waiting(torch: Any, device: Any) -> Callable[[], None]:  # noqa: ANN401 - the library is loaded at run time
    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return wait


def bf16(work: Work, out: Writer) -> None:
    """Rate of a bf16 product: short batches, then for a while, as a GPU that is too hot slows down only then."""
    torch, device = _torch(work)
    side = int(str(work.options.get("side", SIDE)))
    left = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    right = torch.randn(side, side, device=device, dtype=torch.bfloat16)

    def product() -> Any:  # noqa: ANN401
        return left @ right

    wait = _waiting(torch, device)
    first = product()
    rates = _rates(product, wait, side, BATCHES)
    out.figure("bf16_flop_per_s", statistics.median(rates), detail=_spread(side, rates))
    end = time.monotonic() + float(str(work.options.get("sustained_s", SUSTAINED_SECONDS)))
    held: list[float] = []
    while time.monotonic() < end or not held:
        held += _rates(product, wait, side, 1)
    tail = held[len(held) // 2 :]
    out.figure("bf16_sustained_flop_per_s", statistics.median(tail), detail=_spread(side, held))
    _same(torch, out, first, product())
    _corner(out, first, left, right, 0.05)


def _rates(product: Callable[[], Any], wait: Callable[[], None], side: int, batches: int) -> list[float]:
    """FLOP/s of each batch of products; a product of n x n matrices is 2 n^3 operations."""
    found = []
    wait()
    for _ in range(batches):
        begun = time.perf_counter()
        for _ in range(BATCH):
            product()
        wait()
        found.append(BATCH * 2 * side**3 / (time.perf_counter() - begun))
    return found


def _spread(side: int, rates: list[float]) -> dict[str, object]:
    return {"side": side, "batches": len(rates), "slowest": min(rates), "fastest": max(rates)}


def _same(torch: Any, out: Writer, first: Any, last: Any) -> None:  # noqa: ANN401
    """The same product twice must be equal bit for bit."""
    if not torch.equal(first, last):
        out.trouble("product", "two equal products differ", outcome="wrong")


def _corner(out: Writer, found: Any, left: Any, right: Any, share: float) -> None:  # noqa: ANN401
    """A corner against a product in double precision on the CPU.

    Sums of n terms of variance 1 have the size sqrt(n), of which `share` is tolerated: the result is rounded to bf16
    (2^-8 of a value of up to some sqrt(n)), and fp8 sums are kept in about 14 bits on some GPUs.
    """
    wanted = left[:CORNER].cpu().double() @ right[:, :CORNER].cpu().double()
    off = (found[:CORNER, :CORNER].cpu().double() - wanted).abs().max().item()
    if not off <= share * left.shape[1] ** 0.5:
        out.trouble("product", f"off by {off:.3g}", outcome="wrong")


def fp8(work: Work, out: Writer) -> None:
    """Rate of an fp8 (e4m3) product with scales, bf16 result."""
    torch, device = _torch(work)
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        raise UnmeasuredError("no_fp8")
    side = int(str(work.options.get("side", SIDE)))
    kind = torch.float8_e4m3fn
    left = torch.randn(side, side, device=device, dtype=torch.bfloat16).to(kind)
    right = torch.randn(side, side, device=device, dtype=torch.bfloat16).to(kind).t()
    one = torch.ones((), device=device, dtype=torch.float32)
    fast = {"use_fast_accum": True} if device.type == "cuda" else {}

    def product() -> Any:  # noqa: ANN401
        return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, **fast)

    wait = _waiting(torch, device)
    first = product()
    rates = _rates(product, wait, side, BATCHES)
    out.figure("fp8_flop_per_s", statistics.median(rates), detail=_spread(side, rates))
    _same(torch, out, first, product())
    _corner(out, first, left.to(torch.float32), right.to(torch.float32), 0.25)


def nccl(work: Work, out: Writer) -> None:
    """All-reduce over all GPUs, and every pair in both directions at once; one process a GPU."""
    torch, device = _torch(work)
    dist: Any = importlib.import_module("torch.distributed")
    on_gpu = device.type == "cuda"
    options: dict[str, Any] = {}
    if on_gpu:
        device = torch.device("cuda", work.rank)
        torch.cuda.set_device(device)
        options["device_id"] = device
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{work.folder / 'ranks'}",
        rank=work.rank,
        world_size=work.ranks,
        timeout=timedelta(seconds=work.limit_s),
        **options,
    )
    ranks = _Ranks(torch, dist, device, _waiting(torch, device), work)
    _all_reduce(ranks, out)
    _exchange(ranks, out)
    dist.barrier()


@dataclass(frozen=True, slots=True)
class _Ranks:
    """What every rank has."""

    torch: Any
    dist: Any
    device: Any
    wait: Callable[[], None]
    work: Work

    def timed(self, work: Callable[[], object], times: int, warm: int) -> float:
        """Seconds a call."""
        for _ in range(warm):
            work()
        self.wait()
        begun = time.perf_counter()
        for _ in range(times):
            work()
        self.wait()
        return (time.perf_counter() - begun) / times


def _all_reduce(all_: _Ranks, out: Writer) -> None:
    """Bus bandwidth: 2 (n-1)/n of the buffer's bytes a call, as nccl-tests counts it."""
    torch, dist, device, ranks = all_.torch, all_.dist, all_.device, all_.work.ranks
    size = int(str(all_.work.options.get("bytes", REDUCE_BYTES)))
    check = torch.full((1024,), float(all_.work.rank + 1), device=device)
    dist.all_reduce(check)
    if not bool((check == ranks * (ranks + 1) / 2).all()):
        out.trouble("data", "all_reduce gave another sum", outcome="wrong")
    data = torch.zeros(size // 2, dtype=torch.bfloat16, device=device)
    taken = all_.timed(lambda: dist.all_reduce(data), 10, 3)
    small = torch.zeros(2, dtype=torch.float32, device=device)
    delay = all_.timed(lambda: dist.all_reduce(small), SMALL_CALLS, 10)
    slowest = torch.tensor([taken, delay], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if all_.work.rank == 0:
        longest, latest = slowest.tolist()
        rate = 2 * (ranks - 1) / ranks * size / longest
        out.figure("nccl_all_reduce_bus_bytes_per_s", rate, detail={"bytes": size})
        out.figure("nccl_all_reduce_latency_s", latest, detail={"bytes": 8})


def _exchange(all_: _Ranks, out: Writer) -> None:
    """Each rank sends to the one `shift` further and receives from the one before, for every shift."""
    torch, dist, work = all_.torch, all_.dist, all_.work
    size = int(str(work.options.get("bytes", EXCHANGE_BYTES)))
    mine = torch.full((size,), work.rank, dtype=torch.uint8, device=all_.device)
    theirs = torch.empty_like(mine)
    for shift in range(1, work.ranks):
        to, source = (work.rank + shift) % work.ranks, (work.rank - shift) % work.ranks

        def once(to: int = to, source: int = source) -> None:
            pair = [dist.P2POp(dist.isend, mine, to), dist.P2POp(dist.irecv, theirs, source)]
            for one in dist.batch_isend_irecv(pair):
                one.wait()

        taken = all_.timed(once, 5, 2)
        gpus = [work.gpus[source], work.gpus[work.rank]]
        out.figure("nccl_exchange_bytes_per_s", size / taken, gpus, {"bytes": size})
        if not bool((theirs == source).all()):
            out.trouble("data", f"from rank {source}", gpus, "wrong")
