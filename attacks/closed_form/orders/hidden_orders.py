"""Several passes over a client's ratings, by rating or minibatch, in orders that nobody sees.

A client goes P times through its n ratings, each time in another order, with steps eta of its factor u and of
its copies w_j of the items. The row of j is the sum of its P steps, eta sum_t e_jt u_jt. To first order in
eta the order does not matter: with the means e_j, u over the passes, d the direction of u and w_j the copy
half-way (as broadcast plus half the row),

    D_j . d = P eta |u| e_j + second order,    r_j = A D_j . d + B w_j . d + s_j,

A = 1 / (P eta |u|), B = |u|.

What is left, s_j, comes of where in each order j stood: it is about eta sqrt(n / (12 P)) times an error, an
item's length and the error of j, small where a pass moves u by a small part of itself. Where rows point tells
most of it (``attacks.closed_form.orders.second_order``), if nothing else turns them: who is not read to first
order is read by what comes nearer to the grid, where all rows do so (to ``HARMLESS`` of a step). A and B are
those that put its ratings there (``attacks.closed_form.orders.order_pairs``); A B = 1 / (P eta) is the same
for all clients, which most of them have to show, in one round or, where few take part in each, in all of them
together. Then s is what they miss the grid by, half of it a share of the error, and a rating is answered
where the next level is ``SURE`` times less likely than the nearest, given a normal s of that size
(``attacks.closed_form.orders.order_answers``).
Who misses the grid by more than ``FARTHEST`` of a step, has many rows farther off than a normal s leaves, or
many errors that are as large as the largest (clipped ones), is not answered, nor are ratings with errors half
as large as that of any row that is so far off. A client with one clipped error is near to the grid at
another level, too: ratings are answered whose errors are smaller than some of ``FEWEST`` clients, or that are
at the end of the grid on the side of their error, for a clipped one is farther there than it looks.

Where all ratings have another multiple on the grid (whole stars of a grid of halves), or are every second
level, nobody is answered.

What it assumes: copies that move or not, one scale of all rows (a mean over minibatches of unequal size has
several), uploads in the clear, half a dozen ratings. Beyond the papers; the scheme is that of
H. B. McMahan et al., arXiv:1602.05629, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.orders.order_answers import (
    ALONE,
    FARTHEST,
    HARMLESS,
    answers_of,
    lack_biases,
    told_by,
)
from attacks.closed_form.orders.order_clients import able_clients, agreed, on_one_grid
from attacks.closed_form.orders.order_pairs import (
    FirstOrder,
    Pairs,
    coarse_pairs,
    fitted_pairs,
    nats_of,
)
from attacks.closed_form.uploads.readings import Reading, Rows, reading_of
from victims.transcript.manifest import Manifest

IN_VAIN = 1500.0  # clients, times steps up to the highest level, after which no further round is asked
ASKED = 12  # clients with most ratings: where none of them can be read alone the others are not tried
TELLING = 0.1  # how well a client has to tell A B, to be asked


class Asked(NamedTuple):
    """One client in one round."""

    one: FirstOrder  # its rows, to first order or to second
    pairs: Pairs  # of A and B


class Answer(NamedTuple):
    """What a client is answered."""

    here: Bool[np.ndarray, " rows"]  # where its rows are
    value: Float[np.ndarray, " n"]  # ratings on the grid, NaN where they are open
    missed: float  # by how much ratings miss the grid in the mean, stars
    numbers: Float[np.ndarray, " 2"]  # A and B


def read_hidden_orders(rounds: Sequence[Rows], manifest: Manifest) -> list[Reading]:
    """Read clients as ones that went several times through their ratings, in any orders."""
    levels = np.array(manifest.rating_levels)
    nearest: list[dict[int, Asked]] = [{} for _ in rounds]
    answers: list[dict[int, Answer]] = [{} for _ in rounds]
    vain = 0.0
    for number, rows in enumerate(rounds):
        known = {user for one in answers for user in one}
        first, second = _asked(rows, set(range(len(rows.item))) - known, levels)
        nearest[number] = {user: _nearer(one, second.get(user), levels) for user, one in first.items()}
        plain = {
            user: _unless_nearer(one, first[user], nearest[number][user], levels)
            for user, one in _answers(first, levels, False).items()
        }
        answers[number] = _answers(nearest[number], levels, True) | plain
        vain += 0 if answers[number] else len(first) * levels[-1] / step_of(levels)
        if vain >= IN_VAIN:
            break
    if len(rounds) > 1:
        at = _nearest_rounds(nearest, levels)
        together = _answers({user: nearest[number][user] for user, number in at.items()}, levels, True)
        for user in set(together) - {user for one in answers for user in one}:
            answers[at[user]][user] = together[user]
    return [_reading(rows, own, levels) for rows, own in zip(rounds, answers, strict=True)]


def _reading(rows: Rows, answers: dict[int, Answer], levels: np.ndarray) -> Reading:
    """The answers of one round."""
    users = len(rows.item)
    value = np.full(rows.item.shape, np.nan)
    missed, numbers = np.full(users, np.nan), np.full((users, 2), np.nan)
    for user, one in answers.items():
        value[user, one.here] = one.value
        missed[user], numbers[user] = one.missed, one.numbers
    allowed = np.where(np.isnan(missed), 0.0, 4 * FARTHEST)
    return reading_of(
        value, missed / (step_of(levels) / 4), allowed, of_error=numbers[:, 0], of_factor=numbers[:, 1]
    )


def _asked(rows: Rows, users: set[int], levels: np.ndarray) -> tuple[dict[int, Asked], dict[int, Asked]]:
    """Clients of one round to first and to second order; few where none of these can be read alone."""
    first: dict[int, Asked] = {}
    second: dict[int, Asked] = {}
    for user, (plain, better) in able_clients(rows, users).items() if levels.size > 1 else ():
        if len(first) == ASKED and not any(_by_itself(one.pairs, levels).any() for one in first.values()):
            break
        trials = coarse_pairs(plain, levels)
        first[user] = Asked(plain, fitted_pairs(trials, plain, levels))
        if better is not None:
            second[user] = Asked(better, fitted_pairs(trials, better, levels))
    return first, second


def _nearer(first: Asked, second: Asked | None, levels: np.ndarray) -> Asked:
    """Of both readings of a client the one that comes nearer to the grid."""
    return first if second is None else max(first, second, key=lambda one: _best_nats(one, levels))


def _unless_nearer(answer: Answer, first: Asked, nearer: Asked, levels: np.ndarray) -> Answer:
    """Leave ratings of the first order open from which a second order, nearer to the grid, is off."""
    if nearer is first or not nearer.pairs.numbers.size:
        return answer
    a, b = nearer.pairs.numbers[int(np.argmax(nats_of(nearer.pairs, levels)))]
    value = a * nearer.one.g + b * nearer.one.h + nearer.one.offset
    off = np.abs(value - answer.value) > HARMLESS * step_of(levels)
    return answer._replace(value=np.where(off, np.nan, answer.value))


def _best_nats(one: Asked, levels: np.ndarray) -> float:
    """Of the nearest pair."""
    return float(nats_of(one.pairs, levels).max(initial=-np.inf))


def _nearest_rounds(asked: Sequence[dict[int, Asked]], levels: np.ndarray) -> dict[int, int]:
    """The round in which each client comes nearest to the grid: one that counts once among the others."""
    return {
        user: max(
            (number for number, one in enumerate(asked) if user in one),
            key=lambda number: _best_nats(asked[number][user], levels),
        )
        for user in sorted({user for one in asked for user in one})
    }


def _answers(asked: dict[int, Asked], levels: np.ndarray, closely: bool) -> dict[int, Answer]:
    """What clients are answered that agree on A B; nobody where their ratings have another multiple.

    All rows of a client that is read ``closely`` have to be within ``HARMLESS`` of a step of the grid.
    """
    constant = _shared({user: one.pairs for user, one in asked.items()}, levels)
    if constant is None:
        return {}
    every = {user: told_by(one.pairs, one.one, constant, levels) for user, one in asked.items()}
    told = {user: one for user, one in every.items() if one is not None}
    if lack_biases(told, {user: one.one for user, one in asked.items()}):
        return {}
    doubtful = [_agrees(asked[user].pairs, constant, levels) for user in every if user not in told]
    answers = answers_of(told, sum(doubtful), levels)
    if not on_one_grid(answers, {user: asked[user].one for user in answers}, levels):
        return {}
    return {
        user: Answer(asked[user].one.here, own, told[user].missed, told[user].numbers)
        for user, own in answers.items()
        if not closely or told[user].unseen <= 2 * HARMLESS
    }


def _by_itself(one: Pairs, levels: np.ndarray) -> Bool[np.ndarray, " pairs"]:
    """Pairs that a client tells without others."""
    return (nats_of(one, levels) > ALONE) & (one.missed < FARTHEST * step_of(levels)) & (one.spread < TELLING)


def _shared(pairs: dict[int, Pairs], levels: np.ndarray) -> float | None:
    """A B of most clients that can be read alone."""
    alone = {}
    for user, one in pairs.items():
        good = _by_itself(one, levels)
        if good.any():
            alone[user] = one.constant[good], one.tolerance[good]
    return agreed(alone)


def _agrees(one: Pairs, constant: float, levels: np.ndarray) -> bool:
    """Whether a client is near to the grid with the A B of the others, more than by chance."""
    near = np.abs(one.constant / constant - 1) < one.tolerance
    return bool((near & (nats_of(one, levels) > ALONE)).any())
