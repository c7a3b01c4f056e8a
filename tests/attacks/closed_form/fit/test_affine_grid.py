"""An unknown scale of a client's rows: both numbers follow from the rating grid."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.fit.affine_grid import best_numbers

GRIDS = {
    "stars": np.arange(1.0, 5.1),
    "halves": np.arange(0.5, 5.1, 0.5),
    "uneven": np.array([1.0, 2.5, 3.0, 7.0]),
}


def mean_loss(levels, users, n, seed, biases=False):
    """Rows of clients that divide by an amount of their own: g, h, offset, ratings, and the true A and B."""
    rng = np.random.default_rng(seed)
    p, q = rng.normal(0, 0.5, (users, 8)), rng.normal(0, 0.5, (users, n, 8))
    offset = rng.normal(0, 0.3, (users, n)) if biases else np.zeros((users, n))
    ratings = rng.choice(levels, (users, n))
    error = ratings - offset - np.einsum("uk,unk->un", p, q)
    scale = rng.uniform(0.01, 1.0, users)
    length = np.linalg.norm(p, axis=1)
    direction = p / length[:, None] * rng.choice([-1, 1], users)[:, None]
    g = np.einsum("unk,uk->un", scale[:, None, None] * error[..., None] * p[:, None], direction)
    return g, np.einsum("unk,uk->un", q, direction), offset, ratings


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("biases", [False, True])
def test_whoever_is_answered_is_read_whole(grid, biases):
    """Twelve ratings: at least 97 of 100 clients are answered, and none wrong."""
    levels = GRIDS[grid]
    g, h, offset, ratings = mean_loss(levels, 100, 12, seed=len(grid), biases=biases)
    columns = np.stack([g, h], axis=2)
    found = best_numbers(columns, offset, np.ones_like(g, bool), levels)
    value = np.einsum("urc,uc->ur", columns, found.numbers) + offset
    answered = found.told
    assert answered.sum() >= 97
    np.testing.assert_allclose(value[answered], ratings[answered], atol=1e-6)


def test_two_rows_fit_every_pair_and_are_not_answered():
    g, h, offset, _ = mean_loss(GRIDS["stars"], 20, 2, seed=1)
    assert not best_numbers(
        np.stack([g, h], axis=2), offset, np.ones_like(g, bool), GRIDS["stars"]
    ).told.any()


def test_numbers_about_nothing_are_far_from_the_grid():
    rng = np.random.default_rng(2)
    g, h = rng.normal(size=(2, 50, 30))
    found = best_numbers(np.stack([g, h], axis=2), np.zeros_like(g), np.ones_like(g, bool), GRIDS["stars"])
    assert found.distance[found.told].min(initial=1) > 0.1


def test_padding_does_not_count():
    g, h, offset, _ratings = mean_loss(GRIDS["stars"], 10, 12, seed=3)
    valid = np.ones_like(g, bool)
    valid[:, 9:] = False
    columns = np.stack([g, h], axis=2)
    whole = best_numbers(columns[:, :9], offset[:, :9], valid[:, :9], GRIDS["stars"])
    padded = best_numbers(np.where(valid[..., None], columns, 99.0), offset, valid, GRIDS["stars"])
    np.testing.assert_allclose(padded.numbers, whole.numbers)


def test_a_bias_of_the_client_is_a_third_number():
    """Who gave every level is read; for the others, ratings shifted by a level fit as well."""
    levels = GRIDS["stars"]
    g, h, offset, ratings = mean_loss(levels, 200, 12, seed=4, biases=True)
    bias = np.random.default_rng(5).normal(0, 1, (200, 1))
    columns = np.stack([g, h, np.ones_like(g)], axis=2)
    found = best_numbers(columns, offset - bias, np.ones_like(g, bool), levels)
    value = np.einsum("urc,uc->ur", columns, found.numbers) + offset - bias
    full = (ratings.min(axis=1) == 1) & (ratings.max(axis=1) == 5)
    assert found.told[full].mean() > 0.95
    assert not found.told[~full].any()
    np.testing.assert_allclose(value[found.told], ratings[found.told], atol=1e-6)


@pytest.mark.parametrize("levels", [np.array([0.0, 1.0]), np.arange(1.0, 6.0)], ids=["likes", "stars"])
def test_a_bias_alone_says_nothing_of_rounded_rows(levels):
    """A bias and no rows are exactly on a level, and rounded rows are not; nobody may be answered by it."""
    g, h, offset, ratings = mean_loss(levels, 100, 12, seed=6, biases=levels.size > 2)
    columns = np.stack([g, h, np.ones_like(g)], axis=2).astype(np.float32).astype(float)
    found = best_numbers(columns, offset, np.ones_like(g, bool), levels)
    value = np.einsum("urc,uc->ur", columns, found.numbers) + offset
    np.testing.assert_allclose(value[found.told], ratings[found.told], atol=1e-4)


def test_a_grid_of_very_many_levels_is_not_searched():
    g, h, offset, _ = mean_loss(GRIDS["stars"], 3, 12, seed=1)
    found = best_numbers(np.stack([g, h], axis=2), offset, np.ones_like(g, bool), np.linspace(0.1, 90, 900))
    assert not found.told.any()


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("noise", [0.0, 15.0])
def test_noise_does_not_shrink_to_the_lowest_levels(noise, offset):
    """Small numbers put any rows near the lowest levels, where the grid seems nearest."""
    rng = np.random.default_rng(7)
    along, ratings = rng.normal(0, 1, (300, 20)), rng.integers(1, 6, (300, 20))
    error = ratings - offset - along + rng.normal(0, noise, (300, 20))
    known = np.full((300, 20), offset), np.ones((300, 20), bool), np.arange(1.0, 6.0)
    found = best_numbers(np.stack([error, along], axis=2), *known)
    assert found.told.sum() == (0 if noise else 300)


def test_equal_ratings_beside_one_offset_are_open():
    """Ratings of 5 and a mean of 3.53: any number times 1.47 leads from it to a level."""
    rng = np.random.default_rng(2)
    along, offset = rng.normal(0, 0.3, (50, 4)), np.full((50, 4), 3.53)
    columns = np.stack([0.07 * (5 - offset - along), along], axis=2)
    found = best_numbers(columns, offset, np.ones((50, 4), bool), GRIDS["stars"])
    assert not found.told.any()


@pytest.mark.parametrize(("off", "told"), [(0.0, True), (1.1e-4, False)])
def test_one_row_near_a_level_is_no_evidence(off, told):
    """Ratings of 2 and 3 with a bias are 1 and 10 as well; one clipped row is near 2 then, by accident.

    It has to be on the level to its last digits to tell them apart. In the mean over all rows it was.
    """
    rng = np.random.default_rng(3)
    along, ratings = rng.normal(0, 1, (40, 21)), rng.choice([1.0, 10.0], (40, 21))
    ratings[:, 0] = 2 + 9 * off
    columns = np.stack(
        [ratings - 4 - along + rng.normal(0, 1e-6, along.shape), along, np.ones_like(along)], 2
    )
    levels = np.array([1.0, 2, 3, 5, 10])
    found = best_numbers(columns, np.zeros_like(along), np.ones(along.shape, bool), levels)
    assert found.told.mean() == told
