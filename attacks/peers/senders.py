"""The senders of what arrived in several rounds: as told, or sorted out of rows without a sender.

Where the receiver holds the copy of the item factors that rows were computed at, their planes tell exactly
(``attacks.peers.planes``); in the first round where they do, and from there senders are followed into the
others. Where planes tell little, nearness must do (``attacks.peers.directions``).

Beyond Duriakova et al. 2019. A sender is about the same items in every round, and its factor moves little
from one to the next. So the rows about an item are dealt out to the senders who had it before, each to the
one whose factor it lies along best, and the factors are learned anew from what each got, until nothing
changes.

Where an item has not as many rows as before, senders were absent or lost, and a row may be of somebody who
was not there before: then it is given only to a sender nearer than strangers come
(``attacks.peers.directions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from attacks.closed_form.uploads.reduction import unit_vectors
from attacks.peers.directions import linked_by_direction, near_enough
from attacks.peers.planes import linked_by_planes, meeting_planes
from attacks.peers.received import Arrived
from victims.transcript.view import UNTOLD

ENOUGH = 0.5  # share of a round's rows that planes must link to be believed to tell
LARGEST = 200_000  # messages of a round: pairs of them are looked at
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


class Sorted(NamedTuple):
    """Senders of each round's messages."""

    # pseudonyms that are the same in all rounds, or places in the list of senders; -1 is nobody
    label: list[Int[np.ndarray, " messages"]]
    # multiple of its factor that each message holds; NaN where it is not told
    pull: list[Float[np.ndarray, " messages"]]
    n: int  # number of senders
    # place of the round in which they were sorted, and are read; -1 where they are told, in all rounds
    base: int


def sorted_by_sender(rounds: Sequence[Arrived], users: Int[np.ndarray, " users"]) -> Sorted:
    """Sort the messages of all rounds by sender."""
    if all((one.sender != UNTOLD).all() for one in rounds):
        label = [np.searchsorted(users, one.sender) for one in rounds]
        return Sorted(label, [_pulls(one, of) for one, of in zip(rounds, label, strict=True)], users.size, -1)
    label, pull = ([np.full(one.item.size, none) for one in rounds] for none in (-1, np.nan))
    base = 0
    for base, one in enumerate(rounds):
        label[base], pull[base] = linked_by_planes(one.rows, one.factors, one.item, one.precision)
        if _share_linked(one, label[base]) >= ENOUGH:
            break
    else:
        label = [linked_by_direction(one.rows, one.item) for one in rounds]
        base = int(np.argmax([_share_linked(*pair) for pair in zip(rounds, label, strict=True)]))
    for order in (range(base + 1, len(rounds)), range(base - 1, -1, -1)):
        before = base
        for number in order:
            one, last = rounds[number], rounds[before]
            label[number] = dealt_out(one.rows, one.item, last.rows, last.item, label[before])
            before = number
    return Sorted(label, pull, int(label[base].max(initial=-1)) + 1, base)


def _share_linked(one: Arrived, label: Int[np.ndarray, " messages"]) -> float:
    """Share of a round's messages that are somebody's; those of zeros alone, which tell nothing, aside."""
    telling = one.rows.any(axis=1)
    return float(np.mean(label[telling] >= 0)) if telling.any() else 0.0


def _pulls(one: Arrived, label: np.ndarray) -> Float[np.ndarray, " messages"]:
    """Sender by sender what its planes tell."""
    out = np.full(label.size, np.nan)
    order = np.argsort(label, kind="stable")
    for here in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        met = meeting_planes(one.rows[here], one.factors[here], one.item[here], one.precision)
        out[here] = met.pull(np.zeros(met.first.size, int), 1)
    return out
