"""Verdicts on GPUs from measurements written by hand; the healthy ones are those of real H200s (see each test)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.hardware import gpu, gpu_of_device, read_gpu
from servemark.preflight.finding import Finding
from servemark.preflight.gpu.findings import findings_of
from servemark.preflight.gpu.judge import compare
from servemark.preflight.gpu.lines import Figure, Line, Pinned, Trouble, believed
from servemark.preflight.gpu.run import Device, Measured, devices_of
from servemark.preflight.gpu.xids import Xid, read_xids

if TYPE_CHECKING:
    from tests.preflight.conftest import FakeHost

GIB = 1 << 30
REAL = {
    "memory_copy_bytes_per_s": 4.27e12,
    "bf16_flop_per_s": 769e12,
    "pinned_to_device_bytes_per_s": 55e9,
    "pinned_to_host_bytes_per_s": 55e9,
    "pageable_to_device_bytes_per_s": 6.0e9,
}
"""Of one H200: its copy and host figures, and the slowest product of four machines, on random data."""


def uuid(index: int) -> str:
    """One for each index."""
    return f"GPU-{index:08x}"


def device(index: int, name: str = "NVIDIA H200") -> Device:
    """A GPU on bus 0x10 + index."""
    return Device(index, name, uuid(index), f"0000:{0x10 + index:02x}:00.0", 150754820096, str(index))


def figures(index: int, **changed: float) -> list[Line]:
    """The real figures, some of them changed; 0 leaves one out."""
    return [Figure(name, (index,), value) for name, value in (REAL | changed).items() if value]


def host(*lines: Line, count: int = 1, name: str = "NVIDIA H200", **told: dict[str, object]) -> Measured:
    """What came out of a host with `count` GPUs."""
    return Measured(
        tuple(device(n, name) for n in range(count)),
        told.get("nvml"),
        told.get("cuda", {"hidden": False}),
        told.get("watch"),
        lines,
        41.0,
    )


def judged(measured: Measured, *xids: Xid, topic: str = "gpu") -> list[Finding]:
    """Findings of one topic."""
    return [finding for finding in findings_of(measured, xids) if finding.topic == topic]


def words(finding: Finding, lang: str = "en") -> str:
    """Everything a person reads."""
    return " | ".join(saying.said(lang) for saying in (finding.found, *finding.why))


def test_the_real_figures_are_healthy() -> None:
    """769 of 782 TFLOP/s is within 8 %; the others are the reference itself."""
    (finding,) = judged(host(*figures(0)))
    assert finding.verdict == "ok" and finding.facts["state"] == "healthy"
    assert "GPU 0 NVIDIA H200: healthy; memory copy (read + write) 4.27 TB/s (100 %)" in words(finding)
    assert "bf16 product 769 TFLOP/s (98 %)" in words(finding)


def test_slow_says_which_and_how_much() -> None:
    """3.20 of 4.27 TB/s: 1 - 3.20/4.27 = 0.2506, so 25 % below; the neighbour stays healthy."""
    found = judged(host(*figures(0), *figures(1, memory_copy_bytes_per_s=3.2e12), count=2))
    assert [finding.facts["state"] for finding in found] == ["healthy", "slow"]
    assert found[1].verdict == "warn"
    assert "memory copy (read + write) 3.2 TB/s is 25 % below 4.27 TB/s" in words(found[1])
    assert "nvidia-smi -q -i 1" in found[1].commands[0].line
    assert "显存拷贝" in words(found[1], "zh")


@pytest.mark.parametrize(("share", "state"), [(0.951, "healthy"), (0.949, "slow")])
def test_the_tolerance_is_the_files(share: float, state: str) -> None:
    """5 % for the copy within memory."""
    (finding,) = judged(host(*figures(0, memory_copy_bytes_per_s=4.27e12 * share)))
    assert finding.facts["state"] == state


def test_slow_pageable_is_the_hosts() -> None:
    """3.0 of 6.0 GB/s is beyond 40 %, and no fault of the GPU."""
    (finding,) = judged(host(*figures(0, pageable_to_device_bytes_per_s=3.0e9)))
    assert finding.verdict == "ok" and "the host's, not the GPU's" in words(finding)


def test_no_reference_is_not_judged() -> None:
    """An H200 NVL is another card: nothing is said of it by an H200's figures."""
    (finding,) = judged(host(*figures(0), name="NVIDIA H200 NVL"))
    assert (finding.verdict, finding.facts["state"]) == ("unknown", "unjudged")
    assert gpu_of_device("NVIDIA H200 NVL") is None


