"""Order statistics beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.imaging.rank import at_rank, median


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_a_median_is_the_upper_one_of_values_of_any_shape(count: int) -> None:
    values = np.random.default_rng(count).normal(0, 1, (count, 3)).astype(np.float32)
    assert median(values) == np.quantile(values, 0.5, method="higher")
    assert at_rank(values, 0) == values.min() and at_rank(values, 1) == values.max()


def test_levels_of_a_picture_are_counted_to_the_same_ranks() -> None:
    # The rank is 5 × share, rounded down.
    levels = np.array([255, 0, 7, 0, 3], dtype=np.uint8)
    assert [at_rank(levels, share) for share in (0, 0.39, 0.4, 0.6, 0.8, 1)] == [0, 0, 3, 7, 255, 255]


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_no_values_have_no_median(kind: type[np.generic]) -> None:
    with pytest.raises(IndexError):
        median(np.zeros(0, dtype=kind))
