"""Which anonymous rows are one sender's, where the item factors are known: their planes meet in a line.

Beyond Duriakova et al. 2019, for "one-way anonymous communication". A receiver gets rows x = W (-e u + alpha
v) about items whose factor v it knows, as everybody does in the round after a shared start. Whatever W, e and
alpha are, u lies in the plane of x and v. So the planes of two rows of one u share a line, and planes of
different senders, two in K >= 4 numbers, meet in nothing but 0. Where the sender steps after every rating,

    u_{k+1} = (1 - gamma alpha) u_k + gamma e_k v_k

lies in the plane of row k, too, and in that of row k + 1: the planes of rows that follow each other meet,
and rows of one sender are a chain. No constant, no weight and no order is needed, and both orders are one
test.

The line tells more. With l its direction, x = a l + b v in each of the two planes, and b is W alpha in the
later row (in both, where u stood still) and larger by W gamma e^2 / (1 - gamma alpha) in the earlier one.
So the smaller b of each pair of rows is the multiple of its own factor that every row of the sender holds,
and of rows whose sign is turned the larger one: that of the two on which the sender's pairs agree.

Symbols: W weight, e error, u the sender's factor, v the item's, alpha and gamma ridge and rate (Duriakova et
al. 2019, Eqs. 2 to 4 and Algorithm 1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components

from attacks.closed_form.uploads.reduction import unit_vectors

LEAST_FACTORS = 4  # two planes in three numbers always meet
EXACT = 1024.0  # times the last digit: sines below it are none
FLAT = 1e-6  # of a row, across its item's factor: below it, it spans no plane
BLOCK = 1 << 22  # pairs of one block
COMMON = 2  # directions that are left out of the first look
SCREEN = 0.999  # sum of squares that pairs must have, in single precision
ROUGH = 1e-6  # sine squared of pairs that are looked at to the last digit: products have no more than half


class Meeting(NamedTuple):
    """Pairs of rows whose planes meet."""

    first: Int[np.ndarray, " pairs"]  # rows, the first below the second
    second: Int[np.ndarray, " pairs"]  # rows, the first below the second
    lower: Float[np.ndarray, " pairs"]  # b of the two rows
    higher: Float[np.ndarray, " pairs"]  # b of the two rows

    def pull(self, part: Int[np.ndarray, " pairs"], n: int) -> Float[np.ndarray, " parts"]:
        """W alpha of each of some parts of the pairs, the median; NaN where a part has no pair."""
        found, spread = [], []
        for value in (self.lower, self.higher):
            middle = _median_by(part, value, n)
            found.append(middle)
            spread.append(_median_by(part, np.abs(value - middle[part]), n))
        return np.where(spread[1] < spread[0], found[1], found[0])


class Senders(NamedTuple):
    """Rows sorted by sender."""

    # 0, 1, ... in the order of each sender's first row; -1 where a row is linked to no other
    label: Int[np.ndarray, " rows"]
    # multiple of its factor that a row holds, W alpha; NaN where it is linked to no other
    pull: Float[np.ndarray, " rows"]


def linked_by_planes(
    rows: Float[np.ndarray, "rows K"],
    factors: Float[np.ndarray, "rows K"],
    index: Int[np.ndarray, " rows"],
    precision: float,
) -> Senders:
    """Sort the rows of one round by sender.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u, v, who = rng.normal(size=(2, 5)), rng.normal(size=(6, 5)), np.array([0, 1, 0, 1, 1, 0])
    >>> rows = rng.normal(size=(6, 1)) * u[who] + 0.1 * v
    >>> linked_by_planes(rows, v, np.arange(6), 2e-16).label
    array([0, 1, 0, 1, 1, 0])
    """
    meeting = meeting_planes(rows, factors, index, precision)
    n = index.size
    edges = sp.coo_array((np.ones(meeting.first.size), (meeting.first, meeting.second)), shape=(n, n))
    _, part = connected_components(edges, directed=False)
    size = np.bincount(part, minlength=1)
    alone = size[part] < 2
    twice = _holding_an_item_twice(part, index)
    pull = meeting.pull(part[meeting.first], int(part.max(initial=-1)) + 1)[part]
    lost = alone | twice
    return Senders(numbered(np.where(lost, -1, part)), np.where(lost, np.nan, pull))


def meeting_planes(
    rows: Float[np.ndarray, "rows K"],
    factors: Float[np.ndarray, "rows K"],
    index: Int[np.ndarray, " rows"],
    precision: float,
) -> Meeting:
    """Find the pairs of rows, about different items, whose planes share a line."""
    nothing = np.zeros(0, int)
    if rows.shape[1] < LEAST_FACTORS:
        return Meeting(nothing, nothing, np.zeros(0), np.zeros(0))
    along, across, there = _bases(rows, factors)
    some = np.flatnonzero(there)
    screen = _screen(rows, factors)
    near_first, near_second = [], []
    height = max(1, BLOCK // max(some.size, 1))
    for start in range(0, some.size, height):
        here = some[start : start + height]
        one, other = _pairs_nearby(screen, along, across, here, some[start:])
        different = index[one] != index[other]
        near_first.append(one[different])
        near_second.append(other[different])
    first, second = (np.concatenate([nothing, *part]) for part in (near_first, near_second))
    sine, lower, higher = _lines(rows, factors, along, across, first, second)
    limit = EXACT * max(precision, np.finfo(float).eps)
    # a row that lies almost along its factor tells its plane with fewer digits
    flat = _flatness(rows, along)
    met = sine * np.minimum(flat[first], flat[second]) < limit
    return Meeting(first[met], second[met], lower[met], higher[met])


def numbered(label: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    """Renumber labels 0, 1, ... in the order in which they first occur; negative ones become -1.

    Examples
    --------
    >>> numbered(np.array([7, -3, 2, 7]))
    array([ 0, -1,  1,  0])
    """
    out = np.full(label.size, -1)
    kept = np.flatnonzero(label >= 0)
    _, first, inverse = np.unique(label[kept], return_index=True, return_inverse=True)
    place = np.empty(first.size, int)
    place[np.argsort(first)] = np.arange(first.size)
    out[kept] = place[inverse]
    return out


def _bases(rows: np.ndarray, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray, Bool[np.ndarray, " rows"]]:
    """Of each plane: the item's direction, the direction across it, and whether there is one."""
    along, size = unit_vectors(factors)
    left = rows
    for _ in range(2):  # twice: to the last digit
        left = left - np.einsum("rk,rk->r", left, along)[:, None] * along
    across, width = unit_vectors(left)
    length = np.linalg.norm(rows, axis=1)
    there = (size > 0) & np.isfinite(length) & (width > FLAT * length) & (length > 0)
    return along, across, there


