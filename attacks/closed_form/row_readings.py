"""What one round's rows can say of ratings under different ideas of what they are.

Every reading turns rows into r = A scalar + B along + offset, with one A and one B for all rows of a client,
which the rating grid then tells (``attacks.closed_form.grid_reading``). It says how well the answer fits, and
how well it has to.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from attacks.closed_form.decoding import distance_to_levels
from attacks.closed_form.equal_factors import follow_equal
from attacks.closed_form.equal_pulled import follow_pulled
from attacks.closed_form.equal_unscaled import GROWN, follow_unscaled
from attacks.closed_form.fitted_chain import chain_of
from attacks.closed_form.goodness_of_fit import accidental, step_of
from attacks.closed_form.grid_reading import ACCIDENT, near_levels, read, saturated, with_unknown
from attacks.closed_form.integer_relation import ratings_in_span
from attacks.closed_form.moving_factor import PARALLEL
from attacks.closed_form.parallel_groups import by_group
from attacks.closed_form.readings import Numbers, Reading, Rows, fitting_better, moved, nothing, on_the_rest
from attacks.closed_form.reduction import leading_direction
from attacks.closed_form.shared_pull import without_pull
from attacks.closed_form.weighted_zeros import HALF, ROUGH, Line, on_one_line
from victims.transcript.manifest import Manifest

__all__ = ["Rows", "best_reading", "in_span", "with_unrated"]

LONGEST = 3000  # rows of a client among which steps are looked for: planes take their number squared
JUDGED, FEWEST, MOST = 6, 3, 0.75  # ratings of clients, how many, and the share that has to fit a scale
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
            unclear = ~(best.misfit <= rows.precision**HALF)
            best = on_the_rest(best, _after_steps, unclear, rows, manifest, max_misfit)
        spread = (best.steps <= 1) & (plain.across > PARALLEL * rows.precision)
        best = on_the_rest(best, _without_pull, ~best.answered | spread, rows, manifest, max_misfit)
        if rows.sequence is not None:
            for reading in (_equal_factors, _equal_factors_after):
                best = on_the_rest(best, reading, ~best.answered, rows, manifest, max_misfit)
            for reading in (_equal_unscaled, _equal_unscaled_after):
                best = on_the_rest(best, reading, ~best.answered, rows, manifest, max_misfit)
            for reading in (_equal_pulled, _equal_pulled_after):  # all clients tell what they share
                open_ = np.full(best.misfit.shape, not (best.misfit <= rows.precision**HALF).all())
                best = on_the_rest(best, reading, open_, rows, manifest, max_misfit)
        best = on_the_rest(best, in_span, ~best.answered, rows, manifest, max_misfit)
        inexact = ~(best.misfit <= rows.precision**HALF)
        best = on_the_rest(best, with_unrated, ~best.answered | inexact, rows, manifest, max_misfit)
        best = on_the_rest(best, _with_bias, ~best.answered, rows, manifest, max_misfit)
        if rows.rows.shape[1] <= LONGEST:
            best = on_the_rest(best, _by_group, ~best.answered, rows, manifest, max_misfit)
    return best


def _after_steps(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """A step after every rating, and rows about the factor after it: the errors are of the one before."""
    return read(several_steps(rows, after=True), rows, manifest, max_misfit)


def _without_pull(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step, and the same unknown multiple of its factor in every row."""
    clean, pull = without_pull(rows.rows, rows.factors, rows.item)
    numbers = one_step(rows._replace(rows=clean))._replace(pull=pull)
    return read(numbers, rows, manifest, max_misfit)


