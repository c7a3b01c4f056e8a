"""The senders of what arrived in several rounds: as told, or sorted out of rows without a sender.

Where the receiver holds the copy of the item factors that rows were computed at, their planes tell exactly
(``attacks.peers.planes``); in the first round where they do, and from there senders are followed into the
others. Where planes tell little, nearness must do. Beyond Duriakova et al. 2019.

*Other rounds.* A sender is about the same items in every round, and its factor moves little from one to the
next. So the rows about an item are dealt out to the senders who had it before, each to the one whose factor
it lies along best, and the factors are learned anew from what each got, until nothing changes. Where an item
has not as many rows as before, a row is given only to a sender nearer than strangers come.

*Nearness.* After a private start, or in a round whose past was missed, nobody knows the copy of V that a row
was computed at. But a row W (-e u + alpha v) of a small ridge lies nearly along u, and u moves little between
two ratings of a pass. So rows of one sender are near each other, a few at a time, and are linked from the
nearest on; nobody sends two rows about one item, so that a link that would is none. How near is near enough,
the rows tell themselves: two rows about one item are certainly of two senders. The nearest of such pairs, and
how many there are, tell how near the nearest of all pairs of strangers would be, as the share of directions
within an angle of another one falls with its (K - 1)th power.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components

from attacks.closed_form.uploads.reduction import unit_vectors
from attacks.peers.planes import linked_by_planes, meeting_planes, numbered
from attacks.peers.received import Arrived
from victims.transcript.view import UNTOLD

ENOUGH = 0.5  # share of a round's rows that planes must link to be believed to tell
LARGEST = 200_000  # messages of a round: pairs of them are looked at
PASSES = 10
SAFETY = 0.5  # of the angle at which one pair of strangers is expected
MOST_ROWS = 20_000  # rows: their pairs are looked at one by one
BLOCK = 1 << 22


def linked_by_direction(
    rows: Float[np.ndarray, "rows K"], index: Int[np.ndarray, " rows"]
) -> Int[np.ndarray, " rows"]:
    """Sort the rows of one round by sender.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u, who = rng.normal(size=(2, 6)), np.array([0, 1, 0, 1, 0, 1])
    >>> rows = rng.normal(size=(6, 1)) * u[who] + 1e-3 * rng.normal(size=(6, 6))
    >>> linked_by_direction(rows, np.array([0, 0, 1, 1, 2, 3]))
    array([0, 1, 0, 1, 0, 1])
    """
    length = np.linalg.norm(rows, axis=1)
    some = np.flatnonzero((length > 0) & np.isfinite(length))
    out = np.full(index.size, -1)
    if some.size < 2 or some.size > MOST_ROWS:
        return out
    unit = rows[some] / length[some, None]
    limit = near_enough(unit, index[some])
    label = _joined(*_pairs_within(unit, index[some], limit), index[some])
    count = np.bincount(label)
    out[some] = np.where(count[label] > 1, label, -1)
    return numbered(out)


def near_enough(unit: Float[np.ndarray, "rows K"], index: Int[np.ndarray, " rows"]) -> float:
    """Estimate the sine of the angle within which hardly a pair of strangers lies."""
    order = np.argsort(index, kind="stable")
    nearest, n_strangers = 1.0, 0
    for here in np.split(order, np.flatnonzero(np.diff(index[order])) + 1):
        if here.size > 1:
            cosine = np.abs(unit[here] @ unit[here].T)[np.triu_indices(here.size, 1)]
            nearest = min(nearest, float(np.sqrt(np.maximum(1 - cosine.max() ** 2, 0))))
            n_strangers += cosine.size
    if n_strangers == 0:
        return 0.0
    pairs = index.size * (index.size - 1) / 2
    return SAFETY * nearest * (n_strangers / pairs) ** (1 / max(unit.shape[1] - 1, 1))


def _pairs_within(unit: np.ndarray, index: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of rows about different items within a sine, the nearest first."""
    first, second, near = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
    height = max(1, BLOCK // len(unit))
    for start in range(0, len(unit), height):
        cosine = np.abs(unit[start : start + height] @ unit.T)
        one, other = np.nonzero(1 - cosine**2 < limit**2)
        kept = (one + start < other) & (index[one + start] != index[other])
        first.append(one[kept] + start)
        second.append(other[kept])
        near.append(cosine[one[kept], other[kept]])
    order = np.argsort(-np.concatenate(near), kind="stable")
    return np.concatenate(first)[order], np.concatenate(second)[order]


def _joined(first: np.ndarray, second: np.ndarray, index: np.ndarray) -> Int[np.ndarray, " rows"]:
    """Rows joined pair by pair, unless both sides hold a row about one item."""
    n = index.size
    if not first.size:
        return np.arange(n)
    edges = sp.coo_array((np.ones(first.size), (first, second)), shape=(n, n))
    _, part = connected_components(edges, directed=False)
    pairs, count = np.unique(np.stack([part, index]), axis=1, return_counts=True)
    crowded = np.isin(part, pairs[0, count > 1])
    label = np.where(crowded, part.max(initial=0) + 1 + np.arange(n), part)
    members = {int(label[row]): [int(row)] for row in np.flatnonzero(crowded)}
    items = {int(label[row]): {int(index[row])} for row in np.flatnonzero(crowded)}
    for one, other in zip(first[crowded[first]].tolist(), second[crowded[first]].tolist(), strict=True):
        a, b = int(label[one]), int(label[other])
        if a == b or not items[a].isdisjoint(items[b]):
            continue
        a, b = (a, b) if len(members[a]) >= len(members[b]) else (b, a)
        label[members[b]] = a
        members[a] += members.pop(b)
        items[a] |= items.pop(b)
    return label


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
