"""A step after every rating, all factors equal, and a scale of the rows that nobody told.

As ``attacks.closed_form.equal_start.equal_factors``, with g_k = sigma e_k s_k and sigma unknown. In units of
the first length, S_k = s_k / s_0,

    S_{k+1} = S_k + beta h_k g_k / S_k,    beta = b / (sigma s_0^2),
    r_k = A g_k / S_k + B S_k h_k,         A = 1 / (sigma s_0),  B = s_0,

and where a row is about the length after the step S_{k+1}^2 = S_k S_{k+1} + beta h_k g_k, and g_k / S_{k+1}
is in place of g_k / S_k. So beta is searched for in one dimension, by how much the length grows in all, with
A and B by levels of two rows (``attacks.closed_form.fit.affine_grid``); the nearest are fitted in all three.

Multiples of the ratings fit with c A and c B. Where they are on the grid, too, the clients for whom none is
tell A B = 1 / sigma, and c^2 A B must be near it.

A program that clips its errors sends the largest ones alike, and those name one level whatever the ratings
are. Errors that were not clipped differ by their predictions, if only by a few digits. Where they may be
alike to what the fit leaves, and all other ratings, or a multiple of them, leave room for higher ones than
the clip, nobody is answered.

Pairs of very many levels take long, so that there the clients with most ratings are asked first, and nobody
else where none of a few tells anything.

What it assumes: the order of the rows, uploads in the clear, six ratings or more.

References
----------
D. Chai et al., "Secure Federated Matrix Factorization", arXiv:1906.05108, Algorithm 1 and its
published program.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.affine_grid import MOST_TRIALS, level_ratios, nearest_numbers
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level

LEAST_ROWS = 6
GROWN = np.exp(np.linspace(0, 1.2, 121))  # lengths at the end, in units of the first: 1 % apart
FITTED, ROUNDS = 32, 6  # candidates of a client that are fitted, and how often
CLEARLY, EXACT = 30.0, 1e-9  # as in ``attacks.closed_form.grid.rating_grid``
PART = 0.05  # of the ratings, that errors are at the least
MANY_PAIRS, SILENT = 1024, 6  # of levels; beyond them the clients with most ratings that may all tell nothing
NEAR = 1e-3  # stars: what a regularisation that nobody told leaves
TELLING, ALIKE = 3, 0.1  # clients that tell the scale; how far c^2 A B may be from it, in logarithms


class Unscaled(NamedTuple):
    """Ratings in stars, NaN where not told."""

    value: Float[np.ndarray, "users rows"]
    told: Bool[np.ndarray, " users"]


def follow_unscaled(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    sequence: Int[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    *,
    after: bool = False,
) -> Unscaled:
    """Follow each client's length from row to row under any scale.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> r, h, s, g = rng.choice(np.arange(1.0, 6.0), (4, 12)), np.full((4, 12), 0.02), np.full(4, 0.02), []
    >>> for k in range(12):
    ...     g.append(-0.3 * (r[:, k] - s * h[:, k]) * s)
    ...     s = s + 0.002 * (r[:, k] - s * h[:, k]) * h[:, k]
    >>> order, all_ = np.tile(np.arange(12), (4, 1)), np.ones((4, 12), bool)
    >>> found = follow_unscaled(np.stack(g, axis=1), h, all_, order, np.arange(1.0, 6.0))
    >>> bool(found.told.all() and np.abs(found.value - r).max() < 1e-6)
    True
    """
    value = np.full(scalar.shape, np.nan)
    product, told = np.full(len(scalar), np.nan), np.zeros(len(scalar), bool)
    alike, asked = np.ones(len(scalar), bool), np.zeros(len(scalar), bool)
    size = valid.sum(axis=1)
    for user in np.argsort(-size, kind="stable")[: (size >= LEAST_ROWS).sum()]:
        if not told.any() and levels.size**2 > MANY_PAIRS and asked.sum() >= SILENT:
            break
        asked[user] = True
        here = np.flatnonzero(valid[user])
        here = here[np.argsort(sequence[user, here], kind="stable")]
        found = _one(scalar[user, here], along[user, here], levels, after)
        if found is not None:
            value[user, here], product[user], alike[user] = found
            told[user] = True
    times = _times(value, product, levels)
    told &= np.isfinite(times)
    value = np.where(told[:, None], value * times[:, None], np.nan)
    if _may_be_clipped(value, alike, levels):
        value, told = np.full_like(value, np.nan), np.zeros_like(told)
    return Unscaled(value, told)


def _lengths(
    g: Float[np.ndarray, " rows"],
    h: Float[np.ndarray, " rows"],
    beta: Float[np.ndarray, " trials"],
    after: bool,
) -> Float[np.ndarray, "trials rows 2"]:
    """What A and B multiply, g / S and S h, for every beta."""
    length, out = np.ones(beta.size), np.empty((beta.size, g.size, 2))
    for k in range(g.size):
        step = beta * h[k] * g[k]
        following = 0.5 * (length + np.sqrt(length**2 + 4 * step)) if after else length + step / length
        out[:, k, 0] = g[k] / (following if after else length)
        out[:, k, 1] = length * h[k]
        length = following
    return out


def _one(
    g: Float[np.ndarray, " rows"], h: Float[np.ndarray, " rows"], levels: np.ndarray, after: bool
) -> tuple[Float[np.ndarray, " rows"], float, bool] | None:
    """Ratings of one client, or a multiple of them, A B, and whether its largest errors may be alike.

    None where no ratings are clearly the nearest.
    """
    total = float((g * h).sum())
    if total == 0 or levels.size**2 > MOST_TRIALS:
        return None
    with np.errstate(all="ignore"):
        beta = (GROWN**2 - 1) / 2 / total
        columns = _lengths(g, h, beta, after)
        shape = columns.shape[:2]
        columns = np.where(np.isfinite(columns).all(axis=(1, 2), keepdims=True), columns, 0.0)
        numbers = nearest_numbers(columns, np.zeros(shape), np.ones(shape, bool), levels)
        value = np.matmul(numbers, columns.transpose(0, 2, 1))
        error = numbers[..., :1] * columns[:, None, :, 0]
        away = _away(value, error, levels)
        best = np.argsort(away, axis=None)[:FITTED]
        trial, number = np.unravel_index(best, away.shape)
        a, b = numbers[trial, number].T
        beta, value, a, b, away = _fitted(g, h, np.stack([beta[trial], a, b], axis=1), levels, after)
    first = int(away.argmin())
    named = nearest_level(value, levels)
    # multiples are told apart by all clients together
    ratio = named / named[first]
    same = ratio.max(axis=1) - ratio.min(axis=1) < EXACT
    rivals = away[~same & np.isfinite(away)].min(initial=np.inf)
    if not away[first] <= NEAR or not rivals > CLEARLY * away[first] + EXACT:
        return None
    largest = named[first] == named[first].max()
    missed = np.abs(value[first] - named[first]).max() / named[first].max()
    alike = bool(_alike(g, h, beta[first : first + 1], largest, after) <= CLEARLY * missed + EXACT)
    return value[first], float(a[first] * b[first]), alike


def _fitted(
    g: np.ndarray, h: np.ndarray, numbers: Float[np.ndarray, "few 3"], levels: np.ndarray, after: bool
) -> tuple[np.ndarray, ...]:
    """beta, ratings, A, B and the distance from the grid, from the levels that beta, A and B name."""
    beta, a, b = numbers.T

    def at(beta: np.ndarray) -> np.ndarray:
        columns = _lengths(g, h, beta, after)
        return np.where(np.isfinite(columns), columns, 0.0)

    for _ in range(ROUNDS):
        columns, width = at(beta), _width(g, h, beta)
        slope = (at(beta + width) - columns) / width[:, None, None]
        value = a[:, None] * columns[..., 0] + b[:, None] * columns[..., 1]
        by_beta = a[:, None] * slope[..., 0] + b[:, None] * slope[..., 1]
        table = np.concatenate([columns, by_beta[..., None]], axis=2)
        unit = np.abs(table).max(axis=1, keepdims=True)
        unit = np.where(unit > 0, unit, 1.0)
        missing = nearest_level(value, levels) - value
        usable = np.isfinite(table / unit).all(axis=(1, 2)) & np.isfinite(missing).all(axis=1)
        inverse = np.linalg.pinv(np.where(usable[:, None, None], table / unit, 0.0))
        step = np.matmul(inverse, np.where(usable[:, None], missing, 0.0)[..., None])[..., 0] / unit[:, 0]
        a, b, beta = a + step[:, 0], b + step[:, 1], beta + step[:, 2]
    columns = at(beta)
    value = a[:, None] * columns[..., 0] + b[:, None] * columns[..., 1]
    return beta, value, a, b, _away(value, a[:, None] * columns[..., 0], levels)


def _alike(
    g: np.ndarray,
    h: np.ndarray,
    beta: Float[np.ndarray, " one"],
    largest: Bool[np.ndarray, " rows"],
    after: bool,
) -> float:
    """How far the errors of some rows are from equal ones, relative, at the best beta nearby."""
    error, moved = (_lengths(g, h, one, after)[0, largest, 0] for one in (beta, beta + _width(g, h, beta)))
    error, moved = error / error.mean(), moved / moved.mean()
    slope = (moved - error)[:, None]
    unit = np.abs(slope).max() or 1.0
    return float(np.abs(error - 1 - slope / unit @ np.linalg.pinv(slope / unit) @ (error - 1)).max())


def _width(g: np.ndarray, h: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """By how much beta is moved, for what lengths change by with it."""
    return 1e-6 * np.maximum(np.abs(beta), 1e-3 / abs(float((g * h).sum())))


def _away(
    value: Float[np.ndarray, "*trials rows"], error: Float[np.ndarray, "*trials rows"], levels: np.ndarray
) -> Float[np.ndarray, "*trials"]:
    """Mean distance from the grid; infinite where errors take no part: equal h alone meet any one level."""
    away = distance_to_levels(value, levels).mean(axis=-1)
    part = np.abs(error).mean(axis=-1) > PART * np.abs(value).mean(axis=-1)
    return np.where(np.isfinite(away) & part, away, np.inf)


def _may_be_clipped(
    value: Float[np.ndarray, "users rows"], alike: Bool[np.ndarray, " users"], levels: np.ndarray
) -> bool:
    """Whether what is read as the highest level here may be a bound of the errors, and be any higher one.

    Examples
    --------
    >>> grid, alike = np.arange(1.0, 6.0), np.ones(1, bool)
    >>> [_may_be_clipped(np.array([part]), alike, grid) for part in ([5.0, 5, 4, 2], [5.0, 5, 4, 3])]
    [True, False]
    """
    named = np.where(np.isfinite(value), nearest_level(np.nan_to_num(value), levels), np.nan)
    if np.isnan(named).all():
        return False
    bound = np.nanmax(named)
    here = (named == bound).sum(axis=1) > 0
    if not alike[here].all():
        return False
    lower = np.unique(named[named < bound])
    times = levels / lower[0] if lower.size else levels / bound
    on_grid = (distance_to_levels(times[:, None] * lower, levels) < EXACT).all(axis=1)
    return bool((on_grid & (times * bound < levels[-1] - EXACT)).any())


def _times(
    value: Float[np.ndarray, "users rows"], product: Float[np.ndarray, " users"], levels: np.ndarray
) -> Float[np.ndarray, " users"]:
    """What ratings are to be multiplied with; NaN where that is open."""
    there = np.isfinite(value)
    told = np.flatnonzero(there.any(axis=1))
    if not told.size:
        return np.full(len(value), np.nan)
    ratios = np.array(sorted(level_ratios(levels)))
    open_ = np.zeros((len(value), ratios.size), bool)
    for user in told:  # many levels have many ratios
        named = nearest_level(value[user, there[user]], levels)
        open_[user] = (distance_to_levels(named * ratios[:, None], levels) < EXACT).all(axis=1)
    alone = there.any(axis=1) & ~open_.any(axis=1)
    times = np.where(alone, 1.0, np.nan)
    if alone.sum() < TELLING:
        return times
    usual = float(np.median(product[alone]))
    for user in told[~alone[told]]:
        choice = np.concatenate([[1.0], ratios[open_[user]]])
        with np.errstate(invalid="ignore", divide="ignore"):
            off = np.abs(np.log(choice**2 * product[user] / usual))
        best = int(np.where(np.isfinite(off), off, np.inf).argmin())
        if off[best] <= ALIKE:  # other multiples are 0.2 away, at the least
            times[user] = choice[best]
    return times
