"""Two open numbers per client: the pair that puts all its rows on the rating grid.

Beyond the papers, for programs whose clients divide their rows by how many ratings they have, or by anything
else that the adversary does not know. A row then reads r = A g + B h (+ known offset): g the row along the
client's direction, h = d . v (``attacks.closed_form.rank_one``, ``attacks.closed_form.moving_factor``), A one
over scale times length, B the length, both of any sign: a program may send the gradient or its negative, and
the direction's sign is open. Two rows and their levels give A and B, so every pair of levels of two well
chosen rows is tried on the others.

What it assumes: uploads in the clear and without noise, the rating grid; more rows than two, or every pair
of levels fits. It answers nothing where no pair, or more than one, meets the grid.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.decoding import distance_to_levels
from attacks.closed_form.goodness_of_fit import FIT_ROWS

CLEARLY = 30.0  # times the best distance from the grid that the second best must have
EXACT = 1e-9  # stars, below which two distances are equal
SAME = 1e-6  # relative, within which two pairs are one
TABLE = 1 << 22  # numbers of one table of trials


class Pair(NamedTuple):
    """Both numbers of each client, 0 where none or several fit; mean distance from the grid, in stars."""

    of_scalar: Float[np.ndarray, " users"]
    of_along: Float[np.ndarray, " users"]
    distance: Float[np.ndarray, " users"]


def best_pair(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    offset: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
) -> Pair:
    """The one pair A, B for which A scalar + B along + offset lies on the grid in all rows.

    Parameters
    ----------
    scalar, along, offset : (users, rows)
        g, h, and what the program adds to a prediction and everybody knows (0, or an item's bias), stars.
    valid : (users, rows) bool
        Rows that count; the others are padding.
    levels : (levels,)
        Ratings that exist, ascending, stars.

    Returns
    -------
    Pair

    Examples
    --------
    >>> g, h = np.array([[1.3, 2.0, 2.4, -1.0]]), np.array([[0.35, 1.0, -0.7, 1.5]])
    >>> none, all_ = np.zeros((1, 4)), np.ones((1, 4), bool)
    >>> levels = np.arange(1.0, 6.0)
    >>> pair = best_pair(g, h, none, all_, levels)
    >>> round(float(pair.of_scalar[0]), 6), round(float(pair.of_along[0]), 6)
    (1.0, 2.0)
    """
    size = [np.where(valid, np.abs(part), 0).max(axis=1, initial=0) for part in (scalar, along)]
    unit = [np.where(part > 0, part, 1.0) for part in size]
    g, h = scalar / unit[0][:, None], along / unit[1][:, None]
    first, second, apart = _anchors(g, h, valid)
    stride = max(1, -(-g.shape[1] // FIT_ROWS))
    some = tuple(part[:, ::stride] for part in (g, h, offset, valid))
    pairs = _trials(g, h, offset, first, second, levels)
    best = np.zeros((g.shape[0], 2))
    nearest = np.full(g.shape[0], np.inf)
    runner_up = nearest.copy()
    per_trial = max(1, TABLE // max(1, some[0].size))
    for start in range(0, pairs.shape[1], per_trial):
        trial = pairs[:, start : start + per_trial]
        away = _distance(trial, some, levels)
        best, nearest, runner_up = _better(best, nearest, runner_up, trial, away)
    apart &= valid.sum(axis=1) > 2
    clear = apart & np.isfinite(nearest) & (runner_up > CLEARLY * nearest + EXACT)
    out = np.where(clear[:, None], best, 0.0)
    return Pair(out[:, 0] / unit[0], out[:, 1] / unit[1], nearest)


def _anchors(g: np.ndarray, h: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two rows per client that tell A and B apart best, and whether they do."""
    user = np.arange(g.shape[0])
    first = np.where(valid, np.hypot(g, h), -1).argmax(axis=1)
    determinant = np.abs(g[user, first][:, None] * h - h[user, first][:, None] * g)
    determinant = np.where(valid, determinant, -1)
    second = determinant.argmax(axis=1)
    return first, second, determinant[user, second] > EXACT


def _trials(
    g: np.ndarray,
    h: np.ndarray,
    offset: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    levels: np.ndarray,
) -> Float[np.ndarray, "users trials 2"]:
    """A and B for every pair of levels of the anchors."""
    user = np.arange(g.shape[0])
    a, b, c, d = g[user, first], h[user, first], g[user, second], h[user, second]
    determinant = a * d - b * c
    determinant = np.where(determinant == 0, np.nan, determinant)[:, None]
    z = np.array(list(product(levels, levels)))
    left = z[:, 0] - offset[user, first][:, None]
    right = z[:, 1] - offset[user, second][:, None]
    of_g = (d[:, None] * left - b[:, None] * right) / determinant
    of_h = (a[:, None] * right - c[:, None] * left) / determinant
    return np.stack([of_g, of_h], axis=-1)


def _distance(trial: np.ndarray, some: tuple[np.ndarray, ...], levels: np.ndarray) -> np.ndarray:
    """Mean distance from the grid of every trial, (users, trials)."""
    g, h, offset, valid = some
    value = trial[:, :, :1] * g[:, None] + trial[:, :, 1:] * h[:, None] + offset[:, None]
    away = distance_to_levels(value, levels) * valid[:, None]
    away = away.sum(axis=2) / np.maximum(valid.sum(axis=1), 1)[:, None]
    return np.where(np.isnan(trial[:, :, 0]), np.inf, away)


def _better(
    best: np.ndarray, nearest: np.ndarray, runner_up: np.ndarray, trial: np.ndarray, away: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best pair so far and the distance of the best other one."""
    pairs = np.concatenate([best[:, None], trial], axis=1)
    distance = np.concatenate([nearest[:, None], away], axis=1)
    number = np.argmin(distance, axis=1)[:, None]
    chosen = np.take_along_axis(pairs, number[..., None], axis=1)
    near = np.take_along_axis(distance, number, axis=1)
    same = (np.abs(pairs - chosen) <= SAME * np.abs(chosen)).all(axis=2)
    others = np.where(same, np.inf, distance).min(axis=1)
    # the runner-up of earlier trials may be the same pair only where it was none
    return chosen[:, 0], near[:, 0], np.minimum(runner_up, others)
