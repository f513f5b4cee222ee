"""Real allocations and a real store: small, on this host, with the kernel's own counters as the judge."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.preflight import memory_child, probe_store, sizes
from servemark.preflight.allocation import METHODS, Method, node_bytes, smaps_of
from servemark.preflight.estimate import estimate, held_out
from servemark.preflight.facts import GIB, MIB, HostFacts
from servemark.preflight.inspect import Where, inspect_host
from servemark.preflight.memory_child import POOL, NotGrantedError, reserved
from servemark.preflight.needs import StoreNeed
from servemark.preflight.probe_memory import memory_findings, run_child
from servemark.preflight.store_child import MARK

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="allocates as Linux does")
CAN_RESERVE = os.access(POOL / "nr_hugepages", os.W_OK)


@pytest.fixture(scope="module")
def facts() -> HostFacts:
    """This host."""
    return inspect_host(Where())


def quiet(what: str) -> None:
    """No progress."""


def pool() -> str:
    """The pool's size as the kernel says."""
    return (POOL / "nr_hugepages").read_text()


@LINUX
@pytest.mark.parametrize("method", ["4k", "thp"])
def test_pages_are_what_was_asked_for(method: Method, facts: HostFacts) -> None:
    """16 MiB: none huge with MADV_NOHUGEPAGE; all of it huge with THP where the kernel has it and memory allows."""
    run = run_child(method, 16 * MIB, (0,))
    assert run.refused is None and run.populate_s is not None and run.populate_s > 0
    assert run.kernel_page_bytes == 4096  # stays so under THP: why EFA counts entries by it
    if method == "4k":
        assert run.huge_bytes == 0
    elif facts.memory.thp.enabled in {"always", "madvise"}:
        assert (run.huge_bytes or 0) + run.counters["thp_fault_fallback"] * 2 * MIB >= 16 * MIB
        assert run.counters["thp_fault_alloc"] + run.counters["thp_fault_fallback"] >= 8  # 16 MiB / 2 MiB
    assert sum(run.nodes.values()) == 16 * MIB


@LINUX
def test_interleaving_is_accepted(facts: HostFacts) -> None:
    """On one node it changes nothing; on several, pages lie on all of them."""
    numbers = tuple(node.number for node in facts.memory.nodes if node.total_bytes)
    run = run_child("thp-interleave", 16 * MIB, numbers)
    if run.refused is not None:
        assert "mbind" in run.refused  # a sandbox may forbid the call
        return
    assert len(run.nodes) == min(len(numbers), 8)


@pytest.mark.skipif(not CAN_RESERVE, reason="only root may reserve huge pages")
def test_huge_pages_are_reserved_and_put_back() -> None:
    """8 pages of 2 MiB; the pool is what it was before."""
    before = pool()
    run = run_child("hugetlb", 16 * MIB, (0,))
    if run.refused is None:
        assert run.huge_bytes == 16 * MIB and run.kernel_page_bytes == 2 * MIB
    assert pool() == before


@pytest.mark.skipif(not CAN_RESERVE, reason="only root may reserve huge pages")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_huge_pages_are_put_back_when_the_parent_dies(number: int, tmp_path: Path) -> None:
    """The parent is ended in the middle: its child notices, gives everything back and is gone."""
    before = pool()
    code = (
        "import sys, time\nfrom servemark.preflight import memory_child as m\n"
        "def stay(*a):\n    print('in', flush=True)\n    time.sleep(60)\n    return {}\n"
        "m.measure = stay\nraise SystemExit(m.main())\n"
    )
    parent_code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {code!r}], stdin=subprocess.PIPE)\n"
        'child.stdin.write(b\'{"method": "hugetlb", "bytes": 8388608, "nodes": []}\\n\'); child.stdin.flush()\n'
        "child.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as lines:
        first = lines.readline().strip()
        if first == "in":
            assert int(pool()) >= 4
            parent.send_signal(number)
        parent.wait()
    deadline = time.monotonic() + 10
    while pool() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert pool() == before


