"""Colours against WCAG 2.2 (1.4.3, 1.4.11): 4.5 to 1 for text, 3 to 1 for what a drawing says."""

from __future__ import annotations

import re

import pytest

from servemark.report.assets import style

TEXT = [
    ("ink", "bg"), ("ink", "raised"), ("soft", "bg"), ("soft", "raised"), ("soft", "sunk"), ("faint", "bg"),
    ("faint", "raised"), ("accent", "bg"), ("accent", "raised"), ("bg", "accent"), ("bg", "ink"),
    ("good", "raised"), ("good", "good-soft"), ("warm-ink", "warm-soft"), ("warm-ink", "raised"),
    ("bad", "bad-soft"), ("bad", "raised"), ("ink", "good-soft"), ("ink", "accent-soft"),
    ("faint", "accent-soft"),
]  # fmt: skip
DRAWN = [
    ("accent", "raised"), ("bar", "raised"), ("accent", "accent-soft"), ("accent-mid", "raised"),
    ("ink", "accent-mid"), ("bad", "raised"), ("bad", "bad-soft"),
]  # fmt: skip


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb` (WCAG 2.2, "relative luminance")."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """(L1 + 0.05) / (L2 + 0.05), the lighter first."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def palettes() -> list[dict[str, str]]:
    """The light and the dark palette, as written."""
    blocks = re.findall(r":root\{([^}]*)\}", str(style()))
    found = [dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{6})", block)) for block in blocks]
    return [palette for palette in found if len(palette) > 10]


def test_formula_against_known_values() -> None:
    """Black on white is 21; #767676 on white is 4.54, the usual example of just enough."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


def test_light_and_dark_are_there() -> None:
    """Both define the same colours."""
    light, dark = palettes()
    assert set(light) == set(dark)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), TEXT)
def test_text(scheme: int, ink: str, ground: str) -> None:
    """Every pair that the style sheet uses for words."""
    palette = palettes()[scheme]
    assert contrast(palette[ink], palette[ground]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("shape", "ground"), DRAWN)
def test_drawn(scheme: int, shape: str, ground: str) -> None:
    """Marks and bars against what they stand on."""
    palette = palettes()[scheme]
    assert contrast(palette[shape], palette[ground]) >= 3
