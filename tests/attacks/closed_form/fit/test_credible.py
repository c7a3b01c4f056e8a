"""What speaks for one multiple of ratings, and not for another."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.fit.credible import rows_against_multiples

HALVES = np.arange(1, 11) / 2


@pytest.mark.parametrize(
    ("ratings", "against"),
    [
        ([1.0, 2.0, 5.0, 4.0], 0),  # halves of all are ratings
        ([1.0, 2.0, 5.0, 4.5], 1),
        ([1.5, 2.5, 4.5, 4.0], 2),  # 1, 5 / 3, 3 and 8 / 3
        ([0.0, 0.0], 2),  # nothing tells a multiple
    ],
)
def test_rows_that_no_other_multiple_puts_on_the_grid(ratings, against):
    assert rows_against_multiples(np.array(ratings), np.zeros(1), HALVES) == against
    assert rows_against_multiples(np.array(ratings), np.array([0.0, 0.3]), HALVES) == len(ratings)
