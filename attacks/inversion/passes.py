"""Clients that go several times through their ratings in one order, read back.

Drifting directions give a start whose ratings are right, or nearly (``attacks.inversion.pass_starts``). They
are put on the grid and held there, and start and constants are fitted: K numbers and a few, however many the
ratings. Where that leaves more than the rows' last digits, ratings are fitted, too, from there.

What is declared says which hypothesis is tried first. The order is that in which the rows were sent, where it
is seen, else that of the items, and it is told by the answer: in another order no ratings explain the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.client_rules.local_passes import LocalPasses
from attacks.client_rules.momentum_passes import MomentumPasses
from attacks.closed_form.uploads.readings import Rows, some_of
from attacks.inversion.compression import spare_of, uncompressed
from attacks.inversion.guess import Guess
from attacks.inversion.least_squares import Unknowns
from attacks.inversion.many_starts import fitted
from attacks.inversion.momentum_starts import momentum_starts
from attacks.inversion.one_pass import other_in_one_pass
from attacks.inversion.pass_starts import pass_starts
from attacks.inversion.search import LOOSE, allowed_of, on_the_grid
from attacks.inversion.told import Told, judged, of_one_multiple
from victims.transcript.manifest import Manifest

STEPS = 40  # of fits of start and constants
SHORT, LONG = 8, 60  # of fits of ratings, too: first, and where that is not enough
AT_ONCE = 16  # fits of one call
ASKED = 4  # clients that choose among hypotheses
MOST, FEW = 1024, 256  # ratings of a client that are fitted, too: shortly, and long
ROWS_AT_ONCE = 2048  # of all clients of one call
TELLING = 3  # rows more than factors of a client that tells the rule
SMALLEST = 16  # rows of an array
LARGEST_BLOCK = 64  # ratings of a minibatch that is looked for
ALIKE = 1e-9  # relative, below which a block of rows has no more directions
PassRule = TypeVar("PassRule", LocalPasses, MomentumPasses)


class Ordered(NamedTuple):
    """Some clients, their rows in the order of the steps, padded to one power of two; where each row was."""

    users: Int[np.ndarray, " clients"]
    items: Int[np.ndarray, "clients n"]
    rows: Rows


def in_order(users: np.ndarray, index: np.ndarray, rows: Rows) -> Iterator[Ordered]:
    """Clients of similar size, their rows as they were sent, or by item."""
    count = rows.item.sum(axis=1)
    key = (index if rows.sequence is None else rows.sequence).astype(np.int64)
    order = np.argsort(np.where(rows.item, key, np.iinfo(np.int64).max), axis=1, kind="stable")
    width = np.maximum(SMALLEST, 2 ** np.ceil(np.log2(np.maximum(count, 1))).astype(int))
    for size in np.unique(width[count > 1]).tolist():
        here = np.flatnonzero((width == size) & (count > 1))
        taken = order[here][:, :size]
        lack = ((0, 0), (0, max(0, size - taken.shape[1])))

        def of(
            table: np.ndarray, here: np.ndarray = here, taken: np.ndarray = taken, lack: tuple = lack
        ) -> np.ndarray:
            at = taken.reshape(*taken.shape, *(1,) * (table.ndim - 2))
            return np.pad(np.take_along_axis(table[here], at, axis=1), (*lack, (0, 0))[: table.ndim])

        item = of(rows.item)
        sorted_ = Rows(
            of(rows.rows) * item[..., None],
            of(rows.factors) * item[..., None],
            of(rows.offset) * item,
            item,
            rows.scale[here],
            rows.precision,
            None,
        )
        yield Ordered(users[here], of(index), sorted_)


def sized(rule: PassRule, manifest: Manifest, groups: list[Ordered]) -> PassRule:
    """The rule with the minibatches that rows show, where nobody declares them."""
    said = manifest.rule
    if not groups or said.order == "per-rating" or said.batch_size is not None or rule.batch_size != 1:
        return rule
    return replace(rule, batch_size=block_size(groups[-1].rows))


def chosen_in_order(
    rule: LocalPasses, manifest: Manifest, groups: list[Ordered], levels: Float[np.ndarray, " levels"]
) -> Guess | None:
    """The number of passes and the open constants that explain some clients."""
    rows = asked(groups)
    if rows is None:
        return None
    free = passes_declared(manifest)
    best, most = None, 0
    for family in rule.families(manifest):
        for value in family.values:
            guess = Guess(family, value)
            answered = int(told_in_order(rule, guess, rows, levels, free=free).answered.sum())
            if answered > most:
                best, most = guess, answered
            if 2 * most >= len(rows.item):
                return best
    return best


def passes_declared(manifest: Manifest) -> bool:
    """Whether passes and minibatches are declared: a hypothesis is worth fits of ratings, too, then."""
    said = manifest.rule
    return said.local_steps is not None and (said.order is not None or said.batch_size is not None)


def asked(groups: list[Ordered]) -> Rows | None:
    """Rows of a few clients that choose among hypotheses."""
    enough = [g for g in groups if (g.rows.item.sum(axis=1) >= g.rows.rows.shape[2] + TELLING).any()]
    if not enough:  # with few rows any line explains them
        return None
    rows = next((g for g in enough if g.rows.item.shape[1] >= 4 * g.rows.rows.shape[2]), enough[-1]).rows
    return some_of(rows, np.argsort(-rows.item.sum(axis=1), kind="stable")[:ASKED])


def block_size(rows: Rows) -> int:
    """The largest minibatch that the ranks of consecutive rows show: each has fewer directions than rows."""
    user = int(rows.item.sum(axis=1).argmax())
    sent = rows.rows[user, rows.item[user]]
    digits = max(ALIKE, LOOSE * rows.precision)
    best, fewest = 1, sent.shape[1]
    for size in range(3, min(LARGEST_BLOCK, len(sent) // 2) + 1):
        blocks = sent[: len(sent) // size * size].reshape(-1, size, sent.shape[1])
        values = np.linalg.svd(blocks, compute_uv=False)
        rank = int((values > digits * values[:, :1]).sum(axis=1).max())
        if rank < size and rank <= fewest and rank < sent.shape[1]:
            best, fewest = size, rank
    return best


def told_in_order(
    rule: LocalPasses | MomentumPasses,
    guess: Guess,
    rows: Rows,
    levels: Float[np.ndarray, " levels"],
    *,
    free: bool = True,
) -> Told:
    """Fit one hypothesis to one round of some clients."""
    if isinstance(rule, MomentumPasses):
        starts, turn = momentum_starts(rows, levels, rule, guess), True
    else:
        starts, turn = pass_starts(rows, levels, rule, guess), rule.loss == "squared"
    small, allowed = uncompressed(rows), allowed_of(rows)
    there = ~np.isnan(starts.sigma)
    given = [guess.constants_of(abs(s) or 1.0, 1.0) for s in np.nan_to_num(starts.sigma, nan=1.0).ravel()]
    constants = np.array(given).reshape(*there.shape, -1)
    begin = Unknowns(starts.factor, starts.ratings, constants)
    sign = np.where(starts.sigma < 0, -1.0, 1.0)

    at_once = int(np.clip(ROWS_AT_ONCE // rows.item.shape[1], 1, AT_ONCE))

    def held(
        at: Unknowns, some: Bool[np.ndarray, "clients starts"]
    ) -> tuple[np.ndarray, Unknowns, np.ndarray]:
        ratings, on_grid = on_the_grid(at, small, rows, levels, turn=turn)
        found = fitted(
            rule, small.problem, on_grid, sign, some, guess.free, STEPS, ratings=False, at_once=at_once
        )
        return ratings, found.at, found.left

    ratings, at, left = held(begin, there)
    for steps, most in ((SHORT, MOST), (LONG, FEW)) if free else ():
        missed = there & ~(left <= allowed[:, None]).any(axis=1, keepdims=True)
        missed[:, 1:] = False
        if not missed.any() or rows.item.shape[1] > most:
            break
        loose = fitted(rule, small.problem, begin, sign, missed, guess.free, steps, at_once=at_once)
        again = held(loose.at, missed)
        better = missed & (again[2] < np.where(np.isnan(left), np.inf, left))
        ratings = np.where(better[..., None], again[0], ratings)
        at = Unknowns(*(np.where(better[..., None], new, old) for new, old in zip(again[1], at, strict=True)))
        left = np.where(better, again[2], left)
        begin = Unknowns(
            *(np.where(missed[..., None], new, old) for new, old in zip(loose.at, begin, strict=True))
        )
    spare = spare_of(rows.item.sum(axis=1), rows.rows.shape[2], int(guess.free.sum()))
    told = of_one_multiple(judged(ratings, at, left, allowed, spare, rows), guess, rows, levels)
    if isinstance(rule, LocalPasses):
        told = told._replace(rivals=told.rivals | other_in_one_pass(rule, told, rows, levels, at_once))
    return told