def test_without_torch_nothing_is_called_healthy() -> None:
    """What was measured is fine, the product is missing, and the line says so."""
    missing = Trouble("unmeasured", "bf16", (0,), "no_torch", "No module named 'torch'")
    (finding,) = judged(host(*figures(0, bf16_flop_per_s=0), missing))
    assert finding.facts["state"] == "unjudged"
    assert "bf16 product could not be measured: torch is not installed" in words(finding)


def test_odd_one_out_without_a_reference() -> None:
    """Three GPUs of an unknown type: 700 of a median of 1,000 is 30 % below; two GPUs have no median to speak of."""
    lines = [Figure("bf16_flop_per_s", (n,), value) for n, value in enumerate((1.0e15, 1.01e15, 0.7e15))]
    found = judged(host(*lines, count=3, name="NVIDIA X1"))
    assert [finding.facts["state"] for finding in found] == ["unjudged", "unjudged", "slow"]
    assert "30 % below the median of like GPUs" in words(found[2])
    assert [f.facts["state"] for f in judged(host(*lines[1:], count=3, name="NVIDIA X1"))] == ["unjudged"] * 3


def test_more_than_the_data_sheet_is_no_measurement() -> None:
    """4.8 TB/s is the sheet's; 9 TB/s is a mistake, and a GPU is not healthy by it."""
    (finding,) = judged(host(*figures(0, memory_copy_bytes_per_s=9e12)))
    assert finding.facts["state"] == "unjudged" and "more than the data sheet allows" in words(finding)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (Trouble("wrong", "memory", (0,), "data", "64 B at 0x10"), "every answer of this GPU is in doubt"),
        (
            Trouble(
                "unmeasured", "fp8", (0,), "cuda_error", "cuCtxSynchronize: CUDA_ERROR_ECC_UNCORRECTABLE"
            ),
            "ECC_UNCORRECTABLE",
        ),
        (
            Trouble(
                "unmeasured",
                "bf16",
                (0,),
                "error",
                "AcceleratorError: CUDA error: unspecified launch failure",
            ),
            "unspecified launch failure",
        ),
    ],
)
def test_broken(line: Trouble, said: str) -> None:
    """Wrong data, an error of the hardware: exit code 1, whatever the speed."""
    (finding,) = judged(host(*figures(0), line))
    assert finding.verdict == "fail" and finding.facts["state"] == "broken" and said in words(finding)


def test_no_answer_is_broken_where_others_answer() -> None:
    """Alone, or when no GPU ends the probe, a host without processor time is as likely: not judged, and said."""
    silent = [Trouble("unmeasured", "bf16", (n,), "hang", "12 s") for n in (0, 1)]
    found = judged(host(*figures(0, bf16_flop_per_s=0), silent[0], *figures(1), count=2))
    assert [finding.facts["state"] for finding in found] == ["broken", "healthy"]
    assert "no answer within 12 s" in words(found[0])
    both = [*figures(0, bf16_flop_per_s=0), *figures(1, bf16_flop_per_s=0), *silent]
    found = judged(host(*both, count=2))
    assert [finding.facts["state"] for finding in found] == ["unjudged", "unjudged"]
    assert "no end within its time (12 s)" in words(found[0])


def test_a_crash_or_a_lack_is_not_broken() -> None:
    """A killed process and full GPU memory say nothing of the card."""
    for reason in ("crash", "gpu_memory", "late", "garbage"):
        trouble = Trouble("unmeasured", "memory", (0,), reason, "x")
        (finding,) = judged(host(*figures(0, memory_copy_bytes_per_s=0), trouble))
        assert finding.facts["state"] == "unjudged", reason


