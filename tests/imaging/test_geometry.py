"""λ(s) of DLEBench Eq. 1 and crops with context."""

from __future__ import annotations

import pytest

from editloupe.imaging.geometry import expand, expansion_ratio
from editloupe.values import Box


@pytest.mark.parametrize(
    ("s", "expected"),
    [
        (16, 6.0),  # s ≤ 32: λmax
        (32, 6.0),
        (144, 3.15),  # α = (144 − 32) / 224 = 0.5: 0.5 · 6.0 + 0.5 · 0.3
        (256, 0.3),  # s ≥ 256: λmin
        (300, 0.3),
    ],
)
def test_expansion_ratio_follows_equation_1(s: float, expected: float) -> None:
    assert expansion_ratio(s) == pytest.approx(expected)


@pytest.mark.parametrize("s", [0.0, -1.0, float("nan")])
def test_a_side_that_is_not_positive_has_no_expansion_ratio(s: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        expansion_ratio(s)


def test_expanded_box_has_one_plus_lambda_times_the_sides_about_the_center() -> None:
    # s = 20 → λ = 6: 140×210 about (500, 505) → 430..570, 400..610.
    assert expand(Box(490, 490, 510, 520), width=1000, height=1000) == Box(430, 400, 570, 610)


def test_expanded_box_is_clipped_at_the_border_and_not_shifted() -> None:
    # 20×20 at the left edge: 140×140 about (10, 500) → −60..80 becomes 0..80; y stays 430..570.
    assert expand(Box(0, 490, 20, 510), width=1000, height=1000) == Box(0, 430, 80, 570)