def with_unrated(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read one step, with rows of unrated items among the others, which are answered with 0.

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
    exact = _off_the_line(rows, manifest, max_misfit, rows.precision**HALF)
    rough = partial(_off_the_line, tolerance=ROUGH)
    return on_the_rest(exact, rough, ~exact.answered, rows, manifest, max_misfit)


def _off_the_line(rows: Rows, manifest: Manifest, max_misfit: float, tolerance: float) -> Reading:
    """The same, with rows of unrated items as exact as that."""
    numbers = one_step(rows)
    line = on_one_line(numbers, tolerance)
    if len(manifest.rating_levels) == 1:
        return _list_alone(numbers, line, float(manifest.rating_levels[0]))
    found = read(numbers._replace(there=numbers.there & ~line.here), rows, manifest, max_misfit)
    with np.errstate(invalid="ignore", divide="ignore"):
        told = line.here.any(axis=1) & (-line.kappa * found.of_error / found.of_factor > 0)
    value = np.where(line.here, 0.0, found.value)
    return found._replace(value=value, misfit=np.where(told, found.misfit, np.nan))


def _list_alone(numbers: Numbers, line: Line, level: float) -> Reading:
    """One level: whoever is off the line of unrated items has it."""
    none, unknown = np.zeros(numbers.whole.size), np.full(numbers.whole.size, np.nan)
    return Reading(
        np.where(line.here, 0.0, np.where(line.off, level, np.nan)),
        np.where(line.off.any(axis=1), 0.0, np.nan),
        np.ones(numbers.whole.size),
        np.zeros(numbers.whole.size, bool),
        numbers.steps,
        numbers.pull,
        unknown,
        unknown,
        none,
    )


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
    able = (numbers.across < PARALLEL_ROWS) & ~np.isnan(rows.scale)
    offset = rows.offset.max(initial=0)  # what is taken off all ratings alike, or nothing
    able &= ((rows.offset == offset) | ~rows.item).all(axis=1)
    counted = numbers.there & able[:, None]
    found = follow_equal(numbers.scalar, numbers.along, counted, rows.sequence, levels - offset, after=after)
    found = found._replace(value=found.value + offset)
    size = counted.sum(axis=1)
    away = np.where(counted, distance_to_levels(np.nan_to_num(found.value), levels), 0).sum(axis=1)
    fit = away / np.maximum(size, 1) / (step_of(levels) / 4)
    unknown = np.full(size.shape, np.nan)
    allowed = np.minimum(max_misfit, accidental(size - 2, found.tried, ACCIDENT))
    fits = found.told & numbers.whole & (fit <= allowed)
    # a wrong scale fits few ratings by accident, multiples above all, and many nowhere
    judged = size >= JUDGED
    believed = judged.sum() < FEWEST or fits[judged].mean() >= MOST
    return Reading(
        near_levels(found.value, levels),
        np.where(fits & believed, fit, np.nan),
        allowed,
        np.ones(size.shape, bool),
        size.astype(float),
        numbers.pull,
        unknown,
        unknown,
        np.zeros(size.shape),
    )


def _equal_unscaled_after(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """The same of clients whose rows are about the factor after the step."""
    return _equal_unscaled(rows, manifest, max_misfit, after=True)


def _equal_unscaled(rows: Rows, manifest: Manifest, max_misfit: float, *, after: bool = False) -> Reading:
    """A step after every rating, of factors whose numbers are all equal, and rows of an unknown scale."""
    numbers, levels = one_step(rows), np.array(manifest.rating_levels)
    assert rows.sequence is not None
    size = np.linalg.norm(rows.factors, axis=2)
    equal = (np.abs(np.abs(numbers.along) - size) <= PARALLEL_ROWS * size) | ~rows.item
    able = (numbers.across < PARALLEL_ROWS) & equal.all(axis=1) & ~rows.offset.any(axis=1)
    counted = numbers.there & able[:, None]
    found = follow_unscaled(numbers.scalar, numbers.along, counted, rows.sequence, levels, after=after)
    n_rows = counted.sum(axis=1)
    away = np.where(counted, distance_to_levels(np.nan_to_num(found.value), levels), 0).sum(axis=1)
    fit = away / np.maximum(n_rows, 1) / (step_of(levels) / 4)
    unknown, none = np.full(n_rows.shape, np.nan), np.zeros(n_rows.shape)
    return Reading(
        near_levels(found.value, levels),
        np.where(found.told & numbers.whole, fit, np.nan),
        np.minimum(max_misfit, accidental(n_rows - 3, GROWN.size * levels.size**2, ACCIDENT)),
        none > 0,
        n_rows.astype(float),
        numbers.pull,
        unknown,
        unknown,
        none,
    )


def _equal_pulled_after(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """The same of clients whose rows are about the factor after the step."""
    return _equal_pulled(rows, manifest, max_misfit, after=True)


def _equal_pulled(rows: Rows, manifest: Manifest, max_misfit: float, *, after: bool = False) -> Reading:
    """A step after every rating, all factors equal, and rows that hold a multiple of their factor."""
    numbers, levels = one_step(rows), np.array(manifest.rating_levels)
    assert rows.sequence is not None
    size = np.linalg.norm(rows.factors, axis=2)
    equal = (np.abs(np.abs(numbers.along) - size) <= PARALLEL_ROWS * size) | ~rows.item
    able = (numbers.across < PARALLEL_ROWS) & equal.all(axis=1) & numbers.whole
    found = follow_pulled(
        numbers.scalar,
        numbers.along,
        rows.offset,
        numbers.there & able[:, None],
        rows.sequence,
        levels,
        rows.precision,
        after=after,
        scale_known=manifest.scale_known or bool(np.isfinite(rows.scale).any()),
        pulls=(0.0, *_taken_off(rows, manifest)),
    )
    n_rows = (numbers.there & able[:, None]).sum(axis=1)
    away = np.where(np.isfinite(found.value), distance_to_levels(np.nan_to_num(found.value), levels), 0.0)
    return Reading(
        found.value,
        np.where(found.told, away.sum(axis=1) / np.maximum(n_rows, 1) / (step_of(levels) / 4), np.nan),
        np.full(n_rows.shape, max_misfit),
        np.zeros(n_rows.shape, bool),
        n_rows.astype(float),
        found.pull,
        found.of_error,
        found.of_factor,
        np.zeros(n_rows.shape),
    )


def _taken_off(rows: Rows, manifest: Manifest) -> tuple[float, ...]:
    """The multiple of its factor that a row lacks if it is no weight, though as near to its factor as one."""
    if manifest.rule.upload != "weights":
        return ()
    known = rows.scale[np.isfinite(rows.scale)]
    return (1 / (manifest.upload.scale * (float(known[0]) if known.size else 1.0)),)


def several_steps(rows: Rows, *, after: bool = False) -> Numbers:
    """Read rows as those of a client whose factor moved between them.

    Rows about the factor after a step are a chain from the last to the first: what follows in it is the
    factor that was there before, u + c g v / |u| (``attacks.closed_form.moving_factor``).

    Parameters
    ----------
    rows : Rows
    after : bool
        Whether rows are about the factor after the step.

    Returns
    -------
    Numbers
    """
    chain = chain_of(rows)
    there = rows.item & (chain.step >= 0)
    # a rating of a row that is in no chain, its error being 0, is not told
    whole = chain.whole | (there.sum(axis=1) == rows.item.sum(axis=1))
    steps = chain.n_steps.astype(float)
    along = chain.along
    if after:
        one_by_one = chain.n_steps == there.sum(axis=1)
        whole &= one_by_one & (chain.n_steps > 1)
        square = (rows.factors**2).sum(axis=2)
        along = chain.shrink[:, None] * (along + chain.sign[:, None] * chain.scalar * square)
    return Numbers(chain.scalar, along, there, whole, steps, np.zeros(whole.size), np.zeros(whole.size))


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
