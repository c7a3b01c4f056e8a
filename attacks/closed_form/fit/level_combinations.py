"""Combinations of levels of a few rows of a client, and the numbers that they are for (``affine_grid``).

As many rows as there are open numbers give these, once their levels are named. Of a fine grid there are ten
thousand combinations a client: a few other rows, and then all of them, say in single precision which of them
are judged at all.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.decoding import beside_levels, common_step, distance_to_levels

EXACT = 1e-9  # stars, below which two distances are equal
SILENT = 1e-6  # stars, below which numbers leave nothing of the rows, and put them where the offset is
SIFTED, SIFTING = 1024, 5  # combinations of a client that all rows sift; rows that choose them among more
JUDGED = 32  # of those, that are judged to the last digits
COARSE = 18  # bits left out of single precision, to count numbers by their size: 3 % apart


class OpenRows(NamedTuple):
    """Columns (users, rows, columns); offset and whether a row counts, (users, rows)."""

    columns: Float[np.ndarray, "users rows columns"]
    offset: Float[np.ndarray, "users rows"]
    valid: Bool[np.ndarray, "users rows"]

    def varying(self) -> Bool[np.ndarray, "users columns"]:
        """Columns that differ from row to row, or all: the others alone put any rows on one level."""
        high, low = (np.where(self.valid[..., None], self.columns, fill) for fill in (-np.inf, np.inf))
        apart = high.max(axis=1, initial=-np.inf) - low.min(axis=1, initial=np.inf) > EXACT
        return apart | ~apart.any(axis=1, keepdims=True)

    def values(self, numbers: Float[np.ndarray, "users trials columns"]) -> np.ndarray:
        """Ratings (users, trials, rows)."""
        return np.matmul(numbers, self.columns.transpose(0, 2, 1)) + self.offset[:, None]


def says_nothing(
    numbers: Float[np.ndarray, "users trials columns"], varying: Bool[np.ndarray, "users columns"]
) -> Bool[np.ndarray, "users trials"]:
    """Find numbers that leave nothing of rows but their offset: small ones of all columns that vary."""
    nothing: np.ndarray = ~(varying[:, None] & (np.abs(numbers) >= SILENT)).any(axis=2)
    return nothing


def anchors_of(rows: OpenRows) -> tuple[Int[np.ndarray, "users columns"], Bool[np.ndarray, " users"]]:
    """Find the rows of each client that tell the numbers apart best."""
    user = np.arange(rows.valid.shape[0])
    left = rows.columns * rows.valid[..., None]
    chosen, apart = [], np.ones(user.size, bool)
    for _ in range(rows.columns.shape[2]):
        length = np.linalg.norm(left, axis=2)
        row = length.argmax(axis=1)
        size = length[user, row]
        apart &= size > EXACT
        axis = left[user, row] / np.where(size > 0, size, 1)[:, None]
        left = left - np.einsum("urc,uc->ur", left, axis)[..., None] * axis[:, None]
        chosen.append(row)
    return np.stack(chosen, axis=1), apart


def numbers_of(
    rows: OpenRows,
    some: OpenRows,
    anchors: Int[np.ndarray, "users columns"],
    apart: Bool[np.ndarray, " users"],
    levels: Float[np.ndarray, " levels"],
) -> Float[np.ndarray, "users trials columns"]:
    """Compute the numbers for every combination of levels of the anchors, or the nearest of very many."""
    user = np.arange(apart.size)[:, None]
    matrix = rows.columns[user, anchors]
    n = matrix.shape[1]
    inverse = np.linalg.inv(np.where(apart[:, None, None], matrix, np.eye(n)))
    inverse[~apart] = np.nan
    named = _combinations(np.asarray(levels, float).tobytes(), n)
    offset = rows.offset[user, anchors][:, None]
    if len(named) > SIFTED:
        named = named[_sifted(rows, some, anchors, inverse, levels)]
    return np.matmul(named - offset, inverse.transpose(0, 2, 1))


@lru_cache(maxsize=16)
def _combinations(levels: bytes, n: int) -> Float[np.ndarray, "trials n"]:
    """Every combination of n levels, float64; kept, for a fine grid has ten thousand."""
    return np.array(list(product(np.frombuffer(levels), repeat=n)))


def _sifted(
    rows: OpenRows, some: OpenRows, anchors: np.ndarray, inverse: np.ndarray, levels: np.ndarray
) -> Int[np.ndarray, "users few"]:
    """The combinations, by number, that put a few rows beside the anchors, then all, nearest to the grid."""
    others = rows.valid.copy()
    np.put_along_axis(others, anchors, False, axis=1)
    chosen = np.argsort(~others, axis=1, kind="stable")[:, :SIFTING]
    columns = np.take_along_axis(rows.columns, chosen[..., None], axis=1)
    first = OpenRows(columns, *(np.take_along_axis(part, chosen, axis=1) for part in (rows.offset, others)))
    offset = np.take_along_axis(rows.offset, anchors, axis=1)
    named = _combinations(np.asarray(levels, float).tobytes(), anchors.shape[1])
    by_first, by_all = (_linear(part, inverse, offset, levels) for part in (first, some))
    places, varying = _places(named, levels), some.varying()
    found = np.zeros((len(anchors), JUDGED), int)
    for user in np.flatnonzero(np.isfinite(inverse).all(axis=(1, 2))):  # one table stays in the cache
        few = _smallest(_away(by_first, user, places, levels), SIFTED)
        numbers = (named[few] - offset[user]) @ inverse[user].T
        nothing = says_nothing(numbers[None], varying[user][None])[0]
        away = _away(by_all, user, places[:, few], levels)
        found[user] = few[_smallest(np.where(nothing, np.float32(np.inf), away), JUDGED)]
    return found


class _Linear(NamedTuple):
    """Rows as ``known`` times the places of the anchors, plus ``start``, whatever numbers that takes.

    Single precision is enough then, for what it multiplies is of size 1.
    """

    known: np.ndarray
    start: np.ndarray
    valid: np.ndarray


def _linear(rows: OpenRows, inverse: np.ndarray, offset: np.ndarray, levels: np.ndarray) -> _Linear:
    zero, unit = _places_of(levels)
    known = np.matmul(rows.columns, inverse)
    start = (rows.offset + np.matmul(known, (zero - offset)[..., None])[..., 0] - zero) / unit
    return _Linear(*(part.astype(np.float32) for part in (known, start, rows.valid)))


def _places(named: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Combinations as places (columns, trials)."""
    zero, unit = _places_of(levels)
    return np.ascontiguousarray(((named - zero) / unit).T, np.float32)


def _places_of(levels: np.ndarray) -> tuple[float, float]:
    """Where places begin, and how large one is: levels that are unequally far apart are places themselves."""
    step = common_step(levels)
    return (float(levels[0]), step) if step else (0.0, 1.0)


def _away(rows: _Linear, user: int | np.integer, places: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """How far one client's rows are from the grid, in all, (trials,)."""
    place = rows.known[user] @ places
    place += rows.start[user][:, None]
    off = beside_levels(place, levels.size) if common_step(levels) else distance_to_levels(place, levels)
    away: np.ndarray = rows.valid[user] @ np.abs(off, out=off)
    return away.astype(np.float32, copy=False)


def _smallest(numbers: np.ndarray, few: int) -> Int[np.ndarray, " few"]:
    """Where the smallest of many float32 numbers >= 0 are; NaN are the largest.

    Those that may be among them are counted by their bits first, which takes a quarter of the time.
    """
    size = np.abs(numbers).view(np.int32) >> COARSE  # as ordered as the numbers
    here = np.flatnonzero(size <= np.searchsorted(np.cumsum(np.bincount(size)), few))
    return here[np.argpartition(numbers[here], few - 1)[:few]]