def _flatness(rows: np.ndarray, along: np.ndarray) -> Float[np.ndarray, " rows"]:
    """Sine of the angle between each row and its item's factor."""
    unit, _ = unit_vectors(rows)
    return np.sqrt(np.maximum(1 - np.einsum("rk,rk->r", unit, along) ** 2, FLAT**2))


def _screen(rows: np.ndarray, factors: np.ndarray) -> Float[np.ndarray, "rows 2 K"]:
    """Bases of the planes without what all have in common, in single precision.

    Where factors start positive, all of them and all rows are near one direction, and any two planes nearly
    meet there. Planes that meet do so without that direction, too.
    """
    row, factor = unit_vectors(rows)[0], unit_vectors(factors)[0]
    if rows.shape[1] >= 2 * LEAST_FACTORS and len(rows):
        common = np.linalg.eigh(row.T @ row + factor.T @ factor)[1][:, -COMMON:]
        row, factor = (part - (part @ common) @ common.T for part in (row, factor))
    along = unit_vectors(factor)[0]
    across = unit_vectors(row - np.einsum("rk,rk->r", row, along)[:, None] * along)[0]
    return np.stack([along, across], axis=1).astype(np.float32)


def _pairs_nearby(
    basis: np.ndarray, along: np.ndarray, across: np.ndarray, here: np.ndarray, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs, the first among ``here``, the second behind it, whose planes nearly meet.

    The cosine of their smallest angle is the larger singular value of the 2 x 2 products of their bases,
    whose squares add up to 1 at least then: that is looked at first, in single precision.
    """
    with np.errstate(invalid="ignore"):  # which OpenBLAS says of finite single precision (numpy issue 24067)
        product = basis[here].reshape(-1, basis.shape[2]) @ basis[others].reshape(-1, basis.shape[2]).T
    product *= product
    total = product[0::2, 0::2] + product[0::2, 1::2]
    total += product[1::2, 0::2]
    total += product[1::2, 1::2]
    one, other = np.nonzero(total > SCREEN)
    first, second = here[one], others[other]
    behind = first < second
    first, second = first[behind], second[behind]
    near = np.zeros(first.size, bool)
    for start in range(0, first.size, BLOCK // 16):
        part = slice(start, start + BLOCK // 16)
        left, right = ((along[at[part]], across[at[part]]) for at in (first, second))
        a, b, c, d = (np.einsum("pk,pk->p", x, y) for x in left for y in right)
        # 1 is an eigenvalue of the Gram matrix where (1 - s1^2)(1 - s2^2) = 0
        near[part] = np.abs(1 - (a**2 + b**2 + c**2 + d**2) + (a * d - b * c) ** 2) < ROUGH
    return first[near], second[near]


def _lines(
    rows: np.ndarray,
    factors: np.ndarray,
    along: np.ndarray,
    across: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
) -> tuple[Float[np.ndarray, " pairs"], ...]:
    """The smallest angle's sine to the last digit, and the two multiples of the factors off that line."""
    if not first.size:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    one, other = (np.stack([along[row], across[row]], axis=2) for row in (first, second))  # (pairs, K, 2)
    turn, _, turned = np.linalg.svd(one.transpose(0, 2, 1) @ other)
    line = np.einsum("pkc,pc->pk", one, turn[:, :, 0])
    match = np.einsum("pkc,pc->pk", other, turned[:, 0, :])
    sine = np.linalg.norm(line - match, axis=1)
    pull = [_multiple(rows[row], factors[row], line) for row in (first, second)]
    return sine, np.minimum(*pull), np.maximum(*pull)


def _multiple(row: np.ndarray, factor: np.ndarray, line: np.ndarray) -> Float[np.ndarray, " pairs"]:
    """b of x = a l + b v."""
    x, v = (part - np.einsum("pk,pk->p", part, line)[:, None] * line for part in (row, factor))
    square = np.einsum("pk,pk->p", v, v)
    return np.einsum("pk,pk->p", x, v) / np.where(square > 0, square, 1)


def _median_by(part: np.ndarray, value: np.ndarray, n: int) -> Float[np.ndarray, " parts"]:
    """The median of each part's values; NaN where it has none."""
    order = np.lexsort((value, part))
    count = np.bincount(part, minlength=n)
    start = np.cumsum(count) - count
    sorted_ = np.append(value[order], np.nan)
    low, high = start + (count - 1) // 2, start + count // 2
    middle = (sorted_[np.where(count > 0, low, -1)] + sorted_[np.where(count > 0, high, -1)]) / 2
    return middle


def _holding_an_item_twice(part: np.ndarray, index: np.ndarray) -> Bool[np.ndarray, " rows"]:
    pairs, count = np.unique(np.stack([part, index]), axis=1, return_counts=True)
    return np.isin(part, pairs[0, count > 1])
