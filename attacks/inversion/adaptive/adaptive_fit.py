"""A client's ratings and factor, fitted to rows that several steps of Adam made.

From starts (``attacks.inversion.adaptive.adaptive_numbers``), each row is decoded by the level whose row,
along the course of the client's factor, is nearest, and the factor is fitted to all rows with these levels
(Marquardt), by turns. What explains all rows to their last digits is asked, for each rating, how sure it is:
its deviation by the slope of all rows in factor, ratings and constants, and the fit of the levels beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.client_rules.adaptive_steps import CONSTANTS, EPSILON, RATE, WEIGHT_DECAY, Optimizer, upload
from attacks.closed_form.fit.decoding import nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.inversion.adaptive.adaptive_numbers import Own, starts

PROBES = np.array([1e-6, 1e-9, 1e-6, 1e-6, 1e-6])  # finite differences of constants
PROBE = 1e-6  # relative, of a factor, and of an error
TURNS, SHORT, LONG = 4, 5, 20  # of decoding and fitting, and steps of a fit
DAMPING, TIMES, DAMPED = 1e-3, (0.03, 1.0, 30.0), 1e6  # at first, what is tried of it, and where a fit ends
TINY, MOST_LOG, RATE_MOVES = 1e-28, 1.0, 0.3
SETTLED = 1e-9  # share of the rows' size: levels are right then
LOOSE = 4.0  # times the last digits
ROUNDED = 30.0  # times as small as the last digits, what rounding leaves at least
SURE = 6.0  # standard deviations of a rating that half a step of the grid holds
BESIDE = 36.0  # times the variance, that the next level leaves more of its row
FEWEST = 5  # ratings


class Rule(NamedTuple):
    """Steps of clients."""

    optimizer: Optimizer
    n_steps: int
    rate: float  # learning rate
    decay: float = 0.0  # weight decay beside the step (AdamW)


class Fit(NamedTuple):
    """What explains rows."""

    ratings: Float[np.ndarray, " n"]  # levels, stars
    factor: Float[np.ndarray, " K"]
    constants: Float[np.ndarray, " c"]  # ``attacks.client_rules.adaptive_steps.CONSTANTS``
    left: float  # share of the size of the rows that is left
    allowed: float  # the largest of right ones
    sure: bool  # whether no other levels explain the rows nearly as well

    @property
    def told(self) -> bool:
        """Whether the ratings are answered."""
        return bool(self.left <= self.allowed and self.sure)


def shrunk_of(rule: Rule) -> float:
    """Find what share of an entry decays beside the steps."""
    return 1 - (1 - rule.rate * rule.decay) ** rule.n_steps


def fitted(own: Own, rule: Rule, *, open_rate: bool = False) -> Fit | None:
    """Fit ratings and factor to what a client sent."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        plain = own._replace(rows=own.rows + shrunk_of(rule) * own.factors)
        found = starts(plain, rule.optimizer, rule.n_steps, rule.rate)
        if not found:
            return None
        factor = np.stack([one.way * one.factor for one in found])
        ratings = nearest_level(np.stack([one.ratings(own) for one in found]), own.levels)
        constants = np.zeros((len(found), len(CONSTANTS)))
        constants[:, RATE], constants[:, WEIGHT_DECAY] = np.log(rule.rate), rule.decay
        left = np.full(len(found), np.inf)
        free = (RATE, EPSILON) if open_rate else (EPSILON,)
        for turn in range(TURNS):
            new = _decoded(own, rule, factor, ratings, constants) if turn or rule.n_steps > 2 else ratings
            if turn and (new == ratings).all():
                break
            ratings = new
            factor, constants, left = _held(own, rule, factor, ratings, constants, free, SHORT)
            if left.min() < SETTLED:
                break
        best = [int(left.argmin())]
        factor, constants, last = _held(
            own, rule, factor[best], ratings[best], constants[best], (RATE, EPSILON), LONG
        )
        allowed = float(LOOSE * own.digit)
        fit = Fit(ratings[best[0]], factor[0], constants[0], float(last[0]), allowed, False)
        return fit._replace(sure=bool(fit.left <= allowed) and _sure(own, rule, fit))


def _decoded(
    own: Own, rule: Rule, factor: np.ndarray, ratings: np.ndarray, constants: np.ndarray
) -> Float[np.ndarray, "fits n"]:
    """The levels whose rows are nearest, were factors to step as with these ratings."""
    predicted = own.offset + factor @ own.factors.T
    best, out = np.full(ratings.shape, np.inf), ratings.copy()
    path = upload(rule.optimizer, rule.n_steps, factor, ratings - predicted, constants, own.factors).path
    for level in own.levels:
        made = upload(
            rule.optimizer, rule.n_steps, factor, level - predicted, constants, own.factors, path
        ).rows
        off = np.abs(made - own.rows).sum(axis=-1)
        out = np.where(off < best, level, out)
        best = np.fmin(off, best)
    return out


def _left(
    own: Own, rule: Rule, factor: np.ndarray, ratings: np.ndarray, constants: np.ndarray
) -> Float[np.ndarray, "*fits m"]:
    """What rows are beyond what is sent, in shares of their size, one after the other."""
    error = ratings - own.offset - factor @ own.factors.T
    made = upload(rule.optimizer, rule.n_steps, factor, error, constants, own.factors).rows
    off = (made - own.rows) / np.linalg.norm(own.rows)
    return off.reshape(*off.shape[:-2], -1)


