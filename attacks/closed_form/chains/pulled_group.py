"""Rows of one step that hold a multiple of their factors, among rows that are made up.

Clients that hide which items they rated send rows of others, too: zeros, or noise. Rows of rated ones,
e_j p + lambda q_j, have p in the plane of row and factor, so that two of these planes share a line: the four
vectors g_i, q_i, g_j and q_j are linearly dependent, and the numbers that say so tell lambda twice. Planes of
made-up rows share no line with any. The rows that are dependent on most others, with one lambda, are read as
if they were all (``attacks.closed_form.rows.row_readings``); the others stay open.

What it assumes: one step, uploads in the clear, four factors or more, the same multiple in all rows. Rows
without one that are parallel are read by ``attacks.closed_form.rows.parallel_groups``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.chains.chain_readings import any_reading
from attacks.closed_form.numbers.integer_relation import LOOSE, precision_of
from attacks.closed_form.uploads.readings import Reading, Rows, among, nothing, some_of, spread_over
from attacks.closed_form.uploads.reduction import unit_vectors
from victims.transcript.manifest import Manifest

PLANES = 4  # factors, from which on two planes share no line by themselves
LEAST = 6  # rows of a group
MOST = 300  # rows of a client: pairs take their number squared
ALIKE = 0.1  # relative, within which pairs tell one multiple
EXACT = 0.01  # misfit of rows that are exact


def reading_of_pulled_group(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read the rows of each client that are of one step, and leave the others open."""
    item = np.zeros(rows.item.shape, bool)
    for user, at, own, factors, digits in rows_one_by_one(rows):
        item[user, at] = one_line(own, factors, digits)
    some = item.any(axis=1) & (item != moved_rows(rows)).any(axis=1)
    if not some.any():
        return nothing(rows.item.shape)
    found = spread_over(any_reading(some_of(among(rows, item), some), manifest, max_misfit), some)
    return found._replace(allowed=np.minimum(found.allowed, EXACT))


def moved_rows(rows: Rows) -> Bool[np.ndarray, "users rows"]:
    """Tell which rows are of items, and hold anything."""
    return rows.item & (rows.rows != 0).any(axis=2)


def rows_one_by_one(rows: Rows) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray, float]]:
    """Each client's rows for a search that takes them one client at a time."""
    users, n, k = rows.rows.shape
    if not (LEAST <= n <= MOST and k >= PLANES):
        return
    digits = LOOSE * precision_of(rows.rows, rows.factors, rows.precision)
    here = moved_rows(rows)
    for user in range(users):
        at = np.flatnonzero(here[user])
        yield user, at, rows.rows[user, at], rows.factors[user, at].astype(float), float(digits[user])


def one_line(
    rows: Float[np.ndarray, "n K"], factors: Float[np.ndarray, "n K"], digits: float
) -> Bool[np.ndarray, " n"]:
    """Find the most rows whose planes with their factors share a line, with one multiple of the factors.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q, e, p = rng.normal(size=(9, 5)), rng.normal(size=9), rng.normal(size=5)
    >>> sent = e[:, None] * p + 0.1 * q
    >>> sent[7:] = rng.normal(size=(2, 5))
    >>> one_line(sent, q, 1e-12).tolist()
    [True, True, True, True, True, True, True, False, False]
    """
    out = np.zeros(len(rows), bool)
    if len(rows) < LEAST:
        return out
    _, partner = alike_planes(rows, factors, digits)
    most = partner.sum(axis=1).argmax()
    out[most] = True
    out |= partner[most]
    return out if out.sum() >= LEAST else np.zeros(len(rows), bool)


def alike_planes(
    rows: Float[np.ndarray, "n K"], factors: Float[np.ndarray, "n K"], digits: float
) -> tuple[float, Bool[np.ndarray, "n n"]]:
    """Find pairs of rows whose planes with their factors share a line, with one multiple of the factors."""
    partner = np.zeros((len(rows), len(rows)), bool)
    (g, size), (q, length) = unit_vectors(rows), unit_vectors(factors)
    first, second = np.triu_indices(len(rows), 1)
    four = np.stack([g[first], q[first], -g[second], -q[second]], axis=2)
    # the smallest singular value, and its vector, where it is at the last digits
    off = np.abs(np.asarray(np.linalg.qr(four, mode="r"))[:, 3, 3])
    near = np.flatnonzero(off <= np.sqrt(digits))
    _, value, right = np.linalg.svd(four[near], full_matrices=False)
    last = right[:, 3]
    with np.errstate(divide="ignore", invalid="ignore"):
        multiples = -last[:, [1, 3]] / last[:, [0, 2]]
    multiples *= np.stack([(size / length)[first[near]], (size / length)[second[near]]], axis=1)
    alike = np.abs(multiples[:, 0] - multiples[:, 1]) <= ALIKE * np.abs(multiples).max(axis=1, initial=0)
    pulled = (np.abs(last[:, [1, 3]]) > digits).all(axis=1) & np.isfinite(multiples).all(axis=1)
    good = (value[:, 3] <= digits) & alike & pulled
    if good.sum() < LEAST:
        return 0.0, partner
    multiple = float(np.median(multiples[good]))
    good &= (np.abs(multiples - multiple) <= ALIKE * np.abs(multiple)).all(axis=1)
    partner[first[near][good], second[near][good]] = True
    return multiple, partner | partner.T
