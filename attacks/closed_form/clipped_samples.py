"""Rows of samples that were clipped one by one, each with what it moved its client's factor by: DP-SGD.

A sample's gradient is e_j (p, q_j) for its row and for the client's own factor, of length
|e_j| sqrt(|p|^2 + |q_j|^2). Clipped to C (per-sample clipping, Opacus), with no noise added, a row is

    min(|e_j|, C / sqrt(|p|^2 + |q_j|^2)) along p,

so that all rows stay parallel. Of the clipped ones 1 / g_j^2 is a line in |q_j|^2, of the others it is above
that: the line is the lower edge of the points (|q_j|^2, 1 / g_j^2), and no constant need be known. The others
are read as rows of one step, and a clipped one tells that its error is no smaller: it is answered where one
level is as far from the prediction (``attacks.closed_form.bounded_rows``).

What it assumes: one step, uploads in the clear; four clipped rows of a client on one line, to their last
digits. It judges itself as the readings do that it hands the other rows to.

References
----------
M. Abadi et al. 2016, doi:10.1145/2976749.2978318, Algorithm 1.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.bounded_rows import with_bounded
from attacks.closed_form.chain_readings import any_reading
from attacks.closed_form.integer_relation import LOOSE, precision_of
from attacks.closed_form.readings import Numbers, Reading, Rows, among, reading_of, some_of, spread_over
from attacks.closed_form.row_readings import one_step
from victims.transcript.manifest import Manifest

FEWEST = 4  # rows of a client on one line, which two of them make
MOST = 300  # rows of a client: lines take their number cubed


def reading_of_clipped_samples(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read clients who clipped each sample's gradient, of the row and of their own factor together.

    Parameters
    ----------
    rows : Rows
    manifest : Manifest
        Names the rating grid.
    max_misfit : float
        Largest misfit at which a client is answered.

    Returns
    -------
    Reading
    """
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
    """Leave out rows that were clipped with their samples, or may have been, where some client shows that.

    Parameters
    ----------
    rows : Rows

    Returns
    -------
    Rows
        The same where nobody shows a line. Who shows none is left what is off the lower edge.
    """
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
    """Read rows as multiples of one direction, and find those that were clipped with their samples.

    Parameters
    ----------
    rows : Rows

    Returns
    -------
    numbers : Numbers
    clipped : (users, rows) bool
    """
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

    Parameters
    ----------
    square : (n,)
        |q|^2.
    scalar : (n,)
        g, other than 0.
    digits : float
        Relative distance of g from the line, below which a row is on it.

    Returns
    -------
    (n,) bool
        Nobody where fewer than ``FEWEST`` are.

    Examples
    --------
    >>> q2 = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    >>> g = np.array([1.0, -1.0, 1.0, 0.1, 0.2, 1.0]) / np.sqrt(2 + q2)
    >>> lower_edge(q2, g, 1e-12).tolist()
    [True, True, True, False, False, True]
    """
    on, able = _lines(square, scalar, digits)
    count = np.where(able, on.sum(axis=2), 0)
    best = np.unravel_index(count.argmax(), count.shape)
    return on[best] if count[best] >= FEWEST else np.zeros(scalar.size, bool)


def whole_edge(
    square: Float[np.ndarray, " n"], scalar: Float[np.ndarray, " n"], digits: float
) -> Bool[np.ndarray, " n"]:
    """Find the rows whose 1 / g^2 is on a line in |q|^2 that has no row below it: few, whatever they are.

    Parameters
    ----------
    square : (n,)
        |q|^2.
    scalar : (n,)
        g, other than 0.
    digits : float
        As of ``lower_edge``.

    Returns
    -------
    (n,) bool
        Any row that was clipped is among them.

    Examples
    --------
    >>> q2 = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    >>> g = np.array([0.1, -1.0, 0.1, 0.1, 0.2, 1.0]) / np.sqrt(2 + q2)
    >>> whole_edge(q2, g, 1e-12).tolist()
    [False, True, False, False, False, True]
    """
    on, able = _lines(square, scalar, digits)
    return (on & able[..., None]).any(axis=(0, 1)) | (np.abs(scalar) == np.abs(scalar).max())


def _lines(
    square: Float[np.ndarray, " n"], scalar: Float[np.ndarray, " n"], digits: float
) -> tuple[Bool[np.ndarray, "n n n"], Bool[np.ndarray, "n n"]]:
    """Which rows are on the line of each two, and which lines may be of clipped rows: no row is below."""
    with np.errstate(all="ignore"):
        high = 1 / scalar**2
        slope = (high[:, None] - high) / (square[:, None] - square)
        start = high[:, None] - slope * square[:, None]
        # g is off the line by half of what its 1 / g^2 is, relatively
        line = start[..., None] + slope[..., None] * square
        off = (high / line - 1) / 2
        able = (slope >= 0) & (start >= 0) & (off >= -digits).all(axis=2)
        return np.abs(off) <= digits, able


def _digits(rows: Rows) -> Float[np.ndarray, " users"]:
    """Relative distance of rows from what they are, by rounding."""
    digits: np.ndarray = LOOSE * precision_of(rows.rows, rows.factors, rows.precision)
    return digits


def _squares(rows: Rows) -> Float[np.ndarray, "users rows"]:
    """|q|^2 of the rows' items."""
    square: np.ndarray = (rows.factors.astype(float) ** 2).sum(axis=2)
    return square
