"""Sequential updates of many groups at once: the k-th entry of every group is handled in one step.

Stochastic gradient descent over ratings, items' factors first, changes each item's factor once per rater and
nothing else in between, so the chains of different items do not touch each other. Groups are sorted by size,
so that the groups that are still busy in step k are the first ones; steps whose width is within a factor
of two share one table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int


class Chains(NamedTuple):
    """Who is handled when.

    groups : (n_groups,)
        Group numbers, largest first.
    tables : list of (steps, width)
        Entry handled for each of the first ``width`` groups in each step; -1 where a group is done.
    """

    groups: Int[np.ndarray, " groups"]
    tables: list[Int[np.ndarray, "steps width"]]


def chains(group: Int[np.ndarray, " entries"], n_groups: int, rng: np.random.Generator | None) -> Chains:
    """Put the entries of each group into random order, cut into tables."""
    drawn = np.zeros(group.size) if rng is None else rng.random(group.size)
    order = np.lexsort((drawn, group))
    size = np.bincount(group, minlength=n_groups)
    largest = np.argsort(-size, kind="stable")
    size, first = size[largest], (np.cumsum(size) - size)[largest]
    tables, step, last = [], 0, int(size.max(initial=0))
    while step < last:
        width = int((size > step).sum())
        stop = max(int(size[width // 2]), step + 1) if width > 1 else last
        rank = np.arange(step, stop)[:, None]
        entry = order[np.minimum(first[:width] + rank, order.size - 1)]
        tables.append(np.where(rank < size[:width], entry, -1).astype(np.int32))
        step = stop
    return Chains(largest, tables)
