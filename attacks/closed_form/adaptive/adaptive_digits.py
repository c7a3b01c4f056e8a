"""Gradients from the last digits of one step of Adam or its relatives.

With moments that start anew the first step of an entry x with gradient g is, eps being the optimizer's,

    x - x' = eta g / (|g| + eps), so that 1 / |x - x'|^p = (1 + (eps / |g|)^p) / eta^p,   p = 1;

p = 2 where eps is added below the root, or Adagrad starts from squares that are not 0; RMSprop and Adagrad
have other eta and eps. A gradient is an error times an entry of the client's factor. So these numbers are one
constant, 1 / eta^p, and a table of rank one: n + K - 1 numbers of n K. The constant is most of them, and what
eps makes of them, 1e-7 of each, still has half of the digits of double precision. Decay beside the step
(AdamW) is one number more. In single precision nothing is left, unless gradients are small or eps is not.

What it assumes: one step, rows or weights with their own digits. A table that is explained to its last digits
is judged by itself; what ratings the gradients come from is read as of rows that nobody scaled.

References
----------
D. P. Kingma, J. Ba 2015, arXiv:1412.6980, Algorithm 1. The use is ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

TURNS = 12  # of Gauss and Newton, from a start that is near
STILL = 0.05  # change of what is left, relative, at which turns have come to their end
FEWEST, FEWEST_FACTORS, SPARE = 3, 3, 4  # rows, factors, and equations beyond unknowns
MOST_LEFT = 2.0  # last digits that are left in the middle: rounding leaves a third of one
WORST = 1e-3  # deviation of a row's size in the middle, relative
SURE = 30.0  # deviations by which the rate is told
FORMS = ((1, False), (2, False), (1, True), (2, True))  # p, and whether there is a decay


class Digits(NamedTuple):
    """What the digits of a client's rows tell."""

    gradient: Float[np.ndarray, "n K"]  # in units of eps, with the signs of the rows
    error: Float[np.ndarray, " n"]  # relative standard deviation of each row's size, all else being open
    left: float  # last digits that are left in the middle


def digits(
    rows: Float[np.ndarray, "n K"], factors: Float[np.ndarray, "n K"], power: int, decays: bool
) -> Digits | None:
    """Take the constant off a client's rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> v, g = rng.normal(0, 0.3, (6, 4)), np.outer(rng.normal(size=6), rng.normal(size=4))
    >>> told = digits((v + 0.01 * g / (np.abs(g) + 1e-8)) - v, v, 1, False)
    >>> bool(np.abs(1e-8 * told.gradient / g - 1).max() < 1e-3)
    True
    >>> digits((v + 0.01 * np.sign(g)) - v, v, 1, False) is None
    True
    """
    n, k = rows.shape
    if n < FEWEST or k < FEWEST_FACTORS or n * k - n - k - decays < SPARE or not (rows != 0).all():
        return None
    own = np.maximum(np.spacing(np.abs(rows)), np.spacing(np.abs(factors).astype(rows.dtype))).astype(float)
    rows, factors = rows.astype(float), factors.astype(float)
    with np.errstate(all="ignore"):
        at = _begun(rows, factors, power, decays)
        before = np.inf
        for _ in range(TURNS):
            at, deviation, left = _turned(at, rows, factors, own, power, decays)
            if not np.isfinite(left) or abs(left - before) < STILL * left:
                break
            before = left
        table = np.outer(at.of_row, at.of_column)
        rate = 1 + at.constant
        sure = np.isfinite(left) and left <= MOST_LEFT and (table > 0).all() and rate > SURE * deviation[0]
        if not sure:
            return None
        size = (table / rate) ** (-1 / power)
        error = deviation[1:] / np.abs(at.of_row) / power
    if not np.median(error) <= WORST:
        return None
    return Digits(np.sign(rows + at.decay * factors) * size, error, float(left))


class _At(NamedTuple):
    """(unit / |step|)^p - 1 = constant + of_row of_column, steps being rows and decay times factors."""

    unit: float
    constant: float
    of_row: np.ndarray
    of_column: np.ndarray
    decay: float


