"""Means over minibatches, and biases of clients that move with their factors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.attacks.closed_form.test_link_grid import answers
from tests.oracles.pass_programs import Passer, Passes


@pytest.mark.parametrize(
    "client",
    [
        Passer(0.02, 1, 4, mean=True, moves=False),
        Passer(0.02, 1, 1, own_bias=True, decay=0.2, moves=False),
        Passer(0.02, 1, 3, mean=True, own_bias=True, decay=0.2, moves=False),
    ],
    ids=["mean over minibatches", "own bias", "both"],
)
def test_what_no_two_numbers_read(client: Passer, tmp_path: Path):
    """Clients of 13 to 19 ratings, whose last minibatch is smaller: all are answered, and right."""
    program = Passes(client, factors=5, n_rated=(13, 19), scale=-2.0)
    ratings = program.record(tmp_path / "t")
    right, wrong = answers(tmp_path / "t", ratings)
    assert wrong == 0
    assert right >= 0.95 * (ratings > 0).sum()


def test_a_bias_that_nothing_shrinks_leaves_a_shift_open(tmp_path: Path):
    """Ratings one level higher, and the bias with them, make the same rows."""
    program = Passes(
        Passer(0.02, 1, 1, own_bias=True, moves=False), levels=tuple(range(1, 9)), n_rated=(6, 8)
    )
    ratings = np.where((table := program.record(tmp_path / "t")) > 0, table, 0)
    assert answers(tmp_path / "t", ratings)[1] == 0
