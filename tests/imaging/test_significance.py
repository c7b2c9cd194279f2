"""A large edit is told from noise by its place."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.imaging.residual import residual
from editloupe.imaging.significance import unchanged


@pytest.mark.parametrize("levels", [-40, 40])
def test_an_edit_of_nearly_half_the_picture_is_no_noise(levels: int) -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(90, 110, (256, 320, 3)).astype(np.uint8)
    second = np.clip(first + rng.normal(0, 2, first.shape), 0, 255)
    # 44 % of the width; the maps have half the size.
    second[:, :140] += levels
    calm = unchanged(residual(first, second.round().astype(np.uint8), np.ones((128, 160), dtype=np.bool_)))
    assert not calm[:, :70].any() and calm[:, 80:].all()
