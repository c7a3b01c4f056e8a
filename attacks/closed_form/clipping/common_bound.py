"""Errors that all clients clip to one bound: what is at it says "at least so far away" and no more.

A program that clips every error e to [-c, c] before it makes the row of it leaves a 5 that is clipped to 4,
where predictions are near 0, looking like a 4. A client who clips two rows or more shows it, for they are
equally long (``attacks.closed_form.grid.grid_reading``); who clips one alone does not, nor do rounded rows.
All clients together do: c is the same for all of them in stars, clipped errors pile up there, and none is
larger. Errors that were not clipped thin out towards the largest one.

A client's row r = A g + B h + offset has the error A g, by the numbers that it was read with. A row at the
bound, within what the client's other rows are off the grid by, is answered where one level alone is left
beyond it. Where nobody clips and the largest errors meet by chance, nothing but a rating that is not the
last of the grid is lost by that.

What it assumes: one bound for all clients and both signs, in stars.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.grid.grid_reading import beyond
from attacks.closed_form.rows.row_readings import LONGEST, one_step, several_steps
from attacks.closed_form.rows.weighted_zeros import HALF
from attacks.closed_form.uploads.readings import Numbers, Reading, Rows

NONE = float("inf")  # a bound that nobody meets
SAME = 1e-6  # relative, within which two exact errors are one
AROUND = 3.0  # times as far as other rows of a client are off the grid: so far a row may be off a bound
FEWEST, CLIENTS = 3, 2  # rows at a bound, and clients that have them
THICKER = 2.0  # times as many as in as wide a window below: they thin out otherwise
LARGER, FAR_LARGER = (
    0.25,
    0.05,
)  # share of them that may be larger, and by three times as far as they seem off
CANDIDATES = 1000  # the largest errors, each of which may be the bound
EXACT_CLIENTS = 3  # from which on the others are not asked


class Errors(NamedTuple):
    """What rows are, by the numbers that a client was read with."""

    # in stars, the signs that make ratings positive; NaN where the numbers do not say what was read
    value: Float[np.ndarray, "users rows"]
    # in stars, the signs that make ratings positive; NaN where the numbers do not say what was read
    error: Float[np.ndarray, "users rows"]
    around: Float[np.ndarray, " users"]  # how far errors are from what they are, stars


def errors_of(read: Reading, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Errors:
    """Find the errors of clients who were read as one step, or as a chain of them."""
    shape = rows.item.shape
    value, error, around = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape[0], np.nan)
    here = read.answered & np.isfinite(read.of_error + read.of_factor) & (read.own_bias == 0)
    if not (here.any() and shape[1]):
        return Errors(value, error, around)
    rated = np.isfinite(read.value) & (read.value != 0) & rows.item
    count = np.maximum(rated.sum(axis=1), 1)
    with np.errstate(all="ignore"):
        clean = rows.rows - np.nan_to_num(read.pull)[:, None, None] * rows.factors
        ideas = [(one_step(rows._replace(rows=clean)), read.steps <= 1)]
        if shape[1] <= LONGEST and (here & (read.steps > 1)).any():
            ideas.append((several_steps(rows), read.steps > 1))
        for numbers, able in ideas:
            told, errors = _said(numbers, read, rows)
            away = np.where(rated, np.abs(told - read.value), 0.0).max(axis=1)
            some = here & able & rated.any(axis=1) & (away < BARS.between * step_of(levels))
            off = np.where(rated, distance_to_levels(told, levels) ** 2, 0.0).sum(axis=1) / count
            value[some], error[some], around[some] = told[some], errors[some], np.sqrt(off)[some]
    largest = np.nan_to_num(np.abs(error)).max(axis=1)
    around = np.maximum(AROUND * around, SAME * largest)
    return Errors(value, np.where(rows.item, error, np.nan), around)


def _said(numbers: Numbers, read: Reading, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Ratings and errors by a client's numbers; a direction's sign is that of the ratings that were read."""
    error = read.of_error[:, None] * numbers.scalar
    predicted = read.of_factor[:, None] * numbers.along
    there = rows.item & np.isfinite(read.value)
    known = np.where(there, read.value - rows.offset, 0.0)
    sign = np.where((known * np.nan_to_num(error + predicted)).sum(axis=1) < 0, -1.0, 1.0)[:, None]
    error, predicted = (np.where(numbers.there, sign * part, np.nan) for part in (error, predicted))
    return error + predicted + rows.offset, error


