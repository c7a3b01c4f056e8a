"""The parts of the attack alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from attacks.trajectory import exact_weights
from attacks.trajectory.differencing import from_differences
from attacks.trajectory.exact_weights import candidate_shares, taken_apart
from attacks.trajectory.hypotheses import fitted_values, log_likelihood_ratio
from audit.factories import make_defenses
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.recording import record
from victims.transcript.reader import open_transcript

# Differences of rows with noise that repeats, multiplied with a number that nobody told.


CLIENTS, K, N, RATE, LEVELS = 30, 6, 20, 0.02, np.arange(1.0, 6.0)


def rows_of(bias, least):
    """Rows and factors of four rounds, and the ratings less a bias that does not move."""
    rng = np.random.default_rng(0)
    p, factors = rng.normal(0, 0.4, (CLIENTS, K)), rng.normal(0, 0.4, (CLIENTS, N, K))
    ratings = rng.integers(least, 6, (CLIENTS, N)) - rng.normal(0, bias, (CLIENTS, 1))
    noise = rng.laplace(0, 1, factors.shape)
    sent, broadcast = [], []
    for _ in range(4):
        error = ratings - np.einsum("unk,uk->un", factors, p)
        row = error[..., None] * p[:, None]
        sent.append(-2 * row + noise)
        broadcast.append(factors)
        p, factors = p + RATE * np.einsum("un,unk->uk", error, factors), factors + RATE * row
    return np.stack(sent, axis=1), np.stack(broadcast, axis=1), ratings


@pytest.mark.parametrize(("bias", "least"), [(0.0, 1), (0.5, 4)], ids=["none", "bias and two levels"])
def test_what_a_bias_puts_off_the_grid_is_no_rating(bias, least):
    """Some factor brings 4 and 5 less a bias near two levels, but the rows are more exact than that."""
    sent, factors, ratings = rows_of(bias, least)
    all_ = np.ones(ratings.shape)
    found = from_differences(sent, factors, all_, all_.astype(bool), LEVELS)
    assert found.on_grid.sum() == (0 if bias else CLIENTS)
    np.testing.assert_allclose(found.value[found.on_grid], ratings[found.on_grid], atol=1e-6)


# Weights and ratings told from exact products, in communities of few clients and items.


STARS, HALVES = np.arange(1.0, 6.0), np.arange(0.5, 5.1, 0.5)


def community(n_users, n_items, levels, seed=0):
    """Client, item, level and stretched value of every rating."""
    rng = np.random.default_rng(seed)
    user, item = np.nonzero(rng.random((n_users, n_items)) < 0.6)
    level = rng.choice(levels, user.size)
    beta, gamma = rng.uniform(0.1, 1, n_users), rng.uniform(0.1, 1, n_items)
    return user, item, level, beta[user] * gamma[item] * level


@pytest.mark.parametrize(
    ("n_users", "n_items", "levels"), [(60, 15, STARS), (12, 20, STARS), (30, 20, HALVES)]
)
def test_planted_weights(n_users, n_items, levels):
    """Errors of 1e-6 and one client of another rule; who is told is told rightly where the answer is sure."""
    user, item, level, value = community(n_users, n_items, levels)
    rng = np.random.default_rng(1)
    value = value * (1 + 1e-6 * rng.standard_normal(value.size))
    value[user == 0] = rng.uniform(0.5, 5, (user == 0).sum())
    found = taken_apart(user, item, value, np.zeros(value.size), levels)
    told = np.isfinite(found.user_weight)
    assert not told[0]
    assert told[1:].mean() >= 0.9
    answered, sure = told[user], found.posterior.max(axis=1) > 0.99
    right = levels[found.posterior.argmax(axis=1)] == level
    assert right[answered & sure].all()
    assert right[answered].mean() >= 0.98
    weight = found.user_weight[user] * found.item_weight[item]
    np.testing.assert_allclose((value / weight)[answered & right], level[answered & right], rtol=1e-4)


def test_numbers_about_nothing_tell_nobody():
    """Thirty draws; each client may join by accident with a probability of 0.001 (17 clients each)."""
    n_told = 0
    for seed in range(30):
        user, item, _, value = community(17, 14, STARS, seed)
        value = np.random.default_rng(seed).uniform(0.1, 5, value.size)
        n_told += np.isfinite(taken_apart(user, item, value, np.zeros(value.size), STARS).user_weight).sum()
    assert n_told <= 8  # 2 for each accident; more than 4 of 510 at 0.001: below 2e-4


def test_a_value_that_is_no_product_is_left_out():
    user, item, _, value = community(10, 12, STARS)
    value[user == 3] = -1.0
    found = taken_apart(user, item, value, np.zeros(value.size), STARS)
    assert np.isnan(found.user_weight[3])
    assert np.isfinite(found.user_weight).sum() >= 8


def test_weights_that_many_items_have_tell_those_of_single_raters():
    """Hu & Fang give a third of the items the weight 1. Items of one rater leave a weight for each level.

    What is claimed of them is right as often, to three standard deviations of 120 ratings; where no weight
    repeats as well. A guess of the level has 0.2.
    """
    liberal = 0.0
    rng = np.random.default_rng(4)
    user, item, level, _ = community(40, 60, STARS, seed=4)
    lone = np.arange(60, 180)
    user, item = np.append(user, rng.integers(0, 40, lone.size)), np.append(item, lone)
    level = np.append(level, rng.choice(STARS, lone.size))
    gamma = np.where(rng.random(180) < liberal, 1.0, rng.uniform(0.1, 1, 180))
    value = rng.uniform(0.1, 1, 40)[user] * gamma[item] * level
    found = taken_apart(user, item, value, np.zeros(value.size), STARS)
    assert np.isfinite(found.user_weight).all()
    single = item >= 60
    right = (STARS[found.posterior.argmax(axis=1)] == level)[single].mean()
    claimed = found.posterior.max(axis=1)[single].mean()
    assert abs(right - claimed) < 3 * np.sqrt(claimed * (1 - claimed) / lone.size)
    assert right > (0.45 if liberal else 0.15)


def of_different_quality(seed):
    """Client, item, level and stretched value; the mean of an item's ratings varies by two levels."""
    rng = np.random.default_rng(seed)
    popular = rng.exponential(1, 100)
    user, item = np.nonzero(rng.random((60, 100)) < np.minimum(0.9, 0.15 * popular))
    stars = 3.4 + rng.normal(0, 1.5, 100)[item] + rng.normal(0, 0.4, 60)[user] + rng.normal(0, 0.8, user.size)
    level = np.clip(np.rint(stars), 1, 5)
    beta, gamma = (np.where(rng.random(n) < 1 / 3, 1.0, rng.uniform(0.1, 1, n)) for n in (60, 100))
    return user, np.unique(item, return_inverse=True)[1], level, (beta[user] * gamma[item] * level)


