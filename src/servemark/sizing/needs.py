"""What a host must have for a KV store: bytes, huge pages, locked memory, registration entries. Plain values in,
plain values out; nothing is read from the machine.

Sources: Mooncake 3b5a594 (each rank rounds segment and buffer up to the page size; measured exact at 160 pages)
and its EFA transport (22 Mi entries a NIC).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from servemark.base.errors import input_error

PAGE_4K = 4096
PAGE_2M = 2 << 20
PAGE_1G = 1 << 30
EFA_ENTRIES = 22 << 20
"""Page-table entries that Mooncake lets one buffer take on an EFA NIC; hardware lore says about 24 million."""
HEADROOM_PERCENT = 107
"""Reserve for other users of the pool: 0.68 % was just exhausted in one report, 7 % held."""
HEADROOM_RANK_BYTES = 1408 << 20
"""Least reserve of a rank on EFA: in the same report 8 ranks took 10.5 GiB more than the store's own need, rounded
up to 11 GiB (1.375 GiB a rank)."""


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """Needs of one node. Bytes and pages are of all ranks on it unless the name says otherwise."""

    ranks: int
    segment_bytes_per_rank: int
    buffer_bytes_per_rank: int
    page_bytes: int
    bytes_per_node: int
    """Segments and buffers of all ranks, as configured."""
    pages: int
    """Huge pages that the store itself takes: exact."""
    pages_reserved: int
    """Huge pages to reserve, headroom included."""
    memlock_bytes_per_rank: int
    """Locked memory that a rank's process registers with NICs; 0 where nothing is registered (tcp)."""
    registered: bool
    chunks_4k: int
    """Pieces a rank's segment must be registered in with 4 KiB pages; above 1 on EFA it spreads over fewer NICs."""
    entries_4k_per_segment: int
    entries_2m_per_segment: int
    entries_4k_per_nic: int
    """Entries when every rank of the node registers segment and buffer on a NIC."""
    entries_2m_per_nic: int
    entry_limit: int | None
    """Entries a NIC has for one buffer; None where no limit is known."""

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the reserved huge pages."""
        return self.pages_reserved * self.page_bytes

    @property
    def needs_huge_pages(self) -> bool:
        """Whether a segment cannot be registered whole with 4 KiB pages."""
        return self.entry_limit is not None and self.entries_4k_per_segment > self.entry_limit


def entries(size: int, page_bytes: int) -> int:
    """Page-table entries for `size` bytes."""
    return math.ceil(size / page_bytes)


def chunks(size: int, page_bytes: int, limit: int | None = EFA_ENTRIES) -> int:
    """Pieces that a buffer is registered in so that each stays within `limit` entries."""
    if size <= 0:
        return 0
    return 1 if limit is None else math.ceil(size / (limit * page_bytes))


def huge_pages(ranks: int, segment_bytes: int, buffer_bytes: int, page_bytes: int) -> int:
    """Pages that the stores of a node take: each rank rounds its segment and its buffer up by itself."""
    return ranks * (entries(segment_bytes, page_bytes) + entries(buffer_bytes, page_bytes))


def pages_to_reserve(pages: int, ranks: int, page_bytes: int, protocol: str) -> int:
    """Pages with headroom: 7 % more, on EFA at least 1.375 GiB a rank; 0 for none."""
    share = -(-pages * HEADROOM_PERCENT // 100)
    if not pages or protocol != "efa":
        return share
    return max(share, pages + math.ceil(ranks * HEADROOM_RANK_BYTES / page_bytes))


def host_needs(
    *,
    ranks: int,
    segment_bytes: int,
    buffer_bytes: int = 0,
    page_bytes: int = PAGE_2M,
    protocol: str = "efa",
) -> HostNeeds:
    """Needs of a node on which `ranks` processes each hold a segment and a local buffer.

    `protocol`: `efa` has the entry limit, `rdma` registers without one that is known here, `tcp` registers nothing.
    Raises ServemarkError (exit 2) for counts or sizes that no store can have.
    """
    for name, value, least in (
        ("ranks", ranks, 1),
        ("segment_bytes", segment_bytes, 0),
        ("buffer_bytes", buffer_bytes, 0),
        ("page_bytes", page_bytes, PAGE_4K),
    ):
        if value < least:
            raise input_error("sizing.not_positive", name=name, value=value)
    limit = EFA_ENTRIES if protocol == "efa" else None
    registered = protocol != "tcp"
    pages = huge_pages(ranks, segment_bytes, buffer_bytes, page_bytes)
    reserved = pages_to_reserve(pages, ranks, page_bytes, protocol)
    both = {
        page: ranks * (entries(segment_bytes, page) + entries(buffer_bytes, page))
        for page in (PAGE_4K, PAGE_2M)
    }
    return HostNeeds(
        ranks=ranks,
        segment_bytes_per_rank=segment_bytes,
        buffer_bytes_per_rank=buffer_bytes,
        page_bytes=page_bytes,
        bytes_per_node=ranks * (segment_bytes + buffer_bytes),
        pages=pages,
        pages_reserved=reserved,
        memlock_bytes_per_rank=(segment_bytes + buffer_bytes) if registered else 0,
        registered=registered,
        chunks_4k=chunks(segment_bytes, PAGE_4K, limit),
        entries_4k_per_segment=entries(segment_bytes, PAGE_4K),
        entries_2m_per_segment=entries(segment_bytes, PAGE_2M),
        entries_4k_per_nic=both[PAGE_4K],
        entries_2m_per_nic=both[PAGE_2M],
        entry_limit=limit,
    )
