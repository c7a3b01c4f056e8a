"""Ratings less a number that nobody told: what one client's rows say, up to a shift and a mirror image.

Beyond the papers, for programs that learn r - m: m the mean of all ratings, or of the client's own, the
middle of the grid, or a bias of the client. A row then reads r = A g + B h + C
(``attacks.closed_form.fit.affine_grid``), and with the client's factor negated the ratings mirrored at the
middle of the grid make the same rows, in every round and under any scale:

    sigma (r - m - p . q) p  =  sigma (r' - m' - p' . q) p',    r' = l + L - r,  m' = l + L - m,  p' = -p,

l and L the lowest and the highest level. No rows of one client tell the two apart, so that neither is
answered here; ``attacks.closed_form.centres.sign_agreement`` asks the other clients. What the rows do tell is
by how many steps of the grid each rating is above the client's lowest (or below its highest), w, and where 0
lies among them. Where all w are multiples of a number, or few levels are used, multiples of w fit as well,
with another scale.

A sigmoid of products, with ratings from 0 at the lowest level to 1 at the highest, has the same mirror image,
and no shift (``attacks.closed_form.links.link_grid``): where nothing linear tells clients, that is tried.

What it assumes: an even grid of ``MOST_LEVELS`` at most, rows exact or rounded to single precision, four
ratings or more (five to seven in single precision), and predictions that differ from item to item.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.chains.chain_readings import LEAST, TELLING
from attacks.closed_form.chains.moving_bias import with_moving_bias
from attacks.closed_form.fit.affine_grid import nearest_numbers
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.links.link_grid import up_to_mirror
from attacks.closed_form.rows.row_readings import LONGEST, one_step, several_steps
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.readings import Numbers, Rows
from attacks.closed_form.uploads.shared_pull import without_pull

MOST_LEVELS = 20
ASKED = 4  # clients of a batch that say whether predictions go through a sigmoid
EVEN = 1e-6  # relative, within which steps of a grid are equal
ROUNDS = 2  # of fitting the levels that numbers name


class Centred(NamedTuple):
    """What is read of some clients in one round, up to a shift and a mirror image."""

    # w: steps above the client's lowest rating, or below its highest, in lowest terms; -1 where not told
    above: Int[np.ndarray, "users rows"]
    start: Float[np.ndarray, " users"]  # A g + B h where w is 0, stars: it is r - m there, or m - r
    numbers: Float[np.ndarray, "users 2"]  # A and B
    pull: Float[np.ndarray, " users"]  # multiple of its factor that was taken off each row
    steps: Float[np.ndarray, " users"]  # of the client in the round
    told: Bool[np.ndarray, " users"]

    @property
    def reach(self) -> Int[np.ndarray, " users"]:
        """Steps from each client's lowest to its highest rating."""
        return self.above.max(axis=1, initial=0)


