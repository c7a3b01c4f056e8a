"""Two numbers of rows that are longer by multiples, planted."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.orders.last_minibatch import ONE, Batches, multiples_of
from attacks.closed_form.orders.mixed_multiples import best_mixed, mixed_pairs, rough_pairs, values_of
from attacks.closed_form.orders.order_pairs import FirstOrder

LEVELS = np.arange(1.0, 6.0)
BATCHES = Batches(16, 3)
TRUE = np.array([-40.0, 0.8])


def planted(seed: int, n: int = 44, noise: float = 0.01) -> tuple[FirstOrder, np.ndarray]:
    """Rows of a client, some of them longer, and its ratings."""
    rng = np.random.default_rng(seed)
    multiples = multiples_of(n, BATCHES)
    ratings = rng.choice(LEVELS, n, p=[0.1, 0.15, 0.25, 0.3, 0.2])
    h = rng.normal(0.5, 1, n)
    longer = rng.choice(multiples.times, n, p=np.exp(multiples.nats) / np.exp(multiples.nats).sum())
    error = ratings - TRUE[1] * h + noise * rng.normal(size=n)
    return FirstOrder(error / TRUE[0] * longer, h, np.zeros(n), np.ones(n, bool)), ratings


@pytest.mark.parametrize("seed", range(4))
def test_planted_numbers_are_found(seed):
    one, ratings = planted(seed)
    found = best_mixed(one, BATCHES, rough_pairs(one, LEVELS).numbers, LEVELS)
    assert found.numbers[0] == pytest.approx(TRUE, rel=0.02)
    assert found.missed[0] < 0.03
    value = values_of(one, multiples_of(ratings.size, BATCHES), found.numbers[:1])[0]
    assert (np.abs(value - ratings[:, None]).min(axis=1) < 0.1).mean() > 0.95
    # without the multiples they explain next to nothing
    plain = mixed_pairs(one, ONE, found.numbers[:1], LEVELS)
    assert found.nats[0] > 30 + max(plain.nats[0], 0.0)


def test_opposites_are_both_there_where_biases_are_in_the_middle():
    """Ratings less 3, and predictions that hardly differ: the mirror image is as near to the grid."""
    ratings = np.random.default_rng(1).integers(1, 6, 44)
    g, h = (ratings - 3.0) / TRUE[0], 1e-9 * np.random.default_rng(2).normal(size=44)
    flat = FirstOrder(g, h, np.full(44, 3.0), np.ones(44, bool))
    found = best_mixed(flat, BATCHES, rough_pairs(flat, LEVELS).numbers, LEVELS)
    opposite = np.abs(found.numbers + found.numbers[0]).max(axis=1) < 1e-6
    assert found.nats[opposite].max() == pytest.approx(found.nats[0])


def test_rows_of_nothing_have_no_pairs():
    nothing = FirstOrder(np.zeros(8), np.ones(8), np.zeros(8), np.ones(8, bool))
    assert rough_pairs(nothing, LEVELS).numbers.shape == (0, 2)
