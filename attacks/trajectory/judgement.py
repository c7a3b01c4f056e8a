"""Whether a client's fit may be believed: the declared rule and noise, and the rating grid, explain it.

Without fresh noise, rows that are explained by numbers off the rating grid
(``attacks.closed_form.fit.goodness_of_fit``; stretched ratings once their weights are taken off) tell that
the clients' rule is not the declared one. Under fresh noise a chi-square test of the residual does, and,
where nothing is stretched, numbers that are surely between the levels.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.stats import chi2

from attacks.closed_form.asked_clients import FEWEST_ALONE
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import accidental, log_odds_between, misfit
from attacks.trajectory.stretched_ratings import Separated
from attacks.trajectory.trajectory_model import Fitted, TrajectoryModel

MAX_RESIDUAL = 0.05  # share of the rows' own size above which an exact answer is none
DIVERGED = "the fit of every start ends in numbers that are not finite"
NONE = 1e-6  # of a client's largest number: what is left of 0
LONE = "a single stretched rating cannot be told from its weight"

Reasons = dict[int, str]  # why clients are abstained on


def unexplained(model: TrajectoryModel, fit: Fitted) -> Reasons:
    """Name the clients whose rows no trajectory explains."""
    reasons: Reasons = {}
    for user, same_list, residual in zip(fit.users.tolist(), fit.same_list, fit.residual, strict=True):
        if not same_list:
            reasons[user] = "the client's list of items changes from round to round"
        elif not model.fresh and not residual < MAX_RESIDUAL:
            best = f"the best leaves {residual:.2g} of their size" if residual < np.inf else DIVERGED
            reasons[user] = f"no start explains the client's rows ({best})"
    return reasons


def judge(
    model: TrajectoryModel, fit: Fitted, ratings: Separated | None, max_misfit: float
) -> tuple[Float[np.ndarray, " users"], Reasons]:
    """Judge a batch's clients by the declared rule."""
    unjudged = np.full(fit.users.size, np.nan)
    if model.fresh:
        between = {} if ratings is None or model.stretched else _between_levels(model, fit, ratings)
        return unjudged, between | _other_noise(model, fit)
    if model.stretched and ratings is None:
        return unjudged, {}
    return _off_the_grid(model, fit, ratings, max_misfit)


def lowered_before_stretching(model: TrajectoryModel, fits: list[Fitted]) -> Reasons:
    """Name everybody where stretched numbers of several clients are 0, which no weight makes of a level.

    Whoever has none of the lowest level would be answered one level too low.
    """
    if model.fresh or not model.stretched:
        return {}
    saying = 0
    for fit in fits:
        size = np.abs(np.where(fit.item_rows, fit.value, 0.0))
        largest = size.max(axis=1, initial=0.0)
        none = fit.item_rows & (size <= NONE * largest[:, None])
        saying += int((none.any(axis=1) & (largest > 0)).sum())
    if saying < FEWEST_ALONE:
        return {}
    reason = (
        f"stretched ratings of {saying} clients are 0: the program takes the lowest level off first, "
        "and who has no rating of that level fits as well without"
    )
    return {int(user): reason for fit in fits for user in fit.users}


def _off_the_grid(
    model: TrajectoryModel, fit: Fitted, ratings: Separated | None, max_misfit: float
) -> tuple[Float[np.ndarray, " users"], Reasons]:
    """Clients whose rows are explained by numbers that are no ratings."""
    weights = np.ones(fit.valid.shape) if ratings is None else _weights(ratings, fit)
    value = fit.value / weights
    away, n_judged = misfit(value, np.zeros_like(value), fit.item_rows, fit.valid, model.levels, None)
    # a stretched client's weight is told by one of its ratings, on any level
    limit = accidental(n_judged - 1, model.levels.size) if model.stretched else accidental(n_judged)
    allowed = np.minimum(max_misfit, np.where(n_judged > 0, limit, np.inf))
    # a weight that was taken apart wrongly looks like another rule
    or_else = "its weights could not be taken apart from its ratings, or " if model.stretched else ""
    untold = fit.users[np.isnan(away)].tolist()  # a weight that nothing tells
    reasons = {
        int(user): f"the rows are explained ({residual:.2g} of their size is left), but by numbers off the "
        f"rating grid (misfit {off:.2g} of 1, at most {bar:.2g} with so many ratings): {or_else}the clients' "
        "rule is not the declared one"
        for user, residual, off, bar in zip(fit.users, fit.residual, away, allowed, strict=True)
        if not off <= bar
    }
    reasons |= dict.fromkeys(untold, f"{or_else}the clients' rule is not the declared one")
    lone = fit.users[(n_judged == 1) & model.stretched].tolist()
    return away, reasons | dict.fromkeys(lone, LONE)


def _other_noise(model: TrajectoryModel, fit: Fitted) -> Reasons:
    """Clients whose rows are further from the fit, or nearer to it, than noise as declared could be."""
    k = model.manifest.factors
    n_rows = fit.valid.sum(axis=1)
    n_numbers = model.rounds.size * k * np.maximum(n_rows, 1)
    # with the priors' own terms; without as many numbers as were fitted
    n_fitted = n_rows + fit.start.shape[1]
    high = np.sqrt(chi2.isf(BARS.accident, n_numbers + n_fitted) / n_numbers)
    low = np.sqrt(chi2.ppf(BARS.accident, np.maximum(n_numbers - n_fitted, 1)) / n_numbers)
    return {
        int(
            user
        ): f"what the fit leaves is {residual:.2g} times the declared noise (by chance {least:.2g} to "
        f"{most:.2g}): the clients' rule, or the noise, is not the declared one"
        for user, residual, least, most in zip(fit.users, fit.residual, low, high, strict=True)
        if not least <= residual <= most
    }


def _between_levels(model: TrajectoryModel, fit: Fitted, ratings: Separated) -> Reasons:
    """Clients whose numbers are surely not on the rating grid, where no weights lie between."""
    rows = fit.item_rows
    nats = np.zeros(fit.valid.shape)
    nats[rows] = log_odds_between(fit.value[rows], fit.deviation[rows], model.levels, ratings.level_share)
    return {
        int(user): f"the odds are e^{odds:.2g} that the client's numbers are not on the rating grid: the "
        "clients' rule is not the declared one"
        for user, odds in zip(fit.users, nats.sum(axis=1), strict=True)
        if odds > -np.log(BARS.accident)
    }


def _weights(ratings: Separated, fit: Fitted) -> Float[np.ndarray, "users n"]:
    """The weights of a batch's rows; 1 for attributes and for what was not fitted."""

    def looked_up(weights: np.ndarray, index: np.ndarray) -> np.ndarray:
        return np.where(index < weights.size, weights[np.minimum(index, weights.size - 1)], 1.0)

    product = looked_up(ratings.user_weight, fit.users)[:, None] * looked_up(ratings.item_weight, fit.index)
    return np.where(fit.item_rows, product, 1.0)
