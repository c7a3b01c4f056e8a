"""What is known of one round's rows, and what is read of them, client by client."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.transcript.manifest import Manifest


class Rows(NamedTuple):
    """One round of some clients."""

    rows: Float[np.ndarray, "users rows K"]  # 0 off the items; rows divided by ``scale``
    factors: Float[np.ndarray, "users rows K"]  # 0 off the items; rows divided by ``scale``
    offset: Float[np.ndarray, "users rows"]  # biases that are known, in stars
    item: Bool[np.ndarray, "users rows"]
    # what the rows were divided by; NaN where it is not known, and they were not
    scale: Float[np.ndarray, " users"]
    precision: float  # relative size of the rows' last digit
    # the order in which clients sent their rows, where it is seen
    sequence: Int[np.ndarray, "users rows"] | None


class Reading(NamedTuple):
    """What is read of some clients in one round: r = A scalar + B along + offset + C."""

    value: Float[np.ndarray, "users rows"]  # ratings in stars; NaN where not told
    # naN where there is no answer; the largest misfit at which a client is answered
    misfit: Float[np.ndarray, " users"]
    # naN where there is no answer; the largest misfit at which a client is answered
    allowed: Float[np.ndarray, " users"]
    declared: Bool[np.ndarray, " users"]  # whether a scale that is known was enough
    steps: Float[np.ndarray, " users"]  # of the client inside the round; NaN where they are not told
    pull: Float[np.ndarray, " users"]  # what was taken off the rows, as a multiple of their factors
    of_error: Float[np.ndarray, " users"]  # A, B and C
    of_factor: Float[np.ndarray, " users"]  # A, B and C
    own_bias: Float[np.ndarray, " users"]  # A, B and C
    # whether ratings are the integers in a span of what rows tell, so that a factor of all is open; so are
    # those of whom steps are not told
    spanned: Bool[np.ndarray, " users"]

    @property
    def answered(self) -> Bool[np.ndarray, " users"]:
        """Whose answer fits well enough; nobody's where nothing can be judged, and 0 is allowed."""
        return self.misfit < self.allowed

    @property
    def plain(self) -> Bool[np.ndarray, " users"]:
        """Whose answer asks for nothing but ratings as they are, less one number or none."""
        return np.isfinite(self.of_error) & (self.own_bias == 0)


class Numbers(NamedTuple):
    """What the rows say up to A and B."""

    scalar: Float[np.ndarray, "users rows"]  # g and h
    along: Float[np.ndarray, "users rows"]  # g and h
    there: Bool[np.ndarray, "users rows"]  # which of them count
    whole: Bool[np.ndarray, " users"]  # whose rows are all among them
    steps: Float[np.ndarray, " users"]  # as of ``Reading``
    pull: Float[np.ndarray, " users"]  # as of ``Reading``
    across: Float[np.ndarray, " users"]  # how much of the rows is across their common direction


def reading_of(
    value: Float[np.ndarray, "users rows"],
    misfit: Float[np.ndarray, " users"] | float,
    allowed: Float[np.ndarray, " users"] | float,
    *,
    declared: Bool[np.ndarray, " users"] | bool = False,
    steps: Float[np.ndarray, " users"] | float = np.nan,
    pull: Float[np.ndarray, " users"] | float = 0.0,
    of_error: Float[np.ndarray, " users"] | float = np.nan,
    of_factor: Float[np.ndarray, " users"] | float = np.nan,
    own_bias: Float[np.ndarray, " users"] | float = 0.0,
    spanned: Bool[np.ndarray, " users"] | bool = False,
) -> Reading:
    """Make a reading of what is told; a single number holds for all clients.

    Examples
    --------
    >>> found = reading_of(np.array([[3.0, 4.0], [np.nan, np.nan]]), np.array([0.0, np.nan]), 0.1)
    >>> found.answered.tolist(), found.pull.tolist()
    ([True, False], [0.0, 0.0])
    """
    each = (misfit, allowed, declared, steps, pull, of_error, of_factor, own_bias, spanned)
    return Reading(value, *(np.array(np.broadcast_to(part, len(value))) for part in each))


def nothing(shape: tuple[int, int]) -> Reading:
    """Make the reading of clients of whom nothing is told."""
    return reading_of(np.full(shape, np.nan), np.nan, 0.0, steps=0.0)


def some_of(rows: Rows, here: Bool[np.ndarray, " users"] | Int[np.ndarray, " some"]) -> Rows:
    """Take the rows of some clients."""
    arrays = (rows.rows[here], rows.factors[here], rows.offset[here], rows.item[here], rows.scale[here])
    return Rows(*arrays, rows.precision, None if rows.sequence is None else rows.sequence[here])


def spread_over(reading: Reading, here: Bool[np.ndarray, " users"]) -> Reading:
    """Put a reading of some clients among all; the others get NaN, 0 or False."""
    out = []
    for part in reading:
        whole = np.zeros((here.size, *part.shape[1:]), part.dtype)
        if part.dtype == float:
            whole[...] = np.nan
        whole[here] = part
        out.append(whole)
    return Reading(*out)


def moved(rows: Rows) -> Rows:
    """Leave out rows of zeros: after several steps they say that an item took no part in them."""
    return among(rows, rows.item & (rows.rows != 0).any(axis=2))


def among(rows: Rows, item: Bool[np.ndarray, "users rows"]) -> Rows:
    """Leave out rows: they become padding."""
    return rows._replace(
        rows=rows.rows * item[..., None],
        factors=rows.factors * item[..., None],
        offset=rows.offset * item,
        item=item,
    )


def narrowed(rows: Rows, width: int) -> Rows:
    """Leave off padding."""
    return rows._replace(
        rows=rows.rows[:, :width],
        factors=rows.factors[:, :width],
        offset=rows.offset[:, :width],
        item=rows.item[:, :width],
        sequence=None if rows.sequence is None else rows.sequence[:, :width],
    )


def fits_better(first: Reading, second: Reading) -> Bool[np.ndarray, " users"]:
    """Whose second answer fits better than the first, or is the only one."""
    return second.answered & ~(first.answered & (first.misfit <= second.misfit))


def fitting_better(
    first: Reading, second: Reading, preferred: Bool[np.ndarray, " users"] | bool = False
) -> Reading:
    """Take client by client the answer that fits better; the first where neither does."""
    better = preferred | fits_better(first, second)
    table = np.where(better[:, None], second.value, first.value)
    rest = (np.where(better, right, left) for left, right in zip(first[1:], second[1:], strict=True))
    return Reading(table, *rest)


def on_the_rest(
    best: Reading,
    reading: Callable[[Rows, Manifest, float], Reading],
    rest: Bool[np.ndarray, " users"],
    rows: Rows,
    manifest: Manifest,
    max_misfit: float,
) -> Reading:
    """Another reading of some clients, where it fits better.

    What explains the rows across their direction is preferred, whether or not it has an answer then: along
    it, clipped rows that something was added to may meet the grid by accident.
    """
    if not rest.any():
        return best
    some = spread_over(reading(some_of(rows, rest), manifest, max_misfit), rest)
    return fitting_better(best, some, np.nan_to_num(some.pull) != 0)
