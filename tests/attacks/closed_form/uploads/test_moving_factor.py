"""The order of a client's steps and its ratings from one round, without any constant of the step."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.uploads.moving_factor import follow

STEP, RIDGE = 1e-3, 1e-4
HALVES = np.arange(0.5, 5.01, 0.5)


def published_pass(ratings, u, v, batch=1, pace=STEP):
    """The client of paper 001's published program: u moves after every batch of ratings; rows e u."""
    rows = np.zeros_like(v)
    for start in range(0, ratings.size, batch):
        here = slice(start, start + batch)
        error = ratings[here] - v[here] @ u
        rows[here] = error[:, None] * u
        u = (1 - 2 * pace * RIDGE) * u + 2 * pace * error @ v[here]
    return rows


def clients(sizes, k, seed, batch=1):
    """Rows, factors, valid, ratings and true step of clients with shuffled lists of some lengths."""
    rng = np.random.default_rng(seed)
    n = max(sizes)
    rows, factors = np.zeros((len(sizes), n, k)), np.zeros((len(sizes), n, k))
    valid, ratings = np.zeros((len(sizes), n), bool), np.zeros((len(sizes), n))
    step = np.full((len(sizes), n), -1)
    for i, size in enumerate(sizes):
        v, r = rng.normal(0, 0.1, (size, k)), rng.choice(HALVES, size)
        shuffle = rng.permutation(size)
        rows[i, :size] = published_pass(r, rng.normal(0, 0.1, k), v, batch)[shuffle]
        factors[i, :size], valid[i, :size], ratings[i, :size] = v[shuffle], True, r[shuffle]
        step[i, :size] = shuffle // batch
    return rows, factors, valid, ratings, step


def read(chain):
    """Ratings with the common number that the step fixes; the sign of a client is open."""
    root = np.sqrt(2 * STEP / (1 - 2 * STEP * RIDGE))
    value = chain.scalar / root + chain.along * root
    return value * np.sign(value.sum(axis=1))[:, None]


@pytest.mark.parametrize("k", [2, 3, 5, 20, 100])
def test_order_and_ratings_follow_from_the_directions_of_one_round(k):
    rows, factors, valid, ratings, step = clients([6, 8, 17, 60] if k == 2 else [2, 3, 17, 60], k, seed=k)
    chain = follow(rows, factors, valid, np.finfo(float).eps)
    assert chain.whole.all()
    np.testing.assert_array_equal(chain.step[1:], step[1:])
    np.testing.assert_allclose(read(chain)[1:][valid[1:]], ratings[1:][valid[1:]], atol=1e-6)


def test_two_rows_need_their_order_where_the_last_length_is_extrapolated():
    """Either of two rows may be first only if the other lies in its plane: it does, one way round."""
    rows, factors, valid, ratings, step = clients([2, 2], 8, seed=1)
    chain = follow(rows, factors, valid, np.finfo(float).eps, shrink=1 - 2 * STEP * RIDGE)
    np.testing.assert_array_equal(chain.step, step)
    np.testing.assert_allclose(read(chain), ratings, atol=1e-9)


def test_single_precision_is_enough():
    rows, factors, valid, ratings, step = clients([40, 25], 20, seed=3)
    chain = follow(rows.astype(np.float32).astype(float), factors, valid, float(np.finfo(np.float32).eps))
    np.testing.assert_array_equal(chain.step, step)
    assert np.abs(read(chain) - ratings)[valid].max() < 0.01


@pytest.mark.parametrize("batch", [4, 7])
def test_minibatches_are_one_step_each(batch):
    rows, factors, valid, ratings, step = clients([41, 20], 20, seed=4, batch=batch)
    chain = follow(rows, factors, valid, np.finfo(float).eps)
    np.testing.assert_array_equal(chain.step, step)
    np.testing.assert_allclose(read(chain)[valid], ratings[valid], atol=1e-6)


def test_one_direction_leaves_the_common_length_open():
    rows, factors, valid, _, _ = clients([10], 6, seed=5, batch=10)
    chain = follow(rows, factors, valid, np.finfo(float).eps)
    assert chain.n_steps.tolist() == [1]
    direction = np.linalg.svd(rows[0], full_matrices=False)[2][0]
    np.testing.assert_allclose(np.abs(chain.scalar[0]), np.abs(rows[0] @ direction), atol=1e-12)
    np.testing.assert_allclose(np.abs(chain.along[0]), np.abs(factors[0] @ direction), atol=1e-12)


def test_rows_of_strangers_make_no_chain():
    """Random rows: nothing lies in the plane of another, so next to nothing is linked."""
    rng = np.random.default_rng(6)
    rows, factors = rng.normal(size=(3, 30, 10)), rng.normal(size=(3, 30, 10))
    chain = follow(rows, factors, np.ones((3, 30), bool), np.finfo(float).eps)
    assert chain.n_steps.max() == 1
    assert not chain.whole.any()


def test_a_sequence_is_used_where_lengths_confirm_it():
    rows, factors, valid, ratings, step = clients([12], 2, seed=7)  # two factors: every row is in every plane
    chain = follow(rows, factors, valid, np.finfo(float).eps, sequence=np.where(valid, step, 0))
    assert chain.whole.all()
    np.testing.assert_array_equal(chain.step, step)
    np.testing.assert_allclose(read(chain), ratings, atol=1e-6)
    other = np.where(step < 2, 1 - step, step)  # the first two exchanged
    assert not follow(rows, factors, valid, np.finfo(float).eps, sequence=other[:, ::-1]).whole.any()
