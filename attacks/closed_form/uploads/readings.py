"""What is known of one round's rows, and what is read of them, client by client."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.transcript.manifest import Manifest


class Rows(NamedTuple):
    """One round of some clients.

    Attributes
    ----------
    rows, factors : (users, rows, K)
        0 off the items; rows divided by ``scale``.
    offset : (users, rows)
        Biases that are known, in stars.
    item : (users, rows) bool
    scale : (users,)
        What the rows were divided by; NaN where it is not known, and they were not.
    precision : float
        Relative size of the rows' last digit.
    sequence : (users, rows) or None
        The order in which clients sent their rows, where it is seen.
    """

    rows: Float[np.ndarray, "users rows K"]
    factors: Float[np.ndarray, "users rows K"]
    offset: Float[np.ndarray, "users rows"]
    item: Bool[np.ndarray, "users rows"]
    scale: Float[np.ndarray, " users"]
    precision: float
    sequence: Int[np.ndarray, "users rows"] | None


class Reading(NamedTuple):
    """What is read of some clients in one round: r = A scalar + B along + offset + C.

    Attributes
    ----------
    value : (users, rows)
        Ratings in stars; NaN where not told.
    misfit, allowed : (users,)
        NaN where there is no answer; the largest misfit at which a client is answered.
    declared : (users,) bool
        Whether a scale that is known was enough.
    steps : (users,)
        Of the client inside the round; NaN where they are not told.
    pull : (users,)
        What was taken off the rows, as a multiple of their factors.
    of_error, of_factor, own_bias : (users,)
        A, B and C.
    plain : (users,) bool
        Whether the answer asks for nothing but ratings as they are, less one number or none.
    spanned : (users,) bool
        Whether ratings are the integers in a span of what rows tell, so that a factor of all is open; so
        are those of whom steps are not told.
    """

    value: Float[np.ndarray, "users rows"]
    misfit: Float[np.ndarray, " users"]
    allowed: Float[np.ndarray, " users"]
    declared: Bool[np.ndarray, " users"]
    steps: Float[np.ndarray, " users"]
    pull: Float[np.ndarray, " users"]
    of_error: Float[np.ndarray, " users"]
    of_factor: Float[np.ndarray, " users"]
    own_bias: Float[np.ndarray, " users"]
    plain: Bool[np.ndarray, " users"]
    spanned: Bool[np.ndarray, " users"]

    @property
    def answered(self) -> Bool[np.ndarray, " users"]:
        """Whose answer fits well enough; nobody's where nothing can be judged, and 0 is allowed."""
        return self.misfit < self.allowed


class Numbers(NamedTuple):
    """What the rows say up to A and B.

    Attributes
    ----------
    scalar, along : (users, rows)
        g and h.
    there : (users, rows) bool
        Which of them count.
    whole : (users,) bool
        Whose rows are all among them.
    steps, pull : (users,)
        As of ``Reading``.
    across : (users,)
        How much of the rows is across their common direction.
    """

    scalar: Float[np.ndarray, "users rows"]
    along: Float[np.ndarray, "users rows"]
    there: Bool[np.ndarray, "users rows"]
    whole: Bool[np.ndarray, " users"]
    steps: Float[np.ndarray, " users"]
    pull: Float[np.ndarray, " users"]
    across: Float[np.ndarray, " users"]


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
    plain: Bool[np.ndarray, " users"] | bool | None = None,
    spanned: Bool[np.ndarray, " users"] | bool = False,
) -> Reading:
    """Make a reading of what is told; a single number holds for all clients.

    Parameters
    ----------
    value : (users, rows)
    misfit, allowed, declared, steps, pull, of_error, of_factor, own_bias, spanned : (users,), or one number
        As of ``Reading``.
    plain : (users,) bool, or bool, optional
        Whose A is told and C is 0 by default.

    Returns
    -------
    Reading

    Examples
    --------
    >>> found = reading_of(np.array([[3.0, 4.0], [np.nan, np.nan]]), np.array([0.0, np.nan]), 0.1)
    >>> found.answered.tolist(), found.pull.tolist()
    ([True, False], [0.0, 0.0])
    """
    if plain is None:
        plain = np.isfinite(of_error) & (np.asarray(own_bias) == 0)
    each = (misfit, allowed, declared, steps, pull, of_error, of_factor, own_bias, plain, spanned)
    return Reading(value, *(np.array(np.broadcast_to(part, len(value))) for part in each))


