"""The vectorised victim against the reference and against the paper's equations written out.

Sums over entries against loops, with sampled unrated items among them.
"""

from __future__ import annotations

import numpy as np
import pytest

from defenses.unrated_sampling import UnratedSampling
from tests.oracles.simulator import SCENARIOS
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.protocols import fedmvmf
from victims.protocols.fedmvmf import (
    FedMVMF,
    normal_equations,
    summed_by_item,
    summed_by_user,
    weighted_errors,
)
from victims.protocols.jax_ratings import sampled_data


def gradients_by_hand(victim: FedMVMF, state, ratings: Ratings):
    """(7) and (5) with dense matrices: the gradients of J with respect to Q and U."""
    q, u, v = (np.asarray(x) for x in (state.item_factors, state.attribute_factors, state.feature_factors))
    p = victim.user_factors(state, ratings)
    r, x, y = ratings.matrix().toarray(), ratings.attributes, ratings.item_features
    unrated = victim.alpha if victim.weighting == "include-unrated" else 0.0
    c = np.where(r > 0, 1.0, unrated)
    if victim.update == "semi-als":  # (11)
        ridge = victim.lambda_factors / victim.lambda_attributes
        v = (y.T @ q) @ np.linalg.inv(q.T @ q + ridge * np.eye(q.shape[1]))
    grad_q = -2 * (c * (r - p @ q.T)).T @ p
    grad_q += -2 * victim.lambda_attributes * (y - q @ v.T) @ v + 2 * victim.lambda_factors * q
    grad_u = -2 * victim.lambda_attributes * (x - p @ u.T).T @ p + 2 * victim.lambda_factors * u
    return grad_q, grad_u


@pytest.mark.parametrize(("update", "weighting"), SCENARIOS)
class TestRound:
    def test_first_adam_step_has_the_sign_of_the_gradient(self, ratings, update, weighting):
        # with epsilon tiny, Adam's first step is -learning_rate * sign(gradient), whatever beta
        victim = FedMVMF(update=update, weighting=weighting, epsilon=1e-30)
        state = victim.init(ratings, 0)
        grad_q, grad_u = gradients_by_hand(victim, state, ratings)
        after = victim.round(state, ratings)
        for before, now, grad in (
            (state.item_factors, after.item_factors, grad_q),
            (state.attribute_factors, after.attribute_factors, grad_u),
        ):
            step = np.asarray(now) - np.asarray(before)
            np.testing.assert_allclose(step, -victim.server_learning_rate * np.sign(grad), rtol=1e-9)

    def test_two_adam_steps(self, ratings, update, weighting):
        victim = FedMVMF(update=update, weighting=weighting)
        state = victim.init(ratings, 0)
        m, v = 0.0, 0.0
        for t in (1, 2):
            grad, _ = gradients_by_hand(victim, state, ratings)
            m = victim.beta_1 * m + (1 - victim.beta_1) * grad
            v = victim.beta_2 * v + (1 - victim.beta_2) * grad**2
            step = (m / (1 - victim.beta_1**t)) / (np.sqrt(v / (1 - victim.beta_2**t)) + victim.epsilon)
            expected = np.asarray(state.item_factors) - victim.server_learning_rate * step
            state = victim.round(state, ratings)
            np.testing.assert_allclose(np.asarray(state.item_factors), expected, rtol=1e-9)

    def test_client_step(self, ratings, update, weighting):
        victim = FedMVMF(update=update, weighting=weighting, client_learning_rate=1e-3)
        state = victim.round(victim.init(ratings, 0), ratings)
        q, u = victim.broadcast(state)
        p = victim.user_factors(state, ratings)
        after = victim.round(state, ratings)
        later = victim.user_factors(after, ratings)
        q_after, u_after = victim.broadcast(after)
        lam1, lam2, rate = victim.lambda_attributes, victim.lambda_factors, 1e-3
        for i in (0, 7, 21):
            r, x = ratings.matrix().toarray()[i], ratings.attributes[i]
            unrated = victim.alpha if weighting == "include-unrated" else 0.0
            c = np.where(r > 0, 1.0, unrated)
            if update == "semi-als":  # (8) at the new broadcast
                left = r * c @ q_after + lam1 * x @ u_after
                square = q_after.T @ np.diag(c) @ q_after + lam1 * u_after.T @ u_after
                expected = left @ np.linalg.inv(square + lam2 * np.eye(victim.factors))
            else:  # (9), (10) at the old one
                slope = -2 * (c * (r - q @ p[i])) @ q - 2 * lam1 * (x - u @ p[i]) @ u
                expected = p[i] - rate * (slope + 2 * lam2 * p[i])
            np.testing.assert_allclose(later[i], expected, rtol=1e-9)

    def test_uploads_sum_to_the_gradient(self, ratings, update, weighting):
        victim = FedMVMF(update=update, weighting=weighting)
        state = victim.round(victim.init(ratings, 0), ratings)
        q, u = victim.broadcast(state)
        total_q, total_u = np.zeros_like(q), np.zeros_like(u)
        for rows in victim.uploads(state, ratings, np.arange(ratings.n_users)):
            item = rows.kind == 0
            np.add.at(total_q, rows.index[item], rows.gradient[item])
            np.add.at(total_u, rows.index[~item], rows.gradient[~item])
        p = victim.user_factors(state, ratings)
        r = ratings.matrix().toarray()
        unrated = victim.alpha if weighting == "include-unrated" else 0.0
        c = np.where(r > 0, 1.0, unrated)
        np.testing.assert_allclose(total_q, (c * (r - p @ q.T)).T @ p, atol=1e-10)
        np.testing.assert_allclose(total_u, (ratings.attributes - p @ u.T).T @ p, atol=1e-10)

    def test_rows_are_the_protocol_rows(self, ratings, update, weighting):
        victim = FedMVMF(update=update, weighting=weighting)
        state = victim.init(ratings, 0)
        users = np.array([3, 11])
        rows = list(victim.uploads(state, ratings, users))
        sender = np.concatenate([part.sender for part in rows])
        kind = np.concatenate([part.kind for part in rows])
        rated = np.diff(ratings.indptr)[users]
        if weighting == "include-unrated":
            rated = np.full(2, ratings.n_items)
        for user, count in zip(users, rated, strict=True):
            assert (kind[sender == user] == 0).sum() == count
            assert (kind[sender == user] == 1).sum() == ratings.n_attributes


