"""What moved between workers, from the counters that vLLM 0.26 shows: figures by hand."""

from __future__ import annotations

import pytest

from servemark.launch.engines.protocol import EngineCounters
from servemark.metrics.derive import value_of
from servemark.runs.collect import kv_transfer_window

LABELS = '{engine="0",model_name="m"}'


def counters(
    count: float, seconds: float, size: float, pieces: float, *, worker: str = "decode-0"
) -> EngineCounters:
    """Of one deployment: the decode worker's histograms, and the prefill worker's, which stay at zero."""
    values = {
        "xfer_time_seconds_count": count,
        "xfer_time_seconds_sum": seconds,
        "bytes_transferred_sum": size,
        "num_descriptors_sum": pieces,
        "num_failed_transfers_total": 0.0,
    }
    raw = {f"{worker} vllm:nixl_{name}{LABELS}": value for name, value in values.items()}
    raw |= {f"prefill-0 vllm:nixl_{name}{LABELS}": 0.0 for name in values}
    return EngineCounters(None, None, None, raw)


def test_the_windows_own_share() -> None:
    """8 transfers of 80 MB and 36 pieces in 20 ms: 2.5 ms each, 32 GB/s, whatever went before."""
    found = kv_transfer_window(counters(4, 0.5, 1e9, 100), counters(12, 0.52, 1.64e9, 388))
    row = {"observed": {"kv_transfer": found}}
    assert found["transfers"] == 8 and found["failed_transfers"] == 0
    assert value_of(row, "kv_transfer_s") == pytest.approx(0.0025)
    assert value_of(row, "kv_transfer_bytes") == pytest.approx(80e6)
    assert value_of(row, "kv_transfer_descriptors") == pytest.approx(36)
    assert value_of(row, "kv_transfer_bytes_per_s") == pytest.approx(32e9)


def test_nothing_moved_is_absent() -> None:
    """No reading on a side, no such counters, or none that rose: no block, and no figure of 0."""
    some = counters(4, 0.5, 1e9, 100)
    assert kv_transfer_window(None, some) == {} and kv_transfer_window(some, None) == {}
    assert kv_transfer_window(some, some) == {}
    other = EngineCounters(1.0, None, None, {"vllm:prompt_tokens_total": 1.0})
    assert kv_transfer_window(other, other) == {}
    assert value_of({"observed": {}}, "kv_transfer_s") is None
