"""Series on which change points are known, and Apache Otava's answers to them.

Run with a Python that has Apache Otava (`pip install apache-otava`) this file prints the answers as JSON:
`python tests/analysis/change_point_series.py`. `OTAVA` below is what version 0.8.0 printed; the tests compare with it,
and run Otava itself where it can be imported (or where OTAVA_PYTHON names a Python that can).
"""

from __future__ import annotations

import importlib
import json
import random


def noise(seed: int, count: int, centre: float, spread: float) -> list[float]:
    """Normal noise from a fixed seed, rounded so that the values are the same on every machine."""
    chance = random.Random(seed)
    return [round(chance.gauss(centre, spread), 4) for _ in range(count)]


SERIES: dict[str, list[float]] = {
    # Published total tok/s/GPU of DeepSeek-R1 FP8 on MI355X with SGLang at 1024/8192, concurrency 16, Dec 2025 to Feb 2026.
    "published_steps": [
        94.778,
        113.795,
        142.847,
        142.658,
        143.239,
        180.054,
        179.573,
        180.291,
        181.695,
        186.901,
    ],
    # The same on MI325X at 1024/1024, concurrency 4, Dec 2025 to May 2026: down, slowly up, and one last value far away.
    "published_down_up": [44.412, 44.153, 44.413, 44.378, 44.128, 34.857, 35.146, 38.804, 39.895, 66.122],
    "step": [*noise(1, 15, 100, 1), *noise(2, 15, 110, 1)],
    "two_steps": [*noise(3, 12, 100, 1), *noise(4, 14, 106, 1), *noise(5, 12, 95, 1)],
    "there_and_back": [*noise(6, 15, 50, 0.5), *noise(7, 10, 55, 0.5), *noise(8, 15, 50, 0.5)],
    "wide_noise": [*noise(9, 20, 100, 15), *noise(10, 20, 100, 15)],
    "flat": noise(11, 40, 100, 1),
    "constant": [5.0] * 12,
}

OTAVA: dict[str, dict[str, object]] = {
    "published_steps": {"best": 5, "q": 200.0615, "permutations": [5], "t_test": [5]},
    "published_down_up": {"best": 9, "q": 40.911, "permutations": [], "t_test": [5]},
    "step": {"best": 15, "q": 134.409514, "permutations": [15], "t_test": [15, 16]},
    "two_steps": {"best": 26, "q": 105.434426, "permutations": [12, 26], "t_test": [12, 26]},
    "there_and_back": {"best": 15, "q": 55.733303, "permutations": [15, 25], "t_test": [15, 25]},
    "wide_noise": {"best": 31, "q": 63.838955, "permutations": [], "t_test": []},
    "flat": {"best": 36, "q": 5.446292, "permutations": [], "t_test": []},
    "constant": {"best": 1, "q": 0.0, "permutations": [], "t_test": []},
}


def answers() -> dict[str, dict[str, object]]:
    """Of each series: Otava's best division with its Q, and the change points of its e-divisive with permutations
    (`permutations`, p <= 0.05, seed 1) and of its t-test variant (`t_test`, p <= 0.001)."""
    analysis = importlib.import_module("otava.analysis")
    calculator = importlib.import_module("otava.change_point_divisive.calculator").PairDistanceCalculator
    array = importlib.import_module("numpy").array

    found: dict[str, dict[str, object]] = {}
    for name, values in SERIES.items():
        best = calculator(array(values)).get_candidate_change_point(slice(0, len(values)))
        permuted, _ = analysis.compute_change_points_orig(values, max_pvalue=0.05, seed=1)
        tested, _ = analysis.compute_change_points(values)
        found[name] = {
            "best": int(best.index),
            "q": round(float(best.qhat), 6),
            "permutations": [int(point.index) for point in permuted],
            "t_test": [int(point.index) for point in tested],
        }
    return found


if __name__ == "__main__":
    print(json.dumps(answers(), indent=1))
