"""Rows of equal factors with a scale that is known: what is no such row has no answer."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.equal_start.equal_readings import with_scale
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.readings import Rows
from victims.transcript.manifest import Manifest

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
                found = with_scale(one_step(rows), rows, manifest, 0.25, after=after)
                value = found.value[found.answered]
                assert (np.abs(value - truth[found.answered]) < 0.1).all()
