"""What a solver ended with, judged without a solver."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.root_finding.judgement import off_the_grid

STARS = np.arange(1.0, 6.0)


def _all_items(rated: list[float], others: float) -> np.ndarray:
    """Numbers of sixty items, of which three are rated; those of the others are next to nothing."""
    return np.concatenate([rated, others * np.linspace(-1, 1, 57)])


@pytest.mark.parametrize("rated", [[1.55, -0.72, 1.31], [4.02, 0.74, 3.24], [2.34, 0.64, 1.81]])
def test_unrated_items_vouch_for_nobody(rated):
    """A solver that stopped on its way has them next to nothing, too, and ratings of another length."""
    value = _all_items(rated, 0.04)
    assert off_the_grid(value, np.ones(60, bool), STARS, unrated=True, start=3.0, converged=False)


def test_ratings_beside_unrated_items_are_believed():
    value = _all_items([4.998, 1.001, 4.0], 0.001)
    assert not off_the_grid(value, np.ones(60, bool), STARS, unrated=True, start=3.0, converged=False)


def test_what_stands_at_the_start_beside_unrated_items_is_no_answer():
    """The start is a level; a solver that did not move from it has all items there."""
    at_start = np.full(30, 3.0)
    assert off_the_grid(at_start, np.ones(30, bool), STARS, unrated=True, start=3.0, converged=False)
