"""What one round's rows can say of ratings under different ideas of what they are.

Every reading turns rows into r = A scalar + B along + offset, with one A and one B for all rows of a client,
which the rating grid then tells: with the declared scale (``attacks.closed_form.rating_grid``), or both for
unknown (``attacks.closed_form.affine_grid``). It says how well the answer fits, and how well it has to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.affine_grid import best_numbers
from attacks.closed_form.decoding import distance_to_levels
from attacks.closed_form.equal_factors import follow_equal
from attacks.closed_form.goodness_of_fit import accidental, misfit, step_of
from attacks.closed_form.integer_relation import ratings_in_span
from attacks.closed_form.moving_factor import PARALLEL, follow
from attacks.closed_form.rating_grid import RowNumbers, best_length
from attacks.closed_form.reduction import leading_direction
from attacks.closed_form.shared_pull import without_pull
from victims.transcript.manifest import Manifest

LONGEST = 3000  # rows of a client among which steps are looked for: planes take their number squared
SPREAD = 0.3  # of the rows' size, across their common direction: above it they have none
PARALLEL_ROWS = 1e-3  # the same, below which rows of equal factors are: they are parallel to the last digit
BETWEEN = 0.3  # of a step: rows that come out so far from any level are not answered
SATURATED = 1e-6  # relative, within which two rows are equally long
ACCIDENT = 1e-4  # probability that a client's rows about nothing are answered, reading by reading
TELLING = 0.2  # of how much predictions differ: an answer farther from the grid owes it to the errors alone
CLOSER = 10.0  # times better than with the declared scale a free one must fit to be preferred


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

    @property
    def answered(self) -> Bool[np.ndarray, " users"]:
        """Whose answer fits well enough."""
        return self.misfit <= self.allowed


class _Numbers(NamedTuple):
    """What the rows say up to A and B; which of them count; whose rows are all among them; steps, pull, and
    how much of the rows is across their common direction."""

    scalar: Float[np.ndarray, "users rows"]
    along: Float[np.ndarray, "users rows"]
    there: Bool[np.ndarray, "users rows"]
    whole: Bool[np.ndarray, " users"]
    steps: Float[np.ndarray, " users"]
    pull: Float[np.ndarray, " users"]
    across: Float[np.ndarray, " users"]


def best_reading(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read each client as what its rows fit best: one step or several, of one rating or of all.

    Parameters
    ----------
    rows : Rows
    manifest : Manifest
        Names the rating grid.
    max_misfit : float
        Largest misfit at which a client is answered.

    Returns
    -------
    Reading
    """
    if not rows.rows.shape[1]:  # nobody sent anything
        return _nothing(len(rows.rows))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        plain = _one_step(rows)
        best = _read(plain, rows, manifest, max_misfit)
        if rows.rows.shape[1] <= LONGEST:
            best = _fitting_better(_read(_steps(rows), rows, manifest, max_misfit), best)
        spread = (best.steps <= 1) & (plain.across > PARALLEL * rows.precision)
        best = _on_the_rest(best, _without_pull, ~best.answered | spread, rows, manifest, max_misfit)
        if rows.sequence is not None:
            for reading in (_equal_factors, _equal_factors_after):
                best = _on_the_rest(best, reading, ~best.answered, rows, manifest, max_misfit)
        best = _on_the_rest(best, _in_span, ~best.answered, rows, manifest, max_misfit)
        best = _on_the_rest(best, _with_bias, ~best.answered, rows, manifest, max_misfit)
    return best


def _nothing(n_users: int) -> Reading:
    none, unknown = np.zeros(n_users), np.full(n_users, np.nan)
    told = np.zeros(n_users, bool)
    return Reading(np.zeros((n_users, 0)), unknown, none, told, none, none, unknown, unknown, none)


