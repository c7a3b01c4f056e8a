"""Two or three open numbers per client: those that put all its rows on the rating grid.

Beyond the papers, for programs whose clients divide their rows by how many ratings they have, or by anything
else that the adversary does not know. A row then reads r = A g + B h (+ known offset): g the row along the
client's direction, h = d . v (``attacks.closed_form.grid.rank_one``,
``attacks.closed_form.uploads.moving_factor``), A one over scale times length, B the length, both of any sign:
a program may send the gradient or its negative, and the direction's sign is open. A bias of the client is a
third number, C. As many rows as there are numbers give them, once their levels are named, so all combinations
of levels of a few well chosen rows are tried on the others; the nearest few are fitted to the levels that
they name, so that rounding in the chosen rows does not count.

What it assumes: uploads in the clear, rounded at most, the rating grid; more rows than numbers, or every
combination fits. It answers nothing where none, or more than one, meets the grid: numbers that name a
multiple of the same ratings (all of them 2 or 4, say, and 1 or 2), or with C the same ratings shifted by a
level or mirrored, meet it equally well. A grid of very many levels tells too little (``MOST_TRIALS``). Of a
fine grid there are ten thousand combinations a client: a few other rows, and then all of them, say in single
precision which of them are judged at all.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import beside_levels, common_step, distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import FIT_ROWS, step_of

KEPT = 8  # combinations of a client that are fitted
RELATED = (
    1e-3  # relative size of what is left of one list of ratings fitted by the other, if they are related
)
MOST_TRIALS = 10_000
TABLE = 1 << 22  # numbers of one table of trials
EXACT = 1e-9  # stars, below which two distances are equal
SILENT = 1e-6  # stars, below which numbers leave nothing of the rows, and put them where the offset is
SIFTED, SIFTING = 1024, 5  # combinations of a client that all rows sift; rows that choose them among more
JUDGED = 32  # of those, that are judged to the last digits
COARSE = 18  # bits left out of single precision, to count numbers by their size: 3 % apart


class Affine(NamedTuple):
    """What puts the rows of each client on the grid."""

    numbers: Float[np.ndarray, "users columns"]  # 0 where none or several fit
    told: Bool[np.ndarray, " users"]
    distance: Float[np.ndarray, " users"]  # mean distance from the grid, in stars


def best_numbers(
    columns: Float[np.ndarray, "users rows columns"],
    offset: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
) -> Affine:
    """The one combination of the columns that, with the offset, lies on the grid in all rows.

    Examples
    --------
    >>> g, h = np.array([[1.3, 2.0, 2.4, -1.0]]), np.array([[0.35, 1.0, -0.7, 1.5]])
    >>> none, all_ = np.zeros((1, 4)), np.ones((1, 4), bool)
    >>> best_numbers(np.stack([g, h], axis=2), none, all_, np.arange(1.0, 6.0)).numbers.round(6)
    array([[1., 2.]])
    """
    users, _, n = columns.shape
    nothing = Affine(np.zeros((users, n)), np.zeros(users, bool), np.full(users, np.inf))
    if levels.size**n > MOST_TRIALS or columns.shape[1] == 0:
        return nothing
    rows, unit = _scaled(columns, offset, valid)
    some = _thinned(rows)
    numbers, apart = _nearest_fits(rows, some, levels)
    best, distance, clear = _clear_one(numbers, some, levels)
    clear &= apart & (valid.sum(axis=1) > n)
    return Affine(np.where(clear[:, None], best / unit, 0.0), clear, distance)


def nearest_numbers(
    columns: Float[np.ndarray, "users rows columns"],
    offset: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
) -> Float[np.ndarray, "users few columns"]:
    """The few combinations of the columns that are nearest to the grid."""
    users, n_rows, n = columns.shape
    if levels.size**n > MOST_TRIALS or n_rows == 0:
        return np.zeros((users, 0, n))
    rows, unit = _scaled(columns, offset, valid)
    return _nearest_fits(rows, _thinned(rows), levels)[0] / unit[:, None]


def _scaled(columns: np.ndarray, offset: np.ndarray, valid: np.ndarray) -> tuple[OpenRows, np.ndarray]:
    """Columns of size 1, and what they were divided by."""
    unit = np.where(valid[..., None], np.abs(columns), 0).max(axis=1)
    unit = np.where(unit > 0, unit, 1.0)
    return OpenRows(columns / unit[:, None], offset, valid), unit


def _thinned(rows: OpenRows) -> OpenRows:
    """``FIT_ROWS`` rows of each client, or a few more."""
    stride = max(1, -(-rows.valid.shape[1] // FIT_ROWS))
    return OpenRows(*(part[:, ::stride] for part in rows))


def _nearest_fits(rows: OpenRows, some: OpenRows, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest few, fitted to the levels that they name; and whether rows tell the numbers apart."""
    anchors, apart = anchors_of(rows)
    numbers = _nearest_few(numbers_of(rows, some, anchors, apart, levels), some, levels)
    for _ in range(2):
        numbers = _fitted(numbers, some, levels)
    return numbers, apart


