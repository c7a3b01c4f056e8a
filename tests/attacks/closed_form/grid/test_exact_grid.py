"""Exact rows at lengths that are right, nearly right and wrong."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.grid.exact_grid import labels_at
from attacks.closed_form.grid.rating_grid import RowNumbers
from tests.attacks.closed_form.test_spectral import with_constants

EXACT = np.full(1, 2.0**-52)


def _rows(ratings: np.ndarray, predicted: np.ndarray, weight: np.ndarray | float = 1.0) -> RowNumbers:
    """Of one client whose factor is 2 long."""
    here = np.ones((1, ratings.size), bool)
    return RowNumbers(2 * (weight * (ratings - predicted))[None], predicted[None] / 2, here, here)


@pytest.fixture
def drawn():
    rng = np.random.default_rng(3)
    return rng.integers(1, 6, 20).astype(float), rng.normal(3, 1, 20)


def test_a_length_that_lost_digits_is_believed_and_a_wrong_one_is_not(outside, drawn):
    """At 1.01 times the length all round to what they are; at 1.2 times some do not."""
    manifest = outside(weighting="observed-only")[1].view("server").manifest
    for stretched, off in ((1.0, False), (1.01, False), (1.2, True)):
        found = labels_at(manifest, _rows(*drawn), EXACT, np.array([2.0 * stretched]))
        assert (bool(found.exact[0]), bool(found.off[0])) == (True, off), stretched
    assert not labels_at(manifest, _rows(*drawn), np.full(1, 0.1), np.array([2.4])).off[0]  # not exact


@pytest.mark.parametrize(("times", "off"), [(1.0, False), (0.3, True)])
def test_a_wrong_weight_of_unrated_items_shows(outside, drawn, times, off):
    """A few of them meet a level by accident, and all the others meet nothing."""
    ratings, predicted = drawn
    ratings = np.where(np.arange(20) < 12, 0.0, ratings)
    view = with_constants(outside(weighting="include-unrated")[1], alpha=0.1)
    rows = _rows(ratings, predicted, np.where(ratings > 0, 1.0, 0.1 * times))
    assert bool(labels_at(view.manifest, rows, EXACT, np.array([2.0])).off[0]) == off
