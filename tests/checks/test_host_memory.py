"""Host memory of recipes: who reads a size, what a node needs, and which utilization records it.

Figures are worked out by hand: GB in a store's size is 2^30 bytes, in a master's budget 10^9.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from servemark.catalog.clusters import Hardware
from servemark.catalog.nodes import Position
from servemark.checks.check import check_suite
from servemark.checks.example import write
from servemark.checks.host_memory import utilization_for
from servemark.checks.known_models import model_bytes, model_of

GIB = 2**30
DISAGG = "recipes/owl/disagg.yaml"


def test_utilization_leaves_room() -> None:
    """1,552 GiB = 1,666,447,310,848 bytes are 0.55548 of the capped node (2,999,999,004,672 bytes): 0.5555 records
    1,666.4995, too near to the edge of what it must hold; half a step more is 0.5556. 1,520 GiB are 0.54403."""
    node = Hardware(3_977_095, 8, Position("x", 1, 1))
    assert utilization_for(1552 * GIB, node, Fraction(1)) == ("0.5556", 1666)
    assert utilization_for(1520 * GIB, node, Fraction(1)) == ("0.5441", 1632)
    assert utilization_for(3_000_000_000_000, node, Fraction(1)) is None
    assert utilization_for(2_999_999_004_672, node, Fraction(1)) == ("1.0000", 2999)


@pytest.mark.parametrize("size", ["150GiB", "1TB", "150G", "-1GB", "many"])
def test_sizes_that_the_engine_refuses(size: str, tmp_path: Path) -> None:
    """vLLM's reader takes none of these: an error, and no memory is worked out from another reader's meaning."""
    report = check_suite(
        write(tmp_path, ((DISAGG, "global_segment_size: 150GB", f"global_segment_size: {size}"),))
    )
    codes = {finding.code for finding in report.findings if finding.severity == "error"}
    assert codes & {"MEM306", "SCH080"}, codes
    assert "MEM301" not in codes


@pytest.mark.parametrize(
    ("value", "codes"),
    [("1", {"MEM304"}), ("0", {"MEM310"}), ("2", set()), ("1:glibc.malloc.tcache_count=0", {"MEM304"})],
)
def test_malloc_pages(value: str, codes: set[str], tmp_path: Path) -> None:
    """Only 1 means transparent pages; 0 is off, so that the segment is in small pages; 2 takes reserved ones."""
    edits = (
        (DISAGG, "protocol: rdma\n        device_name: mlx5_0", "protocol: efa"),
        (
            DISAGG,
            "LD_LIBRARY_PATH: /usr/local/cuda/lib64",
            f"LD_LIBRARY_PATH: /opt/amazon/efa/lib\n  GLIBC_TUNABLES: glibc.malloc.hugetlb={value}",
        ),
    )
    report = check_suite(write(tmp_path, edits))
    assert {finding.code for finding in report.findings} == codes


@pytest.mark.parametrize(("pages", "severity"), [(630_783, "error"), (630_784, "warning"), (674_939, None)])
def test_pages_to_the_page(pages: int, severity: str | None, tmp_path: Path) -> None:
    """8 ranks x (150 + 4) GiB are 630,784 pages of 2 MiB: one fewer does not start, 7 % more are enough."""
    edits = (
        (DISAGG, "environment:\n", 'environment:\n  MC_STORE_USE_HUGEPAGE: "1"\n'),
        (
            DISAGG,
            "slurm: {time_limit",
            f"host_setup: {{sysctl: {{vm.nr_hugepages: {pages}}}}}\nslurm: {{time_limit",
        ),
    )
    report = check_suite(write(tmp_path, edits))
    found = {finding.severity for finding in report.findings if finding.code == "MEM311"}
    assert found == ({severity} if severity else set())


def test_models_are_found_under_any_owner() -> None:
    """A quantized copy by another owner is the same architecture; an unknown one is none."""
    ours = model_of("nvidia/DeepSeek-R1-0528-NVFP4-v2")
    assert ours is not None and ours.attention[0].heads == 128
    assert model_of("acme/Owl-2") is None
    assert model_bytes("acme/Owl-2", "fp8") is None
    assert 640e9 < (model_bytes("deepseek-ai/DeepSeek-R1-0528", "fp8") or 0) < 700e9
