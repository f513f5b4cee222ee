"""Whole hosts against an arm: verdicts, figures and the commands that mend them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.deployment import Deployment
from servemark.preflight.finding import Finding
from servemark.preflight.inspect import Where, inspect_host
from servemark.preflight.needs import Needs, needs_of
from servemark.preflight.read_gpus import read_gpus
from servemark.preflight.report import Report, judge
from servemark.preflight.root import HostRoot

if TYPE_CHECKING:
    from tests.preflight.conftest import FakeHost

MakeDeployment = Callable[..., Deployment]
HUGETLB = "MC_STORE_USE_HUGEPAGE: '1'"


def look(host: FakeHost, needs: Needs | None = None, mooncake: Path | None = None) -> Report:
    """Read and judge one host."""
    facts = inspect_host(Where(host.root, mooncake=[mooncake or host.path / "nowhere"]))
    return judge(facts, needs, host.root)


def topic(report: Report, name: str) -> Finding:
    """The one finding of a topic."""
    (found,) = [finding for finding in report.findings if finding.topic == name]
    return found


def test_a_healthy_b300_node(b300: FakeHost, deploy: MakeDeployment) -> None:
    """Everything the arm asks for is there; the clock of a folder cannot be asked."""
    report = look(b300, needs_of(deploy(environment=HUGETLB), arm="a"))
    verdicts = {finding.topic: finding.verdict for finding in report.findings}
    expected_ok = {
        "memory",
        "numa",
        "huge_pages",
        "memlock",
        "cgroup",
        "registration",
        "gpus",
        "nics",
        "efa",
        "ports",
    }
    assert {name for name in expected_ok if verdicts[name] != "ok"} == set(), verdicts
    assert not report.failed and report.facts.node == "b300-00"
    assert topic(report, "gpus").facts["names"] == {"NVIDIA B300 SXM6 AC": 8}
    assert topic(report, "gpus").facts["driver"] == "580.159.04"
    assert topic(report, "efa").facts["domains"] == 16
    assert topic(report, "blocks").facts["total"] == 2 * 281_600 * 2  # two nodes, blocks of 4 MiB
    assert verdicts["clock"] == "unknown" and verdicts["mooncake"] == "unknown"


def test_pool_too_small_names_the_command_and_reads_it_back(b300: FakeHost, deploy: MakeDeployment) -> None:
    """800,000 pages hold the store's 794,624 but not its headroom; 790,000 do not hold it at all."""
    b300.pool(800_000, 800_000, nodes=2)
    needs = needs_of(deploy(environment=HUGETLB), arm="a")
    tight = topic(look(b300, needs), "huge_pages")
    assert tight.verdict == "warn"
    b300.pool(790_000, 790_000, nodes=2)
    short = topic(look(b300, needs), "huge_pages")
    assert short.verdict == "fail"
    lines = [command.line for command in short.commands]
    assert "sudo sysctl -w vm.nr_hugepages=850248 && cat /proc/sys/vm/nr_hugepages" in lines
    assert [c.must_print for c in short.commands if "sysctl" in c.line] == ["850248"]
    assert any("node*/hugepages" in line for line in lines)  # two nodes: both are read back


def test_pages_that_others_hold_are_added(b300: FakeHost, deploy: MakeDeployment) -> None:
    """A pool of 850,248 of which 100,000 are taken has to grow to 950,248."""
    b300.pool(850_248, 750_248, nodes=2)
    found = topic(look(b300, needs_of(deploy(environment=HUGETLB), arm="a")), "huge_pages")
    assert found.verdict == "fail" and any("=950248 " in command.line for command in found.commands)


