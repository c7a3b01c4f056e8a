"""The grid attack under a scale of the rows that is not the declared one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl

HALF_STARS = np.arange(1, 9) / 2
USERS, ITEMS, K, ROUNDS = 600, 60, 5, 4


def recorded(path: Path, scale: float) -> None:
    """Two ratings each, rows in double precision, four rounds; nothing declared."""
    rng = np.random.default_rng(2)
    p = rng.normal(0, 0.5, (USERS, K))
    lists = [rng.choice(ITEMS, 2, replace=False) for _ in range(USERS)]
    ratings = [rng.choice(HALF_STARS, 2) for _ in range(USERS)]
    with fl.Recorder(path, rating_levels=HALF_STARS) as recorder:
        for round_ in range(ROUNDS):
            q = rng.normal(0, 0.5, (ITEMS, K))
            recorder.broadcast(round_, q)
            for user, items in enumerate(lists):
                error = ratings[user] - q[items] @ p[user]
                recorder.upload(round_, user, scale * error[:, None] * p[user], items)
        for user, items in enumerate(lists):
            recorder.truth(user, items, ratings[user])


@pytest.mark.parametrize(("scale", "answered"), [(-1.0, 0), (1.0, USERS)])
def test_few_exact_rows_near_the_grid_by_accident_are_no_answer(tmp_path, scale, answered):
    """Under scale -1 some root puts two clients within 1e-4 steps of the grid: both were answered wrongly.

    Rows in double precision tell right ratings to far more digits.
    """
    recorded(tmp_path / "run", scale)
    found = fl.attack(tmp_path / "run", "grid")
    assert found.users.size - len(found.abstained) == pytest.approx(answered, abs=0.05 * answered)
