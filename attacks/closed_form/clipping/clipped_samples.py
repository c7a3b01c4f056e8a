"""Rows of samples that were clipped one by one, each with what it moved its client's factor by: DP-SGD.

A sample's gradient is e_j (p, q_j) for its row and for the client's own factor, of length
|e_j| sqrt(|p|^2 + |q_j|^2). Clipped to C (per-sample clipping, Opacus), with no noise added, a row is

    min(|e_j|, C / sqrt(|p|^2 + |q_j|^2)) along p,

so that all rows stay parallel. Of the clipped ones 1 / g_j^2 is a line in |q_j|^2, of the others it is above
that: the line is the lower edge of the points (|q_j|^2, 1 / g_j^2), and no constant need be known. The others
are read as rows of one step, and a clipped one tells that its error is no smaller: it is answered where one
level is as far from the prediction (``attacks.closed_form.clipping.bounded_rows``).

What it assumes: one step, uploads in the clear; four clipped rows of a client on one line, to their last
digits. It judges itself as the readings do that it hands the other rows to.

References
----------
M. Abadi et al. 2016, doi:10.1145/2976749.2978318, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.chains.chain_readings import any_reading
from attacks.closed_form.clipping.bounded_rows import with_bounded
from attacks.closed_form.numbers.integer_relation import LOOSE, precision_of
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.readings import (
    Numbers,
    Reading,
    Rows,
    among,
    reading_of,
    some_of,
    spread_over,
)
from victims.transcript.manifest import Manifest

FEWEST = 4  # rows of a client on one line, which two of them make
MOST = 300  # rows of a client: lines take their number squared, and cubed where all are on one
VIEWS = np.concatenate([[0.0], np.geomspace(1e-2, 1e4, 15)])  # from where rows are seen, in median |q|^2
AT_ONCE = 1024  # lines


def reading_of_clipped_samples(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read clients who clipped each sample's gradient, of the row and of their own factor together."""
    numbers, clipped = clipped_samples(rows)
    found = reading_of(np.full(rows.item.shape, np.nan), np.nan, max_misfit)
    some: np.ndarray = np.asarray(clipped.any(axis=1))
    if not some.any():
        return found
    rest = some_of(among(rows, rows.item & ~clipped), some)
    found = spread_over(any_reading(rest, manifest, max_misfit), some)
    levels = np.array(manifest.rating_levels)
    return with_bounded(found, numbers.scalar, numbers.along, rows.offset, clipped, levels)


def unclipped(rows: Rows) -> Rows:
    """Leave out rows that were clipped with their samples, or may have been, where some client shows that."""
    numbers, clipped = clipped_samples(rows)
    some: np.ndarray = np.asarray(clipped.any(axis=1))
    if not some.any():
        return rows
    out, square, digits = clipped.copy(), _squares(rows), _digits(rows)
    for user in np.flatnonzero(numbers.whole & ~some):
        here = np.flatnonzero(numbers.there[user] & (numbers.scalar[user] != 0))
        if FEWEST < here.size <= MOST:
            out[user, here] = whole_edge(square[user, here], numbers.scalar[user, here], digits[user])
    return among(rows, rows.item & ~out)


def clipped_samples(rows: Rows) -> tuple[Numbers, Bool[np.ndarray, "users rows"]]:
    """Read rows as multiples of one direction, and find those that were clipped with their samples."""
    numbers = one_step(rows)
    square = _squares(rows)
    digits = _digits(rows)
    clipped = np.zeros(rows.item.shape, bool)
    for user in np.flatnonzero(numbers.whole & (numbers.across <= digits)):
        here = np.flatnonzero(numbers.there[user] & (numbers.scalar[user] != 0))
        if FEWEST < here.size <= MOST:
            clipped[user, here] = lower_edge(square[user, here], numbers.scalar[user, here], digits[user])
    return numbers, clipped


def lower_edge(
    square: Float[np.ndarray, " n"], scalar: Float[np.ndarray, " n"], digits: float
) -> Bool[np.ndarray, " n"]:
    """Find the rows whose 1 / g^2 is on one line in |q|^2, with no row below it.

    Examples
    --------
    >>> q2 = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    >>> g = np.array([1.0, -1.0, 1.0, 0.1, 0.2, 1.0]) / np.sqrt(2 + q2)
    >>> lower_edge(q2, g, 1e-12).tolist()
    [True, True, True, False, False, True]
    """
    best, most = np.zeros(scalar.size, bool), FEWEST - 1
    with np.errstate(all="ignore"):
        for on in _lines(square, scalar, digits):
            count = on.sum(axis=1)
            if count.max() > most:
                best, most = on[count.argmax()], int(count.max())
            if most == scalar.size:
                break
    return best


def whole_edge(
    square: Float[np.ndarray, " n"], scalar: Float[np.ndarray, " n"], digits: float
) -> Bool[np.ndarray, " n"]:
    """Find the rows whose 1 / g^2 is on a line in |q|^2 that has no row below it: few, whatever they are.

    Examples
    --------
    >>> q2 = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    >>> g = np.array([0.1, -1.0, 0.1, 0.1, 0.2, 1.0]) / np.sqrt(2 + q2)
    >>> whole_edge(q2, g, 1e-12).tolist()
    [False, True, False, False, False, True]
    """
    edge: np.ndarray = np.abs(scalar) == np.abs(scalar).max()
    with np.errstate(all="ignore"):
        for on in _lines(square, scalar, digits):
            edge |= on.any(axis=0)
            if edge.all():
                break
    return edge


def _lines(
    square: Float[np.ndarray, " n"], scalar: Float[np.ndarray, " n"], digits: float
) -> Iterator[Bool[np.ndarray, "lines n"]]:
    """Which rows are on lines through two that may be of clipped rows, for no row is below; some at a time.

    A few rows that are lowest from somewhere rule out nearly all lines; the others are held against all rows.
    """
    high = 1 / scalar**2
    slope = (high[:, None] - high) / (square[:, None] - square)
    start = high[:, None] - slope * square[:, None]
    able = (slope >= 0) & (start >= 0)
    views = VIEWS[:, None] * np.median(square)
    for row in np.unique(np.argmin(high / (views + square), axis=1)):
        able &= _off(high[row : row + 1], start, slope, square[row : row + 1]) >= -digits
    first, second = np.nonzero(able)
    for at in range(0, first.size, AT_ONCE):
        pair = first[at : at + AT_ONCE], second[at : at + AT_ONCE]
        off = _off(high, start[pair][:, None], slope[pair][:, None], square)
        whole = (off >= -digits).all(axis=1)
        if whole.any():
            yield np.abs(off[whole]) <= digits


def _off(high: np.ndarray, start: np.ndarray, slope: np.ndarray, square: np.ndarray) -> np.ndarray:
    """How far g is off a line, relatively: half of what its 1 / g^2 is."""
    return np.asarray((high / (start + slope * square) - 1) / 2)


def _digits(rows: Rows) -> Float[np.ndarray, " users"]:
    """Relative distance of rows from what they are, by rounding."""
    digits: np.ndarray = LOOSE * precision_of(rows.rows, rows.factors, rows.precision)
    return digits


def _squares(rows: Rows) -> Float[np.ndarray, "users rows"]:
    """|q|^2 of the rows' items."""
    square: np.ndarray = (rows.factors.astype(float) ** 2).sum(axis=2)
    return square
