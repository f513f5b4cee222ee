"""GPU metrics CSV: real nvidia-smi files with and without units, and amd-smi's headings."""

from __future__ import annotations

import csv
import random

import pytest
from tests.results.importers.given_files import SAMPLES, explained, given, refused, sample

from servemark.results.importers.gpu_csv import IMPORTER, read_samples


@pytest.mark.parametrize(("name", "devices"), [("units.csv", 2), ("nounits.csv", 2)])
def test_real_files_equal_a_plain_reading(name: str, devices: int) -> None:
    """Sum of watts over all lines, by the csv module alone."""
    found = read_samples(sample(f"gpu_csv/{name}"))
    rows = list(csv.DictReader((SAMPLES / "gpu_csv" / name).read_text().splitlines(), skipinitialspace=True))
    column = next(key for key in rows[0] if key.startswith("power"))
    expected = sum(float(row[column].removesuffix(" W")) for row in rows)
    assert sum(sum(one.watts) for one in found.devices.values()) == pytest.approx(expected)
    assert (
        len(found.devices) == devices
        and found.samples == len(rows)
        and found.skipped == 0
        and not found.zoned
    )


def test_it_is_a_companion_not_a_result() -> None:
    """Kept, with how many GPUs it saw."""
    (row,) = IMPORTER.read(sample("gpu_csv/units.csv"))
    assert explained(row) == "results.import_companion" and row.reason_values["devices"] == 2


def test_amd_headings() -> None:
    """Seconds since 1970 and watts, one line a GPU; N/A is skipped and counted."""
    data = b"timestamp,gpu,power_usage,hotspot_temperature\n1700000000,0,750,61\n1700000000,1,N/A,60\n1700000001,0,760,61\n"
    found = read_samples(given(data, "amd.csv"))
    assert list(found.devices["0"].watts) == [750.0, 760.0] and found.skipped == 1 and found.zoned


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"", "import_no_columns"),
        (b"a,b,c\n1,2,3\n", "import_no_columns"),
        (b"timestamp, index, power.draw [mW]\n1, 0, 5\n", "import_power_unit"),
        (b"timestamp, index, power.draw\n1, 0, 5\n", "import_power_unit"),
        (b"timestamp, index, power.draw [W]\nsoon, 0, 5\n1, 0, nan\n1, 0, -4 W\n1\n", "import_no_samples"),
        (b"timestamp, index, power.draw [W]\n1, 0, 5\n" + b"x" * 200_000, "import_long_line"),
    ],
)
def test_damage_gives_messages(data: bytes, key: str) -> None:
    """Also a unit that is not watts: never converted by guess."""
    assert refused(IMPORTER, given(data, "x.csv")) == f"results.{key}"


def test_noise_never_breaks_it() -> None:
    """Random bytes after a good heading: lines are skipped."""
    noise = random.Random(7).randbytes(50_000)
    data = b"timestamp, index, power.draw [W]\n1, 0, 5\n" + noise + b"\n2, 0, 6\n"
    assert read_samples(given(data, "x.csv")).samples >= 2