@pytest.mark.thorough
def test_probabilities_hold_where_items_differ_in_quality():
    """Raters of an item agree: taken for independent, 0.9 were claimed of such answers and half were right.

    Ratings of one item are right or wrong together, some three at a time: 0.1 is three standard deviations.
    """
    told, claimed = [], []
    for seed in range(12):
        user, item, level, value = of_different_quality(seed)
        found = taken_apart(user, item, value, np.zeros(value.size), STARS)
        sure = found.posterior.max(axis=1)
        unsure = np.isfinite(found.user_weight[user]) & (sure > 0.6) & (sure < 0.999)
        told.append((STARS[found.posterior.argmax(axis=1)] == level)[unsure])
        claimed.append(sure[unsure])
    right, probability = np.concatenate(told), np.concatenate(claimed)
    assert right.size > 300
    assert abs(right.mean() - probability.mean()) < 0.1


# What the audit of epsilon asks of the trajectory attack.


VICTIM = DecentralisedMF(factors=4, learning_rate=0.01)


@pytest.fixture(scope="module")
def community_of_hypotheses():
    return generate(Synthetic(users=16, items=30, ratings_per_user=10.0, seed=3))


def view_of(community, path, defense):
    record(VICTIM, community, path, rounds=range(4), defenses=make_defenses(defense), seed=4)
    return open_transcript(path).view("server")


def test_fitted_values_are_the_ratings_where_noise_repeats(community_of_hypotheses, tmp_path):
    view = view_of(community_of_hypotheses, tmp_path / "t", "objective-noise:noise=once")
    first = community_of_hypotheses.items[community_of_hypotheses.indptr[:-1]].astype(np.int64)
    first[3] = -1  # nothing is asked of this client
    values = fitted_values(view, first)
    assert np.isnan(values[3])
    asked = np.flatnonzero(~np.isnan(values))
    assert asked.size >= 12
    np.testing.assert_allclose(
        values[asked], community_of_hypotheses.values[community_of_hypotheses.indptr[asked]], atol=1e-3
    )


def test_the_ratio_favours_the_world_that_was_recorded(community_of_hypotheses, tmp_path):
    """One rating of each client at the other end of the grid in the false world, under little noise."""
    view = view_of(community_of_hypotheses, tmp_path / "t", "objective-noise:noise=fresh,epsilon=100")
    actual = community_of_hypotheses.matrix().tocsr()
    false = actual.copy()
    first = community_of_hypotheses.indptr[:-1]
    false.data[first] = np.where(community_of_hypotheses.values[first] > 3, 1.0, 5.0)
    ratio = log_likelihood_ratio(view, sp.csr_array(false), sp.csr_array(actual), 0)
    assert ratio.shape == (community_of_hypotheses.n_users,)
    # a fair coin for each of 16 clients is right 14 times or more with a probability of 0.002
    assert (ratio > 0).sum() >= 14
    np.testing.assert_allclose(log_likelihood_ratio(view, actual, actual, 0), 0)


def test_noise_of_an_unknown_scale_is_refused(community_of_hypotheses, tmp_path):
    """Before: an assertion failed."""
    view = view_of(community_of_hypotheses, tmp_path / "t", "none")
    values = community_of_hypotheses.matrix()
    with pytest.raises(InputError, match="must tell the scale of its noise"):
        log_likelihood_ratio(view, values, values, 0)


# Candidates of an item's weight, weighed by how levels go together.


STARS_ITEM_QUALITY = np.arange(1.0, 4.0)
TOLD = [np.array([[6.0, 2, 0]]), np.array([[0.0, 2, 6]])] * 10
OPEN = np.array([[6.0, 0, 0], [0, 6.0, 0]])


def shares():
    """Of the candidates of the open item."""
    return candidate_shares(
        [*TOLD, OPEN], [np.zeros(1)] * 20 + [np.zeros(2)], STARS_ITEM_QUALITY, np.ones(3)
    )[-1]


def test_more_passes_change_nothing(monkeypatch):
    at_rest = shares()
    monkeypatch.setattr(exact_weights, "STILL", 1e-12)
    assert np.abs(shares() - at_rest).max() < 1e-4


def test_a_fit_that_does_not_come_to_rest_says_nothing(monkeypatch):
    monkeypatch.setattr(exact_weights, "PASSES", 1)
    assert shares().tolist() == [0.5, 0.5]
