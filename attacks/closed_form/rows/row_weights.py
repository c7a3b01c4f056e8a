"""Rows with weights of their own that nobody told: confidences, means over an item's raters, weights by age.

Row j of round t is sigma w_j (r_j - p . q_j) p with the p and q_j of that round, and a weight w_j that is the
same in all rounds. With d the rows' direction, p = s d, g_j the row along d and h_j = d . q_j,

    g_j / s = c_j - w_j s h_j,        c_j = w_j r_j,

up to sigma: in three rounds three equations in c_j and w_j, which hold where the determinant of the columns
(g / s, 1, s h) is 0. It is linear in the six ratios of s, s' and s'', so that six rows tell these as a null
vector, and Gauss-Newton makes them exact. Then r_j = c_j / w_j, up to one factor of the client that s and
sigma leave open, and the rating grid tells it (``attacks.closed_form.fit.affine_grid``).

Unknowns and equations: a client of n rows has 3 n numbers along its direction, and 2 n + 3 unknowns (w_j, c_j
and a length in each round), less the factor.

What it assumes: rows in the clear, in double precision and without noise, three rounds with the same items of
the client, of six or more, and factors that change between them; one step a round. It judges itself: the six
ratios must be those of three numbers, nothing may be left of the determinants, and ratings lie on the grid by
more than chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.affine_grid import best_numbers
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import accidental, step_of
from attacks.closed_form.grid.grid_reading import ACCIDENT, near_levels
from attacks.closed_form.uploads.readings import Reading, Rows, reading_of
from attacks.closed_form.uploads.reduction import leading_direction
from victims.transcript.manifest import Manifest

ROUNDS = 3
FEWEST = 6  # rows: one more than six ratios, of which a factor is open, need
PARALLEL = 1e-6  # of the rows' size across their direction: beyond it they are no single step
GAP = 0.1  # the null vector's singular value over the next one
CONSISTENT = 0.05  # relative difference between ratios that are the same, before they are made exact
POLISH = 6  # steps of Gauss-Newton
LEFT = 1e-9  # of the determinants' size, beyond which rows have no such weights
MEDIAN = 0.6745  # of normal errors: the median of their sizes, in standard deviations
FARTHEST = 6.0  # standard deviations of a row's error that may not reach half a step
EXACT = 1e-2  # of a step: right ratings of rows without noise are nearer to the grid in the mean
# the ratios: exponents of s, s' and s'' in each of them
POWERS = np.array([[-1, 0, 1], [-1, 1, 0], [1, -1, 0], [0, -1, 1], [0, 1, -1], [1, 0, -1]])


class Weighted(NamedTuple):
    """What three rounds say of rows with weights of their own."""

    value: Float[np.ndarray, "users rows"]  # ratings up to one factor of the client
    # what the rows' relative error is multiplied with in each of them, in the same units
    amplified: Float[np.ndarray, "users rows"]
    told: Bool[np.ndarray, " users"]


def read_weighted(rounds: Sequence[Rows], manifest: Manifest, max_misfit: float) -> Reading:
    """Read clients whose rows have weights that are the same in three rounds."""
    levels, last = np.array(manifest.rating_levels), rounds[-1]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        found = without_weights(rounds)
        there = last.item & found.told[:, None] & np.isfinite(found.value)
        column = np.where(there, found.value, 0.0)
        fitted = best_numbers(column[..., None], last.offset, there, levels)
        value = column * fitted.numbers + last.offset
        off = np.where(there, distance_to_levels(value, levels), 0)
        sure = _sure(off, found.amplified * np.abs(fitted.numbers), there, step_of(levels))
    away = off.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    told = found.told & fitted.told & (away <= EXACT * step_of(levels))
    return reading_of(
        np.where(there & sure, near_levels(value, levels), np.nan),
        misfit=np.where(told, away / (step_of(levels) / 4), np.nan),
        allowed=np.minimum(max_misfit, accidental(there.sum(axis=1) - 1, levels.size, ACCIDENT)),
        steps=1.0,
    )


def without_weights(rounds: Sequence[Rows]) -> Weighted:
    """Solve for ratings up to a factor, whatever weights multiply the rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> r, w, all_ = rng.choice([1.0, 2, 3, 4, 5], 12), rng.uniform(0.1, 3, 12), np.ones((1, 12), bool)
    >>> rounds = []
    >>> for _ in range(3):
    ...     q, p = rng.normal(size=(12, 4)), rng.normal(size=4)
    ...     sent = (w * (r - q @ p))[:, None] * p
    ...     rounds.append(Rows(sent[None], q[None], 0.0 * all_, all_, np.ones(1), 2.0**-52, None))
    >>> found = without_weights(rounds)
    >>> found.told, bool(np.ptp(found.value[0] / r) < 1e-6 * abs(found.value[0, 0]))
    (array([ True]), True)
    """
    item = rounds[-1].item
    numbers = [_along(rows) for rows in rounds]
    g, h = (np.stack([part[number] for part in numbers]) for number in (0, 1))
    usable = np.all([part[2] < PARALLEL for part in numbers], axis=0) & (item.sum(axis=1) >= FEWEST)
    table = np.stack(
        [g[0] * h[2], -g[0] * h[1], g[1] * h[0], -g[1] * h[2], g[2] * h[1], -g[2] * h[0]], axis=2
    )
    table = np.where((usable[:, None] & item)[..., None] & np.isfinite(table), table, 0.0)
    lengths, alike = _start(table)
    lengths, left = _polished(table, lengths)
    told = usable & alike & (left < LEFT)
    s = lengths.T[:, :, None]
    value, amplified = _ratings(g / s, h * s)
    there = told[:, None] & item
    return Weighted(np.where(there, value, 0.0), np.where(there, amplified, np.inf), told)


def _along(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """g and h, and what of the rows is across their direction."""
    direction, energy = leading_direction(rows.rows)
    g, h = (np.matmul(part, direction[:, :, None])[..., 0] for part in (rows.rows, rows.factors))
    off = rows.rows - g[..., None] * direction[:, None]
    return g, h, np.linalg.norm(off, axis=(1, 2)) / np.sqrt(np.where(energy > 0, energy, 1))


def _start(table: Float[np.ndarray, "users rows 6"]) -> tuple[np.ndarray, np.ndarray]:
    """Lengths s, s' and s'', (users, 3), by the null vector; and whether it is made of such ratios."""
    size = np.linalg.norm(table, axis=1)
    scaled = table / np.where(size > 0, size, 1)[:, None]
    _, singular, right = np.linalg.svd(scaled, full_matrices=False)
    if singular.shape[1] < len(POWERS):
        return np.ones((len(table), ROUNDS)), np.zeros(len(table), bool)
    null = right[:, -1] / np.where(size > 0, size, 1)
    ratio = null * (null[:, 0] / (null[:, 1] * null[:, 3]))[:, None]  # s''/s is s'/s times s''/s'
    lengths = np.stack([np.ones(len(table)), ratio[:, 1], ratio[:, 0]], axis=1)
    again = _ratios(lengths)
    alike = (np.abs(ratio - again) < CONSISTENT * np.abs(again)).all(axis=1)
    alike &= singular[:, -1] < GAP * singular[:, -2]
    good = np.isfinite(lengths).all(axis=1) & (lengths != 0).all(axis=1)
    return np.where(good[:, None], lengths, 1.0), alike & good


