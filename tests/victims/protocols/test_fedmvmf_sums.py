"""Sums over entries against loops, with sampled unrated items among them."""

from __future__ import annotations

import numpy as np
import pytest

from defenses.unrated_sampling import UnratedSampling
from victims.protocols import fedmvmf
from victims.protocols.fedmvmf import (
    normal_equations,
    summed_by_item,
    summed_by_user,
    weighted_errors,
)
from victims.protocols.jax_ratings import sampled_data

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