def test_divergence_is_refused(ratings):
    victim = FedMVMF(update="sgd", client_learning_rate=500.0)
    state = victim.init(ratings, 0)

    def train() -> None:
        current = state
        for _ in range(100):
            current = victim.round(current, ratings)

    with pytest.raises(InputError, match="client_learning_rate"):
        train()


@pytest.mark.parametrize(
    ("name", "value"), [("factors", 0), ("alpha", 1.0), ("lambda_factors", -1.0), ("beta_1", 1.0)]
)
def test_bad_hyper_parameters_are_named(name, value):
    with pytest.raises(InputError, match=name):
        FedMVMF(**{name: value})


def test_seeds_decide(ratings):
    a, b, c = (FedMVMF().init(ratings, seed).item_factors for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


ALPHA = 0.1


@pytest.fixture
def entries(ratings):
    """The data of a round, and every entry of it as (client, item, rating or 0, weight)."""
    sample = UnratedSampling(rho=0.5).sampled(ratings, 3, 0)
    rated = zip(ratings.users, ratings.items, ratings.values, np.ones(ratings.n_ratings), strict=True)
    zeros = zip(sample.user, sample.item, np.zeros(sample.item.size), [ALPHA] * sample.item.size, strict=True)
    return sampled_data(ratings, sample, ALPHA), sorted((*rated, *zeros))


@pytest.fixture
def factors(ratings):
    rng = np.random.default_rng(2)
    return rng.normal(size=(ratings.n_items, 3)), rng.normal(size=(ratings.n_users, 3))


def test_entries_lie_by_client_then_item(entries):
    data, listed = entries
    columns = [np.asarray(column) for column in data[:4]]
    np.testing.assert_array_equal(np.stack(columns, axis=1), np.array(listed, float))
    first = np.searchsorted(columns[0], np.arange(data.start.size))
    np.testing.assert_array_equal(np.asarray(data.start), first)


@pytest.mark.parametrize("bytes_", [1, fedmvmf.COLUMN_BYTES], ids=["column by column", "at once"])
def test_normal_equations(entries, factors, monkeypatch, bytes_):
    monkeypatch.setattr(fedmvmf, "COLUMN_BYTES", bytes_)
    (data, listed), (items, clients) = entries, factors
    square, right = np.zeros((len(clients), 3, 3)), np.zeros(clients.shape)
    for user, item, value, weight in listed:
        square[user] += weight * np.outer(items[item], items[item])
        right[user] += value * items[item]
    gram, found = normal_equations(data, items)
    np.testing.assert_allclose(gram, square[:, *np.triu_indices(3)], atol=1e-12)
    np.testing.assert_allclose(found, right, atol=1e-12)


def test_errors_and_their_sums(entries, factors):
    (data, listed), (items, clients) = entries, factors
    left_out = 0.3
    errors, by_item, by_user = [], np.zeros(items.shape), np.zeros(clients.shape)
    for user, item, value, weight in listed:
        error = weight * (value - (1 - left_out) * clients[user] @ items[item])
        errors.append(error)
        by_item[item] += error * clients[user]
        by_user[user] += error * items[item]
    found = weighted_errors(items, clients, data, left_out)
    np.testing.assert_allclose(np.asarray(found), errors, atol=1e-12)
    np.testing.assert_allclose(summed_by_item(data, found, clients, len(items)), by_item, atol=1e-11)
    np.testing.assert_allclose(summed_by_user(data, found, items), by_user, atol=1e-11)
