"""What one round's rows can say of ratings under different ideas of what they are.

Every reading turns rows into r = A scalar + B along + offset, with one A and one B for all rows of a client,
which the rating grid then tells (``attacks.closed_form.grid.grid_reading``). It says how well the answer
fits, and how well it has to.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.grid.grid_reading import near_levels, read, saturated, with_unknown
from attacks.closed_form.numbers.integer_relation import ratings_in_span
from attacks.closed_form.rows.confidence_weights import weighed_by_ratings
from attacks.closed_form.rows.equal_start import steps_from_equal_factors
from attacks.closed_form.rows.row_scales import without_row_scales
from attacks.closed_form.rows.weighted_zeros import HALF, ROUGH, Line, on_one_line
from attacks.closed_form.uploads.averaged_rows import groups_of_rows, says_the_mean, without_means
from attacks.closed_form.uploads.common_scale import common_scale
from attacks.closed_form.uploads.fitted_chain import chain_of
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.readings import (
    Numbers,
    Reading,
    Rows,
    fitting_better,
    moved,
    nothing,
    on_the_rest,
    reading_of,
)
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.closed_form.uploads.shared_pull import without_pull
from victims.transcript.manifest import Manifest

__all__ = ["Rows", "best_reading", "in_span", "with_unrated"]

LONGEST = 3000  # rows of a client among which steps are looked for: planes take their number squared
SPREAD = 0.3  # of the rows' size, across their common direction: above it they have none


def best_reading(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read each client as what its rows fit best: one step or several, of one rating or of all."""
    if not rows.rows.shape[1]:  # nobody sent anything
        return nothing(rows.item.shape)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        plain = one_step(rows)
        best = read(plain, rows, manifest, max_misfit)
        if rows.rows.shape[1] <= LONGEST:
            best = fitting_better(read(several_steps(rows), rows, manifest, max_misfit), best)
            unclear = ~(best.misfit <= rows.precision**HALF)
            best = on_the_rest(best, _after_steps, unclear, rows, manifest, max_misfit)
        spread = (best.steps <= 1) & (plain.across > PARALLEL * rows.precision)
        best = on_the_rest(best, _without_pull, ~best.answered | spread, rows, manifest, max_misfit)
        spread &= ~(best.misfit <= rows.precision**HALF)
        best = on_the_rest(best, _without_row_scales, ~best.answered | spread, rows, manifest, max_misfit)
        # all items being alike, one length without errors puts any rows on a single level
        if rows.sequence is not None and len(manifest.rating_levels) > 1:
            for after in (False, True):
                equal = partial(_of_equal_factors, after=after)
                best = on_the_rest(best, equal, ~best.answered, rows, manifest, max_misfit)
        best = on_the_rest(best, in_span, ~best.answered, rows, manifest, max_misfit)
        inexact = ~(best.misfit <= rows.precision**HALF)
        best = on_the_rest(best, with_unrated, ~best.answered | inexact, rows, manifest, max_misfit)
        best = on_the_rest(best, _weighed, ~best.answered, rows, manifest, max_misfit)
        open_ = ~best.answered
        best = on_the_rest(best, _with_averages, open_, rows, manifest, max_misfit)
        if (best.value[open_ & best.answered] == 0).any():  # others' averages may be levels
            best = without_means(best, rows.item)
        best = on_the_rest(best, _with_bias, ~best.answered, rows, manifest, max_misfit)
    return best