def test_reserved_pages_of_others_are_not_free(b300: FakeHost, deploy: MakeDeployment) -> None:
    """Pages promised to a mapping that has not touched them count as free for the kernel, not for us."""
    b300.put("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "500000\n")
    assert topic(look(b300, needs_of(deploy(environment=HUGETLB), arm="a")), "huge_pages").verdict == "fail"


def test_memory_that_does_not_hold_the_store(b300: FakeHost, deploy: MakeDeployment) -> None:
    """1,500 GiB available where 1,552 are needed: 52 GiB are missing. 1,600 hold it, but by less than a tenth."""
    needs = needs_of(deploy(), arm="a", host_mib=3_977_095)
    b300.memory(4096, 1500, nodes=2)
    found = topic(look(b300, needs), "memory")
    assert found.verdict == "fail" and "52 GiB (55.8 GB)" in found.why[0].said("en")
    assert "164 GiB" in found.why[1].said("en")  # 0.9 x 1,500 / 8 - 4 = 164.75
    b300.memory(4096, 1600, nodes=2)
    assert topic(look(b300, needs), "memory").verdict == "warn"
    b300.memory(3072, 3000, nodes=2)  # the clusters file states 3,884 GiB
    found = topic(look(b300, needs), "memory")
    assert found.verdict == "warn" and "3,883.9 GiB" in found.why[0].said("en")


def test_fragmented_memory(b300: FakeHost, deploy: MakeDeployment) -> None:
    """Free memory in small blocks only, and compactions that fail: 99 of 100, as seen on full nodes."""
    # 2,200 GiB in blocks of 1 MiB (order 8): 2,252,800 of them.
    b300.put("/proc/buddyinfo", "Node 0, zone   Normal      0 0 0 0 0 0 0 0 2252800 0 0\n")
    b300.put(
        "/proc/vmstat",
        "thp_fault_alloc 100\nthp_fault_fallback 9900\ncompact_stall 9000\ncompact_success 90\ncompact_fail 8910\n",
    )
    report = look(b300, needs_of(deploy(environment="GLIBC_TUNABLES: 'glibc.malloc.hugetlb=1'"), arm="a"))
    blocks = topic(report, "blocks")
    assert blocks.verdict == "warn" and blocks.facts["total"] == 0
    assert any("compact_memory" in command.line for command in blocks.commands)
    compaction = topic(report, "compaction")
    assert compaction.verdict == "warn" and "99%" in compaction.why[0].said("en")
    assert len(compaction.why) == 2  # fallbacks too


def test_counts_of_blocks_that_do_not_add_up_say_nothing(b300: FakeHost, deploy: MakeDeployment) -> None:
    """3 GiB in the lists while MemFree says 2,200 GiB."""
    b300.put("/proc/buddyinfo", "Node 0, zone   Normal      0 0 0 0 0 0 0 0 0 0 768\n")
    found = topic(look(b300, needs_of(deploy(), arm="a")), "blocks")
    assert found.verdict == "unknown" and found.facts["total"] is None


def test_memory_that_waits_to_be_handed_out_is_named(host: FakeHost) -> None:
    """16 GiB in all, 6 GiB of them with no node yet: lists hold 8 of 14 GiB that are free."""
    host.memory(16, 14)
    host.put(
        "/sys/devices/system/node/node0/meminfo",
        f"Node 0 MemTotal: {10 << 20} kB\nNode 0 MemFree: {8 << 20} kB\n",
    )
    host.put("/proc/buddyinfo", "Node 0, zone   Normal      0 0 0 0 0 0 0 0 0 0 2048\n")
    found = topic(look(host), "blocks")
    assert found.verdict == "unknown" and "6 GiB" in found.why[0].said("en")


def test_thp_never(b300: FakeHost, deploy: MakeDeployment) -> None:
    """A store without hugetlb pages cannot have it off; one with them does not care."""
    b300.thp(enabled="never")
    assert topic(look(b300, needs_of(deploy(), arm="a")), "thp").verdict == "fail"
    assert topic(look(b300, needs_of(deploy(environment=HUGETLB), arm="a")), "thp").verdict == "none"


def test_memlock(b300: FakeHost, deploy: MakeDeployment) -> None:
    """8 MiB fail for EFA, unless CAP_IPC_LOCK (bit 14) lifts the limit; TCP pins nothing."""
    b300.limits(memlock=str(8 << 20))
    found = topic(look(b300, needs_of(deploy(), arm="a")), "memlock")
    assert found.verdict == "fail" and found.commands[-1].must_print == "unlimited"
    b300.limits(memlock=str(8 << 20), caps="0000000000004000")
    assert topic(look(b300, needs_of(deploy(), arm="a")), "memlock").verdict == "ok"
    b300.limits(memlock=str(8 << 20))
    assert topic(look(b300, needs_of(deploy(protocol="tcp"), arm="a")), "memlock").verdict == "none"


def test_cgroup_v2_takes_the_tightest_level(b300: FakeHost, deploy: MakeDeployment) -> None:
    """1,000 GiB at the job, no limit at the step: 1,552 GiB do not fit."""
    base = "/sys/fs/cgroup/system.slice/slurmstepd.scope"
    b300.put(f"{base}/job_7/memory.max", "max\n")
    b300.put(f"{base}/memory.max", f"{1000 << 30}\n")
    b300.put(f"{base}/memory.current", f"{10 << 30}\n")
    b300.put(f"{base}/memory.stat", f"inactive_file {4 << 30}\n")
    found = topic(look(b300, needs_of(deploy(), arm="a")), "cgroup")
    assert found.verdict == "fail" and found.facts["version"] == 2
    assert found.facts["memory_used_bytes"] == 6 << 30  # file pages that can be dropped do not count
    huge = topic(look(b300, needs_of(deploy(environment=HUGETLB), arm="a")), "cgroup")
    assert huge.verdict == "ok"  # hugetlb pages are not charged to the memory controller
    b300.put(f"{base}/hugetlb.2MB.max", f"{100 << 30}\n")
    assert topic(look(b300, needs_of(deploy(environment=HUGETLB), arm="a")), "cgroup").verdict == "fail"


def test_cgroup_v1(host: FakeHost) -> None:
    """A container sees its own group as the root of the mount; 2^63 less a page means no limit."""
    host.memory(24, 20)
    host.put("/proc/self/cgroup", "4:memory:/docker/abc\n0::/\n")
    host.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", f"{8 << 30}\n")
    host.put("/sys/fs/cgroup/memory/memory.usage_in_bytes", f"{1 << 30}\n")
    found = topic(look(host), "cgroup")
    assert found.facts["version"] == 1 and found.facts["memory_limit_bytes"] == 8 << 30
    host.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert topic(look(host), "cgroup").facts["memory_limit_bytes"] is None


@pytest.mark.parametrize("marks", [b"", b"...Allocated THP-interleaved buffer: ..."])
def test_mooncake_is_recognised_by_its_library(
    b300: FakeHost, deploy: MakeDeployment, tmp_path: Path, marks: bytes
) -> None:
    """The library's own text decides, not the version number."""
    site = tmp_path / "site"
    info = site / "mooncake_transfer_engine_efa_cuda13-0.3.13.post1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: mooncake-transfer-engine-efa-cuda13\nVersion: 0.3.13.post1\n"
    )
    (info / "RECORD").write_text("mooncake/_store.cpython-311-x86_64-linux-gnu.so,,\n")
    (site / "mooncake").mkdir()
    (site / "mooncake" / "_store.cpython-311-x86_64-linux-gnu.so").write_bytes(
        b"\x7fELF" + bytes(999) + marks
    )
    needs = needs_of(deploy(environment="GLIBC_TUNABLES: 'glibc.malloc.hugetlb=1'"), arm="a")
    report = look(b300, needs, site)
    found = topic(report, "mooncake")
    assert found.facts["thp_path"] is bool(marks)
    assert found.verdict == ("ok" if marks else "warn")
    assert topic(report, "registration").verdict == ("ok" if marks else "warn")
    if not marks:  # the healthy node has the pool already; the way out is named all the same
        assert "850,248" in found.why[1].said("en")


