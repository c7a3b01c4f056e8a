"""What rows are about, and their sums over senders, in the clear or under encryption."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.protocols.ciphers import Cipher, Total
from victims.protocols.exchanged import Rows
from victims.transcript.kinds import ATTRIBUTE, IMPLICIT, IMPLICIT_SUM, ITEM, KINDS

ITEM_SUM, ATTRIBUTE_SUM = KINDS.index("item-sum"), KINDS.index("attribute-sum")


class Shape(NamedTuple):
    """What rows are about: n_items, n_attributes, how many numbers a row has, and items of a second table."""

    n_items: int
    n_attributes: int
    factors: int
    n_implicit: int = 0

    @property
    def groups(self) -> int:
        """Sums that there can be."""
        return self.n_items + self.n_attributes + self.n_implicit

    def group_of(self, rows: Rows) -> Int[np.ndarray, " rows"]:
        """Place of each row's sum: items first, then attributes, then items of the second table."""
        before = np.zeros(max(ITEM, ATTRIBUTE, IMPLICIT) + 1, np.int64)
        before[[ATTRIBUTE, IMPLICIT]] = self.n_items, self.n_items + self.n_attributes
        return before[rows.kind] + rows.index

    def about(self, group: Int[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
        """Kind and index of some sums."""
        ends = np.cumsum([self.n_items, self.n_attributes])
        part = np.searchsorted(ends, group, side="right")
        kind = np.array([ITEM_SUM, ATTRIBUTE_SUM, IMPLICIT_SUM])[part]
        return kind, group - np.array([0, *ends])[part]

    def summed(self, rows: Iterable[Rows], cipher: Cipher | None) -> tuple[np.ndarray, np.ndarray]:
        """Sums over the senders, and which of them are released: those of enough senders."""
        plain = PlainTotal(np.zeros((self.groups, self.factors)))
        total: Total = plain if cipher is None else cipher.total(self.groups, self.factors)
        contributors = np.zeros(self.groups, np.int64)
        for some in rows:
            group = self.group_of(some)
            total.add(group, some.gradient)
            contributors += np.bincount(group, minlength=self.groups)
        released = contributors >= max(1 if cipher is None else cipher.rules.min_contributors, 1)
        return total.opened(released), released


class Sums(NamedTuple):
    """Sums of what is sent in a round, as one party sees them, in the order of ``Shape.group_of``."""

    values: Float[np.ndarray, "rows factors"]  # zero where not released
    released: Bool[np.ndarray, " rows"]  # formed, and shown
    shape: Shape  # what each is about
    receiver: int  # who sees them
    sender: Int[np.ndarray, " rows"]  # who sends them back to it; itself where it adds up by itself


class PlainTotal(NamedTuple):
    """Sums of numbers in the clear; ``add`` changes ``values`` in place."""

    values: Float[np.ndarray, "groups factors"]

    def add(self, group: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows factors"]) -> None:
        """Add each row to the sum of its group."""
        for column in range(values.shape[1]):
            self.values[:, column] += np.bincount(group, values[:, column], minlength=len(self.values))

    def opened(self, wanted: Bool[np.ndarray, " groups"]) -> Float[np.ndarray, "groups factors"]:
        """The sums."""
        return self.values