def _after_steps(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """A step after every rating, and rows about the factor after it: the errors are of the one before."""
    return read(several_steps(rows, after=True), rows, manifest, max_misfit)


def _of_equal_factors(rows: Rows, manifest: Manifest, max_misfit: float, *, after: bool) -> Reading:
    """Steps after every rating, of clients whose factors' numbers are all equal: parallel rows."""
    return steps_from_equal_factors(one_step(rows), rows, manifest, max_misfit, after=after)


def _without_pull(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step, and the same unknown multiple of its factor in every row."""
    clean, pull = without_pull(rows.rows, rows.factors, rows.item)
    numbers = one_step(rows._replace(rows=clean))._replace(pull=pull)
    return read(numbers, rows, manifest, max_misfit)


def _without_row_scales(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step, a multiple of its factor in every row, and a positive scale of its own for each.

    Rows are in units of their pull then, and so is what multiplies them: of clients that tell it without
    knowing it, here or among all, or by the declared regularisation.
    """
    scalar, along, told, pull, inexact = without_row_scales(
        rows.rows, rows.factors, rows.item, rows.precision
    )
    numbers = Numbers(scalar, along, rows.item & told[:, None], told, told + 0.0, pull, np.zeros(told.size))
    best = read(numbers, rows._replace(scale=np.full(told.size, np.nan)), manifest, max_misfit)
    n_rated = rows.item.sum(axis=1).astype(float)
    free = best.answered & np.isfinite(best.of_error)
    here = common_scale(1 / (best.of_error * best.of_factor)[free], n_rated[free])
    declared = manifest.upload.regularization
    scales = [np.full(told.size, np.nan) if here is None else here.of(n_rated), rows.scale]
    scales.append(np.full(told.size, manifest.upload.scale / declared if declared else np.nan))
    for scale in scales:
        known = ~best.answered & told & np.isfinite(scale)
        of_one = numbers._replace(scalar=scalar / np.where(known, scale, 1.0)[:, None])
        one = read(of_one, rows._replace(scale=np.where(known, 1.0, np.nan)), manifest, max_misfit)
        best = fitting_better(best, one, known & one.answered & one.declared)
    if (told & ~best.answered).any():
        biased = _biased(numbers, rows, manifest, max_misfit)
        best = fitting_better(best, biased, ~best.answered & biased.answered)
    # rows that are exact in their planes are as exact along them, unless items have pulls of their own
    levels = np.array(manifest.rating_levels)
    far = BARS.slack * (inexact + rows.precision) * max(levels[-1] - levels[0], step_of(levels))
    return best._replace(allowed=np.minimum(best.allowed, far / (step_of(levels) / 4)))


def with_unrated(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read one step, with rows of unrated items among the others, which are answered with 0."""
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
    return reading_of(
        np.where(line.here, 0.0, np.where(line.off, level, np.nan)),
        misfit=np.where(line.off.any(axis=1), 0.0, np.nan),
        allowed=1.0,
        steps=numbers.steps,
        pull=numbers.pull,
    )


def _weighed(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step of errors that ratings weigh, rows of unrated items, where there are any, having weight 1."""
    if (rows.offset != 0).any():
        return nothing(rows.item.shape)
    numbers = one_step(rows)
    line = on_one_line(numbers, rows.precision**HALF).here
    rated = numbers._replace(there=numbers.there & ~line)
    found = weighed_by_ratings(rated, np.array(manifest.rating_levels))
    value = np.where(line & ~np.isnan(found.misfit)[:, None], 0.0, found.value)
    allowed = np.minimum(max_misfit, found.allowed)
    return reading_of(value, found.misfit, allowed, steps=numbers.steps, pull=numbers.pull)


def _with_averages(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step, in which the mean of a client's ratings stands for those of items that it drew."""
    best = nothing(rows.item.shape)
    if (rows.offset != 0).any() or len(manifest.rating_levels) == 1:
        return best
    clean, pull = without_pull(rows.rows, rows.factors, rows.item)
    for numbers in (one_step(rows), one_step(rows._replace(rows=clean))._replace(pull=pull)):
        if best.answered.any():
            break
        for group in groups_of_rows(numbers, rows.precision):
            rest = numbers._replace(there=numbers.there & ~group)
            found = read(rest, rows, manifest, max_misfit)
            best = fitting_better(best, says_the_mean(found, group, numbers))
    return best


def _with_bias(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """One step of a client with a bias of its own that nobody knows."""
    return _biased(one_step(rows), rows, manifest, max_misfit)


def _biased(numbers: Numbers, rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Any numbers up to A, B and C."""
    levels = np.array(manifest.rating_levels)
    counted = numbers.there & ~saturated(numbers)
    judged, most = with_unknown(numbers, rows, counted, levels, bias=True)
    of_error, of_factor, own_bias = judged.numbers
    return reading_of(
        np.where(counted, near_levels(judged.value, levels), np.nan),
        misfit=np.where(numbers.whole, judged.misfit, np.nan),
        allowed=np.minimum(max_misfit, most),
        steps=numbers.steps,
        pull=numbers.pull,
        of_error=of_error,
        of_factor=of_factor,
        own_bias=own_bias,
    )


def in_span(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read any number of steps over all ratings at once, whatever else is unknown of them."""
    levels = np.array(manifest.rating_levels)
    rows = moved(rows)
    found = ratings_in_span(rows.rows, rows.factors, rows.offset, rows.item, levels, rows.precision)
    return reading_of(found.value, misfit=np.where(found.told, 0.0, np.nan), allowed=max_misfit)


def several_steps(rows: Rows, *, after: bool = False) -> Numbers:
    """Read rows as those of a client whose factor moved between them.

    Rows about the factor after a step are a chain from the last to the first: what follows in it is the
    factor that was there before, u + c g v / |u| (``attacks.closed_form.uploads.moving_factor``).
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
    none = np.zeros(whole.size)
    return Numbers(
        scalar=chain.scalar, along=along, there=there, whole=whole, steps=steps, pull=none, across=none
    )


def one_step(rows: Rows) -> Numbers:
    """Read rows as multiples of one direction, up to rounding."""
    direction, energy = leading_direction(rows.rows)
    scalar, along = (np.matmul(part, direction[:, :, None])[..., 0] for part in (rows.rows, rows.factors))
    off = rows.rows - scalar[..., None] * direction[:, None]
    across = np.linalg.norm(off, axis=(1, 2)) / np.sqrt(np.where(energy > 0, energy, 1))
    whole = (energy > 0) & (across < SPREAD)
    there = rows.item & whole[:, None] & np.isfinite(scalar + along)
    return Numbers(
        scalar=np.where(there, scalar, 0.0),
        along=np.where(there, along, 0.0),
        there=there,
        whole=whole,
        steps=whole.astype(float),
        pull=np.zeros(whole.size),
        across=across,
    )
