"""Steps over several ratings, or in an order that is not seen, where a column of the rows holds the errors.

For ``attacks.closed_form.biases.error_column``. Rows F = s (e p - lambda q) and x = s (e - lambda b) of one
step share p, so that of two of them

    F_1 x_2 - F_2 x_1 + c (q_1 x_2 - q_2 x_1 + F_1 b_2 - F_2 b_1) + c^2 (q_1 b_2 - q_2 b_1) = 0,

K equations in c and its square, or in c alone where biases do not decay. Pairs of one step say the same c,
and all others none. Rows with the same p are one step's then.

What it assumes: three factors or more beside the biases, rows exact or in single precision, and decay of
what a step is about: where a program shrinks all items at every step, rows of several steps have a c each.

Rows may come in another order than that of the steps (sorted by item, say). They tell the factors p that they
were made with, but for one number, and from there

    p_k+1 - p_k = t sum g q - d p_k,

the sum over the rows of step k, has two numbers, t and d, in K equations: of all pairs of steps only those
that follow each other have nothing but rounding left. They tell both numbers, and these each step's next one.
The same backwards is that of rows about the factor after the step in place of before it, which only ratings
tell.

What it assumes: four factors or more beside the biases, where the order is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from attacks.closed_form.biases.error_column import Law
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.uploads.pull_of_steps import FEWEST, ROWS, pull_of_hidden_steps
from attacks.closed_form.uploads.readings import Rows, some_of

FOLLOWED = 6  # steps that have to be followed by another one
MOST = 0.75  # of a client's steps that have to be
STEPS = 64  # of a client that is asked, at most: each pair of them is tried
WIDTH = 4  # factors, so that a pair of steps is told from any other


class Steps(NamedTuple):
    """With which factors a client made its rows, and what pushed it on from there."""

    factor: Float[np.ndarray, "n K"]  # p, and the sum of g q; in any order
    push: Float[np.ndarray, "n K"]  # p, and the sum of g q; in any order


class Numbers(NamedTuple):
    """What is left of the factor at each step, 1 - d, and t."""

    kept: float
    rate: float


def numbers_in_order(clients: list[Steps], precision: float) -> Numbers | None:
    """Fit both numbers to steps that come in their order."""
    both = [
        (one.factor[1:], one.factor[:-1], one.push[:-1]) for one in clients if np.isfinite(one.factor).all()
    ]
    if sum(len(now) for now, _, _ in both) < FOLLOWED:
        return None
    now, before, push = (np.concatenate(part) for part in zip(*both, strict=True))
    table = np.stack([before.ravel(), push.ravel()], axis=1)
    (kept, rate), *_ = np.linalg.lstsq(table, now.ravel(), rcond=None)
    left = np.linalg.norm(now - kept * before - rate * push)
    return (
        Numbers(float(kept), float(rate))
        if left <= precision**BARS.half * np.linalg.norm(now - before)
        else None
    )


def numbers_of(clients: list[Steps], precision: float, after: bool) -> Numbers | None:
    """Find both numbers by pairs of steps that have no rest, in whatever order they come."""
    if not clients or clients[0].factor.shape[1] < WIDTH:
        return None
    usable = [one for one in clients if 1 < len(one.factor) <= STEPS and np.isfinite(one.factor).all()]
    told = np.concatenate([np.zeros((0, 2)), *(_numbers_of_pairs(one, precision, after) for one in usable)])
    if len(told) < max(FOLLOWED, MOST * sum(len(one.factor) - 1 for one in usable)):
        return None
    return Numbers(*np.median(told, axis=0).tolist())


def _numbers_of_pairs(steps: Steps, precision: float, after: bool) -> Float[np.ndarray, "pairs 2"]:
    """Both numbers of each pair of steps that may follow each other."""
    first, second = np.nonzero(~np.eye(len(steps.factor), dtype=bool))
    table = np.stack([steps.factor[first], steps.push[second if after else first]], axis=2)
    numbers = np.matmul(np.linalg.pinv(table), steps.factor[second][..., None])
    left = np.linalg.norm(steps.factor[second] - np.matmul(table, numbers)[..., 0], axis=1)
    length = np.linalg.norm(steps.factor[second] - steps.factor[first], axis=1)
    return numbers[left <= precision**BARS.half * length, :, 0]


def order_of(steps: Steps, numbers: Numbers, after: bool) -> Int[np.ndarray, " n"] | None:
    """Number one client's steps in their order."""
    n = len(steps.factor)
    if n == 1:
        return np.zeros(1, int)
    if not np.isfinite(steps.factor).all():
        return None
    # a row about the factor after its step is what its own push has led to
    before = steps.factor - numbers.rate * steps.push if after else steps.factor
    led = numbers.kept * steps.factor if after else numbers.kept * steps.factor + numbers.rate * steps.push
    away, follower = cKDTree(before).query(led)
    last = int(np.argmax(away))
    starts = np.setdiff1d(np.arange(n), np.delete(follower, last))
    place = np.full(n, -1)
    at = int(starts[0])
    for step in range(n):
        if place[at] >= 0:
            return None
        place[at] = step
        at = int(follower[at])
    return place


