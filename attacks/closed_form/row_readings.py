"""What one round's rows can say of ratings under different ideas of what they are.

Every reading turns rows into r = A scalar + B along + offset, with one A and one B for all rows of a client,
which the rating grid then tells (``attacks.closed_form.grid_reading``). It says how well the answer fits, and
how well it has to.
"""

from __future__ import annotations

import numpy as np

from attacks.closed_form.decoding import distance_to_levels
from attacks.closed_form.equal_factors import follow_equal
from attacks.closed_form.goodness_of_fit import accidental, step_of
from attacks.closed_form.grid_reading import ACCIDENT, near_levels, read, saturated, with_unknown
from attacks.closed_form.integer_relation import ratings_in_span
from attacks.closed_form.moving_factor import PARALLEL, follow
from attacks.closed_form.parallel_groups import by_group
from attacks.closed_form.readings import Numbers, Reading, Rows, fitting_better, moved, nothing, on_the_rest
from attacks.closed_form.reduction import leading_direction
from attacks.closed_form.shared_pull import without_pull
from attacks.closed_form.weighted_zeros import on_one_line
from victims.transcript.manifest import Manifest

__all__ = ["Rows", "best_reading", "in_span"]

LONGEST = 3000  # rows of a client among which steps are looked for: planes take their number squared
SPREAD = 0.3  # of the rows' size, across their common direction: above it they have none
PARALLEL_ROWS = 1e-3  # the same, below which rows of equal factors are: they are parallel to the last digit


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
        return nothing(len(rows.rows))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        plain = one_step(rows)
        best = read(plain, rows, manifest, max_misfit)
        if rows.rows.shape[1] <= LONGEST:
            best = fitting_better(read(several_steps(rows), rows, manifest, max_misfit), best)
        spread = (best.steps <= 1) & (plain.across > PARALLEL * rows.precision)
        best = on_the_rest(best, _without_pull, ~best.answered | spread, rows, manifest, max_misfit)
        if rows.sequence is not None:
            for reading in (_equal_factors, _equal_factors_after):
                best = on_the_rest(best, reading, ~best.answered, rows, manifest, max_misfit)
        best = on_the_rest(best, in_span, ~best.answered, rows, manifest, max_misfit)
        best = on_the_rest(best, _with_unrated, ~best.answered, rows, manifest, max_misfit)
        best = on_the_rest(best, _with_bias, ~best.answered, rows, manifest, max_misfit)
        if rows.rows.shape[1] <= LONGEST:
            best = on_the_rest(best, _by_group, ~best.answered, rows, manifest, max_misfit)
    return best


def _without_pull(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step, and the same unknown multiple of its factor in every row."""
    clean, pull = without_pull(rows.rows, rows.factors, rows.item)
    numbers = one_step(rows._replace(rows=clean))._replace(pull=pull)
    return read(numbers, rows, manifest, max_misfit)


def _with_unrated(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step, with rows of unrated items among the others, which are answered with 0."""
    numbers = one_step(rows)
    unrated, kappa = on_one_line(numbers, rows.precision)
    some = unrated.any(axis=1)
    found = read(numbers._replace(there=numbers.there & ~unrated), rows, manifest, max_misfit)
    with np.errstate(invalid="ignore", divide="ignore"):
        told = some & (-kappa * found.of_error / found.of_factor > 0)
    value = np.where(unrated, 0.0, found.value)
    return found._replace(value=value, misfit=np.where(told, found.misfit, np.nan))


def _with_bias(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step of a client with a bias of its own that nobody knows."""
    numbers = one_step(rows)
    levels = np.array(manifest.rating_levels)
    counted = numbers.there & ~saturated(numbers)
    judged, most = with_unknown(numbers, rows, counted, levels, bias=True)
    return Reading(
        np.where(counted, near_levels(judged.value, levels), np.nan),
        np.where(numbers.whole, judged.misfit, np.nan),
        np.minimum(max_misfit, most),
        np.zeros(most.shape, bool),
        numbers.steps,
        numbers.pull,
        *judged.numbers,
    )


def _by_group(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Parallel rows alone: of the users of one client, or of minibatches with scales of their own."""
    return by_group(rows, manifest, max_misfit, lambda alone, *told: read(one_step(alone), alone, *told))


def in_span(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read any number of steps over all ratings at once, whatever else is unknown of them.

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
    levels = np.array(manifest.rating_levels)
    rows = moved(rows)
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
    numbers = one_step(rows)
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
        near_levels(found.value, levels),
        np.where(found.told & numbers.whole, fit, np.nan),
        np.minimum(max_misfit, accidental(size - 2, found.tried, ACCIDENT)),
        np.ones(size.shape, bool),
        size.astype(float),
        numbers.pull,
        unknown,
        unknown,
        np.zeros(size.shape),
    )


def several_steps(rows: Rows) -> Numbers:
    """Read rows as those of a client whose factor moved between them.

    Parameters
    ----------
    rows : Rows

    Returns
    -------
    Numbers
    """
    chain = follow(rows.rows, rows.factors, rows.item, rows.precision)
    there = rows.item & (chain.step >= 0)
    # a rating of a row that is in no chain, its error being 0, is not told
    whole = chain.whole | (there.sum(axis=1) == rows.item.sum(axis=1))
    steps = chain.n_steps.astype(float)
    return Numbers(chain.scalar, chain.along, there, whole, steps, np.zeros(whole.size), np.zeros(whole.size))


def one_step(rows: Rows) -> Numbers:
    """Read rows as multiples of one direction, up to rounding.

    Parameters
    ----------
    rows : Rows

    Returns
    -------
    Numbers
    """
    direction, energy = leading_direction(rows.rows)
    scalar, along = (np.matmul(part, direction[:, :, None])[..., 0] for part in (rows.rows, rows.factors))
    off = rows.rows - scalar[..., None] * direction[:, None]
    across = np.linalg.norm(off, axis=(1, 2)) / np.sqrt(np.where(energy > 0, energy, 1))
    whole = (energy > 0) & (across < SPREAD)
    there = rows.item & whole[:, None] & np.isfinite(scalar + along)
    return Numbers(
        np.where(there, scalar, 0.0),
        np.where(there, along, 0.0),
        there,
        whole,
        whole.astype(float),
        np.zeros(whole.size),
        across,
    )