def _on_the_rest(
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
    some = _spread(reading(_some(rows, rest), manifest, max_misfit), rest)
    return _fitting_better(best, some, np.nan_to_num(some.pull) != 0)


def _some(rows: Rows, here: Bool[np.ndarray, " users"]) -> Rows:
    arrays = (rows.rows[here], rows.factors[here], rows.offset[here], rows.item[here], rows.scale[here])
    return Rows(*arrays, rows.precision, None if rows.sequence is None else rows.sequence[here])


def _without_pull(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step, and the same unknown multiple of its factor in every row."""
    clean, pull = without_pull(rows.rows, rows.factors, rows.item)
    numbers = _one_step(rows._replace(rows=clean))._replace(pull=pull)
    return _read(numbers, rows, manifest, max_misfit)


def _with_bias(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step of a client with a bias of its own that nobody knows."""
    numbers = _one_step(rows)
    levels = np.array(manifest.rating_levels)
    counted = numbers.there & ~_saturated(numbers)
    judged, most = _with_unknown(numbers, rows, counted, levels, bias=True)
    return Reading(
        np.where(counted, _near(judged.value, levels), np.nan),
        np.where(numbers.whole, judged.misfit, np.nan),
        np.minimum(max_misfit, most),
        np.zeros(most.shape, bool),
        numbers.steps,
        numbers.pull,
        *judged.numbers,
    )


def _in_span(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Any number of steps over all ratings at once, whatever else is unknown of them."""
    levels = np.array(manifest.rating_levels)
    found = ratings_in_span(rows.rows, rows.factors, rows.offset, rows.item, levels, rows.precision)
    unknown = np.full(found.told.shape, np.nan)
    none = np.zeros(found.told.shape)
    return Reading(
        found.value,
        np.where(found.told, 0.0, np.nan),
        np.full(found.told.shape, max_misfit),
        np.zeros(found.told.shape, bool),
        unknown,
        none,
        unknown,
        unknown,
        none,
    )


def _equal_factors_after(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """The same of clients whose rows are about the factor after the step."""
    return _equal_factors(rows, manifest, max_misfit, after=True)


def _equal_factors(rows: Rows, manifest: Manifest, max_misfit: float, *, after: bool = False) -> Reading:
    """A step after every rating, of factors whose numbers are all equal."""
    numbers = _one_step(rows)
    levels = np.array(manifest.rating_levels)
    assert rows.sequence is not None
    able = (numbers.across < PARALLEL_ROWS) & ~np.isnan(rows.scale) & ~(rows.offset != 0).any(axis=1)
    counted = numbers.there & able[:, None]
    found = follow_equal(numbers.scalar, numbers.along, counted, rows.sequence, levels, after=after)
    size = counted.sum(axis=1)
    away = np.where(counted, distance_to_levels(np.nan_to_num(found.value), levels), 0).sum(axis=1)
    fit = away / np.maximum(size, 1) / (step_of(levels) / 4)
    unknown = np.full(size.shape, np.nan)
    return Reading(
        _near(found.value, levels),
        np.where(found.told & numbers.whole, fit, np.nan),
        np.minimum(max_misfit, accidental(size - 2, found.tried, ACCIDENT)),
        np.ones(size.shape, bool),
        size.astype(float),
        numbers.pull,
        unknown,
        unknown,
        np.zeros(size.shape),
    )


def _steps(rows: Rows) -> _Numbers:
    """The client's factor moved between the rows."""
    chain = follow(rows.rows, rows.factors, rows.item, rows.precision)
    there = rows.item & (chain.step >= 0)
    # a rating of a row that is in no chain, its error being 0, is not told
    whole = chain.whole | (there.sum(axis=1) == rows.item.sum(axis=1))
    steps = chain.n_steps.astype(float)
    return _Numbers(
        chain.scalar, chain.along, there, whole, steps, np.zeros(whole.size), np.zeros(whole.size)
    )


def _one_step(rows: Rows) -> _Numbers:
    """All rows are multiples of one direction, up to rounding."""
    direction, energy = leading_direction(rows.rows)
    scalar, along = (np.matmul(part, direction[:, :, None])[..., 0] for part in (rows.rows, rows.factors))
    off = rows.rows - scalar[..., None] * direction[:, None]
    across = np.linalg.norm(off, axis=(1, 2)) / np.sqrt(np.where(energy > 0, energy, 1))
    whole = (energy > 0) & (across < SPREAD)
    there = rows.item & whole[:, None] & np.isfinite(scalar + along)
    return _Numbers(
        np.where(there, scalar, 0.0),
        np.where(there, along, 0.0),
        there,
        whole,
        whole.astype(float),
        np.zeros(whole.size),
        across,
    )


def _saturated(numbers: _Numbers) -> Bool[np.ndarray, "users rows"]:
    """Rows that share the greatest length: clients that clip rows or errors make them so."""
    size = np.abs(numbers.scalar) * numbers.there
    largest = size.max(axis=1, initial=0)[:, None]
    top = numbers.there & (size >= (1 - SATURATED) * largest) & (largest > 0)
    return top & (top.sum(axis=1) > 1)[:, None]


def _read(numbers: _Numbers, rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """With the declared scale where that fits, else with an unknown one."""
    levels = np.array(manifest.rating_levels)
    clipped = _saturated(numbers)
    counted = numbers.there & ~clipped
    size = counted.sum(axis=1)
    plain = RowNumbers(numbers.scalar, numbers.along, np.ones(counted.shape, bool), counted)
    shifted = (rows.offset != 0).any(axis=1, where=rows.item)  # a grid of its own for every row
    shifted |= np.isnan(rows.scale)
    length = np.where(shifted, 0.0, best_length(manifest, plain))
    root = np.where(length > 0, length, np.nan)[:, None]
    told = _judged(numbers, (1 / root, root, np.zeros(root.shape)), rows.offset, counted, levels)
    free, most_free = _with_unknown(numbers, rows, counted, levels, bias=False)
    most = np.minimum(max_misfit, accidental(size - 1, 4 * levels.size, ACCIDENT))
    most_free = np.minimum(max_misfit, most_free)
    worse = (free.misfit <= most_free) & (told.misfit > CLOSER * free.misfit + SATURATED)
    declared = (told.misfit <= most) & ~worse
    value, error = (
        np.where(declared[:, None], left, right)
        for left, right in ((told.value, free.value), (told.error, free.error))
    )
    clipped &= ~_on_the_grid(value, clipped, counted, levels)
    value = np.where(clipped, _beyond(value, error, levels), _near(value, levels))
    fit = np.where(declared, told.misfit, free.misfit)
    return Reading(
        np.where(numbers.there, value, np.nan),
        np.where(numbers.whole, fit, np.nan),
        np.where(declared, most, most_free),
        declared,
        numbers.steps,
        numbers.pull,
        *(np.where(declared, left, right) for left, right in zip(told.numbers, free.numbers, strict=True)),
    )


def _with_unknown(
    numbers: _Numbers, rows: Rows, counted: np.ndarray, levels: np.ndarray, *, bias: bool
) -> tuple[_Judged, Float[np.ndarray, " users"]]:
    """With an unknown scale, and an unknown bias of the client; and the misfit that accidents reach."""
    columns = np.stack([numbers.scalar, numbers.along, np.ones(counted.shape)][: 3 if bias else 2], axis=2)
    found = best_numbers(columns, rows.offset, counted, levels)
    known = np.where(found.told[:, None], found.numbers, np.nan)
    if not bias:
        known = np.concatenate([known, np.zeros((len(known), 1))], axis=1)
    a, b, c = (part[:, None] for part in known.T)
    judged = _judged(numbers, (a, b, c), rows.offset, counted, levels)
    n = columns.shape[2]
    return judged, accidental(counted.sum(axis=1) - n, levels.size**n, ACCIDENT)


class _Judged(NamedTuple):
    """Ratings and errors with the sign that makes ratings positive, (users, rows); misfit, NaN where a number
    is not finite; A, B and C, (users,) each."""

    value: Float[np.ndarray, "users rows"]
    error: Float[np.ndarray, "users rows"]
    misfit: Float[np.ndarray, " users"]
    numbers: tuple[Float[np.ndarray, " users"], ...]


def _judged(
    numbers: _Numbers,
    found: tuple[Float[np.ndarray, "users 1"], ...],
    offset: np.ndarray,
    counted: np.ndarray,
    levels: np.ndarray,
) -> _Judged:
    a, b, c = found
    error, predicted = numbers.scalar * a, numbers.along * b
    shifted = (offset + c != 0).any(axis=1)
    turned = (np.sum(error + predicted, axis=1, where=counted) < 0) & ~shifted
    sign = np.where(turned, -1.0, 1.0)[:, None]
    error, predicted = error * sign, predicted * sign + offset + c
    away, _ = misfit(error, predicted, np.ones(counted.shape, bool), counted, levels, None)
    finite = np.isfinite(error + predicted).all(axis=1, where=counted) & counted.any(axis=1)
    finite &= _tells(error + predicted, numbers.along * b, counted, levels)
    told = tuple(part[:, 0] for part in (a * sign, b * sign, c))
    return _Judged(error + predicted, error, np.where(finite, away, np.nan), told)


def _tells(
    value: np.ndarray, predicted: np.ndarray, counted: np.ndarray, levels: np.ndarray
) -> Bool[np.ndarray, " users"]:
    """Whether predictions take part: errors clipped to one number lie on the grid without them."""
    n = np.maximum(counted.sum(axis=1), 1)
    away = (distance_to_levels(value, levels) * counted).sum(axis=1) / n
    middle = (predicted * counted).sum(axis=1) / n
    spread = (np.abs(predicted - middle[:, None]) * counted).sum(axis=1) / n
    return ((away <= TELLING * spread) & (spread > SATURATED)) | (counted.sum(axis=1) == 1)


def _near(value: np.ndarray, levels: np.ndarray) -> Float[np.ndarray, "users rows"]:
    """NaN for numbers between the levels."""
    return np.where(distance_to_levels(value, levels) < BETWEEN * step_of(levels), value, np.nan)


def _on_the_grid(
    value: np.ndarray, some: np.ndarray, counted: np.ndarray, levels: np.ndarray
) -> Bool[np.ndarray, "users 1"]:
    """Whether some rows are as near to the levels as those that counted: equally long, but not clipped."""
    away = distance_to_levels(value, levels)
    usual = (away * counted).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)
    limit = CLOSER * usual + SATURATED
    return (np.where(some, away, 0).max(axis=1, initial=0) <= limit)[:, None]


def _beyond(value: np.ndarray, error: np.ndarray, levels: np.ndarray) -> Float[np.ndarray, "users rows"]:
    """Where the error was clipped, the rating is at least so far away: the level, if that leaves only one."""
    slack = BETWEEN * step_of(levels)
    high = np.where((error > 0) & (value > levels[-2:][0] + slack), levels[-1], np.nan)
    return np.where((error < 0) & (value < levels[:2][-1] - slack), levels[0], high)


def _fitting_better(
    first: Reading, second: Reading, preferred: Bool[np.ndarray, " users"] | bool = False
) -> Reading:
    """Client by client the answer that fits better; the first where neither does."""
    better = preferred | second.answered & ~(first.answered & (first.misfit <= second.misfit))
    table = np.where(better[:, None], second.value, first.value)
    rest = (np.where(better, right, left) for left, right in zip(first[1:], second[1:], strict=True))
    return Reading(table, *rest)


def _spread(reading: Reading, here: Bool[np.ndarray, " users"]) -> Reading:
    """A reading of some clients among all; NaN for the others."""
    out = []
    for part in reading:
        whole = np.zeros((here.size, *part.shape[1:]), part.dtype)
        if part.dtype == float:
            whole[...] = np.nan
        whole[here] = part
        out.append(whole)
    return Reading(*out)
