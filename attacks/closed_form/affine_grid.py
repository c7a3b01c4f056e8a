"""Two open numbers per client: the pair that puts all its rows on the rating grid.

Beyond the papers, for programs whose clients divide their rows by how many ratings they have, or by anything
else that the adversary does not know. A row then reads r = A g + B h (+ known offset): g the row along the
client's direction, h = d . v (``attacks.closed_form.rank_one``, ``attacks.closed_form.moving_factor``), A one
over scale times length, B the length, both of any sign: a program may send the gradient or its negative, and
the direction's sign is open. Two rows and their levels give A and B, so every pair of levels of two well
chosen rows is tried on the others; the nearest few are fitted to the levels that they name, so that rounding
in those two rows does not count.

What it assumes: uploads in the clear, rounded at most, the rating grid; more rows than two, or every pair of
levels fits. It answers nothing where no pair, or more than one, meets the grid. Pairs that name a multiple of
the same ratings (all of them 2 or 4, say, and 1 or 2) meet it equally well.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.decoding import distance_to_levels, nearest_level
from attacks.closed_form.goodness_of_fit import FIT_ROWS

CLEARLY = 12.0  # times the best distance from the grid that a multiple of the same ratings must have
EVIDENCE = 20.0  # nats per client by which the best distance must beat that of any other ratings
EXACT = 1e-9  # stars, below which two distances are equal
KEPT = 8  # pairs of a client that are fitted
MULTIPLE = 1e-3  # sine of the angle between two lists of ratings below which they are multiples
TABLE = 1 << 22  # numbers of one table of trials


class Pair(NamedTuple):
    """Both numbers of each client, 0 where none or several fit; mean distance from the grid, in stars."""

    of_scalar: Float[np.ndarray, " users"]
    of_along: Float[np.ndarray, " users"]
    distance: Float[np.ndarray, " users"]


class _Rows(NamedTuple):
    """g, h, offset and whether a row counts, (users, rows) each."""

    scalar: Float[np.ndarray, "users rows"]
    along: Float[np.ndarray, "users rows"]
    offset: Float[np.ndarray, "users rows"]
    valid: Bool[np.ndarray, "users rows"]


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
    rows = _Rows(scalar / unit[0][:, None], along / unit[1][:, None], offset, valid)
    first, second, apart = _anchors(rows.scalar, rows.along, valid)
    stride = max(1, -(-rows.scalar.shape[1] // FIT_ROWS))
    some = _Rows(*(part[:, ::stride] for part in rows))
    pairs = _nearest_few(_trials(rows, first, second, levels), some, levels)
    for _ in range(2):
        pairs = _fitted(pairs, some, levels)
    best, distance, clear = _clear_one(pairs, some, levels)
    clear &= apart & (valid.sum(axis=1) > 2)
    out = np.where(clear[:, None], best, 0.0)
    return Pair(out[:, 0] / unit[0], out[:, 1] / unit[1], distance)


def _anchors(g: np.ndarray, h: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two rows per client that tell A and B apart best, and whether they do."""
    user = np.arange(g.shape[0])
    first = np.where(valid, np.hypot(g, h), -1).argmax(axis=1)
    determinant = np.abs(g[user, first][:, None] * h - h[user, first][:, None] * g)
    determinant = np.where(valid, determinant, -1)
    second = determinant.argmax(axis=1)
    return first, second, determinant[user, second] > EXACT


def _trials(
    rows: _Rows, first: np.ndarray, second: np.ndarray, levels: np.ndarray
) -> Float[np.ndarray, "users trials 2"]:
    """A and B for every pair of levels of the anchors; NaN where these do not tell them apart."""
    user = np.arange(first.size)
    a, b, c, d = (part[user, row] for row in (first, second) for part in (rows.scalar, rows.along))
    determinant = a * d - b * c
    determinant = np.where(determinant == 0, np.nan, determinant)[:, None]
    z = np.array(list(product(levels, levels)))
    left = z[:, 0] - rows.offset[user, first][:, None]
    right = z[:, 1] - rows.offset[user, second][:, None]
    of_g = (d[:, None] * left - b[:, None] * right) / determinant
    of_h = (a[:, None] * right - c[:, None] * left) / determinant
    return np.stack([of_g, of_h], axis=-1)