def even(levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether a grid has a mirror image that can be looked for: two levels or more, in equal steps.

    Examples
    --------
    >>> even(np.arange(1.0, 6.0)), even(np.array([1.0, 2.0, 4.0])), even(np.array([1.0]))
    (True, False, False)
    """
    step = np.diff(levels)
    return 0 < step.size < MOST_LEVELS and bool(np.ptp(step) <= EVEN * step[0])


def read_centred(rows: Rows, levels: Float[np.ndarray, " levels"], *, linear: bool = False) -> Centred:
    """Read clients as one step, as several, or as one with an unknown multiple of the factors in each row."""
    best = _nothing(rows.item.shape)
    if not rows.rows.shape[1]:
        return best
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ideas = [one_step(rows)]
        best = _on_steps(ideas[0], rows.precision, levels)
        if rows.rows.shape[1] <= LONGEST and not best.told.all():
            ideas.append(several_steps(rows))
            best = _where(best, _on_steps(ideas[-1], rows.precision, levels))
        for numbers in with_moving_bias(rows) if not best.told.all() else ():
            best = _where(best, _on_steps(numbers, rows.precision, levels))
        if not best.told.all():
            clean, pull = without_pull(rows.rows, rows.factors, rows.item)
            numbers = one_step(rows._replace(rows=clean))
            pulled = numbers._replace(pull=pull, whole=numbers.whole & (pull != 0))
            ideas.append(pulled)
            best = _where(best, _on_steps(pulled, rows.precision, levels))
        if not linear and not (rows.offset != 0).any():
            for numbers in ideas:
                best = _where(best, _behind_sigmoid(numbers, ~best.told, rows.precision, levels))
    return best


def _nothing(shape: tuple[int, int]) -> Centred:
    start, pull, steps = np.zeros((3, shape[0]))
    return Centred(np.full(shape, -1), start, np.zeros((shape[0], 2)), pull, steps, np.zeros(shape[0], bool))


def _where(first: Centred, second: Centred) -> Centred:
    """The first, and of whom it does not tell the second."""
    new = ~first.told
    return Centred(
        *(
            np.where(new.reshape(-1, *[1] * (old.ndim - 1)), other, old)
            for old, other in zip(first, second, strict=True)
        )
    )


def _on_steps(numbers: Numbers, precision: float, levels: Float[np.ndarray, " levels"]) -> Centred:
    """The numbers that put A g + B h + C on the steps of the grid, wherever these begin."""
    step, there = step_of(levels), numbers.there & numbers.whole[:, None]
    columns = np.stack([numbers.scalar, numbers.along, np.ones(there.shape)], axis=2) * there[..., None]
    few = nearest_numbers(columns, np.zeros(there.shape), there, levels)
    count = there.sum(axis=1)
    if not few.shape[1]:
        return _nothing(there.shape)
    values = np.matmul(few, columns.transpose(0, 2, 1))
    away = np.where(there[:, None], np.abs(values - step * np.rint(values / step)), 0).sum(axis=2)
    # all rows on one level fit any program, and so do errors of one size, without any prediction
    usable = np.isfinite(away) & (
        np.abs(few[..., 1]) * spread_of(numbers.along, there)[:, None] > LEAST * step
    )
    nearest = np.where(usable, away, np.inf).argmin(axis=1)
    best = np.nan_to_num(few[np.arange(len(few)), nearest])
    for _ in range(ROUNDS):
        steps = np.rint(np.matmul(columns, best[..., None])[..., 0] / step)
        best = fitted(columns, step * steps)
    steps = np.rint(np.matmul(columns, best[..., None])[..., 0] / step).astype(int)
    lowest = np.where(there, steps, np.iinfo(int).max).min(axis=1, initial=np.iinfo(int).max)
    above = np.where(there, steps - lowest[:, None], 0)
    common = np.maximum(np.gcd.reduce(above, axis=1), 1)
    a, b, c = (best / common[:, None]).T
    off = np.matmul(columns, best[..., None])[..., 0] - step * steps
    distance = np.where(there, np.abs(off), 0).sum(axis=1) / np.maximum(count, 1)
    spread = np.abs(b * common) * spread_of(numbers.along, there)
    # what meets the grid by accident: each row beyond three is as near with this probability
    floor = PARALLEL * precision * step
    nats = (count - 3) * np.log(step / (4 * np.maximum(distance, floor))) - 3 * np.log(levels.size)
    reach = above.max(axis=1, initial=0) // common
    told = numbers.whole & (nats >= BARS.evidence) & (reach > 0) & (reach < levels.size) & (a * b != 0)
    told &= (distance <= BARS.exact * step) & (spread > np.maximum(distance / TELLING, LEAST * step))
    start = lowest * step / common - c
    return Centred(
        np.where(there & told[:, None], above // common[:, None], -1),
        start,
        np.stack([a, b], axis=1),
        numbers.pull,
        numbers.steps,
        told,
    )


def _behind_sigmoid(
    numbers: Numbers,
    open_: Bool[np.ndarray, " users"],
    precision: float,
    levels: Float[np.ndarray, " levels"],
) -> Centred:
    """Ratings or their mirror images behind a sigmoid; nobody's where none of the longest tells."""
    found, step = _nothing(numbers.there.shape), step_of(levels)
    open_ = np.flatnonzero(open_ & numbers.whole)
    longest = open_[np.argsort(-numbers.there[open_].sum(axis=1), kind="stable")]
    for some in (longest[:ASKED], longest[ASKED:]):
        part = numbers.scalar[some], numbers.along[some], numbers.there[some]
        ratings, both = up_to_mirror(*part, levels, precision)
        told = np.isfinite(both).all(axis=1)
        if not told.any():
            break
        here, ratings, both = some[told], ratings[told], both[told]
        lowest = np.nanmin(ratings, axis=1)
        above = np.where(np.isnan(ratings), 0, np.rint((ratings - lowest[:, None]) / step)).astype(int)
        common = np.maximum(np.gcd.reduce(above, axis=1), 1)
        found.above[here] = np.where(np.isnan(ratings), -1, above // common[:, None])
        found.start[here] = (lowest - (levels[0] + levels[-1]) / 2) / common
        found.numbers[here] = both / common[:, None]
        found.pull[here], found.steps[here] = numbers.pull[here], numbers.steps[here]
        found.told[here] = above.any(axis=1)
    return found


def spread_of(
    along: Float[np.ndarray, "users rows"], there: Bool[np.ndarray, "users rows"]
) -> Float[np.ndarray, " users"]:
    """How much a column differs from row to row: its mean distance from its mean."""
    count = np.maximum(there.sum(axis=1), 1)
    middle = np.where(there, along, 0).sum(axis=1) / count
    return np.where(there, np.abs(along - middle[:, None]), 0).sum(axis=1) / count


def fitted(
    columns: Float[np.ndarray, "users rows 3"], target: Float[np.ndarray, "users rows"]
) -> Float[np.ndarray, "users 3"]:
    """Least squares, client by client."""
    usable = np.isfinite(columns).all(axis=(1, 2)) & np.isfinite(target).all(axis=1)
    known = np.where(usable[:, None, None], columns, 0.0)
    unit = np.abs(known).max(axis=1, initial=0)
    unit = np.where(unit > 0, unit, 1.0)
    inverse = np.linalg.pinv(known / unit[:, None], rcond=1e-12)
    return np.matmul(inverse, np.where(usable[:, None], target, 0.0)[..., None])[..., 0] / unit
