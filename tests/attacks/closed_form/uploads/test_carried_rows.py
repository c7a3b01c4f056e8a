"""Clients that send a velocity, or a running mean, of their rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import factorleak as fl

STARS = np.arange(1.0, 6.0)
USERS, ITEMS, K = 10, 40, 4


def recorded(
    path: Path,
    carried: Callable[[np.ndarray, np.ndarray], np.ndarray],
    rounds: tuple[int, ...],
    dropped: bool,
) -> np.ndarray:
    """Clients of plain NumPy send what they keep, which starts at the first gradient; their ratings."""
    rng = np.random.default_rng(3)
    q, p = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.4, (USERS, K))
    lists = [rng.choice(ITEMS, rng.integers(8, 20), replace=False) for _ in range(USERS)]
    ratings = [rng.choice(STARS, items.size) for items in lists]
    kept: list[np.ndarray] = [np.zeros((items.size, K)) for items in lists]
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        for user in range(USERS):
            recorder.truth(user, lists[user], ratings[user])
        for round_ in range(max(rounds) + 1):
            if round_ in rounds:
                recorder.broadcast(round_, q)
            moved = np.zeros_like(q)
            for user, items in enumerate(lists):
                error = ratings[user] - q[items] @ p[user]
                kept[user] = carried(kept[user], -2 * error[:, None] * p[user])
                p[user] = p[user] + 0.01 * error @ q[items]
                moved[items] += kept[user]
                sent = slice(round_ % 2 if dropped else 0, None)
                if round_ in rounds:
                    recorder.upload(round_, user, kept[user][sent], items[sent])
            q = q - 0.003 * moved
    table = np.zeros((USERS, ITEMS))
    for user, items in enumerate(lists):
        table[user, items] = ratings[user]
    return table


def momentum(kept: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return 0.9 * kept + gradient


def running_mean(kept: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return 0.6 * kept + 0.4 * gradient


@pytest.mark.parametrize("carried", [running_mean])
def test_two_rounds_tell_what_was_carried(tmp_path, carried):
    """Watched from the fifth round on: each row is a sum over six factors of the client, nearly parallel.

    Read as one step they are answered, too, though not exactly; few ratings leave a client open.
    """
    table = recorded(tmp_path / "run", carried, (4, 5), dropped=False)
    found = fl.attack(tmp_path / "run", "undeclared")
    exact = found.users[found.diagnostics["misfit"] < 1e-6]
    assert exact.size >= 0.8 * USERS
    for user, _, index, value, _ in found.rows():
        here = np.isin(user, exact)
        np.testing.assert_allclose(value[here], table[user[here], index[here]], atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rounds", "dropped"),
    [pytest.param((4,), False, marks=pytest.mark.thorough), ((4, 6), False), ((4, 5), True)],
)
def test_other_rounds_do_not(tmp_path, rounds, dropped):
    """One round, rounds that do not follow each other, other items: nobody is read exactly."""
    recorded(tmp_path / "run", momentum, rounds, dropped)
    found = fl.attack(tmp_path / "run", "undeclared")
    assert not (found.diagnostics["misfit"] < 1e-3).any()
