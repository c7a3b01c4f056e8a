"""What answers are rounded to."""

from __future__ import annotations

import numpy as np

from audit.scoring.answers_said import round_ratings


def test_rounding_follows_equation_43_on_other_grids():
    half = [0.5, 1.0, 1.5]
    np.testing.assert_array_equal(
        round_ratings(np.array([-1.0, 0.2, 0.3, 1.3, 7.0]), half), [0, 0, 0.5, 1.5, 1.5]
    )
