"""Where each client's rows of each round lie, so that batches are cut without copying the file."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from victims.transcript.messages import Messages
from victims.transcript.runs import ascend_in_runs, runs_of


@dataclass(frozen=True)
class Layout:
    """Where each client's rows of each round lie."""

    users: np.ndarray
    rounds: np.ndarray
    start: np.ndarray  # in row numbers of the messages, or of ``permutation``
    length: np.ndarray  # in row numbers of the messages, or of ``permutation``
    # none where each client's rows of a round lie together and ascend by kind and index
    permutation: np.ndarray | None
    order: np.ndarray  # clients by the number of their rows, stable

    def slices(self, factors: int, max_bytes: int) -> list[tuple[int, int]]:
        """Cut ``order`` so that padding at most doubles a batch and a batch stays in its budget.

        How the file is cut into chunks changes nothing: the last bits of a product of matrices depend on
        who is in a batch.
        """
        if self.order.size == 0:
            return []
        longest = self.length.max(axis=0)[self.order]
        cuts = []
        start = 0
        while start < longest.size:
            # lengths ascend: the last client of a slice sets its padded size
            limit = np.searchsorted(longest, 2 * max(longest[start], 8), side="right")
            size = np.arange(1, limit - start + 1) * longest[start:limit] * factors * 8
            count = max(1, int(np.searchsorted(size, max_bytes, side="right")))
            cuts.append((start, start + count))
            start += count
        return cuts


# every batch of every attack asks for it, and it takes a pass over all rows
_LAYOUTS: WeakKeyDictionary[Messages, Layout] = WeakKeyDictionary()


def layout_of(messages: Messages) -> Layout:
    """Find the layout of some messages, computed once for as long as they live."""
    if messages not in _LAYOUTS:
        _LAYOUTS[messages] = lay_out(messages)
    return _LAYOUTS[messages]


def lay_out(messages: Messages) -> Layout:
    """Find the runs of rows of one client and round; sort only where they are not as attacks see them."""
    runs = runs_of(messages)
    users, user = np.unique(runs.sender, return_inverse=True)
    all_rounds, round_row = np.unique(runs.round, return_inverse=True)
    start, run = runs.start, round_row * users.size + user
    permutation = None
    if not runs.apart or not ascend_in_runs(messages, (messages.kind, messages.index)):
        permutation = messages.in_order()
        whole = messages.take(permutation, messages.round, messages.sender)
        change = (whole[0][1:] != whole[0][:-1]) | (whole[1][1:] != whole[1][:-1])
        start = np.concatenate([[0], np.flatnonzero(change) + 1])
        run = np.searchsorted(all_rounds, whole[0][start]) * users.size
        run += np.searchsorted(users, whole[1][start])
    shape = all_rounds.size, users.size
    first, length = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    first.flat[run] = start
    length.flat[run] = np.diff(np.append(start, messages.n_rows))
    order = np.argsort(length.max(axis=0, initial=0), kind="stable")
    return Layout(users, all_rounds, first, length, permutation, order)
