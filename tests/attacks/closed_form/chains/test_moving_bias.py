"""Programs that step factor and bias after every rating, and shrink neither."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from tests.attacks.closed_form.centres.test_centred_recording import STARS, sizes

USERS, ITEMS, K = 8, 40, 4


def recorded(path, *, item_biases, dtype=np.float64, batch=1, shrink=1.0, levels=STARS[:-1]):
    """One pass of clients with biases of their own who step after ``batch`` ratings."""
    rng = np.random.default_rng(9)
    q, b = rng.normal(0, 0.3, (ITEMS, K)), item_biases * rng.normal(0, 0.4, ITEMS)
    table = np.where(rng.random((USERS, ITEMS)) < 0.5, rng.choice(levels, (USERS, ITEMS)), 0.0)
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, q.astype(dtype), **({"biases": b.astype(dtype)} if item_biases else {}))
        for user, ratings in enumerate(table):
            items = rng.permutation(np.flatnonzero(ratings))
            p, c, rows = rng.normal(0, 0.3, K), rng.normal(0.5, 0.3), []
            for some in np.array_split(items, -(-items.size // batch)):
                error = ratings[some] - b[some] - c - q[some] @ p
                rows.append(error[:, None] * p)
                p, c = shrink * (p + 0.02 * error @ q[some]), shrink * (c + 0.02 * error.sum())
            recorder.upload(0, user, np.concatenate(rows).astype(dtype), items)
    return table


@pytest.mark.parametrize(
    ("item_biases", "dtype", "batch"),
    [
        (0, np.float64, 1),
        pytest.param(1, np.float64, 3, marks=pytest.mark.thorough),
        pytest.param(0, np.float64, 3, marks=pytest.mark.thorough),
    ],
)
def test_differences_are_read(tmp_path, item_biases, dtype, batch):
    """Nobody has the highest level: all may be a level higher; or mirrored, where items have no biases."""
    table = recorded(tmp_path / "t", item_biases=item_biases, dtype=dtype, batch=batch)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.scope == (Scope.DIFFERENCES if item_biases else Scope.SIZES)
    many, right = sizes(found, table)
    assert right == many >= 0.9 * ((table > 0).sum(axis=1) ** 2).sum()


def test_a_bias_that_shrinks_is_not_read_so(tmp_path):
    table = recorded(tmp_path / "t", item_biases=1, shrink=0.98, levels=STARS)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.scope == Scope.RATINGS_AND_ATTRIBUTES
    assert not found.abstained
    for user, _, items, value, _ in found.rows():
        np.testing.assert_allclose(value, table[user, items], atol=0.25)
