"""Which anonymous rows are one sender's, where the item factors are not known: their directions are near.

Beyond Duriakova et al. 2019. After a private start, or in a round whose past was missed, nobody knows the
copy of V that a row was computed at. But a row W (-e u + alpha v) of a small ridge lies nearly along u, and u
moves little between two ratings of a pass. So rows of one sender are near each other, a few at a time, and
are linked from the nearest on; nobody sends two rows about one item, so that a link that would is none.

How near is near enough, the rows tell themselves: two rows about one item are certainly of two senders. The
nearest of such pairs, and how many there are, tell how near the nearest of all pairs of strangers would be,
as the share of directions within an angle of another one falls with its (K - 1)th power.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.sparse.csgraph import connected_components

from attacks.peers.planes import numbered

SAFETY = 0.5  # of the angle at which one pair of strangers is expected
LARGEST = 20_000  # rows: their pairs are looked at one by one
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
    if some.size < 2 or some.size > LARGEST:
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
