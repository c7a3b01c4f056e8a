"""In which order a client went through its ratings, where a column of its rows holds their errors.

For ``attacks.closed_form.biases.error_column``, where rows come in another order than that of the steps
(sorted by item, say). Rows tell the factors p that they were made with, but for one number c, which
``attacks.closed_form.uploads.pull_of_steps`` finds without an order. From there

    p_k+1 - p_k = t g_k q_k - d p_k

has two numbers, t and d, in K equations: of all pairs of rows only those that follow each other have nothing
but rounding left. They tell both numbers, and these every row's next one.

What it assumes: as ``error_column``, four factors or more beside the biases.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from attacks.closed_form.fit.credible import HALF
from attacks.closed_form.uploads.pull_of_steps import ROWS, pull_of_hidden_steps
from attacks.closed_form.uploads.readings import Rows

FEWEST = 12  # rows that have to be followed by another one
MOST = 0.75  # of a client's rows that have to be
WIDTH = 4  # factors, so that a pair of rows is told from any other


def orders_of(rows: Rows, column: int, asked: Rows) -> list[Rows]:
    """Put rows into the order of their steps.

    Parameters
    ----------
    rows : Rows
        Of all clients; nothing has been taken off.
    column : int
        That holds the errors.
    asked : Rows
        Of a few clients who tell the numbers.

    Returns
    -------
    list of Rows
        With an order as their ``sequence``, without the rows of clients who tell none. The same backwards is
        that of other rows, about the factor after the step in place of before it: only ratings tell which.
    """
    if rows.rows.shape[2] <= WIDTH:
        return []
    alone = {name: np.delete(getattr(asked, name), column, axis=2) for name in ("rows", "factors")}
    pull = pull_of_hidden_steps(asked._replace(**alone))
    out = []
    for biases, after in product((True, False) if pull else (False,), (False, True)):
        law = (0.0 if pull is None else -pull, biases, after)
        made = [_made(asked, user, column, *law) for user in range(len(asked.rows))]
        numbers = _numbers(made, asked.precision)
        if numbers is not None:
            out.append(_with_order(rows, column, law, numbers))
    return out


class _Made(NamedTuple):
    """With which factors a client made its rows (n, K), and what pushed it on from there, or to there."""

    factor: Float[np.ndarray, "n K"]
    push: Float[np.ndarray, "n K"]
    after: bool


def _made(rows: Rows, user: int, column: int, pull: float, biases: bool, after: bool) -> _Made:
    """What one client's rows say under a pull."""
    here = rows.item[user]
    row, factor = (np.delete(part[user, here], column, axis=1) for part in (rows.rows, rows.factors))
    error = rows.rows[user, here, column] + biases * pull * rows.factors[user, here, column]
    with np.errstate(divide="ignore", invalid="ignore"):
        return _Made((row + pull * factor) / error[:, None], error[:, None] * factor, after)


def _numbers(clients: list[_Made], precision: float) -> tuple[float, float] | None:
    """What is left of the factor at each step, and what multiplies a push, by pairs that have no rest."""
    found = [_of_pairs(one, precision) for one in clients]
    told = np.concatenate(found) if found else np.zeros((0, 2))
    n_rows = sum(len(one.factor) for one in clients)
    if len(told) < max(FEWEST, MOST * (n_rows - len(clients))):
        return None
    kept, rate = np.median(told, axis=0).tolist()
    return kept, rate


def _of_pairs(made: _Made, precision: float) -> Float[np.ndarray, "pairs 2"]:
    """Both numbers of each pair of rows that may follow each other."""
    n = len(made.factor)
    if n < 2 or n > ROWS or not np.isfinite(made.factor).all():
        return np.zeros((0, 2))
    first, second = np.nonzero(~np.eye(n, dtype=bool))
    push = made.push[second if made.after else first]
    table = np.stack([made.factor[first], push], axis=2)
    numbers = np.matmul(np.linalg.pinv(table), made.factor[second][..., None])
    left = np.linalg.norm(made.factor[second] - np.matmul(table, numbers)[..., 0], axis=1)
    step = np.linalg.norm(made.factor[second] - made.factor[first], axis=1)
    return numbers[left <= precision**HALF * step, :, 0]


def _with_order(rows: Rows, column: int, law: tuple[float, bool, bool], numbers: tuple[float, float]) -> Rows:
    """Rows of the clients whose rows all follow each other, in their order."""
    sequence, item = np.zeros(rows.item.shape, int), rows.item.copy()
    for user in range(len(item)):
        here = np.flatnonzero(item[user])
        order = _order(_made(rows, user, column, *law), *numbers)
        item[user, here] = order is not None
        sequence[user, here] = np.arange(here.size) if order is None else order
    return rows._replace(sequence=sequence, item=item)


def _order(made: _Made, kept: float, rate: float) -> Int[np.ndarray, " n"] | None:
    """Places of a client's rows among its steps; None where they are no chain."""
    n = len(made.factor)
    if n < 2 or not np.isfinite(made.factor).all():
        return np.arange(n) if n == 1 else None
    next_ = kept * made.factor
    # a row about the factor after its step is what its own push has led to
    before = made.factor - rate * made.push if made.after else made.factor
    next_ = next_ if made.after else next_ + rate * made.push
    away, after = cKDTree(before).query(next_)
    last = int(np.argmax(away))
    place = np.full(n, -1)
    at = int(np.setdiff1d(np.arange(n), np.delete(after, last), assume_unique=False)[0])
    for step in range(n):
        if place[at] >= 0:
            return None
        place[at] = step
        at = int(after[at])
    return place