def _held(
    own: Own,
    rule: Rule,
    factor: np.ndarray,
    ratings: np.ndarray,
    constants: np.ndarray,
    free: tuple[int, ...],
    most: int,
) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, " fits"]]:
    """Factors and constants fitted with ratings held, and what they leave."""
    n_fits, k = factor.shape
    off = _left(own, rule, factor, ratings, constants)
    cost, damping = (off**2).sum(axis=1), np.full(n_fits, DAMPING)
    for _ in range(most):
        slope = _slope(own, rule, factor, ratings, constants, off, free)
        square = slope @ slope.swapaxes(1, 2)
        gradient = (slope @ off[..., None])[..., 0]
        diagonal = np.einsum("fpp->fp", square)
        times = np.multiply.outer(np.array(TIMES), damping)
        more = times[..., None] * diagonal + TINY
        by = -np.linalg.solve(square + more[..., None] * np.eye(k + len(free)), gradient[..., None])[..., 0]
        new = factor * np.exp(np.clip(by[..., :k], -MOST_LOG, MOST_LOG))
        moved = np.broadcast_to(constants, (len(TIMES), *constants.shape)).copy()
        moved[..., list(free)] += by[..., k:]
        moved[..., RATE] = np.clip(moved[..., RATE], *(np.log(rule.rate) + RATE_MOVES * np.array([-1, 1])))
        moved[..., EPSILON] = np.maximum(moved[..., EPSILON], 0.0)
        left = _left(own, rule, new, ratings, moved)
        here = np.nan_to_num((left**2).sum(axis=-1), nan=np.inf)
        chosen, every = here.argmin(axis=0), np.arange(n_fits)
        better = here[chosen, every] < cost
        factor = np.where(better[:, None], new[chosen, every], factor)
        constants = np.where(better[:, None], moved[chosen, every], constants)
        off = np.where(better[:, None], left[chosen, every], off)
        cost = np.where(better, here[chosen, every], cost)
        damping = np.where(better, np.maximum(times[chosen, every], TINY), damping * TIMES[-1])
        if (damping > DAMPED).all():
            break
    return factor, constants, np.sqrt(cost)


def _slope(
    own: Own,
    rule: Rule,
    factor: np.ndarray,
    ratings: np.ndarray,
    constants: np.ndarray,
    off: np.ndarray,
    free: tuple[int, ...],
) -> Float[np.ndarray, "fits parameters m"]:
    """Of what is left, in logarithms of the factor and in constants."""
    k, all_ = factor.shape[1], factor.shape[1] + len(free)
    moved = np.repeat(factor[:, None], all_, axis=1)
    moved[:, np.arange(k), np.arange(k)] *= 1 + PROBE
    others = np.repeat(constants[:, None], all_, axis=1)
    others[:, k + np.arange(len(free)), list(free)] += PROBES[list(free)]
    by = np.concatenate([np.full(k, PROBE), PROBES[list(free)]])
    return (_left(own, rule, moved, ratings[:, None], others) - off[:, None]) / by[:, None]


def _sure(own: Own, rule: Rule, fit: Fit) -> bool:
    """Whether each rating is told by the rows, all else being open, and none beside it is nearly as good."""
    n, k = own.rows.shape
    at = fit.factor[None], fit.ratings[None], fit.constants[None]
    off = _left(own, rule, *at)
    of_rest = _slope(own, rule, *at, off, (RATE, EPSILON))[0]
    if rule.n_steps == 2:  # one number is open but for the grid, which has told it: the longest entry is held
        of_rest = np.delete(of_rest, int(np.abs(fit.factor).argmax()), axis=0)
    ratings = fit.ratings + PROBE * np.eye(n)
    of_ratings = (
        _left(own, rule, np.tile(fit.factor, (n, 1)), ratings, np.tile(fit.constants, (n, 1))) - off
    ) / PROBE
    slope = np.concatenate([of_ratings, of_rest])
    size = np.linalg.norm(slope, axis=1)
    size = np.where(size > 0, size, 1.0)
    inverse = np.linalg.pinv((slope @ slope.T) / np.outer(size, size), rcond=1e-14, hermitian=True)
    spare = max(n * k - len(slope), 1)
    digit = own.digit / ROUNDED / np.sqrt(n * k)
    variance = max(fit.left**2 / spare, digit**2)
    deviation = np.sqrt(variance * np.maximum(np.diag(inverse), 0))[:n] / size[:n]
    step = step_of(own.levels)
    if not (SURE * deviation < step / 2).all():
        return False
    return bool(_beside(own, rule, fit) > BESIDE * variance)


def _beside(own: Own, rule: Rule, fit: Fit) -> float:
    """The least that another level of one rating leaves more, squared."""
    predicted = own.offset + own.factors @ fit.factor
    error = fit.ratings - predicted
    base = upload(rule.optimizer, rule.n_steps, fit.factor, error, fit.constants, own.factors)
    left = ((base.rows - own.rows) ** 2).sum(axis=1)
    least = np.inf
    for level in own.levels:
        rows = upload(
            rule.optimizer, rule.n_steps, fit.factor, level - predicted, fit.constants, own.factors, base.path
        ).rows
        other = fit.ratings != level
        more = ((rows - own.rows) ** 2).sum(axis=1) - left
        least = min(least, float(more[other].min(initial=np.inf)))
    return least / float((own.rows**2).sum())
