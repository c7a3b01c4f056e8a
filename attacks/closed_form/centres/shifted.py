"""A bias of the client that nobody told, beside known biases of items: one step's ratings, up to a shift.

Programs after Koren predict mu + b_u + b_j + p . q_j. Where b_j is broadcast and the client keeps b_u, its
rows of one step over all ratings are e_j p, and with mu in b_u, or in b_j where it is told,

    r_j = A g_j + B h_j + C + b_j,

g the rows along the client's direction, h its factors (``attacks.closed_form.grid.rank_one``), C = mu + b_u.
Of a client with n ratings that are n equations in three real numbers and n levels. Known b_j that differ by
no half steps leave neither the mirror image of the ratings (``attacks.closed_form.centres.centred``) nor a
multiple of them: what is open is a shift of all of them by whole levels, which C takes up. It is told by both
ends of the grid, or from round to round (``attacks.closed_form.biases.bias_steps``).

Of steps after every rating or minibatch nothing shrinks that bias, which moves with the factor
(``attacks.closed_form.chains.moving_bias``): ratings are read up to a shift, as those of one step.

Of steps over all ratings ``attacks.closed_form.numbers.integer_relation`` says the same of biases: with b_j
known, its copy on the client and the client's own bias moving by any linear rule, rows are affine in an
item's factor, in 1, and in r_j - b_j,

    D = V A + (r - b) d' + 1 c',

so that r - b lies in the span of V, of 1 and of the one direction that D has outside these. Of two rows the 1
drops out: differences of ratings, integers times the step, lie in the span of differences of V, of b and of
that direction, K + 2 dimensions out of n - 1, and that of b has the factor 1, which tells their sign and
multiple. What is open is the shift of all by whole levels, which the client's bias takes up.

What it assumes: an even grid, rows exact or in single precision, four ratings or more (about seven in single
precision), and three different b_j or more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.centres.centred import fitted, spread_of
from attacks.closed_form.chains.chain_readings import LEAST, TELLING
from attacks.closed_form.chains.moving_bias import with_moving_bias
from attacks.closed_form.fit.affine_grid import nearest_numbers
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.numbers.integer_relation import (
    COARSEST,
    LOOSE,
    integers_in_columns,
    precision_of,
    span_of,
)
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.readings import Numbers, Rows, some_of
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.closed_form.uploads.shared_pull import without_pull

ONE = 1e-3  # within which biases have the factor 1
FEWEST = 4  # ratings of a client that took several steps
ROUNDS = 2  # of fitting the levels that numbers name
DIFFERENT, APART = 3, 1e-3  # biases of a client's items, and by how much, of half a step, they must differ


class Shifted(NamedTuple):
    """What is read of some clients in one round, up to a shift by whole levels."""

    above: Int[np.ndarray, "users rows"]  # w: steps above the client's lowest rating; -1 where not told
    # C in stars, if the lowest rating is the lowest level: one step more for each that it is higher
    bias: Float[np.ndarray, " users"]
    pushed: Float[np.ndarray, " users"]  # sum of the errors, in stars
    factor: Float[np.ndarray, "users K"]  # the client's, and the sum of errors times factors of their items
    # the client's, and the sum of errors times factors of their items
    pushed_factor: Float[np.ndarray, "users K"]
    numbers: Float[np.ndarray, "users 2"]  # A and B
    pull: Float[np.ndarray, " users"]  # multiple of its factor that was taken off each row
    distance: Float[np.ndarray, " users"]  # from the steps, in the mean, in stars
    told: Bool[np.ndarray, " users"]


def read_shifted(
    rows: Rows,
    levels: Float[np.ndarray, " levels"],
    known: Int[np.ndarray, "users rows"] | None = None,
    *,
    pulled: bool = True,
) -> Shifted:
    """Read clients as one step, or as one with an unknown multiple of the factors in each row."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        best = on_steps(one_step(rows), rows, levels, known)
        if best.told.all() or not rows.rows.shape[1] or not pulled:
            return best
        clean, pull = without_pull(rows.rows, rows.factors, rows.item)
        freed = rows._replace(rows=clean)
        second = on_steps(one_step(freed)._replace(pull=pull), freed, levels, known)
    return Shifted(
        *(
            np.where(best.told.reshape(-1, *[1] * (first.ndim - 1)), first, other)
            for first, other in zip(best, second, strict=True)
        )
    )


