"""A step after every rating where a client's rows are parallel (published start of Chai et al. 2021).

Its program starts all factors at 0.01, which keeps the K dimensions equal for ever: directions then tell
neither the order of the rows nor the length of u. What is left is one number s per moment: row k is
g_k = e_k s_k along the common direction, with h_k = d . v_k,

    r_k = g_k / s_k + s_k h_k,    s_{k+1} = s_k + b e_k h_k,

where the client's regularisation is too small to show in one round. In the order in which the client sent its
rows, a level of the first one leaves two s_0 (a quadratic), a level of the second one two s_1, and these b:
every combination is followed to the last row, and the one that puts all rows on the rating grid is the
answer. No constant of the step is needed.

The authors' own program sends the error times the length after the step, g_k = e_k s_{k+1}. There levels of
the first two rows leave up to four e_0, the roots of

    g_0 (r_1 x - c) x^2 + (r_1 x - c)^2 (x^2 - r_0 x + g_0 h_0) h_1 / h_0^2 = g_1 x^4,    c = g_0 h_1,

and with each s_0 = (r_0 - x) / h_0 and b = (g_0 / x - s_0) / (x h_0); later errors are roots of a quadratic.

What it assumes: the order of the rows and their scale, uploads in the clear, and four ratings or more.

References
----------
D. Chai et al., "Secure Federated Matrix Factorization", arXiv:1906.05108, Algorithm 1 and its
published program.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import accidental, step_of
from attacks.closed_form.grid.grid_reading import near_levels
from attacks.closed_form.uploads.readings import Numbers, Reading, Rows, reading_of
from victims.transcript.manifest import Manifest

CLEARLY, EXACT = 30.0, 1e-9  # as in ``attacks.closed_form.grid.rating_grid``
JUDGED, FEWEST, MOST = 6, 3, 0.75  # ratings of clients, how many, and the share that has to fit a scale
PARALLEL = 1e-3  # of the rows' size, across their direction: below it they are parallel to the last digit
NEAR = 1e-3  # stars: what a regularisation that nobody told leaves
LEAST_ROWS = 4
REAL = 1e-6  # of a root's size, below which its imaginary part is rounding
MOST_TRIALS = 2_000
SIZE = 1 << 20  # numbers (clients x trials) that are followed at a time


class Followed(NamedTuple):
    """Ratings, errors (users, rows) as rows are given, NaN where not told; how many were tried."""

    value: Float[np.ndarray, "users rows"]
    error: Float[np.ndarray, "users rows"]
    told: Bool[np.ndarray, " users"]
    tried: int


def steps_from_equal_factors(
    numbers: Numbers, rows: Rows, manifest: Manifest, max_misfit: float, *, after: bool = False
) -> Reading:
    """Read steps of a scale that is known; ``after`` says that rows are about the factor after the step."""
    assert rows.sequence is not None
    levels = np.array(manifest.rating_levels)
    able = _of_equal_numbers(numbers, rows) & ~np.isnan(rows.scale)
    offset = rows.offset.max(initial=0)  # what is taken off all ratings alike, or nothing
    able &= ((rows.offset == offset) | ~rows.item).all(axis=1)
    counted = numbers.there & able[:, None]
    found = follow_equal(numbers.scalar, numbers.along, counted, rows.sequence, levels - offset, after=after)
    value, size = found.value + offset, counted.sum(axis=1)
    fit = _misfit(value, counted, size, levels)
    allowed = np.minimum(max_misfit, accidental(size - 2, found.tried, BARS.accident_of_many))
    chance = step_of(levels) / 4
    rounding = size * rows.precision * (np.abs(levels).max() + abs(offset))  # each step carries it on
    allowed = np.minimum(allowed, (NEAR + rounding) / chance)
    fits = found.told & numbers.whole & (fit < allowed)
    fits &= fit * chance <= BARS.telling * _spread(found.error, counted)
    # a wrong scale fits few ratings by accident, multiples above all, and many nowhere
    judged = size >= JUDGED
    believed = judged.sum() < FEWEST or fits[judged].mean() >= MOST
    return reading_of(
        near_levels(value, levels),
        misfit=np.where(fits & believed, fit, np.nan),
        allowed=allowed,
        declared=True,
        steps=size.astype(float),
        pull=numbers.pull,
    )


def _of_equal_numbers(numbers: Numbers, rows: Rows) -> Bool[np.ndarray, " users"]:
    """Whose rows are parallel, and lie along the factors of their items."""
    size = np.linalg.norm(rows.factors, axis=2)
    equal = (np.abs(np.abs(numbers.along) - size) <= PARALLEL * size) | ~rows.item
    return (numbers.across < PARALLEL) & equal.all(axis=1)


def _misfit(
    value: Float[np.ndarray, "users rows"], counted: np.ndarray, n_rows: np.ndarray, levels: np.ndarray
) -> Float[np.ndarray, " users"]:
    """Mean distance from the grid, of what chance gives."""
    away = np.where(counted, distance_to_levels(np.nan_to_num(value), levels), 0.0).sum(axis=1)
    return away / np.maximum(n_rows, 1) / (step_of(levels) / 4)


def _spread(error: Float[np.ndarray, "users rows"], counted: np.ndarray) -> Float[np.ndarray, " users"]:
    """How much errors differ, in stars: alike, or all next to 0, they are on one level by themselves."""
    n, some = np.maximum(counted.sum(axis=1), 1), np.where(counted, np.nan_to_num(error), 0.0)
    middle = some.sum(axis=1) / n
    return np.where(counted, np.abs(some - middle[:, None]), 0.0).sum(axis=1) / n


def follow_equal(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    sequence: Int[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    *,
    after: bool = False,
) -> Followed:
    """Follow each client's length from row to row."""
    users, n = scalar.shape
    tried = 4 * levels.size**2
    value, error = np.full((users, n), np.nan), np.full((users, n), np.nan)
    if n < LEAST_ROWS or tried > MOST_TRIALS:
        return Followed(value, error, np.zeros(users, bool), tried)
    order = np.argsort(np.where(valid, sequence, np.inf), axis=1, kind="stable")
    g, h = (np.take_along_axis(np.where(valid, part, 0.0), order, axis=1) for part in (scalar, along))
    there = np.take_along_axis(valid, order, axis=1)
    at_once = max(1, SIZE // tried)
    for low in range(0, users, at_once):
        here = slice(low, low + at_once)
        found = _followed(g[here], h[here], there[here], levels, after)
        for whole, part in zip((value, error), found, strict=True):
            place = np.empty_like(part)
            np.put_along_axis(place, order[here], part, axis=1)
            whole[here] = place
    value, error = (np.where(valid, part, np.nan) for part in (value, error))
    told = np.isfinite(value).any(axis=1) & (valid.sum(axis=1) >= LEAST_ROWS)
    return Followed(value, error, told, tried)


def _followed(
    g: np.ndarray, h: np.ndarray, there: np.ndarray, levels: np.ndarray, after: bool
) -> tuple[Float[np.ndarray, "users rows"], Float[np.ndarray, "users rows"]]:
    """Values and errors of the clear best combination; NaN where there is none."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        start, rate = (_starts_after if after else _starts)(g, h, levels)
        away, named = _distances(g, h, there, levels, start, rate, after)
    best = away.argmin(axis=1)[:, None]
    nearest = np.take_along_axis(away, best, axis=1)
    mine = np.take_along_axis(named, best, axis=1)
    rivals = np.where(named != mine, away, np.inf).min(axis=1)
    clear = np.isfinite(nearest[:, 0]) & (rivals > CLEARLY * nearest[:, 0] + EXACT)
    s, b = (np.take_along_axis(part, best, axis=1)[:, 0] for part in (start, rate))
    value, errors = np.full(g.shape, np.nan), np.full(g.shape, np.nan)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for row in range(g.shape[1]):
            error = _error(g[:, row], h[:, row], s, b, after)
            errors[:, row] = np.where(clear, error, np.nan)
            value[:, row] = np.where(clear, error + s * h[:, row], np.nan)
            s = np.where(there[:, row], s + b * error * h[:, row], s)
    return value, errors


def _error(g: np.ndarray, h: np.ndarray, s: np.ndarray, b: np.ndarray, after: bool) -> np.ndarray:
    """e of a row: g / s, or the root of b h e^2 + s e = g that is g / s where b is small."""
    if not after:
        return g / s
    return 2 * g / (s + np.copysign(np.sqrt(s**2 + 4 * b * h * g), s))


def _starts(g: np.ndarray, h: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """s_0 and b, (users, trials), for every pair of levels of the first two rows."""
    first, second = (_lengths(g[:, row], h[:, row], levels) for row in (0, 1))
    start = np.repeat(first, second.shape[1], axis=1)
    next_ = np.tile(second, (1, first.shape[1]))
    return start, (next_ - start) / (g[:, :1] / start * h[:, :1])


def _starts_after(g: np.ndarray, h: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same where a row is about the length after the step; NaN where a root is not real."""
    r0, r1 = (part.ravel()[None] for part in np.meshgrid(levels, levels, indexing="ij"))
    g0, g1, h0, h1 = (part[:, None] for part in (g[:, 0], g[:, 1], h[:, 0], h[:, 1]))
    c, ratio = g0 * h1, h1 / h0**2
    one, far = np.ones_like(g0 * r0), c * np.ones_like(r0)
    # (r1 x - c)^2 (x^2 - r0 x + g0 h0), highest power first
    square = (r1**2 * one, -2 * r1 * far, far**2)
    other = (one, -r0 * one, g0 * h0 * one)
    product = [sum(square[i] * other[k - i] for i in range(3) if 0 <= k - i < 3) for k in range(5)]
    quartic = [ratio * part for part in product]
    quartic[0] = quartic[0] - g1
    quartic[1] = quartic[1] + g0 * r1
    quartic[2] = quartic[2] - g0 * c
    x = _real_roots(np.stack(quartic, axis=-1))
    r0, g0, h0 = r0[..., None], g0[..., None], h0[..., None]
    start = (r0 - x) / h0
    rate = (g0 / x - start) / (x * h0)
    users = g.shape[0]
    return start.reshape(users, -1), rate.reshape(users, -1)


def _real_roots(polynomial: Float[np.ndarray, "users trials five"]) -> Float[np.ndarray, "users trials four"]:
    """The real roots of polynomials of degree four, highest power first; NaN for the others."""
    monic = polynomial[..., 1:] / polynomial[..., :1]
    finite = np.isfinite(monic).all(axis=-1)
    companion = np.zeros((*monic.shape, 4))
    companion[..., 0, :] = -np.where(finite[..., None], monic, 0.0)
    companion[..., 1:, :3] = np.eye(3)
    root = np.linalg.eigvals(companion)
    real = np.abs(root.imag) <= REAL * np.abs(root)
    return np.where(real & finite[..., None], root.real, np.nan)


def _lengths(g: np.ndarray, h: np.ndarray, levels: np.ndarray) -> Float[np.ndarray, "users roots"]:
    """s of both signs at which a row is on a level: the stable pair of roots of h s^2 - z s + g."""
    root = np.sqrt(levels**2 - 4 * (h * g)[:, None])
    larger = 0.5 * (levels + root)
    return np.concatenate([larger / h[:, None], g[:, None] / larger], axis=1)


def _distances(
    g: np.ndarray,
    h: np.ndarray,
    there: np.ndarray,
    levels: np.ndarray,
    start: np.ndarray,
    rate: np.ndarray,
    after: bool,
) -> tuple[Float[np.ndarray, "users trials"], Float[np.ndarray, "users trials"]]:
    """Mean distance from the grid, infinite off the numbers, and a number that tells the ratings named."""
    s = start.copy()
    away, named = np.zeros(s.shape), np.zeros(s.shape)
    weight = np.cos(np.arange(g.shape[1]) ** 2.0)[:, None]  # equal sums of these mean equal ratings
    for row in range(g.shape[1]):
        here = there[:, row : row + 1]
        error = _error(g[:, row : row + 1], h[:, row : row + 1], s, rate, after)
        value = error + s * h[:, row : row + 1]
        away += np.where(here, distance_to_levels(value, levels), 0.0)
        named += np.where(here, nearest_level(value, levels) * weight[row], 0.0)
        s = np.where(here, s + rate * error * h[:, row : row + 1], s)
    count = np.maximum(there.sum(axis=1), 1)[:, None]
    return np.where(np.isfinite(away), away / count, np.inf), named
