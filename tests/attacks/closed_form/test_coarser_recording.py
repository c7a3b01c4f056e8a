"""Who rates in whole stars alone is read by what others share who do not."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from tests.attacks.closed_form.orders.test_hidden_orders import score

HALVES = np.arange(1, 11) / 2


def recorded(path, weighs, n_whole, rng, own_rates=False, n_half=9):
    """Three steps over all ratings on copies that move; some rate in whole stars, others in halves."""
    n, items = n_whole + n_half, 80
    v, table = rng.normal(0, 0.4, (items, 6)), np.zeros((n, items))
    with fl.Recorder(path, rating_levels=HALVES) as recorder:
        recorder.broadcast(0, v)
        for user in range(n):
            rated = rng.permutation(items)[: rng.integers(14, 40)]
            grid = np.arange(1.0, 6.0) if user < n_whole else HALVES
            table[user, rated] = rng.choice(grid, rated.size)
            u, copy = rng.normal(0, 0.4, 6), v[rated].copy()
            rate = 0.05 / rated.size * (rng.uniform(0.1, 5) if own_rates else 1)
            for _ in range(3):
                error = table[user, rated] - copy @ u
                copy, u = copy + rate * error[:, None] * u, u + rate * error @ copy
            recorder.upload(0, user, (copy - v[rated]) * weighs(rated.size), rated)
    return table


@pytest.mark.parametrize(
    "weighs",
    [
        lambda n: 1.0,
    ],
    ids=[
        "mean",
    ],
)
def test_whole_stars_are_read_beside_halves(tmp_path, weighs):
    table = recorded(tmp_path / "t", weighs, 6, np.random.default_rng(0))
    answers, right = score(fl.attack(tmp_path / "t", "undeclared"), table)
    assert right == answers
    assert answers > 0.95 * (table > 0).sum()


@pytest.mark.thorough
def test_clients_who_share_nothing_tell_nothing_of_others(tmp_path):
    """A rate of its own for each: of who rates in whole stars, half of them is as likely."""
    table = recorded(tmp_path / "t", lambda n: 1.0, 8, np.random.default_rng(0), own_rates=True, n_half=12)
    found = fl.attack(tmp_path / "t", "undeclared")
    answers, right = score(found, table)
    assert set(found.abstained) >= set(range(8))
    assert right == answers > 0.8 * (table[8:] > 0).sum()
