"""Steps fitted to entries of rows: what they tell, and where they are silent."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.gaps.filled_rows import filled_in
from attacks.closed_form.gaps.gap_passes import of_passes
from attacks.closed_form.gaps.gap_spans import OneClient
from attacks.closed_form.gaps.gap_steps import of_steps
from attacks.closed_form.uploads.readings import Rows

STARS = np.arange(1.0, 6.0)
N, K, RATE = 16, 8, 0.02


def client(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Items' factors, ratings, the client's factor, entries that are sent."""
    rng = np.random.default_rng(seed)
    v, r, u = rng.normal(0, 0.3, (N, K)), rng.choice(STARS, N), rng.normal(0, 0.3, K)
    return v, r, u, rng.random((N, K)) < 0.5


def rows_of(
    sent: np.ndarray, v: np.ndarray, order: np.ndarray | None = None, digit: float = 2.0**-52
) -> Rows:
    """Rows of one client."""
    one, none = np.ones((1, N), bool), np.zeros((1, N))
    return Rows(
        sent[None], v[None], none, one, np.full(1, np.nan), digit, None if order is None else order[None]
    )


def read(reading, rows: Rows) -> np.ndarray | None:
    found = reading(OneClient(rows, filled_in(rows), 0, STARS, 100 * rows.precision))
    return None if found is None else found[0]


def in_turn(v, r, u, order, after=False, decay=0.0) -> np.ndarray:
    """A step after every rating, in that order; rows in the order of the items."""
    out = np.empty((N, K))
    for j in order:
        error = r[j] - v[j] @ u
        stepped = (1 - decay) * u + RATE * error * v[j]
        out[j] = -2 * error * (stepped if after else u)
        u = stepped
    return out


def over_all(v, r, u, steps, moves=True) -> np.ndarray:
    """Several steps over all ratings: how far copies moved, or the sum of the gradients."""
    copy, total = v.copy(), np.zeros_like(v)
    for _ in range(steps):
        error = r - copy @ u
        total += RATE * error[:, None] * u
        u = u + RATE * error @ copy
        copy = v + total if moves else v
    return total


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("decay", [0.0, 1e-3])
def test_a_step_after_every_rating(after, decay):
    v, r, u, kept = client()
    place = np.random.default_rng(1).permutation(N)
    order = np.argsort(place)
    sent = kept * in_turn(v, r, u, order, after, decay)
    value = read(of_steps, rows_of(sent, v, place))
    assert value is not None
    told = np.isfinite(value)
    assert (value == r)[told].all()
    assert told.mean() > 0.8


def test_steps_in_an_order_that_nobody_sees_are_not_read():
    v, r, u, kept = client()
    order = np.random.default_rng(1).permutation(N)
    assert read(of_steps, rows_of(kept * in_turn(v, r, u, order), v, np.arange(N))) is None


def test_entries_of_another_rule_are_not_read():
    v, _, _, kept = client()
    noise = np.random.default_rng(2).normal(size=(N, K))
    for reading in (of_steps, of_passes):
        assert read(reading, rows_of(kept * noise, v, np.arange(N))) is None


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("steps", [2, 3, 7])
def test_several_steps_over_all_ratings(steps, moves):
    v, r, u, kept = client()
    value = read(of_passes, rows_of(kept * over_all(v, r, u, steps, moves), v))
    assert value is not None
    assert (value == r)[np.isfinite(value)].all()
    assert np.isfinite(value).mean() > 0.8


def test_several_steps_in_single_precision():
    v, r, u, kept = client()
    v = v.astype(np.float32).astype(float)
    sent = (kept * over_all(v, r, u, 3)).astype(np.float32).astype(float)
    value = read(of_passes, rows_of(sent, v, digit=2.0**-23))
    assert value is not None
    assert (value == r)[np.isfinite(value)].all()


def test_ratings_of_which_another_multiple_is_on_the_grid_stay_open():
    v, _, u, kept = client()
    r = np.where(np.arange(N) % 3, 4.0, 2.0)
    assert read(of_passes, rows_of(kept * over_all(v, r, u, 3), v)) is None


def test_ratings_off_the_grid_after_several_steps_are_not_read():
    v, r, u, kept = client()
    assert read(of_passes, rows_of(kept * over_all(v, r - 3.21, u, 3), v)) is None
