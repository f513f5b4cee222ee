"""Energy by hand: ramps, windows between samples, gaps, coverage, roles."""

from __future__ import annotations

from array import array

import pytest

from servemark.base.errors import ServemarkError
from servemark.metrics.address import parse
from servemark.metrics.registry import Kind
from servemark.results.importers.gpu_csv import DeviceSamples, GpuSamples
from servemark.results.power import Work, by_role, device_energy, energy, energy_figures


def device(name: str, *samples: tuple[float, float]) -> DeviceSamples:
    """(seconds, watts) pairs."""
    return DeviceSamples(name, array("d", [t for t, _ in samples]), array("d", [w for _, w in samples]))


def both() -> GpuSamples:
    """GPU a at 100 W throughout, GPU b from 0 W at 0 s to 400 W at 4 s."""
    a = device("a", *((t, 100.0) for t in range(5)))
    b = device("b", *((t, 100.0 * t) for t in range(5)))
    return GpuSamples({"a": a, "b": b}, 10, 0, True, "power.draw")


def test_by_hand() -> None:
    """0..4 s: 400 J and a triangle of 4 x 400 / 2 = 800 J. 0.5..3.5 s: 300 J and 3 s x mean(50, 350) W = 600 J."""
    found = energy(both(), 0, 4)
    assert [one.energy_j for one in found.devices] == [400, 800] and found.energy_j == 1200
    assert found.mean_w_per_gpu == 150
    found = energy(both(), 0.5, 3.5)
    assert [one.energy_j for one in found.devices] == pytest.approx([300, 600])
    assert [one.samples for one in found.devices] == [3, 3]


def test_a_window_between_two_samples() -> None:
    """1.25..1.75 s of the ramp: 0.5 s x 150 W = 75 J, with no sample inside."""
    one = device_energy(both().devices["b"], 1.25, 1.75)
    assert one.energy_j == pytest.approx(75) and one.samples == 0 and one.mean_w == pytest.approx(150)


def test_order_and_doubles() -> None:
    """Samples out of order and twice at one moment (100 and 300 W count as 200 W)."""
    one = device("a", (2, 200), (0, 200), (1, 100), (1, 300))
    assert device_energy(one, 0, 2).energy_j == pytest.approx(400)


@pytest.mark.parametrize(
    ("begin", "end", "gap", "key"),
    [
        (-0.1, 3, 5, "uncovered"),
        (1, 4.1, 5, "uncovered"),
        (3, 3, 5, "window"),
        (0, 4, 0.5, "gap"),
        (1.2, 1.4, 0.5, "gap"),
    ],
)
def test_refused(begin: float, end: float, gap: float, key: str) -> None:
    """Never extrapolated; the gap around a short window counts although no sample lies in it."""
    with pytest.raises(ServemarkError) as caught:
        energy(both(), begin, end, max_gap_s=gap)
    assert caught.value.key == f"results.power_{key}" and caught.value.what("zh")


def test_every_gpu_must_be_there() -> None:
    """8 deployed but 2 sampled, or one that is named and absent."""
    for arguments in ({"expected": 8}, {"devices": ["a", "c"]}):
        with pytest.raises(ServemarkError) as caught:
            energy(both(), 0, 4, **arguments)
        assert caught.value.key == "results.power_devices"


def test_joules_per_token() -> None:
    """1,200 J over 3,000 + 1,000 tokens is 0.3 J/token; prefill 400 J / 3,000, decode 800 J / 1,000."""
    found = energy(both(), 0, 4)
    made = energy_figures(found, Work(3000, 1000, 20), {"a": "prefill", "b": "decode"})
    figures = {name: one.value for name, one in made.items()}
    assert figures["joules_per_total_token"] == pytest.approx(0.3)
    assert figures["joules_per_output_token"] == pytest.approx(1.2)
    assert figures["joules_per_request"] == pytest.approx(60)
    assert figures["prefill_joules_per_input_token"] == pytest.approx(400 / 3000)
    assert figures["decode_joules_per_output_token"] == pytest.approx(0.8)
    assert figures["gpu_power_w.mean"] == 150 and figures["gpus_energy_j"] == 1200
    assert figures["gpus_power_w.mean"] == 300 and figures["decode_gpu_power_w.mean"] == 200
    assert made["decode_joules_per_output_token"].how == "800 J / 1000 output tokens"
    assert all(parse(name).metric.kind is Kind.TELEMETRY for name in made)  # each has a name in the registry


def test_missing_is_absent() -> None:
    """No token counts, no J/token; a GPU without a role is refused, for the sums would lack it."""
    found = energy(both(), 0, 4)
    alone = {"gpus_energy_j", "gpu_power_w.mean", "gpus_power_w.mean"}
    assert set(energy_figures(found, Work())) == alone
    assert "joules_per_output_token" not in energy_figures(found, Work(10, 0))
    with pytest.raises(ServemarkError):
        by_role(found, {"a": "prefill"})


def test_what_gates_read() -> None:
    """Moments count from the window's begin."""
    assert energy(both(), 0.5, 3.5).observed() == {
        "window_s": 3.0, "first_s": -0.5, "last_s": 3.5, "longest_gap_s": 1.0, "devices": 2,
    }  # fmt: skip
