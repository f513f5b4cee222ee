"""What an arm needs of a node. Expected figures are worked out by hand from the recipe's own numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.catalog.deployment import Deployment
from servemark.catalog.suite import read_suite
from servemark.preflight.facts import GIB, PAGE_2M
from servemark.preflight.needs import StoreNeed, needs_of
from servemark.sizing.from_recipe import ranks_per_node

MakeDeployment = Callable[..., Deployment]
SEED = Path(__file__).resolve().parents[3] / "shared" / "data" / "seed" / "suite"


def test_embedded_store_counts_every_rank(deploy: MakeDeployment) -> None:
    """8 ranks x (190 + 4) GiB: "GB" is 2^30 for the store. 97,280 + 2,048 pages a rank, 794,624 a node."""
    store = needs_of(deploy(), arm="a").store
    assert store is not None
    assert store.segment_bytes == 190 * 2**30 and store.buffer_bytes == 4 * 2**30
    assert store.node_bytes == 1552 * 2**30 == 1_666_447_310_848
    assert store.pages == 8 * (97_280 + 2_048) == 794_624
    # 794,624 x 1.07 = 850,247.68, rounded up; 8 x 704 pages (11 GiB) above the need would be fewer.
    assert store.reserve_pages == 850_248
    # 190 GiB / 4 KiB, against 22 x 2^20 entries: 2.16 times, so three chunks; one in pages of 2 MiB.
    assert store.entries(4096) == 49_807_360 and store.chunks(4096) == 3
    assert store.entries(PAGE_2M) == 97_280 and store.chunks(PAGE_2M) == 1


@pytest.mark.corpus
def test_the_published_recipe() -> None:
    """The same figures from the real recipe that they were worked out for."""
    if not SEED.is_dir():
        pytest.skip("the published recipe is not on this machine")
    suite, _ = read_suite(SEED)
    (arm,) = suite.arms.values()
    needs = needs_of(suite.deployment(arm, arm.entries[0]), arm=arm.key)
    assert needs.store is not None and needs.store.pages == 794_624
    assert needs.gpus == 8 and needs.gpu_type == "b300" and "efa" in needs.protocols
    assert needs.store.huge == "malloc-thp"


def test_headroom_of_small_stores_with_and_without_efa() -> None:
    """100 pages: 107 by share; with EFA 704 pages (1.375 GiB) a rank are kept for its own buffers."""
    small = StoreNeed(100 * PAGE_2M, 0, 1, "tcp", "hugetlb", PAGE_2M)
    assert small.reserve_pages == 107
    assert StoreNeed(100 * PAGE_2M, 0, 1, "efa", "hugetlb", PAGE_2M).reserve_pages == 804


def test_gigabyte_pages_round_each_part_up() -> None:
    """A segment of 1.5 GiB and a buffer of 0.5 GiB take 2 + 1 pages of 1 GiB, not 2."""
    assert StoreNeed(3 * GIB // 2, GIB // 2, 4, "tcp", "hugetlb", GIB).pages == 12


@pytest.mark.parametrize(
    ("environment", "huge"),
    [
        ("", "plain"),
        ("MC_STORE_USE_HUGEPAGE: '1'", "hugetlb"),
        ("MC_STORE_USE_HUGEPAGE: '0'", "hugetlb"),  # the store tests for presence only
        ("GLIBC_TUNABLES: 'glibc.malloc.hugetlb=1'", "malloc-thp"),
        ("GLIBC_TUNABLES: 'glibc.malloc.hugetlb=2'", "plain"),
    ],
)
def test_how_the_segment_asks_for_huge_pages(deploy: MakeDeployment, environment: str, huge: str) -> None:
    """From the environment of the role."""
    store = needs_of(deploy(environment=environment), arm="a").store
    assert store is not None and store.huge == huge


def test_page_size_of_one_gibibyte(deploy: MakeDeployment) -> None:
    """MC_STORE_HUGEPAGE_SIZE=1GB: 8 x (190 + 4) pages."""
    env = "MC_STORE_USE_HUGEPAGE: '1', MC_STORE_HUGEPAGE_SIZE: 1GB"
    store = needs_of(deploy(environment=env), arm="a").store
    assert store is not None and store.huge_page_bytes == GIB and store.pages == 1552


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"mode": "standalone-store"}, "preflight.need.standalone_store"),
        ({"environment": "MOONCAKE_GLOBAL_SEGMENT_SIZE: 190 gigs"}, "preflight.need.unreadable_store_size"),
        ({"environment": "MOONCAKE_GLOBAL_SEGMENT_SIZE: 190GiB"}, "preflight.need.unreadable_store_size"),
        ({"environment": "MOONCAKE_GLOBAL_SEGMENT_SIZE: 1TB"}, "preflight.need.unreadable_store_size"),
    ],
)
def test_what_cannot_be_told_is_said(deploy: MakeDeployment, change: dict[str, str], key: str) -> None:
    """Never a number that looks right."""
    needs = needs_of(deploy(**change), arm="a")
    assert needs.store is None and needs.problems == (key,)


def test_ranks_on_a_node_and_roles(deploy: MakeDeployment) -> None:
    """One worker of 8 GPUs fills a node of 8; a role that is asked for alone is all there is."""
    deployment = deploy()
    assert ranks_per_node(deployment.roles[0], deployment) == 8
    only = needs_of(deployment, arm="a", role="decode")
    assert [role.role for role in only.roles] == ["decode"] and only.gpus == 8


def test_ports_of_frontend_and_services(deploy: MakeDeployment) -> None:
    """Defaults where the recipe names none."""
    ports = dict(needs_of(deploy(), arm="a").ports)
    assert ports[8000] == "frontend" and ports[2379] == "etcd" and ports[8700] == "mooncake-master"
