"""Several steps beside known biases of items, a bias of the client among what moves.

Of steps after every rating or minibatch nothing shrinks that bias, which moves with the factor
(``attacks.closed_form.chains.moving_bias``): ratings are read up to a shift, as those of one step
(``attacks.closed_form.centres.shifted``). Now for steps over all ratings.

What ``attacks.closed_form.numbers.integer_relation`` says of factors holds of biases: with b_j known, its
copy on the client and the client's own bias moving by any linear rule, rows are affine in an item's factor,
in 1, and in r_j - b_j,

    D = V A + (r - b) d' + 1 c',

so that r - b lies in the span of V, of 1 and of the one direction that D has outside these. Of two rows the 1
drops out: differences of ratings, integers times the step, lie in the span of differences of V, of b and of
that direction, K + 2 dimensions out of n - 1, and that of b has the factor 1, which tells their sign and
multiple. What is open is the shift of all by whole levels, which the client's bias takes up.

What it assumes: as there, with about two ratings more.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.centres.shifted import Shifted, on_steps, one_sided, read_shifted, told_alone
from attacks.closed_form.chains.moving_bias import with_moving_bias
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.numbers.integer_relation import (
    COARSEST,
    LOOSE,
    integers_in_columns,
    precision_of,
    span_of,
)
from attacks.closed_form.uploads.readings import Rows, some_of


def read_shifted_chain(rows: Rows, levels: np.ndarray) -> Shifted:
    """Read clients that step after every rating or minibatch, beside known biases of items."""
    users = len(rows.rows)
    told, above = np.zeros(users, bool), np.full(rows.item.shape, -1)
    distance = np.zeros(users)
    for numbers in with_moving_bias(rows):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = on_steps(numbers, rows, levels)
        new = found.told & ~told
        above[new], distance[new] = found.above[new], found.distance[new]
        told |= new
    return told_alone(above, told, distance, rows.rows.shape[2])


ONE = 1e-3  # within which biases have the factor 1
FEWEST = 4  # ratings of a client


def read_any_shifted(rows: Rows, levels: Float[np.ndarray, " levels"], *, pulled: bool = True) -> Shifted:
    """Read clients as one step, and who is not read as several over all ratings."""
    best = read_shifted(rows, levels, pulled=pulled)
    for reading in (read_shifted_span, read_shifted_chain):
        open_ = np.flatnonzero(~best.told)
        if open_.size:
            for column, part in zip(best, reading(some_of(rows, open_), levels), strict=True):
                column[open_] = part
    return best


def read_shifted_span(rows: Rows, levels: Float[np.ndarray, " levels"]) -> Shifted:
    """Read clients that took any number of steps over all their ratings."""
    n_users, _, width = rows.rows.shape
    above, told = np.full(rows.item.shape, -1), np.zeros(n_users, bool)
    limit = 2 * LOOSE * precision_of(rows.rows, rows.factors, rows.precision)
    sided = one_sided(rows.offset, rows.item, step_of(levels))
    able = sided & (limit < COARSEST) & (rows.item.sum(axis=1) >= FEWEST)
    for user in np.flatnonzero(able & np.isfinite(rows.rows).all(axis=(1, 2))):
        here = rows.item[user]
        sent, known, biases = (
            np.diff(part[user, here].astype(float), axis=0) for part in (rows.rows, rows.factors, rows.offset)
        )
        own = _steps(sent, known, biases, levels, float(limit[user]))
        if own is not None:
            above[user, here], told[user] = own, True
    return told_alone(above, told, np.zeros(n_users), width)


def _steps(
    rows: Float[np.ndarray, "n K"],
    factors: Float[np.ndarray, "n K"],
    biases: Float[np.ndarray, " n"],
    levels: Float[np.ndarray, " levels"],
    limit: float,
) -> Int[np.ndarray, " n_plus_1"] | None:
    """Steps above the client's lowest rating, by what each row differs from the one before."""
    span = span_of(rows, factors, biases)
    if not span.outside <= limit:
        return None
    found = integers_in_columns(span.basis, levels.size - 1, limit)
    if found is None:
        return None
    beyond = rows @ (rows.T @ span.basis[:, -1])  # the combination of the rows' columns that has r - b
    columns = np.concatenate([biases[:, None] / step_of(levels), factors, beyond[:, None]], axis=1)
    size = np.linalg.norm(columns, axis=0)
    per_bias = np.linalg.lstsq(columns / size, found, rcond=None)[0][0] / size[0]
    times = 1 / per_bias if abs(per_bias) > ONE else np.inf
    if not abs(times) < levels.size or abs(times - np.rint(times)) > ONE:
        return None
    steps = np.concatenate([[0], np.cumsum(np.rint(times) * found)]).astype(int)
    steps -= steps.min()
    return steps if 0 < steps.max() < levels.size else None