def _distance(numbers: np.ndarray, rows: OpenRows, levels: np.ndarray) -> Float[np.ndarray, "users trials"]:
    """Mean distance from the grid."""
    away = distance_to_levels(rows.values(numbers), levels) * rows.valid[:, None]
    away = away.sum(axis=2) / np.maximum(rows.valid.sum(axis=1), 1)[:, None]
    empty = says_nothing(numbers, rows.varying())
    return np.where(np.isnan(away) | np.isnan(numbers).any(axis=2) | empty, np.inf, away)


def _nearest_few(trials: np.ndarray, rows: OpenRows, levels: np.ndarray) -> np.ndarray:
    """The ``KEPT`` combinations of each client that are nearest to the grid, some at a time."""
    few = trials[:, :0]
    distance = np.zeros(few.shape[:2])
    at_once = max(1, TABLE // max(1, rows.valid.size))
    for start in range(0, trials.shape[1], at_once):
        more = trials[:, start : start + at_once]
        few = np.concatenate([few, more], axis=1)
        distance = np.concatenate([distance, _distance(more, rows, levels)], axis=1)
        if few.shape[1] > KEPT:
            near = np.argpartition(distance, KEPT - 1, axis=1)[:, :KEPT]
            few = np.take_along_axis(few, near[..., None], axis=1)
            distance = np.take_along_axis(distance, near, axis=1)
    return few


def _fitted(
    numbers: np.ndarray, rows: OpenRows, levels: np.ndarray, *, but_worst: bool = False
) -> np.ndarray:
    """Each combination by least squares from the levels that it names, in all rows or all but its worst."""
    value = rows.values(numbers)
    named = nearest_level(value, levels)
    counted = np.broadcast_to(rows.valid[:, None], value.shape).astype(float)
    if but_worst:
        away = np.where(rows.valid[:, None], np.nan_to_num(np.abs(value - named)), -1.0)
        np.put_along_axis(counted, away.argmax(axis=2)[..., None], 0.0, axis=2)
    known = rows.columns[:, None] * counted[..., None]
    gram = np.matmul(known.swapaxes(2, 3), known)
    size, vectors = np.linalg.eigh(np.where(np.isfinite(gram), gram, 0))
    some = size[..., 0] > EXACT * size[..., -1]
    inverse = np.matmul(vectors / np.where(some[..., None], size, 1)[..., None, :], vectors.swapaxes(2, 3))
    target = np.matmul((named - rows.offset[:, None])[..., None, :], known)
    fitted = np.matmul(target, inverse)[..., 0, :]
    return np.where((some & np.isfinite(fitted).all(axis=2))[..., None], fitted, numbers)


def _clear_one(
    numbers: np.ndarray, rows: OpenRows, levels: np.ndarray
) -> tuple[Float[np.ndarray, "users columns"], Float[np.ndarray, " users"], Bool[np.ndarray, " users"]]:
    """The nearest, its distance from the grid, and whether all that name other ratings are farther."""
    distance = _distance(numbers, rows, levels)
    number = distance.argmin(axis=1)[:, None]
    best = np.take_along_axis(numbers, number[..., None], axis=1)[:, 0]
    nearest = np.take_along_axis(distance, number, axis=1)
    named = nearest_level(rows.values(numbers), levels) * rows.valid[:, None]
    mine = np.take_along_axis(named, number[..., None], axis=1)
    other = (named != mine).any(axis=2) & np.isfinite(distance)
    n_rows = rows.valid.sum(axis=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        told = n_rows * np.log(distance / nearest) > BARS.evidence
    told = np.where(_related(mine, named, rows.valid), distance > BARS.related * nearest, told)
    told &= _row_by_row(numbers, number, rows, levels) > np.log(
        levels.size ** numbers.shape[2] / BARS.accident_by_row
    )
    clear = (~other | (told & (distance > nearest + EXACT))).all(axis=1)
    clear &= ~_multiples_exist(mine[:, 0], rows, levels)
    return best, nearest[:, 0], clear & np.isfinite(nearest[:, 0])


def _row_by_row(
    numbers: np.ndarray, number: Int[np.ndarray, "users 1"], rows: OpenRows, levels: np.ndarray
) -> Float[np.ndarray, "users trials"]:
    """How much nearer to the grid rows are with the best numbers than with others, in nats, each by itself.

    A mean forgets how many rows tell: ratings of two levels are on any two, and one row that belongs to
    neither, a clipped one, is near a third by accident. It counts for as much as it is nearer by, no nearer
    than rows usually are. All numbers are fitted to all rows but their worst, which would draw them to it.
    """
    fitted = _fitted(numbers, rows, levels, but_worst=True)
    value = rows.values(fitted)
    away, named = distance_to_levels(value, levels), nearest_level(value, levels) * rows.valid[:, None]
    same = (named == np.take_along_axis(named, number[..., None], axis=1)).all(axis=2)
    mine = np.take_along_axis(away, number[..., None], axis=1)
    middle = np.maximum(rows.valid.sum(axis=1)[:, None] // 2 - 1, 0)
    usual = np.take_along_axis(np.sort(np.where(rows.valid, mine[:, 0], np.inf), axis=1), middle, axis=1)
    least = np.maximum(BARS.usual * usual, EXACT)[..., None]
    with np.errstate(invalid="ignore"):  # of who has no row
        nearer = np.log(np.maximum(away, least) / np.maximum(mine, least))
    told = np.where(rows.valid[:, None], np.nan_to_num(nearer), 0.0).sum(axis=2)
    # without their worst row they may be the best ones, or nothing; where all rows are noisy none stands out
    open_ = same | ~np.isfinite(_distance(fitted, rows, levels)) | (usual > BARS.off_grid * step_of(levels))
    return np.where(open_, np.inf, told)


def _multiples_exist(mine: np.ndarray, rows: OpenRows, levels: np.ndarray) -> Bool[np.ndarray, " users"]:
    """Whether multiples of what is not offset are ratings: the smallest are nearest to the grid, always."""
    part = np.where(rows.valid, mine - rows.offset, 0.0)
    user = np.arange(len(mine))
    row = np.abs(part).argmax(axis=1)
    largest = part[user, row]
    found = largest == 0
    for level in levels:  # of the row that has most of it
        ratio = (level - rows.offset[user, row]) / np.where(found, 1.0, largest)
        other = rows.offset + ratio[:, None] * part
        on_grid = ((distance_to_levels(other, levels) < EXACT) | ~rows.valid).all(axis=1)
        found |= on_grid & (np.abs(ratio - 1) > EXACT) & (np.abs(ratio) > EXACT)
    return found


def level_ratios(levels: np.ndarray) -> set[float]:
    """Find the numbers by which ratings may be multiplied to be ratings again."""
    lists = (part[part > 0] for part in (levels, levels - levels[0]))
    return {ratio for part in lists for ratio in (part[:, None] / part).ravel().tolist()} - {1.0}


def _related(mine: np.ndarray, named: np.ndarray, valid: np.ndarray) -> Bool[np.ndarray, "users trials"]:
    """Whether ratings are the others, shifted or mirrored or times a number."""
    count = np.maximum(valid.sum(axis=1), 1)[:, None, None]
    first, second = (
        (part - part.sum(axis=2, keepdims=True) / count) * valid[:, None] for part in (mine, named)
    )
    size = (first**2).sum(axis=2)
    slope = (first * second).sum(axis=2) / np.where(size > 0, size, 1)
    left = ((second - slope[..., None] * first) ** 2).sum(axis=2)
    return left <= RELATED**2 * np.maximum((named**2).sum(axis=2), 1)


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