def on_steps(
    numbers: Numbers,
    rows: Rows,
    levels: Float[np.ndarray, " levels"],
    known: Int[np.ndarray, "users rows"] | None = None,
) -> Shifted:
    """Find the numbers that put A g + B h + C + b on the steps of the grid, wherever these begin."""
    step, there = step_of(levels), numbers.there & numbers.whole[:, None]
    columns = np.stack([numbers.scalar, numbers.along, np.ones(there.shape)], axis=2) * there[..., None]
    offset = rows.offset * there
    count = there.sum(axis=1)
    if known is None:
        above = _nearest_steps(columns, offset, there, numbers.along, levels)
    else:
        above = np.where(there, known, 0)
    best = fitted(columns, step * above - offset)
    off = np.matmul(columns, best[..., None])[..., 0] + offset - step * above
    distance = np.where(there, np.abs(off), 0).sum(axis=1) / np.maximum(count, 1)
    a, b, c = best.T
    floor = PARALLEL * rows.precision * step
    # what meets the grid by accident: each row beyond three is as near with this probability
    nats = (count - 3) * np.log(step / (4 * np.maximum(distance, floor))) - 3 * np.log(levels.size)
    reach = above.max(axis=1, initial=0)
    told = numbers.whole & (nats >= BARS.evidence) & (reach > 0) & (reach < levels.size) & (a * b != 0)
    told &= (
        np.isfinite(distance)
        & (distance <= rows.precision**BARS.half * step)
        & one_sided(offset, there, step)
    )
    told &= np.abs(b) * spread_of(numbers.along, there) > np.maximum(distance / TELLING, LEAST * step)
    if known is not None:
        told &= (there == (known >= 0)).all(axis=1)
    error = a[:, None] * np.where(there, numbers.scalar, 0)
    return Shifted(
        np.where(there & told[:, None], above, -1),
        levels[0] + c,
        error.sum(axis=1),
        b[:, None] * leading_direction(rows.rows)[0],
        np.matmul(error[:, None], rows.factors)[:, 0],
        np.stack([a, b], axis=1),
        numbers.pull,
        distance,
        told,
    )


def told_alone(
    above: Int[np.ndarray, "users rows"],
    told: Bool[np.ndarray, " users"],
    distance: Float[np.ndarray, " users"],
    n_factors: int,
) -> Shifted:
    """What is read of clients of whom no bias, error or factor is known."""
    unknown = np.full(told.size, np.nan)
    wide = np.full((told.size, n_factors), np.nan)
    numbers = np.full((told.size, 2), np.nan)
    return Shifted(above, unknown, unknown, wide, wide, numbers, np.zeros(told.size), distance, told)


def _nearest_steps(
    columns: Float[np.ndarray, "users rows 3"],
    offset: Float[np.ndarray, "users rows"],
    there: Bool[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
) -> Int[np.ndarray, "users rows"]:
    """Steps above each client's lowest rating, by the numbers that are nearest to any; 0 where none are."""
    step = step_of(levels)
    few = nearest_numbers(columns, offset, there, levels)
    if not few.shape[1]:
        return np.zeros(there.shape, int)
    values = np.matmul(few, columns.transpose(0, 2, 1)) + offset[:, None]
    away = np.where(there[:, None], np.abs(values - step * np.rint(values / step)), 0).sum(axis=2)
    usable = np.isfinite(away) & (np.abs(few[..., 1]) * spread_of(along, there)[:, None] > LEAST * step)
    nearest = np.where(usable, away, np.inf).argmin(axis=1)
    best = np.nan_to_num(few[np.arange(len(few)), nearest])
    for _ in range(ROUNDS):
        steps = np.rint((np.matmul(columns, best[..., None])[..., 0] + offset) / step)
        best = fitted(columns, step * steps - offset)
    steps = np.rint((np.matmul(columns, best[..., None])[..., 0] + offset) / step).astype(int)
    lowest = np.where(there, steps, np.iinfo(int).max).min(axis=1, initial=np.iinfo(int).max)
    return np.where(there, steps - lowest[:, None], 0)


def one_sided(
    offset: Float[np.ndarray, "users rows"], there: Bool[np.ndarray, "users rows"], step: float
) -> Bool[np.ndarray, " users"]:
    """Whose items have biases that differ by no half steps, so that no mirror image is on the grid, too.

    Examples
    --------
    >>> one_sided(np.array([[0.1, 0.25, 3.9], [0.5, 1.0, 0.1]]), np.ones((2, 3), bool), 1.0)
    array([ True, False])
    """
    part = np.where(there, 2 * offset / step % 1, np.nan)
    out = np.zeros(len(offset), bool)
    for user in np.flatnonzero(there.sum(axis=1) >= DIFFERENT):
        own = np.sort(part[user, there[user]])
        gaps = np.diff(np.append(own, own[0] + 1))
        out[user] = (gaps > APART).sum() >= DIFFERENT
    return out


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