def _values(pairs: np.ndarray, rows: _Rows) -> Float[np.ndarray, "users pairs rows"]:
    """A g + B h + offset."""
    return (
        pairs[:, :, :1] * rows.scalar[:, None] + pairs[:, :, 1:] * rows.along[:, None] + rows.offset[:, None]
    )


def _distance(pairs: np.ndarray, rows: _Rows, levels: np.ndarray) -> Float[np.ndarray, "users pairs"]:
    """Mean distance from the grid of every pair."""
    away = distance_to_levels(_values(pairs, rows), levels) * rows.valid[:, None]
    away = away.sum(axis=2) / np.maximum(rows.valid.sum(axis=1), 1)[:, None]
    return np.where(np.isnan(away) | np.isnan(pairs[:, :, 0]), np.inf, away)


def _nearest_few(pairs: np.ndarray, rows: _Rows, levels: np.ndarray) -> Float[np.ndarray, "users kept 2"]:
    """The ``KEPT`` pairs of each client that are nearest to the grid, some at a time."""
    few = pairs[:, :0]
    distance = np.zeros(few.shape[:2])
    per_trial = max(1, TABLE // max(1, rows.scalar.size))
    for start in range(0, pairs.shape[1], per_trial):
        trial = pairs[:, start : start + per_trial]
        few = np.concatenate([few, trial], axis=1)
        distance = np.concatenate([distance, _distance(trial, rows, levels)], axis=1)
        if few.shape[1] > KEPT:
            near = np.argpartition(distance, KEPT - 1, axis=1)[:, :KEPT]
            few = np.take_along_axis(few, near[..., None], axis=1)
            distance = np.take_along_axis(distance, near, axis=1)
    return few


def _fitted(pairs: np.ndarray, rows: _Rows, levels: np.ndarray) -> Float[np.ndarray, "users pairs 2"]:
    """Each pair by least squares from the levels that it names."""
    g, h = rows.scalar * rows.valid, rows.along * rows.valid
    gg, gh, hh = ((left * right).sum(axis=1)[:, None] for left, right in ((g, g), (g, h), (h, h)))
    target = nearest_level(_values(pairs, rows), levels) - rows.offset[:, None]
    of_g, of_h = (np.einsum("upr,ur->up", target, side) for side in (g, h))
    determinant = gg * hh - gh**2
    some = determinant > EXACT * gg * hh
    safe = np.where(some, determinant, 1.0)
    fitted = np.stack([(hh * of_g - gh * of_h) / safe, (gg * of_h - gh * of_g) / safe], axis=-1)
    return np.where((some & np.isfinite(fitted).all(axis=2))[..., None], fitted, pairs)


def _clear_one(
    pairs: np.ndarray, rows: _Rows, levels: np.ndarray
) -> tuple[Float[np.ndarray, "users 2"], Float[np.ndarray, " users"], Bool[np.ndarray, " users"]]:
    """The nearest pair, its distance from the grid, and whether every pair with other ratings is farther."""
    distance = _distance(pairs, rows, levels)
    number = distance.argmin(axis=1)[:, None]
    best = np.take_along_axis(pairs, number[..., None], axis=1)[:, 0]
    nearest = np.take_along_axis(distance, number, axis=1)
    named = nearest_level(_values(pairs, rows), levels) * rows.valid[:, None]
    mine = np.take_along_axis(named, number[..., None], axis=1)
    other = (named != mine).any(axis=2) & np.isfinite(distance)
    length = np.linalg.norm(named, axis=2) * np.linalg.norm(mine, axis=2)
    cosine = (named * mine).sum(axis=2) / np.where(length > 0, length, 1)
    n = rows.valid.sum(axis=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        told = n * np.log(distance / nearest) > EVIDENCE
    told = np.where(cosine**2 > 1 - MULTIPLE**2, distance > CLEARLY * nearest, told)
    clear = (~other | (told & (distance > nearest + EXACT))).all(axis=1)
    return best, nearest[:, 0], clear & np.isfinite(nearest[:, 0])