EQUAL = 0.75  # of the digits, to which factors of one step are equal: a short step moves them by few
ALIKE = 0.9  # of the pairs of rows of one step, that say one pull
SAME = 1e-3  # relative, to which they do


class Placed(NamedTuple):
    """Under what law rows were made, and at which step."""

    law: Law
    place: Int[np.ndarray, "users rows"]  # -1 where it is not told


def placed(rows: Rows, column: int, asked: Rows) -> Iterator[Placed]:
    """Find laws under which rows were made in steps, of whatever size and in whatever order."""
    if rows.rows.shape[2] < 4:
        return
    for (pull, biases), after in product(_pulls(asked, column), (False, True)):
        law = Law(pull, 0.0, 0.0, biases, after, 0.0)
        groups = [_groups(_one(asked, user, column), law, asked.precision) for user in range(len(asked.rows))]
        steps = [one.steps for one in groups]
        if all(len(one.factor) == 1 for one in steps):
            if not after:
                yield Placed(law, np.where(rows.item, 0, -1))
            continue
        seen = None if after else numbers_in_order(steps, asked.precision)
        numbers = seen or numbers_of(steps, asked.precision, after)
        if numbers is not None:
            law = law._replace(decay=1 - numbers.kept, rate=numbers.rate)
            yield Placed(law, _placed(rows, column, law, None if seen else numbers))


class _One(NamedTuple):
    """One client's rows, in the order in which they were sent."""

    row: Float[np.ndarray, "n K"]
    error: Float[np.ndarray, " n"]
    factor: Float[np.ndarray, "n K"]
    bias: Float[np.ndarray, " n"]
    at: Int[np.ndarray, " n"]


def _one(rows: Rows, user: int, column: int) -> _One:
    at = np.flatnonzero(rows.item[user])
    if rows.sequence is not None:
        at = at[np.argsort(rows.sequence[user, at], kind="stable")]
    row, factor = rows.rows[user, at], rows.factors[user, at].astype(float)
    return _One(
        np.delete(row, column, axis=1),
        row[:, column],
        np.delete(factor, column, axis=1),
        factor[:, column],
        at,
    )


def _pulls(asked: Rows, column: int) -> list[tuple[float, bool]]:
    """Multiples of their factors that rows may hold, and whether biases have them, too."""
    clients = [_one(asked, user, column) for user in range(len(asked.rows))]
    out = [(0.0, False)] if _share_steps(clients, asked.precision) else []
    for biases in (True, False):
        told = np.concatenate([_of_pairs(one, biases, asked.precision) for one in clients])
        if len(told) >= FEWEST:
            middle = float(np.median(told))
            if middle and (np.abs(told - middle) <= SAME * abs(middle)).mean() >= ALIKE:
                out.append((middle, biases))
    if out:
        return out
    # a step after every rating, which no row shares; of rows that are left out others may be the next ones
    few = asked.item.sum(axis=1) <= ROWS
    if few.any():
        asked = some_of(asked, few)
    alone = {name: np.delete(getattr(asked, name), column, axis=2) for name in ("rows", "factors")}
    pull = pull_of_hidden_steps(asked._replace(**alone))
    return [(0.0, False)] if pull is None else [(-pull, True), (-pull, False)]