def nvml(**facts: object) -> dict[str, object]:
    """NVML's facts of one device."""
    return {"devices": [{"index": 0, "uuid": uuid(0), "name": "NVIDIA H200", **facts}]}


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        ({"ecc_uncorrected": 3}, "broken", "3 uncorrected memory errors"),
        ({"remapped": {"failure": 1}}, "broken", "could not be remapped"),
        ({"remapped": {"pending": 1}}, "healthy", "waits to be remapped"),
        ({"used_bytes": 40 * GIB}, "unjudged", "other programs are on it"),
        ({"processes": 1}, "unjudged", "other programs are on it"),
        ({"mig": True}, "unjudged", "MIG"),
    ],
)
def test_what_nvml_says_counts(facts: dict[str, object], state: str, said: str) -> None:
    """Errors make it broken; another program or MIG forbids a judgement of speed."""
    (finding,) = judged(host(*figures(0), nvml=nvml(**facts)))
    assert finding.facts["state"] == state and said in words(finding)


def test_a_busy_gpu_is_not_called_slow() -> None:
    """Half the speed beside another program proves nothing."""
    (finding,) = judged(host(*figures(0, bf16_flop_per_s=300e12), nvml=nvml(processes=2)))
    assert finding.facts["state"] == "unjudged" and finding.verdict == "unknown"


def test_throttling_explains_a_slow_gpu() -> None:
    """Reasons are told where the figure is low, and only there: every product meets the power limit."""
    watch: dict[str, object] = {"devices": [{"index": 0, "throttled": {"hw_thermal": 4}, "xids": []}]}
    (slow,) = judged(host(*figures(0, bf16_flop_per_s=400e12), watch=watch))
    (well,) = judged(host(*figures(0), watch=watch))
    assert "slowed down during the probes by: temperature (hardware)" in words(slow)
    assert "slowed down" not in words(well)


def test_xids() -> None:
    """79 during the probes is broken; 31 is a program's own fault; 94 in the old log is only noted, on its GPU."""
    watch: dict[str, object] = {"devices": [{"index": 0, "xids": [31]}, {"index": 1, "xids": [79]}]}
    found = judged(host(*figures(0), *figures(1), count=2, watch=watch), Xid(94, "0000:10:00.0"))
    assert [finding.facts["state"] for finding in found] == ["healthy", "broken"]
    assert "Xid 94 (contained ECC error)" in words(found[0]) and "fell off the bus" in words(found[1])


def test_a_gpu_that_cuda_does_not_show() -> None:
    """NVML lists two, CUDA one: broken, unless CUDA_VISIBLE_DEVICES hides it."""
    both: dict[str, object] = {
        "devices": [{"index": n, "uuid": uuid(n), "name": "NVIDIA H200"} for n in (0, 1)]
    }
    found = judged(host(*figures(0), nvml=both))
    assert [finding.facts["state"] for finding in found] == ["healthy", "broken"]
    hidden = judged(host(*figures(0), nvml=both, cuda={"hidden": True}))
    assert hidden[1].facts["state"] == "unjudged"


def test_only_nvml() -> None:
    """Without the CUDA driver there are NVML's facts and no verdict on speed, but its errors count."""
    measured = replace(host(nvml=nvml(ecc_uncorrected=0)), devices=(), cuda=None)
    (finding,) = judged(measured)
    assert finding.facts["state"] == "unjudged"


@pytest.mark.parametrize(
    ("reason", "verdict"), [("cuda_error", "fail"), ("hang", "fail"), ("no_cuda", "none")]
)
def test_cuda_that_does_not_start(reason: str, verdict: str) -> None:
    """NVML sees the GPU; without the NVLink fabric's manager CUDA answers CUDA_ERROR_SYSTEM_NOT_READY."""
    line = Trouble("unmeasured", "cuda", (), reason, "cuInit: CUDA_ERROR_SYSTEM_NOT_READY")
    measured = replace(host(line, nvml=nvml()), devices=(), cuda=None)
    (finding,) = judged(measured, topic="gpu_probe")
    assert finding.verdict == verdict and ("CUDA does not start" in words(finding)) is (verdict == "fail")


