"""Clients that start at one factor: rows of the first step, in the order of the rows."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.rows.equal_start import steps_from_equal_factors
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.readings import Rows
from victims.transcript.manifest import Manifest

STARS = np.arange(1.0, 6.0)
# Rows of equal factors with a scale that is known: what is no such row has no answer.


CLIENTS, RATINGS = 4, 60


def of_likes(seed: int, dtype: type, factors: int) -> tuple[Rows, np.ndarray]:
    """One step of clients whose likes, 1 or 2, go through a sigmoid as 0 or 1; predictions are near 0."""
    rng = np.random.default_rng(seed)
    likes = rng.integers(0, 2, (CLIENTS, RATINGS)).astype(float)
    v, u = rng.normal(0, 0.01, (CLIENTS, RATINGS, factors)), rng.normal(0, 0.01, (CLIENTS, 1, factors))
    product = (v * u).sum(axis=2) + rng.normal(0, 0.003, likes.shape)  # with a bias of each item
    sent = ((likes - 1 / (1 + np.exp(-product)))[..., None] * u / RATINGS).astype(dtype).astype(float)
    everyone = np.ones(likes.shape)
    order = np.tile(np.arange(RATINGS), (CLIENTS, 1))
    precision = float(np.finfo(dtype).eps)
    return Rows(sent, v, everyone, everyone > 0, np.ones(CLIENTS), precision, order), likes + 1


@pytest.mark.parametrize(("dtype", "factors"), [(np.float32, 1), (np.float32, 16), (np.float16, 1)])
def test_errors_that_shrink_to_nothing_are_no_ratings(dtype, factors):
    """With the lowest level taken off, numbers next to 0 are all on it: nothing tells them from any other."""
    manifest = Manifest.model_construct(rating_levels=(1.0, 2.0))
    with np.errstate(all="ignore"):
        for seed in range(3):
            rows, truth = of_likes(seed, dtype, factors)
            for after in (False, True):
                found = steps_from_equal_factors(one_step(rows), rows, manifest, 0.25, after=after)
                value = found.value[found.answered]
                assert (np.abs(value - truth[found.answered]) < 0.1).all()


# The published start and order of Chai et al. 2021, all factors 0.01.


USERS, ITEMS, K = 6, 40, 5


@pytest.mark.parametrize("scale", [None, -7.4])
def test_without_the_scale_or_under_a_wrong_one_nobody_is_answered(tmp_path, scale):
    """The first round; with its scale ``test_undeclared`` reads it."""
    rng, told = np.random.default_rng(3), {"constants": {"upload_scale": scale}} if scale else {}
    q = np.full((ITEMS, K), 0.01, np.float32)
    with fl.Recorder(tmp_path / "run", rating_levels=STARS, **told) as recorder:
        recorder.broadcast(0, q)
        for user in range(USERS):
            p, rows, items = q[0], np.zeros((18, K), np.float32), rng.permutation(ITEMS)[:18]
            for k, rating in enumerate(rng.choice(STARS, 18).astype(np.float32)):
                error = rating - p @ q[0]
                p = p + np.float32(2e-3) * (error * q[0] - np.float32(1e-4) * p)
                rows[k] = -2 * error * p
            recorder.upload(0, user, rows, items)
    assert len(fl.attack(tmp_path / "run", "undeclared").abstained) == USERS