def test_missing_gpus_other_gpus_and_taken_ports(b300: FakeHost, deploy: MakeDeployment) -> None:
    """7 of 8 fail; another type warns; a port that somebody holds fails and is named."""
    import shutil

    b300.listening(22, 8000)
    shutil.rmtree(b300.path / "proc/driver/nvidia/gpus/0000:07:06.0")
    report = look(b300, needs_of(deploy(), arm="a"))
    assert topic(report, "gpus").verdict == "fail"
    ports = topic(report, "ports")
    assert (
        ports.verdict == "fail"
        and ports.facts["taken"] == [8000]
        and "8000 (frontend)" in ports.why[0].said("en")
    )
    other = topic(look(b300, needs_of(deploy(gpu="h200"), arm="a")), "gpus")
    assert any("h200" in saying.said("en") for saying in other.why)


def test_amd_gpus_from_the_kernels_topology(host: FakeHost) -> None:
    """Two nodes of the topology: a CPU (no SIMDs) and a GPU of 288 GB; amd-smi gives the name."""
    host.memory(24, 20)
    base = "/sys/class/kfd/kfd/topology/nodes"
    host.put(f"{base}/0/properties", "cpu_cores_count 96\nsimd_count 0\nvendor_id 0\n")
    host.put(
        f"{base}/1/properties", "cpu_cores_count 0\nsimd_count 1024\nvendor_id 4098\ndrm_render_minor 128\n"
    )
    host.put(f"{base}/2/properties", "simd_count 16\nvendor_id 4318\n")  # somebody else's: no AMD GPU
    host.put(f"{base}/1/name", "gfx950\n")
    host.put(f"{base}/1/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 309220868096\n")
    host.program("amd-smi", """echo '[{"gpu": 0, "market_name": "AMD Instinct MI355X"}]'""")
    found = topic(look(host), "gpus").facts
    assert found["names"] == {"AMD Instinct MI355X": 1} and found["memory_bytes"] == [309220868096]
    host.program("amd-smi", "echo not json")
    assert topic(look(host), "gpus").facts["names"] == {"gfx950": 1}


