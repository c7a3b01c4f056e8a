"""A step after every rating, of factors that hold an item's bias as one more column: the errors themselves.

The published program of Koren's model (Surprise's ``SVD``) predicts mu + b_u + b_j + p . q_j, and steps with
every rating r_k of item j:

    q_j += rho (e_k p_k - lambda q_j)        b_j += rho (e_k - lambda b_j)
    p_k+1 = (1 - d) p_k + t e_k q_j          b_u += t e_k - d b_u

(d = rho lambda and t = rho there). A row with both, F = s (e p - lambda q) and x = s (e - lambda b), is known
up to c = s lambda:

    g = x + c b = s e,        p = (F + c q) / g.

c, d and t are three numbers for all rows of all clients, in K equations for each two rows that follow each
other; c is that of ``attacks.closed_form.uploads.pull_of_steps`` to begin with. A decay of the factors alone
(g = x), and rows about p after the step, are tried as well. With p told, ratings are open up to s and a bias
of each client (``attacks.closed_form.biases.error_ratings``).

What it assumes: rows in the order of the steps, three factors or more beside the biases, both in one unit. It
judges itself: nothing but rounding is left, of the chain and of the grid.

References
----------
Y. Koren, R. Bell, C. Volinsky 2009, "Matrix Factorization Techniques for Recommender Systems", Computer
42(8), doi:10.1109/MC.2009.263. N. Hug 2020, "Surprise: A Python library for recommender systems", JOSS 5(52),
doi:10.21105/joss.02174.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import least_squares

from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.uploads.pull_of_steps import FEWEST, pull_of_steps
from attacks.closed_form.uploads.readings import Rows

UNSEEN = 0.1  # of what moves from row to row, that a law may leave
TINY = 1e-150  # row times error, whose products vanish


class Law(NamedTuple):
    """What all rows share."""

    pull: float  # c, in units of the rows
    decay: float  # d, and t over s
    rate: float  # d, and t over s
    biases_decay: bool  # whether biases are pulled as factors are
    after: bool  # whether rows are about the factor after the step
    # of two rows, relative to their size: what the law does not explain. Infinite where nothing moves
    left: float


class Errors(NamedTuple):
    """What the rows say."""

    scalar: Float[np.ndarray, "users rows"]  # g = s e
    predicted: Float[np.ndarray, "users rows"]  # p . q + b, in units of the program
    # what a bias of the client that steps as its factor does has gained before the row, and what is left of
    # what it was before the first
    gained: Float[np.ndarray, "users rows"]
    # what a bias of the client that steps as its factor does has gained before the row, and what is left of
    # what it was before the first
    kept: Float[np.ndarray, "users rows"]
    added: Float[np.ndarray, "users rows"]  # what it has gained where it does not decay
    alike: Float[np.ndarray, "users rows"]  # how many rows its step made


def law_of(rows: Rows, column: int) -> Law | None:
    """Find the numbers under which one column of the rows holds their errors."""
    if rows.sequence is None or rows.rows.shape[2] < 4:
        return None
    alone = rows._replace(
        rows=np.delete(rows.rows, column, axis=2), factors=np.delete(rows.factors, column, axis=2)
    )
    pull = pull_of_steps(alone)
    first, second = _pairs(alone, rows.rows[..., column], rows.factors[..., column].astype(float))
    if len(first.error) < FEWEST:
        return None
    tried = [
        _fitted(first, second, 0.0 if pull is None else -pull, biases, after)
        for biases, after in product((True, False) if pull else (False,), (False, True))
    ]
    best = min(tried, key=lambda one: one.left)
    return best if best.left <= rows.precision**BARS.half else None


class _Some(NamedTuple):
    """Rows (n, K), their errors (n,), and factors and biases of their items."""

    row: Float[np.ndarray, "n K"]
    error: Float[np.ndarray, " n"]
    factor: Float[np.ndarray, "n K"]
    bias: Float[np.ndarray, " n"]


def _pairs(
    rows: Rows, error: Float[np.ndarray, "users rows"], bias: Float[np.ndarray, "users rows"]
) -> tuple[_Some, _Some]:
    """Rows that follow each other, of all clients."""
    ahead = _in_order(rows)
    user, place = np.nonzero((ahead[:, :-1] >= 0) & (ahead[:, 1:] >= 0))
    here = [(user, ahead[user, place + step]) for step in (0, 1)]
    first, second = (_Some(rows.rows[at], error[at], rows.factors[at].astype(float), bias[at]) for at in here)
    # rows of zeros say nothing, and those that are next to it have no digits
    with np.errstate(over="ignore"):
        usable = (
            np.minimum(*(np.abs(one.row).max(axis=1) * np.abs(one.error) for one in (first, second))) > TINY
        )
    first, second = (_Some(*(part[usable] for part in one)) for one in (first, second))
    return first, second


def _in_order(rows: Rows) -> Int[np.ndarray, "users rows"]:
    """Places of the rows in the order in which they were made; -1 after the last."""
    assert rows.sequence is not None
    late = np.iinfo(rows.sequence.dtype).max
    order = np.argsort(np.where(rows.item, rows.sequence, late), axis=1, kind="stable")
    return np.where(np.take_along_axis(rows.item, order, axis=1), order, -1)


class _Chain(NamedTuple):
    """Factors of two rows that follow each other, times both errors and over the size of the rows."""

    # that of the second row, that of the first, and what its error moves it by, but for t
    now: Float[np.ndarray, "n K"]
    # that of the second row, that of the first, and what its error moves it by, but for t
    before: Float[np.ndarray, "n K"]
    # that of the second row, that of the first, and what its error moves it by, but for t
    push: Float[np.ndarray, "n K"]

    def left(self, decay: float, rate: float) -> Float[np.ndarray, " numbers"]:
        """What a decay and a rate do not explain."""
        return (self.now - (1 - decay) * self.before - rate * self.push).ravel()


def _chain(first: _Some, second: _Some, pull: float, biases: bool, after: bool) -> _Chain:
    """What a pull makes of two rows."""
    g, h = (one.error + biases * pull * one.bias for one in (first, second))
    before, now = (one.row + pull * one.factor for one in (first, second))
    step, item = (h, second.factor) if after else (g, first.factor)
    lengths = [
        np.linalg.norm(one.row, axis=1) * np.abs(e)
        for one, e in ((first, second.error), (second, first.error))
    ]
    size = (lengths[0] + lengths[1])[:, None]
    return _Chain(now * g[:, None] / size, before * h[:, None] / size, (g * h * step)[:, None] * item / size)


def _fitted(first: _Some, second: _Some, pull: float, biases: bool, after: bool) -> Law:
    """Pull, decay and rate by least squares, from a pull to begin with."""
    chain = _chain(first, second, pull, biases, after)
    table = np.stack([-chain.before.ravel(), chain.push.ravel()], axis=1)
    moves = (chain.now - chain.before).ravel()
    if not np.isfinite(table).all() or not moves.any():
        return Law(pull, 0.0, 0.0, biases, after, np.inf)
    start = np.array([pull, *np.linalg.lstsq(table, moves, rcond=None)[0]])
    unit = np.where(start == 0, 1.0, np.abs(start))
    fixed = 0 if pull else 1  # nothing says of no pull that it is another one

    def left(free: np.ndarray) -> np.ndarray:
        c, decay, rate = np.r_[start[:fixed], free * unit[fixed:]]
        return _chain(first, second, float(c), biases, after).left(decay, rate)

    found = least_squares(left, (start / unit)[fixed:], method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    c, decay, rate = np.r_[start[:fixed], found.x * unit[fixed:]].tolist()
    size, usual = (float(np.sqrt(np.mean(one**2))) for one in (found.fun, moves))
    # steps that are not seen are as well those of another column
    return Law(c, decay, rate, biases, after, size if size <= UNSEEN * usual else np.inf)


def errors_of(
    rows: Rows, column: int, law: Law, place: Int[np.ndarray, "users rows"] | None = None
) -> Errors:
    """What all rows of some clients say under a law."""
    place = place_of(rows) if place is None else place
    bias = rows.factors[..., column].astype(float)
    factors = np.delete(rows.factors, column, axis=2).astype(float)
    g = rows.rows[..., column] + law.pull * bias * law.biases_decay
    with np.errstate(divide="ignore", invalid="ignore"):
        p = (np.delete(rows.rows, column, axis=2) + law.pull * factors) / g[..., None]
    if law.after:
        p = (p - law.rate * g[..., None] * factors) / (1 - law.decay)
    there = rows.item & (place >= 0)
    user, at = np.nonzero(there)[0], place[there]
    alike, push = (np.zeros((len(g), int(place.max(initial=0)) + 1)) for _ in range(2))
    np.add.at(alike, (user, at), 1.0)
    np.add.at(push, (user, at), g[there])
    added = law.rate * (np.cumsum(push, axis=1) - push)
    gained, left = np.zeros(push.shape), (1 - law.decay) ** np.arange(push.shape[1])
    for step in range(1, push.shape[1]):
        gained[:, step] = (1 - law.decay) * gained[:, step - 1] + law.rate * push[:, step - 1]
    own = np.arange(len(g))[:, None]
    steps = (gained, np.broadcast_to(left, push.shape), added, alike)
    by_step = (one[own, place] for one in steps)
    predicted = np.einsum("urk,urk->ur", p, factors) + bias
    every = (g, np.where(there, predicted, np.nan), *by_step)
    return Errors(*(np.where(rows.item, one, 0.0) for one in every))


def place_of(rows: Rows) -> Int[np.ndarray, "users rows"]:
    """Number rows in the order in which they were sent; -1 off the items."""
    ahead = _in_order(rows)
    place = np.full(ahead.shape, -1)
    user, step = np.nonzero(ahead >= 0)
    place[user, ahead[user, step]] = step
    return place
