"""Answers of all clients of a view as they come in, and the constants that most of them share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import Estimates, Reconstruction, Scope
from attacks.client_rules.differentiable import Family
from attacks.closed_form.common_numbers import untold_offset
from attacks.closed_form.fit.images import (
    OPEN_OFFSET,
    abstain_if_own_lowest,
    abstain_if_shifted,
    may_be_lowered,
)
from attacks.closed_form.numbers.integer_relation import Relation
from attacks.closed_form.uploads.answered import Answered
from attacks.closed_form.uploads.common_scale import common
from attacks.inversion.search import SPARE, Told
from victims.transcript.view import ITEM, View

SHARED = 0.5  # of the clients that must agree on a constant
ALIKE = 1e-3  # within which constants of all clients are one
FEWEST = 3  # clients that tell common constants
SEVERAL = "several ratings on the grid explain its rows equally well"
UNLIKE = "its rows are explained with constants of the rule that most clients do not share"
MAX_MISFIT = 0.25  # of readings that tell what is taken off ratings


def shared_constants(table: Float[np.ndarray, "clients c"], family: Family) -> Float[np.ndarray, " c"] | None:
    """The constants that most clients share; None where they do not, or are too few."""
    if len(table) < FEWEST:
        return None
    shared = table[0].copy()
    for number in np.flatnonzero(family.free).tolist():
        middle, share = common(table[:, number])
        close = np.mean(np.abs(table[:, number] - middle) <= ALIKE)
        if max(share, float(close)) < SHARED:
            return None
        shared[number] = middle
    return shared


class Found:
    """Answers of all clients of a view, as they come in."""

    def __init__(self, view: View) -> None:
        self.users = view.users
        self.lowered, self.settled = untold_offset(view, MAX_MISFIT)
        self.levels = np.array(view.manifest.rating_levels)
        self.answered = np.zeros(view.users.size, bool)
        self.left = np.full(view.users.size, np.nan)
        self.fitted = np.zeros(view.users.size)
        self.outside = np.full(view.users.size, np.nan)
        self.allowed = np.full(view.users.size, np.nan)
        self.constants: dict[int, np.ndarray] = {}
        self.ratings: dict[int, dict[int, float]] = {}  # of those told without a fit
        self.reasons: dict[int, str] = {}
        self.blocks: list[Estimates] = []
        self.doubted: list[Estimates] = []  # of clients whose ratings may all be a level higher

    def add_by_span(self, users: np.ndarray, index: np.ndarray, new: Relation) -> None:
        """Take up whose ratings are told without a fit."""
        at = np.searchsorted(self.users, users)
        self.outside[at], self.allowed[at], self.left[at] = new.outside, new.allowed, new.left
        for user, items, value in zip(users[new.told], index[new.told], new.value[new.told], strict=True):
            there = np.isfinite(value)  # padding names items, too
            self.ratings[int(user)] = dict(zip(items[there].tolist(), value[there].tolist(), strict=True))
        self._take(users, index, new.value, new.told)

    def add_by_fit(self, users: np.ndarray, index: np.ndarray, new: Told) -> None:
        """Take up whose ratings are told with one, and why others are not."""
        at = np.searchsorted(self.users, users)
        self.left[at], self.fitted[at] = new.left, new.answered
        for number, user in enumerate(users.tolist()):
            if new.answered[number]:
                self.constants[user] = new.at.constants[number, 0]
            else:
                self.reasons[user] = _reason(new, number)
        self._take(users, index, new.ratings, new.answered)

    def add_read(self, one: Answered) -> None:
        """Take up who is read by a rule of its own, and why others are not."""
        block = one.block
        at = np.searchsorted(self.users, block.users)
        new = ~np.isin(block.users, list(one.reasons)) & ~self.answered[at]
        self.reasons |= one.reasons
        self.answered[at] |= new
        if new.any():
            self.blocks.append(
                Estimates(block.users[new], block.kind[new], block.index[new], block.value[new])
            )

    def _take(
        self, users: np.ndarray, index: Int[np.ndarray, "c n"], value: np.ndarray, some: np.ndarray
    ) -> None:
        doubted = some & may_be_lowered(value, self.levels) & (not self.settled)
        before = np.isin(users, [user for block in self.doubted for user in block.users])
        self.reasons |= dict.fromkeys(users[doubted].tolist(), OPEN_OFFSET)
        self.answered[np.searchsorted(self.users, users)] |= some & ~doubted
        kind = np.full((1, index.shape[1]), ITEM, np.int8)
        for whom, blocks in ((some & ~doubted, self.blocks), (doubted & ~before, self.doubted)):
            if whom.any():
                blocks.append(Estimates(users[whom], kind, index[whom], value[whom]))

    def common(self, family: Family) -> Float[np.ndarray, " c"] | None:
        """Constants that most fitted clients share; None where they do not, or all are answered."""
        if not self.constants or self.answered.all():
            return None
        return shared_constants(np.stack(list(self.constants.values())), family)

    def drop_unlike(self, shared: Float[np.ndarray, " c"], family: Family) -> None:
        """Take back what was fitted with other constants than most clients share.

        Rows of few digits are explained with a rate that nobody else has, and other ratings, where the client
        did something else as well, such as clipping them.
        """
        free = np.array(family.free)
        for user, own in self.constants.items():
            if (np.abs(own - shared) > ALIKE * np.maximum(1, np.abs(shared)))[free].any():
                self.reasons[user] = UNLIKE
        unlike = [user for user in self.constants if self.reasons.get(user) == UNLIKE]
        self.answered[np.isin(self.users, unlike)] = False
        kept = [_of(block, ~np.isin(block.users, unlike)) for block in self.blocks]
        self.blocks = [block for block in kept if block.users.size]

    def reconstruction(self, name: str, reason: str, options: dict) -> Reconstruction:
        """All answers, and why there are no others: for a reason of the client's own, or this one.

        Where all who are read may have ratings a level higher, their differences are the answer. What is read
        without a fit is known up to a factor and a shift, which the levels that clients use have to exclude.
        """
        blocks, scope = self.blocks, Scope.RATINGS_AND_ATTRIBUTES
        if self.doubted and not blocks:
            blocks, scope = self.doubted, Scope.DIFFERENCES
        silent = self.users[~np.isin(self.users, [user for block in blocks for user in block.users])]
        abstained = {user: self.reasons.get(user, reason) for user in silent.tolist()}
        diagnostics = {"left": self.left, "fitted": self.fitted, "outside": self.outside}
        found = Reconstruction(name, self.users, tuple(blocks), abstained, options, diagnostics, scope=scope)
        by_span = np.isin(self.users, list(self.ratings))
        found = abstain_if_shifted(
            found, self.levels, by_span, self.lowered, one_scale=False, settled=self.settled
        )
        return abstain_if_own_lowest(found, self.levels) if self.lowered == self.levels[0] else found


def _of(block: Estimates, some: Bool[np.ndarray, " users"]) -> Estimates:
    """Of some clients."""
    return replace(block, users=block.users[some], index=block.index[some], value=block.value[some])


def _reason(new: Told, number: int) -> str:
    """Why a client is abstained on."""
    if new.spare[number] < SPARE:
        return f"its rows give {new.spare[number]} equations more than there are unknowns; {SPARE} are needed"
    if new.rivals[number] or (new.explained & new.several)[number]:
        return SEVERAL
    return (
        f"no ratings on the grid explain its rows: {new.left[number]:.2g} of their size is left, at most "
        f"{new.allowed[number]:.2g} of right ones"
    )
