"""Rows that hold a multiple of their own factor and were clipped one by one: the pull tells by how much.

Beyond the papers, for programs that regularise items and clip the norm of every row. Row j is
F_j = f_j sigma (e_j u + mu v_j), with a positive f_j of its own (1, or what brings the row to the bound) that
nobody knows. It lies in the plane of u and v_j, whatever f_j: so u's direction d is the one that lies in
the planes of all rows and their factors. In each plane

    F_j = a_j d + b_j v_j,        a_j / b_j = e_j |u| / mu,

in which f_j and sigma cancel, so that ratings are r_j = A a_j / b_j + B d . v_j with A B = mu for all
clients: one scale that many clients tell, and that is lent to those with few ratings. Rows shorter than the
longest were not clipped and share their b, which all of them tell more exactly than each alone.

What it assumes: one u for all rows of a client, three factors or more, uploads in the clear and without
noise. It judges itself: one direction has to lie in all planes, to the rows' digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.rows.weighted_zeros import HALF

LEAST_FACTORS, SPARE = 3, 4  # of a row; equations beyond those that the direction takes
DIGITS = 100.0  # times the last digit of rows, that they may be beside their planes
APART = 10.0  # times as far beside them that rows have to be with any other direction
PULLED = 30.0  # times its own rounding that a row's multiple of its factor has to be
CLIPPED = 1e-5  # relative, within which rows are as long as the longest


class RowScales(NamedTuple):
    """What rows say up to A and B, each freed of its own scale."""

    scalar: Float[np.ndarray, "users rows"]  # a / b, and d . v
    along: Float[np.ndarray, "users rows"]  # a / b, and d . v
    told: Bool[np.ndarray, " users"]  # whose rows lie in planes with one direction
    pull: Float[np.ndarray, " users"]  # b of most rows
    inexact: Float[np.ndarray, " users"]  # share of themselves that a / b owe to rounding, in the mean


def without_row_scales(
    rows: Float[np.ndarray, "users rows K"],
    factors: Float[np.ndarray, "users rows K"],
    valid: Bool[np.ndarray, "users rows"],
    precision: float,
) -> RowScales:
    """Free rows of scales of their own by the multiple of its factor that each of them holds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> error, u, v = rng.normal(size=(1, 6, 1)), rng.normal(size=(1, 1, 4)), rng.normal(size=(1, 6, 4))
    >>> sent = rng.uniform(0.2, 1, size=(1, 6, 1)) * (error * u + 0.1 * v)
    >>> found = without_row_scales(sent, v, np.ones((1, 6), bool), 2.0**-52)
    >>> expected = error[..., 0] * np.linalg.norm(u) / 0.1
    >>> bool(found.told[0]), bool(np.allclose(np.abs(found.scalar), np.abs(expected)))
    (True, True)
    """
    users, n, k = rows.shape
    table, none = np.zeros((users, n)), np.zeros(users)
    nobody = RowScales(table, table, np.zeros(users, bool), none, none)
    if k < LEAST_FACTORS or not n:
        return nobody
    size, length = np.linalg.norm(rows, axis=2), np.linalg.norm(factors, axis=2)
    here = valid & (size > 0) & (length > 0) & np.isfinite(size + length)
    unit = np.where(here, 1 / np.where(here, size, 1), 0.0)[..., None] * np.where(here[..., None], rows, 0.0)
    own = np.where(here, 1 / np.where(here, length, 1), 0.0)[..., None] * np.where(
        here[..., None], factors, 0
    )
    direction, told = _in_all_planes(unit, own, here, precision)
    across = direction[:, None] - np.einsum("uk,urk->ur", direction, own)[..., None] * own
    square = np.einsum("urk,urk->ur", across, across)
    a = np.einsum("urk,urk->ur", unit, across) / np.where(square > 0, square, 1)
    b = np.einsum("urk,urk->ur", unit - a[..., None] * direction[:, None], own)
    rounding = precision * (1 + np.abs(a)) / np.sqrt(np.where(square > 0, square, 1))
    exact = here & (square > 0) & (np.abs(b) > PULLED * rounding)
    to_own = size / np.where(here, length, 1)
    a, b, rounding = a * size, b * to_own, rounding * to_own
    # a scale is positive: rows are pulled to one side, if it is a pull
    side = np.sign(np.sum(np.sign(b) * exact, axis=1))[:, None]
    told &= (exact & (b * side > 0)).sum(axis=1) == here.sum(axis=1)
    b = _shared_where_not_clipped(b, rounding, size, here)
    pull = np.zeros(users)
    pull[told] = np.nanmedian(np.where(here, b, np.nan)[told], axis=1)
    scalar = np.where(here & told[:, None], a / np.where(b != 0, b, 1), 0.0)
    along = np.where(here & told[:, None], np.einsum("uk,urk->ur", direction, factors), 0.0)
    share = np.where(here & told[:, None], rounding / np.where(b != 0, np.abs(b), 1), 0.0)
    return RowScales(scalar, along, told, pull, share.sum(axis=1) / np.maximum(here.sum(axis=1), 1))


def _in_all_planes(
    unit: np.ndarray, own: np.ndarray, here: np.ndarray, precision: float
) -> tuple[Float[np.ndarray, "users K"], Bool[np.ndarray, " users"]]:
    """The direction that is least beside the planes of rows and factors of length 1; whether it is in all."""
    off = unit - np.einsum("urk,urk->ur", unit, own)[..., None] * own
    turned = np.linalg.norm(off, axis=2)
    planar = here & (turned > DIGITS * precision)
    axis = np.where(planar, 1 / np.where(planar, turned, 1), 0.0)[..., None] * off
    # a plane is as exact as its row is across the factor
    weight = np.where(planar, turned, 0.0) ** 2
    k = unit.shape[2]
    beside = (
        weight.sum(axis=1)[:, None, None] * np.eye(k)
        - np.einsum("ur,urk,url->ukl", weight, own, own)
        - np.einsum("ur,urk,url->ukl", weight, axis, axis)
    )
    value, vector = np.linalg.eigh(beside)
    direction = vector[:, :, 0]
    # an eigenvalue is a square, exact to half of the digits: what is left is measured
    left = direction[:, None] - sum(
        np.einsum("uk,urk->ur", direction, one)[..., None] * one for one in (own, axis)
    )
    total = np.maximum(weight.sum(axis=1), np.finfo(float).tiny)
    nearest = np.sqrt((weight * (left**2).sum(axis=2)).sum(axis=1) / total)
    second = np.sqrt(np.maximum(value[:, 1], 0.0) / total)
    equations = planar.sum(axis=1) * (k - 2) - (k - 1)
    told = (equations >= SPARE) & (nearest <= DIGITS * precision)
    return direction, told & (second > APART * np.maximum(nearest, precision**HALF))


def _shared_where_not_clipped(
    b: np.ndarray, rounding: np.ndarray, size: np.ndarray, here: np.ndarray
) -> Float[np.ndarray, "users rows"]:
    """b, of rows shorter than the longest the one that they share, if they do."""
    longest = np.where(here, size, 0.0).max(axis=1, initial=0)[:, None]
    short = here & (size < (1 - CLIPPED) * longest)
    weight = np.where(short, 1 / np.where(short, rounding, 1), 0.0) ** 2
    total = weight.sum(axis=1)[:, None]
    one = (weight * b).sum(axis=1)[:, None] / np.where(total > 0, total, 1)
    alike = (np.abs(b - one) <= DIGITS * rounding) | ~short
    return np.where(short & alike.all(axis=1)[:, None], one, b)
