"""Really allocate memory in the four ways a store may get it, time it, and read the kernel's counters around it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from servemark.preflight.allocation import METHODS, Method
from servemark.preflight.estimate import Estimate, estimate, held_out
from servemark.preflight.facts import GIB, PAGE_2M, HostFacts
from servemark.preflight.finding import Finding, Saying, Verdict, count, say, seconds, size
from servemark.preflight.memory_child import POOL
from servemark.preflight.needs import Needs
from servemark.preflight.root import integer
from servemark.preflight.sizes import allowed, steps

ROUNDS = 2
ORDERS = ((0, 1, 3, 2), (1, 2, 0, 3), (2, 3, 1, 0), (3, 0, 2, 1))
"""Orders of the four ways: each follows each other one once (a Williams square), because what an allocation finds
depends on who freed memory before it: in one fixed order the same call differed by a factor of five."""
CHILD_SECONDS = 300.0
COVERED = 0.95
UNSTEADY = 3.0
"""From this ratio of the slowest to the fastest run on, they are called unlike."""
FAR = 8.0
"""From this many times the largest measured size on, an extrapolation is called far."""


@dataclass(frozen=True, slots=True)
class Run:
    """One allocation. `refused`: why there was none; times are None then."""

    method: Method
    bytes: int
    reserve_s: float | None
    """What growing the pool took; None where nothing had to be reserved."""
    populate_s: float | None
    free_s: float | None
    huge_bytes: int | None
    kernel_page_bytes: int | None
    nodes: dict[str, int]
    counters: dict[str, int]
    pool_before: int | None
    pool_after: int | None
    refused: str | None

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def memory_findings(
    facts: HostFacts, needs: Needs | None, asked: str, progress: Callable[[str], None]
) -> list[Finding]:
    """A finding for each way. ServemarkError (exit 2) when the size is no size or more than is safe here."""
    sizes = steps(asked, facts)
    nodes = tuple(node.number for node in facts.memory.nodes if node.total_bytes)
    most = allowed(facts)[0]
    runs: dict[Method, list[Run]] = {method: [] for method in METHODS}
    for turn, length in enumerate(sizes * ROUNDS):
        for place in ORDERS[turn % len(ORDERS)]:
            method = METHODS[place]
            if runs[method] and runs[method][-1].refused is not None:
                continue
            progress(f"{method} {size(length)}")
            runs[method].append(run_child(method, min(length, most), nodes))
    return [_finding(method, runs[method], needs) for method in METHODS]


def run_child(method: Method, length: int, nodes: tuple[int, ...], limit_s: float = CHILD_SECONDS) -> Run:
    """One allocation in a process of its own. Never raises for what happens to that process."""
    before = _pool() if method == "hugetlb" else None
    job = json.dumps({"method": method, "bytes": length, "nodes": nodes}) + "\n"
    command = [sys.executable, "-P", "-m", "servemark.preflight.memory_child"]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        output, _ = child.communicate(job, timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(child)
        return _refused(method, length, f"more than {limit_s:g} s", before)
    except BaseException:  # Ctrl-C: the child is told to end, and gives everything back before we go on
        _end(child)
        raise
    if child.returncode < 0:
        _give_back(before, length // PAGE_2M)
    if child.returncode != 0:
        reason = f"signal {-child.returncode}" if child.returncode < 0 else f"exit {child.returncode}"
        return _refused(method, length, reason, before)
    return _run(json.loads(output))


def _end(child: subprocess.Popen[str]) -> None:
    """Told to end, and waited for. A second `communicate` leaves the pipe open that the first had not yet written to."""
    child.terminate()
    child.communicate()
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()


def _give_back(before: int | None, pages: int) -> None:
    """A child that was killed could not shrink the pool again: at most what it can have added is taken out."""
    now = _pool() if before is not None else None
    if before is not None and now is not None and now > before:
        (POOL / "nr_hugepages").write_text(str(max(before, now - pages)), encoding="ascii")


def _pool() -> int | None:
    try:
        return integer((POOL / "nr_hugepages").read_text(encoding="ascii"))
    except OSError:
        return None


def _refused(method: Method, length: int, reason: str, before: int | None) -> Run:
    after = _pool() if before is not None else None
    return Run(method, length, None, None, None, None, None, {}, {}, before, after, reason)


def _run(answer: dict[str, Any]) -> Run:
    """What our own child wrote."""
    smaps = answer.get("smaps", {})
    method: Method = answer["method"]
    return Run(
        method=method,
        bytes=answer["bytes"],
        reserve_s=answer.get("reserve_s"),
        populate_s=answer.get("populate_s"),
        free_s=answer.get("free_s"),
        huge_bytes=smaps.get("Private_Hugetlb" if method == "hugetlb" else "AnonHugePages"),
        kernel_page_bytes=smaps.get("KernelPageSize"),
        nodes=answer.get("nodes", {}),
        counters=answer.get("counters", {}),
        pool_before=answer.get("pool_before"),
        pool_after=answer.get("pool_after"),
        refused=answer.get("refused"),
    )


def _finding(method: Method, runs: list[Run], needs: Needs | None) -> Finding:
    name = say(f"preflight.probe_memory.method.{method.replace('-', '_')}")
    done = [run for run in runs if run.populate_s is not None]
    store = needs.store if needs is not None else None
    plain: dict[str, object] = {"method": method, "runs": [run.plain() for run in runs]}
    refused = next((run.refused for run in runs if run.refused is not None), None)
    if refused is not None:
        wanted = store is not None and store.huge == "hugetlb" and method == "hugetlb"
        found = say("preflight.probe_memory.refused", method=name, size=size(runs[-1].bytes), reason=refused)
        key = "not_root" if refused == "not root" else "short" if method == "hugetlb" else "killed"
        verdict: Verdict = "fail" if wanted and refused != "not root" else "unknown"
        return Finding(
            "probe_memory", verdict, found, None, (say(f"preflight.probe_memory.{key}"),), (), plain
        )
    timed = [(run.bytes, run.populate_s) for run in done if run.populate_s is not None]
    rates = [taken / length * GIB for length, taken in timed]
    covered = [(run.huge_bytes or 0) / run.bytes for run in done]
    fallbacks = sum(run.counters.get("thp_fault_fallback", 0) for run in done)
    stalls = sum(run.counters.get("compact_stall", 0) for run in done)
    plain |= {
        "seconds_per_gib": sorted(rates)[len(rates) // 2],
        "fastest_s_per_gib": min(rates),
        "huge_share": min(covered),
        "fallbacks": fallbacks,
    }
    found = say(
        "preflight.probe_memory.found",
        method=name,
        sizes=", ".join(size(length) for length in sorted({run.bytes for run in done})),
        low=f"{min(rates):.3g}",
        high=f"{max(rates):.3g}",
        covered=f"{min(covered):.0%}",
        fallbacks=count(fallbacks),
        stalls=count(stalls),
    )
    guess = estimate(timed, store.rank_bytes) if store is not None else None
    plain["estimate"] = _estimate_plain(guess)
    error = held_out(timed)
    plain["held_out_error"] = error
    why = _why(method, done, error, guess)
    small = method in {"thp", "thp-interleave"} and min(covered) < COVERED
    if small:
        why.insert(0, say("preflight.probe_memory.small_pages", share=f"{1 - min(covered):.0%}"))
    return Finding("probe_memory", "warn" if small else "none", found, None, tuple(why), (), plain)


def _guessed(guess: Estimate) -> Saying:
    return say(
        "preflight.probe_memory.estimate",
        rank=size(guess.bytes),
        seconds=seconds(guess.seconds),
        low=seconds(guess.low_s),
        high=seconds(guess.high_s),
    )


def _why(method: Method, done: list[Run], error: float | None, guess: Estimate | None) -> list[Saying]:
    why = [_guessed(guess)] if guess is not None else []
    rates = [run.populate_s / run.bytes for run in done if run.populate_s is not None]
    if max(rates) > UNSTEADY * min(rates):
        why.append(say("preflight.probe_memory.unsteady", times=f"{max(rates) / min(rates):.3g}"))
    if guess is not None and guess.times_larger > FAR:
        why.append(say("preflight.probe_memory.far", times=f"{guess.times_larger:,.0f}"))
    if error is not None:
        why.append(say("preflight.probe_memory.held_out", error=f"{round(error * 100) or 0:+d} %"))
    if method == "thp-interleave":
        nodes = sorted({node for run in done for node in run.nodes})
        if len(nodes) < 2:
            why.append(say("preflight.probe_memory.one_node"))
        else:
            total = sum(sum(run.nodes.values()) for run in done) or 1
            shares = (
                f"node{node} {sum(run.nodes.get(node, 0) for run in done) / total:.0%}" for node in nodes
            )
            why.append(say("preflight.probe_memory.placed", shares=", ".join(shares)))
    if method == "hugetlb" and any(run.pool_after is not None for run in done):
        last = done[-1]
        reserving = [run.reserve_s / run.bytes * GIB for run in done if run.reserve_s is not None]
        why.append(
            say(
                "preflight.probe_memory.pool",
                reserve=f"{max(reserving, default=0):.3g}",
                before=count(last.pool_before),
                after=count(last.pool_after),
            )
        )
    return why


def _estimate_plain(guess: Estimate | None) -> dict[str, object] | None:
    if guess is None:
        return None
    return {
        "rank_bytes": guess.bytes,
        "seconds": guess.seconds,
        "low_s": guess.low_s,
        "high_s": guess.high_s,
        "times_larger": guess.times_larger,
    }
