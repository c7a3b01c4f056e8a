"""Whether one linear pass explains rows as well as several do, with other ratings.

P passes of rate eta leave next to the rows of one pass of rate P eta: how its copies of the items move, and
the drift from pass to pass, tell them apart, and both may be less than the last digits of the rows. Then only
rates are told, and a multiple of the ratings is another reading. A sigmoid of products near 0 is a line, too,

    y - s(x) = (4 (y - 1/2) - x) / 4 + O(x^3),    y = (r - first) / range,

so that multiples of r less the middle of its range are others. Beyond the papers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.client_rules.local_passes import (
    FACTOR_DECAY,
    FIRST,
    ITEM_DECAY,
    LOSS,
    LOSSES,
    PASSES,
    RANGE,
    RATE,
    RATIO,
    LocalPasses,
)
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.compression import uncompressed
from attacks.inversion.least_squares import Unknowns
from attacks.inversion.many_starts import fitted
from attacks.inversion.search import LOOSE, TIGHT
from attacks.inversion.told import Told

SLOPE = 4.0  # one over that of a sigmoid at 0
TIMES = {"squared": 1.0, "cross-entropy": SLOPE, "sigmoid": SLOPE**2}  # that an error of a line is larger
STEPS = 40  # of a fit
ALIKE = 1e-9  # stars, within which a number is on a level


def other_in_one_pass(
    rule: LocalPasses, told: Told, rows: Rows, levels: Float[np.ndarray, " levels"], at_once: int
) -> Bool[np.ndarray, " clients"]:
    """Whose rows one pass, or linear ones, explain by other ratings."""
    out = np.zeros(told.answered.size, bool)
    line = _as_line(rule, told, rows)
    others = _other_multiples(told.ratings, line, rows, levels)
    passes = told.at.constants[:, 0, PASSES]
    as_well = np.minimum(told.allowed, LOOSE * told.left + TIGHT)  # its rest is rounding
    for number in (np.ones(passes.size), passes):
        same = (number == passes) & (rule.loss == "squared")
        open_ = told.answered & others & ~same & ~out
        if open_.any():
            out |= open_ & (_left(rule, told, rows, line, number, open_, at_once) <= as_well)
    return out


def _as_line(rule: LocalPasses, told: Told, rows: Rows) -> Float[np.ndarray, "clients n"]:
    """Ratings less the offset up to a multiple, as linear passes have them; 0 off the items."""
    if rule.loss == "squared":
        return np.where(rows.item, told.ratings - rows.offset, 0.0)
    first, range_ = (told.at.constants[:, :, constant] for constant in (FIRST, RANGE))
    return np.where(rows.item, SLOPE * ((told.ratings - first) / range_ - 0.5), 0.0)


def _other_multiples(
    ratings: Float[np.ndarray, "clients n"],
    line: Float[np.ndarray, "clients n"],
    rows: Rows,
    levels: Float[np.ndarray, " levels"],
) -> Bool[np.ndarray, " clients"]:
    """Whether a multiple of these lies on the grid, and is not what was told."""
    every = np.arange(len(line))
    largest = np.abs(line).argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = (levels - rows.offset[every, largest, None]) / line[every, largest, None]
        value = times[..., None] * line[:, None] + rows.offset[:, None]
    finite = np.isfinite(value)
    near = finite & (distance_to_levels(np.where(finite, value, 0.0), levels) < ALIKE)
    on_grid = (near | ~rows.item[:, None]).all(axis=2)
    with np.errstate(invalid="ignore"):
        unlike = ((np.abs(value - ratings[:, None]) > ALIKE) & rows.item[:, None]).any(axis=2)
    return (on_grid & unlike).any(axis=1)


def _left(
    rule: LocalPasses,
    told: Told,
    rows: Rows,
    line: Float[np.ndarray, "clients n"],
    passes: Float[np.ndarray, " clients"],
    some: Bool[np.ndarray, " clients"],
    at_once: int,
) -> Float[np.ndarray, " clients"]:
    """What linear passes leave of the rows of some clients, relative to their size; NaN of the others."""
    constants = told.at.constants.copy()
    fewer = np.log(constants[:, 0, PASSES] / passes)
    constants[:, 0, RATE] += fewer - np.log(TIMES[rule.loss])
    constants[:, 0, RATIO] -= fewer
    for constant, value in ((PASSES, passes), (FIRST, 0.0), (RANGE, 1.0), (LOSS, LOSSES.index("squared"))):
        constants[:, 0, constant] = value
    factor = told.at.factor
    error = line - (rows.factors * factor).sum(axis=2)
    along = (rows.rows * (error[..., None] * factor)).sum(axis=(1, 2))
    free = np.isin(np.arange(constants.shape[2]), (RATE, RATIO, FACTOR_DECAY, ITEM_DECAY))
    linear = LocalPasses(rule.batch_size, "squared", rule.mean)
    begin = Unknowns(factor, line[:, None], constants)
    sign = np.where(along < 0, -1.0, 1.0)[:, None]
    problem = uncompressed(rows).problem
    found = fitted(linear, problem, begin, sign, some[:, None], free, STEPS, ratings=False, at_once=at_once)
    return found.left[:, 0]