def nothing(shape: tuple[int, int]) -> Reading:
    """Make the reading of clients of whom nothing is told.

    Parameters
    ----------
    shape : (users, rows)

    Returns
    -------
    Reading
        With no answer.
    """
    return reading_of(np.full(shape, np.nan), np.nan, 0.0, steps=0.0)


def some_of(rows: Rows, here: Bool[np.ndarray, " users"] | Int[np.ndarray, " some"]) -> Rows:
    """Take the rows of some clients.

    Parameters
    ----------
    rows : Rows
        Of all clients.
    here : (users,) bool, or (some,) int
        Whose rows are taken, by mask or place.

    Returns
    -------
    Rows
        Of those clients, in their order.
    """
    arrays = (rows.rows[here], rows.factors[here], rows.offset[here], rows.item[here], rows.scale[here])
    return Rows(*arrays, rows.precision, None if rows.sequence is None else rows.sequence[here])


def spread_over(reading: Reading, here: Bool[np.ndarray, " users"]) -> Reading:
    """Put a reading of some clients among all; the others get NaN, 0 or False.

    Parameters
    ----------
    reading : Reading
        Of the clients that ``here`` marks, in their order.
    here : (users,) bool

    Returns
    -------
    Reading
        Of all clients.
    """
    out = []
    for part in reading:
        whole = np.zeros((here.size, *part.shape[1:]), part.dtype)
        if part.dtype == float:
            whole[...] = np.nan
        whole[here] = part
        out.append(whole)
    return Reading(*out)


def moved(rows: Rows) -> Rows:
    """Leave out rows of zeros: after several steps they say that an item took no part in them.

    Parameters
    ----------
    rows : Rows

    Returns
    -------
    Rows
    """
    return among(rows, rows.item & (rows.rows != 0).any(axis=2))


def among(rows: Rows, item: Bool[np.ndarray, "users rows"]) -> Rows:
    """Leave out rows: they become padding.

    Parameters
    ----------
    rows : Rows
    item : (users, rows) bool
        Which stay.

    Returns
    -------
    Rows
    """
    return rows._replace(
        rows=rows.rows * item[..., None],
        factors=rows.factors * item[..., None],
        offset=rows.offset * item,
        item=item,
    )


def narrowed(rows: Rows, width: int) -> Rows:
    """Leave off padding.

    Parameters
    ----------
    rows : Rows
    width : int
        Rows of a client that are kept, the first ones.

    Returns
    -------
    Rows
    """
    return rows._replace(
        rows=rows.rows[:, :width],
        factors=rows.factors[:, :width],
        offset=rows.offset[:, :width],
        item=rows.item[:, :width],
        sequence=None if rows.sequence is None else rows.sequence[:, :width],
    )


def fits_better(first: Reading, second: Reading) -> Bool[np.ndarray, " users"]:
    """Whose second answer fits better than the first, or is the only one.

    Parameters
    ----------
    first, second : Reading
        Of the same clients.

    Returns
    -------
    (n_users,)
    """
    return second.answered & ~(first.answered & (first.misfit <= second.misfit))


def fitting_better(
    first: Reading, second: Reading, preferred: Bool[np.ndarray, " users"] | bool = False
) -> Reading:
    """Take client by client the answer that fits better; the first where neither does.

    Parameters
    ----------
    first, second : Reading
        Of the same clients.
    preferred : (users,) bool, or bool
        Where the second is taken whatever the fit.

    Returns
    -------
    Reading
    """
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

    Parameters
    ----------
    best : Reading
        Of all clients, so far.
    reading : callable
        From rows, manifest and ``max_misfit`` to another reading.
    rest : (users,) bool
        Clients that are read again.
    rows : Rows
        Of all clients.
    manifest : Manifest
    max_misfit : float
        In 0..1, relative to chance.

    Returns
    -------
    Reading
        Of all clients.
    """
    if not rest.any():
        return best
    some = spread_over(reading(some_of(rows, rest), manifest, max_misfit), rest)
    return fitting_better(best, some, np.nan_to_num(some.pull) != 0)