def _numbers(at: _At, rows: np.ndarray, factors: np.ndarray, power: int) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of steps, and (unit / |step|)^p - 1 without cancellation."""
    size = np.abs(rows + at.decay * factors)
    first = (at.unit - size) / size
    return size, first * (2 + first) if power == 2 else first


def _begun(rows: np.ndarray, factors: np.ndarray, power: int, decays: bool) -> _At:
    """Rows and columns less their means are of rank one without the constant, and tell these means."""
    decay, sign = 0.0, np.sign(rows)
    if decays:
        by = np.stack([np.ones(rows.size), -(sign * factors).ravel()], axis=1)
        decay = float(np.linalg.lstsq(by, (sign * rows).ravel(), rcond=None)[0][1])
    at = _At(float(np.median(np.abs(rows + decay * factors))), 0.0, np.zeros(0), np.zeros(0), decay)
    _, number = _numbers(at, rows, factors, power)
    if not np.isfinite(number).all():
        return at._replace(of_row=np.full(len(rows), np.nan), of_column=np.full(rows.shape[1], np.nan))
    centred = number - number.mean(axis=1, keepdims=True) - number.mean(axis=0) + number.mean()
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    of_row, of_column = left[:, 0] * sizes[0], right[0]
    rest = number - np.outer(of_row, of_column)
    mean_of_row = _slope(rest.mean(axis=0), of_column)
    mean_of_column = _slope(rest.mean(axis=1), of_row)
    constant = float(rest.mean() - mean_of_row * mean_of_column)
    return at._replace(constant=constant, of_row=of_row + mean_of_row, of_column=of_column + mean_of_column)


def _slope(y: np.ndarray, x: np.ndarray) -> float:
    """Of a line through the middle of a few points, x having a mean of 0."""
    return float(x @ y / (x @ x))


def _turned(
    at: _At, rows: np.ndarray, factors: np.ndarray, own: np.ndarray, power: int, decays: bool
) -> tuple[_At, Float[np.ndarray, " n_and_one"], float]:
    """One step of Gauss and Newton; deviations of the constant and of each row's number; what is left."""
    (n, k), x, y = rows.shape, at.of_row, at.of_column
    size, number = _numbers(at, rows, factors, power)
    slope = power * (number + 1) / size  # of a number, by the size of its step, downwards
    weight = 1 / (slope * own) ** 2
    off = number - at.constant - np.outer(x, y)
    left = float(np.sqrt((weight * off**2).sum() / (n * k - n - k - decays)))
    if not np.isfinite(left):
        return at, np.full(n + 1, np.nan), np.inf
    shared = np.zeros((n, k, 1 + k + decays))  # slopes by constant, columns' numbers and decay
    shared[..., 0] = 1.0
    shared[:, np.arange(k), 1 + np.arange(k)] = x[:, None]
    if decays:
        shared[..., -1] = slope * np.sign(rows + at.decay * factors) * factors
    of_row = (weight * y**2).sum(axis=1)
    weighted = weight[..., None] * shared
    cross = np.einsum("k,jkm->jm", y, weighted)
    flat = shared.reshape(n * k, -1)
    whole = weighted.reshape(n * k, -1).T @ flat
    square = whole - (cross / of_row[:, None]).T @ cross
    gauge = np.zeros(len(square))  # rows' numbers twice as large and columns' half as large are the same
    gauge[1 : 1 + k] = y / np.linalg.norm(y)
    unit = np.sqrt(np.diag(whole))
    square = square / np.outer(unit, unit) + np.outer(gauge / unit, gauge / unit) * unit[1] ** 2
    inverse = np.linalg.pinv(square, rcond=1e-14, hermitian=True) / np.outer(unit, unit)
    of_off = (weight * off * y).sum(axis=1)
    by = inverse @ (flat.T @ (weight * off).ravel() - (cross / of_row[:, None]).T @ of_off)
    moved = at._replace(
        constant=at.constant + float(by[0]),
        of_row=x + (of_off - cross @ by) / of_row,
        of_column=y + by[1 : 1 + k],
        decay=at.decay + (float(by[-1]) if decays else 0.0),
    )
    variance = 1 / of_row + np.einsum("jl,lm,jm->j", cross, inverse, cross) / of_row**2
    return moved, np.sqrt(np.concatenate([inverse[:1, 0], variance])), left
