"""Needs of a host: pages, locked memory, registration, and the seed's figures by scope."""

from __future__ import annotations

import pytest

from servemark.base.errors import ServemarkError
from servemark.sizing.host import RoleHost, StoreSizes, dram_budget_gb, transfer_seconds, usable_bytes
from servemark.sizing.needs import EFA_ENTRIES, PAGE_4K, chunks, entries, host_needs

GIB, MIB = 1 << 30, 1 << 20


def test_store_takes_exactly_160_pages() -> None:
    """Measured with a real store: a segment of 256 MiB and a buffer of 64 MiB took 160 pages; 159 were refused."""
    assert host_needs(ranks=1, segment_bytes=256 * MIB, buffer_bytes=64 * MIB, protocol="tcp").pages == 160


def test_each_size_is_rounded_up_by_itself() -> None:
    """1 byte of segment and 1 of buffer are two pages a rank."""
    assert host_needs(ranks=3, segment_bytes=1, buffer_bytes=1).pages == 6


def test_headroom_of_a_rank() -> None:
    """7 % of 160 pages are 12 (11.2 rounded up); on EFA 1.375 GiB a rank are 704 pages, 11 GiB of 8 ranks 5,632."""
    segment, buffer = 256 * MIB, 64 * MIB
    tcp = host_needs(ranks=1, segment_bytes=segment, buffer_bytes=buffer, protocol="tcp")
    assert tcp.pages_reserved == 172
    for ranks in (1, 8):
        efa = host_needs(ranks=ranks, segment_bytes=segment, buffer_bytes=buffer)
        assert efa.pages_reserved == ranks * (160 + 704)
    assert host_needs(ranks=8, segment_bytes=0).pages_reserved == 0


def test_registration_on_efa() -> None:
    """190 GiB are 49,807,360 entries of 4 KiB: 2.16 times 22 Mi, so 3 chunks of at most 88 GiB; 97,280 of 2 MiB."""
    needs = host_needs(ranks=8, segment_bytes=190 * GIB, buffer_bytes=4 * GIB)
    assert needs.entries_4k_per_segment == 49_807_360
    assert needs.entries_2m_per_segment == 97_280
    assert needs.entries_2m_per_nic == 794_624
    assert needs.chunks_4k == 3 and needs.needs_huge_pages
    assert needs.entry_limit == EFA_ENTRIES == 23_068_672
    assert EFA_ENTRIES * PAGE_4K == 88 * GIB
    assert chunks(190 * GIB, 2 * MIB) == 1
    assert entries(190 * GIB, PAGE_4K) / EFA_ENTRIES == pytest.approx(2.16, abs=0.001)


def test_tcp_registers_nothing_and_rdma_has_no_known_limit() -> None:
    """Absent is absent: no limit is None, and tcp locks no memory."""
    tcp = host_needs(ranks=8, segment_bytes=190 * GIB, protocol="tcp")
    assert tcp.memlock_bytes_per_rank == 0 and not tcp.needs_huge_pages
    rdma = host_needs(ranks=8, segment_bytes=190 * GIB, protocol="rdma")
    assert rdma.entry_limit is None and rdma.memlock_bytes_per_rank == 190 * GIB and rdma.chunks_4k == 1


@pytest.mark.parametrize(
    "bad", [{"ranks": 0}, {"segment_bytes": -1}, {"buffer_bytes": -4}, {"page_bytes": 512}]
)
def test_impossible_counts(bad: dict[str, int]) -> None:
    """Zero ranks, negative sizes, pages below 4 KiB: refused with exit code 2."""
    with pytest.raises(ServemarkError) as caught:
        host_needs(**{"ranks": 8, "segment_bytes": GIB, **bad})  # type: ignore[arg-type]
    assert caught.value.exit_code == 2


def test_scopes_of_the_seed() -> None:
    """Per rank 194 GiB, node 1,552 GiB = 1,666.45 GB; pool of two roles 3,040 GiB = 3,264.2 GB, 95 % before eviction."""
    store = StoreSizes("mooncake", 190 * GIB, 4 * GIB, protocol="efa")
    role = RoleHost(store, workers=1, ranks_per_worker=8, ranks_per_node=8)
    assert store.rank_bytes == 194 * GIB
    assert role.worker_bytes == role.node_bytes == role.role_bytes == 1552 * GIB
    assert role.node_bytes / 1e9 == pytest.approx(1666.45, abs=0.005)
    assert 2 * role.role_bytes / 1e9 == pytest.approx(3332.9, abs=0.05)
    pool = 2 * role.pool_bytes
    assert pool == 3040 * GIB and pool / 1e9 == pytest.approx(3264.2, abs=0.05)
    before, after = usable_bytes(pool, store)
    assert before == int(pool * 0.95) and after == pytest.approx(pool * 0.85, abs=2)


def test_budget_refuses_nonsense() -> None:
    """No GPUs, no memory, a share above 1."""
    for arguments in (
        (0, 0.5, 8, 8),
        (1000, 0.5, 0, 8),
        (1000, 0.5, 8, 0),
        (1000, 1.5, 8, 8),
        (1000, 0.0, 8, 8),
    ):
        with pytest.raises(ServemarkError):
            dram_budget_gb(*arguments)


def test_transfer() -> None:
    """2.54 GB take 6.35 ms at 400 GB/s and 25.4 ms at 100 GB/s."""
    assert transfer_seconds(2.54e9, 400e9) == pytest.approx(0.00635)
    assert transfer_seconds(2.54e9, 100e9) == pytest.approx(0.0254)
    with pytest.raises(ServemarkError):
        transfer_seconds(1, 0)


def test_reserved_bytes() -> None:
    """850,248 pages of 2 MiB."""
    needs = host_needs(ranks=8, segment_bytes=190 * GIB, buffer_bytes=4 * GIB)
    assert needs.reserved_bytes == 850_248 * 2 * MIB