def bound_of(asked: Iterable[tuple[Reading, Rows]], levels: Float[np.ndarray, " levels"]) -> float:
    """Find where the errors of some clients pile up, none of them being larger.

    Examples
    --------
    >>> pile_up([np.array([1.0, 4.0]), np.array([4.0, 3.2]), np.array([4.0, 2.0])], np.full(3, 1e-6))
    4.0
    >>> pile_up([np.array([1.0, 4.3]), np.array([4.1, 3.2]), np.array([3.8, 2.0])], np.full(3, 1e-6))
    inf
    """
    sizes: list[np.ndarray] = []
    around: list[float] = []
    exact: list[bool] = []
    n_unread = 0
    for read, rows in asked:
        n_unread += int((~read.answered).sum())
        found = errors_of(read, rows, levels)
        for user in np.flatnonzero(np.isfinite(found.around) & np.isfinite(found.error).any(axis=1)):
            own = np.abs(found.error[user])
            sizes.append(own[np.isfinite(own)])
            around.append(float(found.around[user]))
            exact.append(bool(read.misfit[user] <= rows.precision**HALF))
    if sum(exact) >= EXACT_CLIENTS:
        sizes = [one for one, sure in zip(sizes, exact, strict=True) if sure]
        around = [one for one, sure in zip(around, exact, strict=True) if sure]
    alone = exact == [False]  # exact errors of one client may be equal because factors are
    bound = pile_up(sizes, np.array(around), 1 if alone else CLIENTS)
    # what left the others unread may have been done to the largest error of this one
    return float(sizes[0].max()) if alone and n_unread and bound == NONE else bound


def pile_up(sizes: list[np.ndarray], around: Float[np.ndarray, " clients"], clients: int = CLIENTS) -> float:
    """Find the largest error, if several clients have it and next to nobody one that is a little smaller."""
    if len(sizes) < clients:
        return NONE
    client = np.repeat(np.arange(len(sizes)), [own.size for own in sizes])
    size, wide = np.concatenate(sizes), around[client]
    best, most = NONE, 0
    for bound in np.unique(size)[::-1][:CANDIDATES]:
        off = size - bound
        at = np.abs(off) <= wide
        n_at = int(at.sum())
        if (off > wide).sum() > LARGER * n_at or (off > 3 * wide).sum() > FAR_LARGER * n_at:
            continue
        n_near = int(((off < -wide) & (off >= -3 * wide)).sum())
        if n_at > most and n_at >= max(FEWEST, THICKER * n_near) and np.unique(client[at]).size >= clients:
            best, most = float(np.median(size[at])), n_at
    return best


def within_bound(read: Reading, rows: Rows, bound: float, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Answer rows at a bound of all errors with the level that is left beyond them, if it is one."""
    if not np.isfinite(bound):
        return read
    found = errors_of(read, rows, levels)
    top: Bool[np.ndarray, "users rows"] = np.abs(found.error) >= (bound - found.around)[:, None]
    return read._replace(value=np.where(top, beyond(found.value, found.error, levels), read.value))


def not_lowered(
    read: Reading, rows: Rows, bound: float, levels: Float[np.ndarray, " levels"]
) -> Bool[np.ndarray, " users"]:
    """Whose clipped errors ask for more than the highest level less the lowest one.

    A program that learns ratings less the lowest level has no such number, whatever its clients rated.
    """
    if not np.isfinite(bound):
        return np.zeros(read.misfit.shape, bool)
    found = errors_of(read, rows, levels)
    around = found.around[:, None]
    top = (found.error >= bound - around) & (
        found.value > levels[-1] - levels[0] + around + SAME * levels[-1]
    )
    return np.asarray(top.any(axis=1))