def _pairs_of(one: _One) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    return np.triu_indices(min(len(one.row), ROWS), 1)


def _crossed(one: _One) -> tuple[np.ndarray, ...]:
    """What does not depend on c, what it multiplies with biases and without, its square, and sizes."""
    i, j = _pairs_of(one)
    x, b = one.error[:, None], one.bias[:, None]
    free = one.row[i] * x[j] - one.row[j] * x[i]
    alone = one.factor[i] * x[j] - one.factor[j] * x[i]
    mixed = one.row[i] * b[j] - one.row[j] * b[i]
    square = one.factor[i] * b[j] - one.factor[j] * b[i]
    size = np.linalg.norm(one.row[i] * x[j], axis=1) + np.linalg.norm(one.row[j] * x[i], axis=1)
    return free, alone + mixed, alone, square, size


def _share_steps(clients: list[_One], precision: float) -> bool:
    """Whether pairs of rows are parallel as they are."""
    parallel = 0
    for one in clients:
        free, *_, size = _crossed(one)
        parallel += int((np.linalg.norm(free, axis=1) <= precision**BARS.half * size).sum())
    return parallel >= FEWEST


def _of_pairs(one: _One, biases: bool, precision: float) -> Float[np.ndarray, " told"]:
    """The c of each pair of rows that may be of one step."""
    free, with_biases, alone, square, size = _crossed(one)
    table = np.stack([with_biases, square], axis=2) if biases else alone[..., None]
    if not len(table) or not np.isfinite(table).all():
        return np.zeros(0)
    numbers = -np.matmul(np.linalg.pinv(table), free[..., None])
    left = np.linalg.norm(free + np.matmul(table, numbers)[..., 0], axis=1)
    moved = np.linalg.norm(free, axis=1) > precision**BARS.half * size
    return numbers[moved & (left <= precision**BARS.half * size), 0, 0]


class _Groups(NamedTuple):
    """Steps of a client, and which of them made each of its rows."""

    steps: Steps
    of: Int[np.ndarray, " n"]


def _groups(one: _One, law: Law, precision: float) -> _Groups:
    """Rows with the same factor, in the order of the first of them."""
    g = one.error + law.pull * law.biases_decay * one.bias
    with np.errstate(divide="ignore", invalid="ignore"):
        p = (one.row + law.pull * one.factor) / g[:, None]
    if not len(p) or not np.isfinite(p).all():
        return _Groups(
            Steps(np.full((1, one.row.shape[1]), np.nan), np.zeros((1, one.row.shape[1]))), one.at * 0
        )
    near = precision**EQUAL * float(np.median(np.linalg.norm(p, axis=1)))
    pairs = cKDTree(p).query_pairs(near, output_type="ndarray")
    graph = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(p), len(p)))
    n, label = connected_components(graph, directed=False)
    _, first = np.unique(label, return_index=True)
    rank = np.empty(n, int)
    rank[np.argsort(first)] = np.arange(n)
    of = rank[label]
    weight, factor, push = np.zeros(n), np.zeros((n, p.shape[1])), np.zeros((n, p.shape[1]))
    np.add.at(weight, of, np.abs(g))
    np.add.at(factor, of, np.abs(g)[:, None] * p)
    np.add.at(push, of, g[:, None] * one.factor)
    return _Groups(Steps(factor / weight[:, None], push), of)


def _placed(rows: Rows, column: int, law: Law, hidden: Numbers | None) -> Int[np.ndarray, "users rows"]:
    """The number of the step that made each row; in the order of the rows, or that which numbers tell."""
    place = np.full(rows.item.shape, -1)
    for user in range(len(place)):
        one = _one(rows, user, column)
        if not one.at.size:
            continue
        groups = _groups(one, law, rows.precision)
        order = np.arange(len(groups.steps.factor))
        told = order if hidden is None else order_of(groups.steps, hidden, law.after)
        if told is not None:
            place[user, one.at] = told[groups.of]
    return place
