"""Rows put on the rating grid, and what clipped rows say of numbers that do it."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.grid.grid_reading import read
from attacks.closed_form.uploads.readings import Numbers, Rows
from victims.transcript.manifest import Manifest

N, K = 25, 4


@pytest.mark.parametrize("possible", [True, False])
def test_clipped_rows_leave_ratings_on_the_grid(possible):
    """An error is larger than what is sent of it: beyond 5 stars and farther up there is no rating."""
    rng = np.random.default_rng(0)
    along = rng.normal(0, 0.3, N)
    ratings = rng.integers(1, 6, N).astype(float)
    error = ratings - (1.0 if possible else 40.0) * along
    bound = np.sort(np.abs(error))[N // 2]
    if not possible:  # a client whose clipped rows are upside down
        along = np.where(np.abs(error) > bound, -along, along)
    scalar = np.clip(error, -bound, bound)
    one = np.ones((1, N), bool)
    none = np.zeros(1)
    numbers = Numbers(3 * scalar[None], along[None], one, one[:, 0], none + 1, none, none)
    empty = np.zeros((1, N, K))
    rows = Rows(empty, empty, np.zeros((1, N)), one, none + np.nan, 1e-16, None)
    manifest = Manifest(
        format="factorleak-transcript", version=1, protocol="other", update="sgd", weighting="observed-only",
        n_users=1, n_items=N, n_attributes=0, factors=K, rating_levels=[1.0, 2, 3, 4, 5], rounds=[0],
    )  # fmt: skip
    found = read(numbers, rows, manifest, 0.25)
    assert found.answered[0] == possible
