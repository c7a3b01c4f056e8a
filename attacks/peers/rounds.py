"""Anonymous rows of a later round, given to the senders that an earlier one showed.

Beyond Duriakova et al. 2019. A sender is about the same items in every round, and its factor moves little
from one to the next. So the rows about an item are dealt out to the senders who had it before, each to the
one whose factor it lies along best, and the factors are learned anew from what each got, until nothing
changes.

Where an item has not as many rows as before, senders were absent or lost, and a row may be of somebody who
was not there before: then it is given only to a sender nearer than strangers come
(``attacks.peers.directions``).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from attacks.closed_form.uploads.reduction import unit_vectors
from attacks.peers.directions import near_enough

PASSES = 10


def dealt_out(
    rows: Float[np.ndarray, "rows K"],
    index: Int[np.ndarray, " rows"],
    before: Float[np.ndarray, "earlier K"],
    before_index: Int[np.ndarray, " earlier"],
    before_label: Int[np.ndarray, " earlier"],
) -> Int[np.ndarray, " rows"]:
    """Give each row to a sender of the round before.

    Examples
    --------
    >>> u = np.array([[1.0, 0.2], [0.1, 1.0]])
    >>> dealt_out(2 * u[[1, 0]], np.array([4, 4]), u, np.array([4, 4]), np.array([0, 1]))
    array([1, 0])
    """
    n = int(before_label.max(initial=-1)) + 1
    out = np.full(index.size, -1)
    if n == 0:
        return out
    known = before_label >= 0
    direction = _directions(before[known], before_label[known], n)
    unit, _ = unit_vectors(rows)
    groups = _by_item(index, before_index[known], before_label[known])
    size = int(max(index.max(initial=0), before_index.max(initial=0))) + 1
    now, then = (np.bincount(part, minlength=size) for part in (index, before_index))
    limit = np.inf if np.array_equal(now, then) else near_enough(unit, index)
    for _ in range(PASSES):
        last, out = out, np.full(index.size, -1)
        near = np.abs(unit @ direction.T)
        for here, senders in groups:
            row, column = linear_sum_assignment(-near[np.ix_(here, senders)])
            given = 1 - near[here[row], senders[column]] ** 2 <= limit**2
            out[here[row[given]]] = senders[column[given]]
        if (out == last).all():
            break
        given = out >= 0
        learned = _directions(rows[given], out[given], n)
        direction = np.where((learned != 0).any(axis=1)[:, None], learned, direction)
    return out


def _by_item(
    index: np.ndarray, before_index: np.ndarray, before_label: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows about each item, and the senders who had it."""
    return [
        (np.flatnonzero(index == item), np.unique(before_label[before_index == item]))
        for item in np.intersect1d(index, before_index)
    ]


def _directions(rows: np.ndarray, label: np.ndarray, n: int) -> Float[np.ndarray, "senders K"]:
    """Leading direction of each sender's rows, each of length 1; 0 where it has none."""
    unit, _ = unit_vectors(rows)
    k = rows.shape[1]
    square = np.zeros((n, k, k))
    np.add.at(square, label, unit[:, :, None] * unit[:, None, :])
    direction = np.linalg.eigh(square)[1][:, :, -1]
    return direction * (np.bincount(label, minlength=n) > 0)[:, None]