@pytest.mark.skipif(not CAN_RESERVE, reason="only root may reserve huge pages")
def test_huge_pages_of_a_killed_child_are_put_back() -> None:
    """SIGKILL in the middle, as the OOM killer does: the parent says so and shrinks the pool again."""
    before = pool()

    def kill() -> None:
        deadline = time.monotonic() + 10
        while pool() == before and time.monotonic() < deadline:
            time.sleep(0.001)
        for task in Path("/proc/self/task").iterdir():
            for pid in (task / "children").read_text().split():
                os.kill(int(pid), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    run = run_child("hugetlb", 512 * MIB, (0,))
    killer.join()
    assert pool() == before
    if run.refused is None or "granted" in run.refused:
        pytest.skip("it was done before it could be killed, or the pages could not be had")
    assert run.refused == "signal 9" and run.populate_s is None


def test_a_pool_that_is_granted_short_is_put_back(tmp_path: Path) -> None:
    """A kernel that grants nothing, played by plain files: the number written stands, but no page becomes free."""
    for name, value in (("nr_hugepages", "3"), ("free_hugepages", "2"), ("resv_hugepages", "1")):
        (tmp_path / name).write_text(value)
    answer: dict[str, object] = {}
    with pytest.raises(NotGrantedError, match="granted 3 of 3"), reserved(4, answer, tmp_path):
        pytest.fail("must not be entered")
    assert (tmp_path / "nr_hugepages").read_text() == "3"
    with reserved(1, answer, tmp_path):  # one of two free pages is promised: the other is enough
        assert (tmp_path / "nr_hugepages").read_text() == "3"


@LINUX
def test_a_process_without_thp_is_noticed(facts: HostFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    """prctl(PR_SET_THP_DISABLE) is inherited by the probe: every page is small, and the finding says so."""
    code = (
        "import ctypes, json\nctypes.CDLL(None).prctl(41, 1, 0, 0, 0)\n"
        "from servemark.preflight.inspect import Where, inspect_host\n"
        "from servemark.preflight.probe_memory import memory_findings\n"
        "found = memory_findings(inspect_host(Where()), None, '8MiB', lambda what: None)\n"
        "print(json.dumps([f.plain() for f in found]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    thp = json.loads(done.stdout)[METHODS.index("thp")]
    assert thp["verdict"] == "warn" and thp["facts"]["huge_share"] == 0
    assert len(thp["facts"]["runs"]) == 6  # three sizes, twice


@LINUX
def test_a_limit_ends_in_a_finding_not_in_a_crash(facts: HostFacts) -> None:
    """An address space too small for the mapping: refused, and said so."""
    code = (
        "import resource, json\n"
        "from servemark.preflight import probe_memory as p\n"
        "resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\n"
        "print(p.run_child('4k', 400 << 20, (0,)).refused)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ENOMEM" in done.stdout


@LINUX
def test_too_slow_is_given_up_and_leaves_nothing() -> None:
    """A limit of no time at all: afterwards this process has no child that it did not have before."""

    def children() -> set[str]:
        return {
            each
            for task in Path("/proc/self/task").iterdir()
            for each in (task / "children").read_text().split()
        }

    before = children()
    run = run_child("4k", 64 * MIB, (0,), limit_s=0.001)
    assert run.refused is not None and "0.001" in run.refused
    assert children() <= before


def test_a_probe_never_takes_more_than_is_safe(facts: HostFacts) -> None:
    """A quarter of what is available; half of what the cgroup still allows; and never a size that is none."""
    memory = replace(facts.memory, available_bytes=4 * GIB)
    free = replace(facts, memory=memory, limits=replace(facts.limits, memory_limit_bytes=None))
    assert sizes.allowed(free)[0] == GIB
    tight = replace(free, limits=replace(facts.limits, memory_limit_bytes=GIB, memory_used_bytes=GIB // 2))
    assert sizes.allowed(tight)[0] == GIB // 4
    with pytest.raises(ServemarkError) as caught:
        memory_findings(tight, None, "257MiB", quiet)
    assert caught.value.key == "preflight.size_large" and "256 MiB" in caught.value.what("en")
    unknown = replace(free, memory=replace(memory, available_bytes=None))
    with pytest.raises(ServemarkError, match="no probe is safe"):
        sizes.steps("64MiB", unknown)


@pytest.mark.parametrize(
    "value", ["0", "-1GiB", "4G", "1e3MiB", "GiB", "", "1 TiB", "nan", "1.5.2MiB", "٣MiB", "0.0GiB"]
)
def test_sizes_that_are_none(value: str) -> None:
    """Zero, negative, units that mean two things, and words."""
    with pytest.raises(ServemarkError) as caught:
        sizes.probe_size(value)
    assert caught.value.key == "preflight.bad_size" and caught.value.exit_code == 2


def test_sizes_by_unit(facts: HostFacts) -> None:
    """GiB is 2^30, GB is 10^9; three steps, each whole pages of 2 MiB."""
    assert sizes.probe_size("1.5 GiB") == 3 * 2**29 and sizes.probe_size("2GB") == 2 * 10**9
    roomy = replace(
        facts,
        memory=replace(facts.memory, available_bytes=64 * GIB),
        limits=replace(facts.limits, memory_limit_bytes=None),
    )
    # 100 MB = 47.68 pages: a quarter 11, a half 23, the whole 47.
    assert sizes.steps("100MB", roomy) == tuple(n * 2 * MIB for n in (11, 23, 47))


def test_estimate_by_hand() -> None:
    """1, 2 and 4 s/GiB: geometric mean 2 s/GiB, s = ln 2, t(2) = 4.303, so a factor of 2^(4.303·sqrt(4/3)) = 31.3."""
    guess = estimate([(GIB, 1.0), (GIB, 2.0), (GIB, 4.0)], 10 * GIB)
    assert guess is not None and guess.seconds == pytest.approx(20)
    assert guess.high_s / guess.seconds == pytest.approx(2 ** (4.303 * (4 / 3) ** 0.5))
    assert guess.times_larger == 10
    assert estimate([(GIB, 1.0)], GIB) is None and estimate([(GIB, 0.0), (GIB, 1.0)], GIB) is None
    # 1 and 2 GiB at 1 s/GiB predict 4 s for 4 GiB; 5 s were measured: 20 % too low.
    assert held_out([(GIB, 1.0), (2 * GIB, 2.0), (4 * GIB, 5.0)]) == pytest.approx(-0.2)


def test_mappings_are_found_in_the_kernels_texts() -> None:
    """The right mapping among neighbours; node shares by its page size."""
    text = (
        "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \nRss: 8 kB\nTHPeligible: 0\n"
        "7f0000200000-7f0000600000 rw-p 00000000 00:00 0 \nRss: 4096 kB\nAnonHugePages: 2048 kB\nTHPeligible:    1\n"
        "7f0000600000-7f0000800000 rw-p 00000000 00:00 0 \nRss: 12 kB\n"
    )
    found = smaps_of(0x7F0000400000, text)
    assert found == {"Rss": 4 * MIB, "AnonHugePages": 2 * MIB, "THPeligible": 1}
    assert smaps_of(0x1000, text) == {}
    maps = "7f0000200000 interleave:0-1 anon=4 dirty=4 N0=3 N1=1 kernelpagesize_kB=2048\n"
    assert node_bytes(0x7F0000200000, maps) == {0: 6 * MIB, 1: 2 * MIB}


def test_the_probe_offers_itself_to_the_oom_killer() -> None:
    """The child raises its own score and asks to be told when its parent dies."""
    code = "from servemark.preflight import memory_child as m\nm._behave()\nprint(open('/proc/self/oom_score_adj').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1000"
    assert memory_child.PR_SET_PDEATHSIG == 1 and ctypes.sizeof(ctypes.c_void_p) == 8


def test_store_probe_without_a_store(facts: HostFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed: cannot tell, and the command that installs it."""
    monkeypatch.setattr(probe_store, "master_binary", lambda: None)
    found = probe_store.store_finding(facts, None, "64MiB", quiet)
    assert found.verdict == "unknown" and "mooncake-transfer-engine-non-cuda" in found.commands[0].line


def test_store_whose_master_dies_says_its_last_words(
    facts: HostFacts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A master that cannot start: its own error line is the reason, and nothing stays behind."""
    broken = tmp_path / "mooncake_master"
    broken.write_text(
        "#!/bin/sh\necho 'loading' >&2\necho 'error while loading libibverbs.so.1' >&2\nexit 127\n"
    )
    broken.chmod(0o755)
    monkeypatch.setattr(probe_store, "master_binary", lambda: broken)
    found = probe_store.store_finding(facts, None, "64MiB", quiet)
    assert found.verdict == "fail" and "libibverbs.so.1" in found.found.said("en")


def test_a_real_store_over_tcp(facts: HostFacts) -> None:
    """Master and client of the installed release: three set-ups, data found equal, no process left."""
    if probe_store.master_binary() is None:
        pytest.skip("Mooncake is not installed in this Python")
    found = probe_store.store_finding(facts, None, "64MiB", quiet)
    if "libibverbs" in found.found.said("en"):
        pytest.skip("the release needs libibverbs1 of the system")
    assert found.verdict == "ok", found.plain()
    runs = found.facts["runs"]
    assert isinstance(runs, list) and [run["segment_bytes"] for run in runs] == [16 * MIB, 32 * MIB, 64 * MIB]
    assert all(run["rc"] == 0 and run["equal"] for run in runs)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.skipif(not CAN_RESERVE, reason="only root may reserve huge pages")
@pytest.mark.parametrize(("short", "works"), [(0, True), (1, False)])
def test_the_pages_that_a_real_store_takes(short: int, works: bool) -> None:
    """The formula's page count is enough for a real store, and one page less is not."""
    binary = probe_store.master_binary()
    if binary is None:
        pytest.skip("Mooncake is not installed in this Python")
    store = StoreNeed(64 * MIB + 1, probe_store.BUFFER_BYTES, 1, "tcp", "hugetlb", 2 * MIB)
    assert store.pages == 33 + 8  # ceil(64 MiB + 1 byte) and 16 MiB, in pages of 2 MiB
    before = pool()
    if before.strip() != "0":
        pytest.skip("somebody else has a pool of huge pages here")
    answer: dict[str, object] = {}
    job = {"segment_bytes": store.segment_bytes, "buffer_bytes": store.buffer_bytes}
    try:
        with reserved(store.pages - short, answer), probe_store.master(binary) as (address, _):
            done = subprocess.run(
                list(probe_store.CHILD),
                input=json.dumps({"master": address, **job}) + "\n",
                env={**os.environ, "MC_STORE_USE_HUGEPAGE": "1"},
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=60,
            )
    except (NotGrantedError, probe_store.MasterDownError) as error:
        pytest.skip(str(error))
    (said,) = [row for row in done.stdout.splitlines() if row.startswith(MARK)] or ["{}"]
    rc = json.loads(said.removeprefix(MARK)).get("rc")
    assert (rc == 0) is works, done.stderr[-500:]
    assert pool() == before