def _ratios(lengths: Float[np.ndarray, "users 3"]) -> Float[np.ndarray, "users 6"]:
    return np.prod(lengths[:, None] ** POWERS, axis=2)


def _polished(
    table: Float[np.ndarray, "users rows 6"], lengths: Float[np.ndarray, "users 3"]
) -> tuple[Float[np.ndarray, "users 3"], Float[np.ndarray, " users"]]:
    """The lengths by least squares of the determinants; what is left of these, relative to their terms."""
    for _ in range(POLISH):
        terms = table * _ratios(lengths)[:, None]
        slope = terms @ POWERS[:, 1:]  # by the logarithms of s' and s''
        gram = np.matmul(slope.transpose(0, 2, 1), slope)
        inverse = np.linalg.pinv(np.where(np.isfinite(gram), gram, 0), hermitian=True)
        step = -np.einsum("uij,unj,un->ui", inverse, slope, terms.sum(axis=2))
        step = np.clip(np.nan_to_num(step), -1, 1)
        lengths = lengths * np.exp(np.concatenate([np.zeros((len(step), 1)), step], axis=1))
    terms = table * _ratios(lengths)[:, None]
    size = np.linalg.norm(terms, axis=(1, 2))
    return lengths, np.linalg.norm(terms.sum(axis=2), axis=1) / np.where(size > 0, size, 1)


def _ratings(
    left: Float[np.ndarray, "3 users rows"], right: Float[np.ndarray, "3 users rows"]
) -> tuple[Float[np.ndarray, "users rows"], Float[np.ndarray, "users rows"]]:
    """c / w by least squares of left = c - w right; what relative errors are multiplied with in it."""
    y, x = (part - part.mean(axis=0) for part in (left, right))
    w = -(x * y).sum(axis=0) / (x * x).sum(axis=0)
    size = np.abs(left).max(axis=0) + np.abs(w) * np.abs(right).max(axis=0)
    of_slope = size / np.sqrt((x * x).sum(axis=0)) / np.abs(w)
    level = np.abs(left).mean(axis=0) / np.abs(w)
    return (left.mean(axis=0) + w * right.mean(axis=0)) / w, level * of_slope + size / np.abs(w)


def _sure(
    off: Float[np.ndarray, "users rows"],
    amplified: Float[np.ndarray, "users rows"],
    there: Bool[np.ndarray, "users rows"],
    step: float,
) -> Bool[np.ndarray, "users rows"]:
    """Rows whose error is far below half a step: their share of what the client's rows have in common."""
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.array(
            [
                np.median(own[here]) if here.any() else np.inf
                for own, here in zip(off / amplified, there, strict=True)
            ]
        )
    usual = np.maximum(relative / MEDIAN, np.finfo(float).eps)[:, None]
    return FARTHEST * usual * amplified <= step / 2
