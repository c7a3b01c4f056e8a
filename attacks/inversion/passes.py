"""Clients that go several times through their ratings in one order, read back.

A pass is told apart from one step, and from one pass alone, before anything is fitted: of these
``attacks.closed_form.undeclared`` reads what they tell. Drifting directions give a start whose ratings are
right, or nearly (``attacks.inversion.pass_starts``). They are put on the grid and held there, and start and
constants are fitted: K numbers and a few, however many the ratings. Where that leaves more than the rows'
last digits, ratings are fitted, too, from there. Rate, number of passes and the like are chosen on a few
clients; then all are fitted, and those that are left once more with the constants that most others share.

What is declared says which hypothesis is tried first. The order is that in which the rows were sent, where it
is seen, else that of the items, and it is told by the answer: in another order no ratings explain the rows.

P passes of rate eta leave next to the rows of one pass of rate P eta: how its copies of the items move, and
the drift from pass to pass, tell them apart, and both may be less than the last digits of the rows. Then only
rates are told, and a multiple of the ratings is another reading. A sigmoid of products near 0 is a line, too,

    y - s(x) = (4 (y - 1/2) - x) / 4 + O(x^3),    y = (r - first) / range,

so that multiples of r less the middle of its range are others. Beyond the papers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import Progress, silent
from attacks.client_rules.local_updates import (
    FACTOR_DECAY,
    FIRST,
    ITEM_DECAY,
    LOSS,
    LOSSES,
    RANGE,
    RATE,
    RATIO,
    STEPS,
    LocalUpdates,
)
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.uploads.readings import Rows, some_of
from attacks.inversion.answers import Found
from attacks.inversion.clients import is_one_pass, one_step, open_clients
from attacks.inversion.compression import spare_of, uncompressed
from attacks.inversion.least_squares import Guess, Unknowns, fitted
from attacks.inversion.pass_starts import pass_starts
from attacks.inversion.search import LOOSE, TIGHT, Told, allowed_of, judged, of_one_multiple, on_the_grid
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

LONGEST_HELD = 40  # steps of fits of start and constants
SHORT, LONG = 8, 60  # of fits of ratings, too: first, and where that is not enough
AT_ONCE = 16  # fits of one call
ASKED = 4  # clients that choose among hypotheses
MOST, FEW = 1024, 256  # ratings of a client that are fitted, too: shortly, and long
ROWS_AT_ONCE = 2048  # of all clients of one call
TELLING = 3  # rows more than factors of a client that tells the rule
SMALLEST = 16  # rows of an array
LARGEST_BLOCK = 64  # ratings of a minibatch that is looked for
ALIKE = 1e-9  # relative, below which a block of rows has no more directions
SLOPE = 4.0  # one over that of a sigmoid at 0
TIMES = {"squared": 1.0, "cross-entropy": SLOPE, "sigmoid": SLOPE**2}  # that an error of a line is larger
ON_LEVEL = 1e-9  # stars, within which a number is on a level
WITH_ATTRIBUTES = "attributes take part in the steps, which passes over ratings do not model"
ONE_PASS = "each row follows from another by one step: one pass, of which undeclared reads what it tells"


def read_passes(
    view: View,
    rule: LocalUpdates,
    found: Found,
    rounds: int,
    progress: Progress = silent,
) -> tuple[str, str]:
    """Take up whose ratings are told by passes over them in one order."""
    if view.manifest.n_attributes:
        return "", WITH_ATTRIBUTES
    if reason := one_step(view, found):
        return "", reason
    if is_one_pass(view, found):
        return "", ONE_PASS
    levels = np.array(view.manifest.rating_levels)
    parts = (in_order(*part) for part in open_clients(view, found, rounds))
    groups = sorted((group for part in parts for group in part), key=lambda one: one.rows.item.shape[1])
    rule = sized(rule, view.manifest, groups)
    guess = chosen_in_order(rule, view.manifest, groups, levels)
    if guess is None:
        return "", f"passes ({rule.name}) in the order of the rows explain no client that was tried"
    for again in (False, True):
        constants = found.common(guess.family)
        if again and constants is None:
            break
        now = guess._replace(constants=constants) if again else guess
        for group in groups:
            here = ~found.answered[np.searchsorted(view.users, group.users)]
            if here.any():
                told = told_in_order(rule, now, some_of(group.rows, here), levels)
                found.add_by_fit(group.users[here], group.items[here], told)
            progress(int(found.answered.sum()), view.users.size)
    return f"{guess.value:g} {guess.family.label}, {rule.name}", ""


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


def sized(rule: LocalUpdates, manifest: Manifest, groups: list[Ordered]) -> LocalUpdates:
    """The rule with the minibatches that rows show, where nobody declares them."""
    said = manifest.rule
    if not groups or said.order == "per-rating" or said.batch_size is not None or rule.batch_size != 1:
        return rule
    return replace(rule, batch_size=block_size(groups[-1].rows))


def chosen_in_order(
    rule: LocalUpdates, manifest: Manifest, groups: list[Ordered], levels: Float[np.ndarray, " levels"]
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
    rule: LocalUpdates,
    guess: Guess,
    rows: Rows,
    levels: Float[np.ndarray, " levels"],
    *,
    free: bool = True,
) -> Told:
    """Fit one hypothesis to one round of some clients."""
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
            rule, small.problem, on_grid, sign, some, guess.free, LONGEST_HELD, ratings=False, at_once=at_once
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
    return told._replace(rivals=told.rivals | other_in_one_pass(rule, told, rows, levels, at_once))


def other_in_one_pass(
    rule: LocalUpdates, told: Told, rows: Rows, levels: Float[np.ndarray, " levels"], at_once: int
) -> Bool[np.ndarray, " clients"]:
    """Whose rows one pass, or linear ones, explain by other ratings."""
    out = np.zeros(told.answered.size, bool)
    line = _as_line(rule, told, rows)
    others = _other_multiples(told.ratings, line, rows, levels)
    passes = told.at.constants[:, 0, STEPS]
    as_well = np.minimum(told.allowed, LOOSE * told.left + TIGHT)  # its rest is rounding
    for number in (np.ones(passes.size), passes):
        same = (number == passes) & (rule.loss == "squared")
        open_ = told.answered & others & ~same & ~out
        if open_.any():
            out |= open_ & (_left(rule, told, rows, line, number, open_, at_once) <= as_well)
    return out


def _as_line(rule: LocalUpdates, told: Told, rows: Rows) -> Float[np.ndarray, "clients n"]:
    """Ratings less the offset up to a multiple, as linear passes have them; 0 off the items."""
    if rule.loss == "squared":
        return np.where(rows.item, told.ratings - rows.offset, 0.0)
    first, range_ = (told.at.constants[:, :, constant] for constant in (FIRST, RANGE))
    return np.where(rows.item, SLOPE * ((told.ratings - first) / range_ - 0.5), 0.0)


def _other_multiples(
    ratings: Float[np.ndarray, "clients n"],
    line: Float[np.ndarray, "clients n"],
    rows: Rows,
    levels: Float[np.ndarray, " levels"],
) -> Bool[np.ndarray, " clients"]:
    """Whether a multiple of these lies on the grid, and is not what was told."""
    every = np.arange(len(line))
    largest = np.abs(line).argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = (levels - rows.offset[every, largest, None]) / line[every, largest, None]
        value = times[..., None] * line[:, None] + rows.offset[:, None]
    finite = np.isfinite(value)
    near = finite & (distance_to_levels(np.where(finite, value, 0.0), levels) < ON_LEVEL)
    on_grid = (near | ~rows.item[:, None]).all(axis=2)
    with np.errstate(invalid="ignore"):
        unlike = ((np.abs(value - ratings[:, None]) > ON_LEVEL) & rows.item[:, None]).any(axis=2)
    return (on_grid & unlike).any(axis=1)


def _left(
    rule: LocalUpdates,
    told: Told,
    rows: Rows,
    line: Float[np.ndarray, "clients n"],
    passes: Float[np.ndarray, " clients"],
    some: Bool[np.ndarray, " clients"],
    at_once: int,
) -> Float[np.ndarray, " clients"]:
    """What linear passes leave of the rows of some clients, relative to their size; NaN of the others."""
    constants = told.at.constants.copy()
    fewer = np.log(constants[:, 0, STEPS] / passes)
    constants[:, 0, RATE] += fewer - np.log(TIMES[rule.loss])
    constants[:, 0, RATIO] -= fewer
    for constant, value in ((STEPS, passes), (FIRST, 0.0), (RANGE, 1.0), (LOSS, LOSSES.index("squared"))):
        constants[:, 0, constant] = value
    factor = told.at.factor
    error = line - (rows.factors * factor).sum(axis=2)
    along = (rows.rows * (error[..., None] * factor)).sum(axis=(1, 2))
    free = np.isin(np.arange(constants.shape[2]), (RATE, RATIO, FACTOR_DECAY, ITEM_DECAY))
    linear = LocalUpdates(rule.batch_size, "squared", rule.mean)
    begin = Unknowns(factor, line[:, None], constants)
    sign = np.where(along < 0, -1.0, 1.0)[:, None]
    problem = uncompressed(rows).problem
    found = fitted(
        linear, problem, begin, sign, some[:, None], free, LONGEST_HELD, ratings=False, at_once=at_once
    )
    return found.left[:, 0]