def test_a_program_that_hangs_or_lies_is_given_up(b300: FakeHost, deploy: MakeDeployment) -> None:
    """fi_info that never ends costs its 0.8 s; one that fails (ENODATA) means no device."""
    begun = time.monotonic()
    b300.program("fi_info", "sleep 30; echo late")
    assert topic(look(b300, needs_of(deploy(), arm="a")), "efa").verdict == "unknown"
    assert time.monotonic() - begun < 3
    b300.program("fi_info", "echo 'fi_getinfo: -61'; exit 61")
    assert topic(look(b300, needs_of(deploy(), arm="a")), "efa").verdict == "fail"


def test_ports_down(b300: FakeHost, deploy: MakeDeployment) -> None:
    """One of 16 is not active: it is named."""
    b300.put("/sys/class/infiniband/rdmap3s0/ports/1/state", "1: DOWN\n")
    found = topic(look(b300, needs_of(deploy(), arm="a")), "nics")
    assert found.verdict == "warn" and found.facts["down"] == ["rdmap3s0/1"]


def test_no_proc_is_said_and_nothing_is_guessed(host: FakeHost) -> None:
    """macOS: no /proc."""
    with pytest.raises(ServemarkError) as caught:
        inspect_host(Where(host.root))
    assert caught.value.key == "preflight.no_proc" and caught.value.exit_code == 2


def test_an_almost_empty_proc_gives_unknowns(host: FakeHost, deploy: MakeDeployment) -> None:
    """Only meminfo, and nothing in it that can be read: every finding says that it cannot tell, none says ok."""
    host.put("/proc/meminfo", "MemTotal: lots\nMemFree\n\x00\xff\n")
    report = look(host, needs_of(deploy(environment=HUGETLB), arm="a"))
    assert {f.topic for f in report.findings if f.verdict == "ok"} <= {"registration", "disk"}
    assert topic(report, "memory").verdict == "unknown" and topic(report, "huge_pages").verdict == "fail"


def test_every_finding_speaks_both_languages(b300: FakeHost, deploy: MakeDeployment) -> None:
    """No placeholder is left, in any finding of a bad b300."""
    b300.thp(enabled="never")
    b300.pool(0, 0, nodes=2)
    for finding in look(b300, needs_of(deploy(), arm="a")).findings:
        for lang in ("en", "zh"):
            said = [finding.found.said(lang), *(why.said(lang) for why in finding.why)]
            said += [finding.need.said(lang)] if finding.need else []
            assert all("{" not in one and one for one in said), said


class NvmlError(Exception):
    """As `pynvml.NVMLError`."""


def nvml_stand_in(*, dead: bool = False) -> ModuleType:
    """Answers as NVML gave them on a host with one H200 (driver 580.159.04); ECC as a device without it."""
    module = ModuleType("pynvml")

    def refuse(*args: object) -> int:
        raise NvmlError

    vars(module).update(
        NVMLError=NvmlError,
        nvmlInit=refuse if dead else lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetDriverVersion=lambda: b"580.159.04",
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=150754820096, used=644939776),
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId="00000000:00:06.0"),
        nvmlDeviceGetName=lambda handle: "NVIDIA H200",
        nvmlDeviceGetTotalEccErrors=refuse,
    )
    return module


def test_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and names from NVML; what a device does not answer is absent, not 0."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml_stand_in())
    gpus = read_gpus(HostRoot())
    assert gpus.driver == "580.159.04" and gpus.known
    (gpu,) = gpus.devices
    assert (gpu.name, gpu.memory_bytes, gpu.used_bytes) == ("NVIDIA H200", 150754820096, 644939776)
    assert gpu.ecc_errors is None and gpu.source == "nvml"
    monkeypatch.setitem(sys.modules, "pynvml", nvml_stand_in(dead=True))
    assert all(device.source != "nvml" for device in read_gpus(HostRoot()).devices)
