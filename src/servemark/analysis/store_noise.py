"""Noise by the repeats that a store holds: the same for a front in the terminal, on the page, and for a comparison."""

from __future__ import annotations

from servemark.analysis.measured import of_stored
from servemark.analysis.noise import NoiseModel, noise_model
from servemark.store.database import Store
from servemark.store.points import load_repeats

REPEATS = (200, 8)
"""Configurations that the noise is worked out from, and newest measurements of each."""


def store_noise(store: Store) -> NoiseModel:
    """What repeats in the whole store show, by source and kind of scenario. Neither pooled nor apart: the caller says."""
    return noise_model([of_stored(each) for each in load_repeats(store, *REPEATS)])
