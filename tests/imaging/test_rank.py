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


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_no_values_have_no_median(kind: type[np.generic]) -> None:
    with pytest.raises(IndexError):
        median(np.zeros(0, dtype=kind))
