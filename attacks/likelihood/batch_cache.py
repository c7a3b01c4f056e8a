"""The batches of a problem as arrays, kept in memory where there is room."""

from __future__ import annotations

import jax

from attacks.likelihood.batches import Rows, pack
from attacks.likelihood.problem import Problem

CACHE_BYTES = 1 << 28


class BatchCache:
    """Rows of the batches of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._kept: dict[int, Rows] = {}
        self._last: dict[int, Rows] = {}

    def rows(self, batch: int) -> Rows:
        """The rows of a batch, kept while all of them are small; the last one always is."""
        for kept in (self._kept, self._last):
            if batch in kept:
                return kept[batch]
        self._last.clear()
        problem = self.problem
        packed = pack(problem.view, problem.packing, batch, problem.precision, problem.model.law)
        rows: Rows = jax.device_put(packed)
        room = sum(_bytes(kept) for kept in self._kept.values()) + _bytes(rows) < CACHE_BYTES
        (self._kept if room else self._last)[batch] = rows
        return rows


def _bytes(rows: Rows) -> int:
    return sum(column.nbytes for column in rows)
