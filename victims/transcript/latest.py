"""Numbers that belong together, as many as memory may hold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import numpy as np
from jaxtyping import Int

KEPT = 1 << 18  # numbers at once


class Latest:
    """Whole numbers of a key, ``KEPT`` of them of the latest keys; those of others are forgotten."""

    def __init__(self) -> None:
        self.forgot = False
        self._total = 0
        self._numbers: OrderedDict[Hashable, np.ndarray | set[int]] = OrderedDict()

    def again(self, key: Hashable, numbers: Int[np.ndarray, " numbers"]) -> int | None:
        """One of the numbers that repeats another, or one that the key has; None where there is none."""
        if not (numbers[1:] > numbers[:-1]).all():
            ascending = np.sort(numbers)
            same = np.flatnonzero(ascending[1:] == ascending[:-1])
            if same.size:
                return int(ascending[same[0]])
        before = self._set_of(key)
        return min(before.intersection(numbers.tolist()), default=None) if before else None

    def add(self, key: Hashable, numbers: Int[np.ndarray, " numbers"], earlier: bool) -> None:
        """Note numbers of a key."""
        before = self._set_of(key)
        if before is None:
            self.forgot |= earlier
            self._numbers[key] = numbers.copy()  # the program may fill its array anew
            self._total += len(numbers)
        else:
            self._total -= len(before)
            before.update(numbers.tolist())
            self._total += len(before)
            self._numbers.move_to_end(key)
        while self._total > KEPT:
            _, oldest = self._numbers.popitem(last=False)
            self._total -= len(oldest)

    def _set_of(self, key: Hashable) -> set[int] | None:
        """What a key has; most keys come once, and those need no set."""
        numbers = self._numbers.get(key)
        if isinstance(numbers, np.ndarray):
            numbers = self._numbers[key] = set(numbers.tolist())
        return numbers