def test_links_against_references() -> None:
    """NIXL over NVLink: 282 and 5.9 GB/s on two real H200s; a host without the direct path moved 0.03 GB/s."""
    good = [Figure("nixl_1_bytes_per_s", (0, 1), 286e9), Figure("nixl_1024_bytes_per_s", (0, 1), 8.5e9)]
    (finding,) = judged(host(*good, count=2), topic="gpu_links")
    assert finding.verdict == "ok"
    (finding,) = judged(host(Figure("nixl_1_bytes_per_s", (0, 1), 0.03e9), count=2), topic="gpu_links")
    assert finding.verdict == "warn" and "GPU 0 -> 1: NIXL, 1 descriptor 30 MB/s is 100 % below" in words(
        finding
    )
    (finding,) = judged(host(Figure("nixl_1_bytes_per_s", (0,), 0.03e9)), topic="gpu_links")
    assert finding.verdict == "none", "within one GPU there is no reference"


@pytest.mark.parametrize(
    ("reason", "verdict"), [("no_nixl", "none"), ("cuda_error", "warn"), ("hang", "warn")]
)
def test_a_link_that_does_not_work(reason: str, verdict: str) -> None:
    """What is not installed is no fault; CUDA IPC that fails is: transfers would fall back to a slow path."""
    probe = "nixl" if reason == "no_nixl" else "ipc"
    (finding,) = judged(host(Trouble("unmeasured", probe, (0,), reason, "x")), topic="gpu_links")
    assert finding.verdict == verdict


