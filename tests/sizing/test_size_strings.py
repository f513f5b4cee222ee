"""Each reader of size strings with its traps; expected bytes are powers of 1024 worked out by hand."""

from __future__ import annotations

import pytest

from servemark.base.errors import ServemarkError
from servemark.sizing.size_strings import (
    mooncake_cpp_size,
    mooncake_python_size,
    raw_bytes,
    sglang_hicache_size,
    sglang_host_pool_size,
    silently_zero,
    vllm_size,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("190GB", 190 * GIB),
        ("190gb", 190 * GIB),
        ("1.5 GB", 3 * GIB // 2),
        (4096, 4096),
        ("64MB", 64 << 20),
        ("7B", 7),
        ("12", 12),
    ],
)
def test_vllm(text: object, size: int) -> None:
    """GB is 2^30; decimals and any case are read."""
    assert vllm_size(text) == size


@pytest.mark.parametrize(
    "text", ["190GiB", "1TB", "190G", "", "GB", "-4GB", "1e3GB", "nan", True, None, 1.5, "9" * 80]
)
def test_vllm_refuses(text: object) -> None:
    """No TB, no bare G, no GiB: the engine fails at start, so no number may come out of here."""
    with pytest.raises(ServemarkError) as caught:
        vllm_size(text)
    assert caught.value.exit_code == 2


def test_mooncake_python() -> None:
    """TB and bare letters as well; "190GiB" is an error here too."""
    assert mooncake_python_size("1TB") == 1 << 40
    assert mooncake_python_size("3g") == 3 * GIB
    with pytest.raises(ServemarkError):
        mooncake_python_size("190GiB")


@pytest.mark.parametrize(
    ("text", "size", "silent"),
    [
        ("4GB", 4 * GIB, False),
        ("4g", 4 * GIB, False),
        ("190GiB", 0, True),
        ("lots", 0, True),
        ("0", 0, False),
        ("0GB", 0, False),
        ("10", 10, False),
    ],
)
def test_mooncake_cpp_is_silent(text: str, size: int, silent: bool) -> None:
    """An unknown unit is 0 bytes and no error: `silently_zero` tells it from an intended 0."""
    assert mooncake_cpp_size(text) == size
    assert silently_zero(text) is silent


def test_raw_bytes() -> None:
    """A number of bytes and nothing else."""
    assert raw_bytes("1099511627776") == 1 << 40
    for text in ("1TB", "1 GB", "", "-1"):
        with pytest.raises(ServemarkError):
            raw_bytes(text)


def test_sglang_total_is_divided() -> None:
    """The store's size is a total: 160gb over TP 8 are 20 GiB a rank, over TP 4 x PP 2 as well; no decimals, no MB."""
    assert sglang_hicache_size("160gb", 8) == 20 * GIB
    assert sglang_hicache_size("160GB", 4, 2) == 20 * GIB
    assert sglang_hicache_size(8 * GIB, 8) == GIB
    for text in ("1.5gb", "500MB", "gb"):
        with pytest.raises(ServemarkError):
            sglang_hicache_size(text, 8)
    with pytest.raises(ServemarkError):
        sglang_hicache_size("160gb", 0)


def test_sglang_host_pool_is_decimal() -> None:
    """--hicache-size is 10^9 a rank: the one decimal reader."""
    assert sglang_host_pool_size(190) == 190_000_000_000


def test_absurd_sizes() -> None:
    """Beyond any machine: refused, not computed with."""
    for reader in (vllm_size, mooncake_python_size, mooncake_cpp_size):
        with pytest.raises(ServemarkError):
            reader("99999999999GB")
