"""Rows of items that a client did not rate, in which the mean of its ratings stands for a rating.

FedRec hides what a client rated among items that it drew, and gives those the mean of its ratings. One step
then reads m = A g + B h for all of them, with the A and B of the ratings
(``attacks.closed_form.grid.rank_one``): in the plane of g and h they lie on one line, and the rows of each
level on a line parallel to it. So the line that most rows share tells all their directions, and where rows
fall into few groups across it, one group is left out and the others are read as any rows of one step. It is
of averages where what it says is the mean of what the others say. A mean that is a level itself is no
different from ratings: once averages were seen, a level that is the mean of a client's other ratings is not
answered.

What it assumes: one step, rows in the clear and without noise, no biases of items.

References
----------
G. Lin, F. Liang, W. Pan, Z. Ming, "FedRec: Federated Recommendation With Explicit Feedback", IEEE Intelligent
Systems 36(5), 2021, doi:10.1109/MIS.2020.3017205: user averaging.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.uploads.readings import Numbers, Reading

GROUPS = 3  # the largest, that are tried
LEAST_ROWS = 5  # of a group; two tell its line
HALF = 0.5  # of the digits of rows, to which they lie on it
NEAR = 1e-3  # stars, within which numbers are the mean: rows in single precision say it to four digits
PAIRS = 300  # of rows, about, whose line is tried: a third of the rows on one are a ninth of them


def groups_of_rows(numbers: Numbers, precision: float) -> list[Bool[np.ndarray, "users rows"]]:
    """Find the rows of each client that may be averages: group by group, the largest first."""
    out = [np.zeros(numbers.there.shape, bool) for _ in range(GROUPS)]
    for user in np.flatnonzero(numbers.whole & (numbers.there.sum(axis=1) > 2 * LEAST_ROWS)):
        here = np.flatnonzero(numbers.there[user])
        points = np.stack([numbers.scalar[user, here], numbers.along[user, here]])
        size = np.abs(points).max(axis=1)
        if not (np.isfinite(size).all() and size.min() > 0):
            continue
        for group, some in zip(out, _groups(points / size[:, None], precision**HALF), strict=False):
            group[user, here[some]] = True
    return out


def says_the_mean(found: Reading, left_out: Bool[np.ndarray, "users rows"], numbers: Numbers) -> Reading:
    """Keep whose rows that were left out say the mean of the ratings; those items are answered with 0."""
    rated = np.isfinite(found.value) & numbers.there & ~left_out
    mean = np.where(rated, found.value, 0).sum(axis=1) / np.maximum(rated.sum(axis=1), 1)
    said = found.of_error[:, None] * numbers.scalar + found.of_factor[:, None] * numbers.along
    away = np.where(left_out, np.abs(said - mean[:, None]), 0).max(axis=1, initial=0)
    good = left_out.any(axis=1) & (away <= NEAR)
    return found._replace(
        value=np.where(left_out, 0.0, found.value), misfit=np.where(good, found.misfit, np.nan)
    )


def without_means(best: Reading, item: Bool[np.ndarray, "users rows"]) -> Reading:
    """Leave out ratings that are the mean of the client's others, which may stand for no ratings.

    Ratings that are the mean do not change it, so that it is that of the others, whichever of them are.
    """
    value = best.value.copy()
    for user in np.flatnonzero(best.answered):
        rated = np.flatnonzero(item[user] & (value[user] > 0))
        own = value[user, rated]
        for level in np.unique(own):
            same = own == level
            if not same.all() and abs(own[~same].mean() - level) <= NEAR:
                value[user, rated[same]] = np.nan
    return best._replace(value=value)


def _groups(points: Float[np.ndarray, "2 n"], tolerance: float) -> list[Bool[np.ndarray, " n"]]:
    """The largest groups of points across the line that most of them share."""
    n = points.shape[1]
    first = np.tile(np.arange(n), max(1, -(-PAIRS // n)))
    second = (first + 1 + np.arange(first.size) // n) % n
    across = (points[:, second] - points[:, first])[::-1] * np.array([[1.0], [-1.0]])
    length = np.linalg.norm(across, axis=0)
    across, first = across[:, length > 0] / length[length > 0], first[length > 0]
    if not first.size:
        return []
    place = across.T @ points
    count = (np.abs(place - place[np.arange(first.size), first][:, None]) <= tolerance).sum(axis=1)
    place = place[count.argmax()]
    order = np.argsort(place, kind="stable")
    label = np.empty(n, int)
    label[order] = np.cumsum(np.diff(place[order], prepend=place[order[0]]) > tolerance)
    size = np.bincount(label)
    return [label == one for one in np.argsort(-size, kind="stable")[:GROUPS] if size[one] >= LEAST_ROWS]