def test_the_gpu_with_slow_links_is_named() -> None:
    """All of GPU 2's pairs run at a tenth of the others'."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    lines = [Figure("peer_copy_bytes_per_s", pair, 40e9 if 2 in pair else 390e9) for pair in pairs]
    (finding,) = judged(host(*lines, count=4), topic="gpu_links")
    assert "all links of GPU 2 are slower" in words(finding) and "GPU 1 are" not in words(finding)


def test_pinning_by_pages() -> None:
    """Real figures of 16 GiB: (6.0 + 0.71)/16 = 0.42 s a GiB in 4 KiB pages, (2.5 + 0.40)/16 = 0.18 with THP."""
    rows = [
        Pinned("4k", 16 * GIB, 6.0, 0.71, 0.31, 55e9),
        Pinned("thp", 16 * GIB, 2.5, 0.40, 0.31, 55e9),
        Pinned("hugetlb", 16 * GIB, None, None, None, None, "hugepages", "not root"),
    ]
    (finding,) = judged(host(*rows), topic="gpu_pinning")
    assert "16 GiB 4 KiB 6 s + 0.71 s; 16 GiB THP 2.5 s + 0.4 s" in words(finding)
    assert "a GiB takes 0.42 s in 4 KiB pages and 0.18 s in THP" in words(finding)
    assert "16 GiB hugetlb left out: huge pages could not be reserved (not root)" in words(finding)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"Traceback (most recent call last):",
        b"[]",
        b"[" * 50_000,
        b'{"kind": "figure", "name": "memory_copy_bytes_per_s", "value": NaN, "gpus": [0]}',
        b'{"kind": "figure", "name": "memory_copy_bytes_per_s", "value": 1e400, "gpus": [0]}',
        b'{"kind": "figure", "name": "memory_copy_bytes_per_s", "value": true, "gpus": [0]}',
        b'{"kind": "figure", "name": "memory_copy_bytes_per_s", "value": -4e12, "gpus": [0]}',
        b'{"kind": "figure", "name": "memory_copy_bytes_per_s", "value": 4e12, "gpus": [1]}',
        b'{"kind": "figure", "name": "memory_copy_bytes_per_s", "value": 4e12, "gpus": []}',
        b'{"kind": "figure", "name": "bf16_flop_per_s", "value": 7e14, "gpus": [0]}',
        b'{"kind": "wrong", "reason": "because", "gpus": [0]}',
        b'{"kind": "pinned", "pages": "4k", "size_bytes": 4096}',
        b'{"kind": "facts", "facts": {}}',
    ],
)
def test_lies_are_not_believed(raw: bytes) -> None:
    """Not a figure, not of this probe, not of its GPU."""
    assert believed(raw, "memory", (0,)) is None


def test_devices_that_cuda_lies_about() -> None:
    """Nonsense in the list is left out; two slices with one UUID become two devices."""
    cuda: dict[str, object] = {"devices": [{"uuid": "a", "name": "n", "memory_bytes": "x"}, 3, {"uuid": "a"}]}
    assert [(one.index, one.memory_bytes) for one in devices_of(cuda, None)] == [(0, 0), (1, 0)]
    assert devices_of({"devices": "x"}, {"devices": [1]}) == ()


def test_latency_is_better_when_less(tmp_path: Path) -> None:
    """20 us against a reference of 10 us is half as good; 5 us is twice."""
    file = tmp_path / "x.yaml"
    file.write_text(
        "schema: 1\nname: x\nsources: {own: me}\nmemory-bytes: [{value: 1, source: own}]\n"
        "measured:\n  names: [X]\n  peer-copy-latency-s: {value: 0.00001, tolerance: 0.2, source: own}\n"
    )
    kind = read_gpu(file)
    assert compare(Figure("peer_copy_latency_s", (0, 1), 20e-6), kind).ratio == pytest.approx(0.5)
    assert compare(Figure("peer_copy_latency_s", (0, 1), 20e-6), kind).mark == "slow"
    assert compare(Figure("peer_copy_latency_s", (0, 1), 5e-6), kind).mark == "ok"


@pytest.mark.parametrize(
    "measured",
    [
        "names: [X]\n  bf16-flop-per-s: {value: 1, source: own}",
        "names: [X]\n  bf16-flop-per-s: {value: 1, tolerance: 2, source: own}",
        "names: [X]\n  bf16-flop-per-s: {value: 1, tolerance: 0.1, source: nobody}",
        "names: [X]\n  bf17-flop-per-s: {value: 1, tolerance: 0.1, source: own}",
        "bf16-flop-per-s: {value: 1, tolerance: 0.1, source: own}",
    ],
)
def test_a_reference_needs_tolerance_source_and_names(tmp_path: Path, measured: str) -> None:
    """What a reference file must not leave out."""
    file = tmp_path / "x.yaml"
    file.write_text(
        "schema: 1\nname: x\nsources: {own: me}\nmemory-bytes: [{value: 1, source: own}]\n"
        f"measured:\n  {measured}\n"
    )
    with pytest.raises(ServemarkError):
        read_gpu(file)


def test_the_shipped_references() -> None:
    """H200: what was measured, each with a tolerance below one half and a source."""
    measured = gpu("h200").measured
    assert measured is not None and measured.names == ("NVIDIA H200",)
    assert measured.figures["memory-copy-bytes-per-s"].value == 4.27e12
    assert all(
        0 < one.tolerance < 0.5 and one.origin.source in {"own", "own2", "hosts"}
        for one in measured.figures.values()
    )


def test_the_kernel_log(host: FakeHost) -> None:
    """Lines as the driver writes them; a log that may not be read is not an empty one."""
    host.program(
        "dmesg",
        "echo '[  12.3] NVRM: Xid (PCI:0000:1B:00): 79, pid=1, GPU has fallen off the bus.'\n"
        "echo '[  12.4] NVRM: Xid (PCI:0000:1c:00): 31, pid=9'\necho 'NVRM: Xid nonsense'",
    )
    assert read_xids(host.root) == (Xid(79, "0000:1b:00.0"), Xid(31, "0000:1c:00.0"))
    host.program("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    assert read_xids(host.root) is None
