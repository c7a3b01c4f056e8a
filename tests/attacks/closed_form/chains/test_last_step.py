"""The last step of clients whose factor is put back onto a ball, or shrinks by nobody knows how much."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.chains.chain_readings import any_reading
from attacks.closed_form.chains.last_step import ratings_of_step
from attacks.closed_form.uploads.readings import Rows
from tests.attacks.closed_form.rows.test_parallel_groups import manifest

LEVELS = np.arange(1.0, 6.0)


def sent(sizes, batch, *, radius=np.inf, shrink=1.0, mean=False, k=6, dtype=np.float64):
    """Rows of clients with so many ratings, -2 e u, a step after each minibatch; and the ratings."""
    rng = np.random.default_rng(0)
    shape = len(sizes), max(sizes)
    rows, factors = np.zeros((*shape, k)), np.zeros((*shape, k))
    there, ratings = np.arange(shape[1]) < np.array(sizes)[:, None], np.zeros(shape)
    for user, n in enumerate(sizes):
        v, r = rng.uniform(0.1, 0.5, (n, k)), rng.choice(LEVELS, n)
        u = rng.uniform(0.2, 0.5, k)
        u *= min(1.0, radius / np.linalg.norm(u))
        for first in range(0, n, batch):
            here = slice(first, min(first + batch, n))
            error = (r[here] - v[here] @ u) / (r[here].size if mean else 1)
            rows[user, here] = -2 * error[:, None] * u
            u = shrink * u + 0.02 * error @ v[here]
            u *= min(1.0, radius / np.linalg.norm(u))
        factors[user, :n], ratings[user, :n] = v, r
    none, unknown = np.zeros(shape), np.full(len(sizes), np.nan)
    precision = float(np.finfo(dtype).eps)
    return Rows(rows.astype(dtype).astype(float), factors, none, there, unknown, precision, None), ratings


def assert_all_right(rows, ratings):
    found = any_reading(rows, manifest(), 0.25)
    assert found.answered.all()
    np.testing.assert_allclose(found.value[rows.item], ratings[rows.item], atol=1e-6)


@pytest.mark.parametrize("batch", [1, 10])
def test_a_factor_that_is_put_back_onto_a_ball(batch):
    """The length after the last step is that of the step before, and no shrink explains it."""
    assert_all_right(*sent([20, 21, 25, 31, 43, 68], batch, radius=0.9))


def test_one_link_tells_no_shrink():
    """Two minibatches, of which the last one's ratings tell how long the factor is."""
    assert_all_right(*sent([13, 14, 12, 13], 10, shrink=0.93))


def test_a_lone_last_rating_by_the_shrink_of_others():
    """Eleven ratings in tens: others, with more minibatches, tell how much a factor shrinks."""
    assert_all_right(*sent([11, 11, 35, 42], 10, shrink=0.93))


def test_means_of_small_last_minibatches():
    """Minibatches are read each alone where they have five ratings; the last ones have fewer."""
    assert_all_right(*sent([21, 23, 34, 42, 53], 10, mean=True))


def test_a_step_that_no_length_explains_is_left_open():
    """Errors of the last minibatch are clipped: no t puts them on the grid, and the others are read."""
    rows, ratings = sent([26, 36, 28, 37], 10)
    cut = rows.rows.copy()
    for user, n in enumerate([26, 36, 28, 37]):
        cut[user, n - n % 10 : n] *= np.random.default_rng(user).uniform(0.3, 0.8, (n % 10, 1))
    found = any_reading(rows._replace(rows=cut), manifest(), 0.25)
    told = np.isfinite(found.value) & rows.item & found.answered[:, None]
    assert told.sum() == 100
    np.testing.assert_allclose(found.value[told], ratings[told], atol=1e-6)


def test_one_row_of_single_precision_tells_no_length():
    """Every level is met by some length: a likely one has to be right."""
    e, p = np.array([1.7]), np.array([1.9])
    assert np.isnan(ratings_of_step(e, p, np.zeros(1), np.array([1.0, 0.97]), LEVELS, 1e-3)).all()
