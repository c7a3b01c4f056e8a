"""Minibatches on copies of the factors that weight decay shrinks at each step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.chains.decaying_copies import Sent, common_decay
from attacks.closed_form.chains.pulled_steps import shared_multiple
from tests.attacks.closed_form.links.test_link_grid import answers

STARS = np.arange(1.0, 6.0)


def record(
    path: Path, *, own: bool = False, every: bool = False, dtype=np.float64, off: float = 0.0
) -> np.ndarray:
    """Four clients of 13 to 16 ratings; minibatches of 5, a mean each, rate 0.1, decay 0.02.

    ``own`` are biases of clients, ``every`` rows of all items, ``off`` the size of what is added to ratings.
    """
    rng = np.random.default_rng(0)
    factors = rng.normal(0, 0.2, (60, 6)).astype(dtype)
    ratings = np.zeros((4, 60))
    rate, shrink = dtype(0.1), dtype(1 - 0.1 * 0.02)
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, factors)
        for user in range(4):
            items = rng.permutation(60)[: 13 + user]
            ratings[user, items] = rng.choice(STARS, items.size)
            learned = (ratings[user] + off * rng.normal(size=60)).astype(dtype)
            p, copy, bias = rng.normal(0, 0.2, 6).astype(dtype), factors.copy(), dtype(0)
            for first in range(0, items.size, 5):
                batch = items[first : first + 5]
                error = (learned[batch] - copy[batch] @ p - bias) / dtype(batch.size)
                step = copy * shrink
                step[batch] += rate * error[:, None] * p
                p, copy = p * shrink + rate * (error @ copy[batch]), step
                bias = bias * shrink + rate * error.sum() if own else bias
            if every:
                recorder.upload(0, user, copy - factors)
            else:
                recorder.upload(0, user, (copy - factors)[np.sort(items)], np.sort(items))
    return ratings


@pytest.mark.parametrize(
    "program",
    [
        pytest.param({}, marks=pytest.mark.thorough),
        {"own": True},
        {"own": True, "dtype": np.float32},
        {"own": True, "every": True},
    ],
    ids=["no bias", "own bias", "single precision", "rows of all items"],
)
def test_ratings_are_read(program, tmp_path):
    ratings = record(tmp_path / "t", **program)
    right, wrong = answers(tmp_path / "t", ratings)
    assert wrong == 0
    assert right >= 0.95 * (ratings > 0).sum()


@pytest.mark.thorough
def test_ratings_off_the_grid_are_not(tmp_path):
    ratings = record(tmp_path / "t", own=True, off=0.2)
    assert answers(tmp_path / "t", ratings)[1] == 0
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == 4


def test_the_multiple_of_rows_of_several_directions():
    """Three minibatches of four rows; none of which holds a multiple where there is none."""
    rng = np.random.default_rng(1)
    factors, errors = rng.normal(size=(12, 5)), rng.normal(size=(12, 1))
    rows = errors * np.repeat(rng.normal(size=(3, 5)), 4, axis=0)
    assert shared_multiple(rows - 0.07 * factors, factors, 1e-13) == pytest.approx(-0.07, rel=1e-9)
    assert shared_multiple(rows, factors, 1e-13) == 0
    assert shared_multiple(rng.normal(size=(12, 5)), factors, 1e-13) == 0


@pytest.mark.parametrize("decay", [0.97, 1.0])
def test_clients_name_one_decay(decay):
    """Predictions that shrink by 0.97 from step to step; and those that do not name none."""
    rng = np.random.default_rng(2)
    step, along = np.tile(np.arange(12) // 4, (4, 1)), rng.normal(size=(4, 12))

    def predicted(by: float) -> np.ndarray:
        return along * by ** (2.0 * step)

    errors = rng.choice(STARS, (4, 12)) - 0.8 * predicted(decay)
    sent = Sent(errors / 1.7, np.zeros((4, 12)), np.ones((4, 12), bool))
    found = common_decay(sent, predicted, np.ones(4, bool), STARS)
    assert found == (pytest.approx(decay, abs=1e-9) if decay < 1 else None)
