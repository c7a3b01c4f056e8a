"""From fitted trajectories to a reconstruction: ratings with their probabilities, and reasons to abstain.

Without fresh noise, rows that are explained by numbers off the rating grid
(``attacks.closed_form.fit.goodness_of_fit``; stretched ratings once their weights are taken off) tell that
the clients' rule is not the declared one. Under fresh noise a chi-square test of the residual does, and,
where nothing is stretched, numbers that are surely between the levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import binom, chi2

from attacks.base import Estimates, Outcome, Reconstruction, joined
from attacks.closed_form.asked_clients import FEWEST_ALONE
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import accidental, log_odds_between, misfit
from attacks.trajectory.passes import Entries, entries_of, separated
from attacks.trajectory.stretched_ratings import Separated
from attacks.trajectory.trajectory_model import Fitted, TrajectoryModel

N_TESTS = 3  # of a client: rows further from the fit or nearer to it than the noise, numbers between levels
LEAST_INFORMATION = 0.01  # nats about a rating, below which an answer could be better by 0.07 (Pinsker)
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


def reconstruct(
    name: str,
    model: TrajectoryModel,
    fits: list[Fitted],
    options: Mapping[str, Any],
    *,
    answer: Literal["ratings", "stretched"],
    max_misfit: float,
) -> Reconstruction:
    """Turn the fits of all clients into answers."""
    abstained: Reasons = {}
    for fit in fits:
        abstained |= unexplained(model, fit)
    unfitted = frozenset(abstained)
    fits = [_without_rows_of(fit, abstained) for fit in fits]
    readable = answer == "ratings" and any(fit.item_rows.any() for fit in fits)
    entries = entries_of([replace(fit, valid=fit.item_rows) for fit in fits]) if readable else None
    ratings = None if entries is None else separated(model, entries)
    users = np.concatenate([fit.users for fit in fits])
    order = np.argsort(users)
    nats = np.full(users.max() + 1, np.inf)
    if model.fresh and entries is not None and ratings is not None:
        nats = _information(entries, ratings, model.levels, nats.size)
    misfits = []
    for fit in fits:
        fit_misfit, reasons = judge(model, fit, ratings, max_misfit)
        misfits.append(fit_misfit)
        abstained = reasons | abstained
    if answer == "ratings":
        abstained = lowered_before_stretching(model, fits) | abstained
    explained = _as_many_as_by_chance(len(abstained), users.size)
    if model.fresh:
        abstained = _contradicted_by_others(users, unfitted, abstained) | abstained
    for fit in fits:
        abstained = _uninformed(fit, nats) | abstained
    posteriors = _by_batch(ratings, fits)
    blocks = [_block(fit, own, model, abstained) for fit, own in zip(fits, posteriors, strict=True)]
    diagnostics = {
        "left": np.concatenate([fit.residual for fit in fits])[order],
        "starts": np.concatenate([fit.n_starts for fit in fits])[order],
        "misfit": np.concatenate(misfits)[order],
    }
    looked = readable and model.fresh and explained
    outcome = Outcome.NOTHING_FOUND if looked else Outcome.ANSWERED
    factors = joined(_factors(fit, model, abstained) for fit in fits)
    return Reconstruction(
        name,
        users[order],
        tuple(blocks),
        abstained,
        options,
        diagnostics,
        outcome=outcome,
        factors=factors,
    )


def _factors(fit: Fitted, model: TrajectoryModel, abstained: Reasons) -> tuple[np.ndarray, ...]:
    """The fitted starts, which are the factors of the first round."""
    silenced = np.isin(fit.users, list(abstained))[:, None]
    first = fit.start[:, : model.manifest.factors]  # what follows is what chance added to the later ones
    return fit.users, np.full(fit.users.size, model.rounds[0]), np.where(silenced, np.nan, first)


def _without_rows_of(fit: Fitted, abstained: Reasons) -> Fitted:
    return replace(fit, valid=fit.valid & ~np.isin(fit.users, list(abstained))[:, None])


def _as_many_as_by_chance(unexplained: int, n_users: int) -> bool:
    """Whether no more clients fail their tests than would under the declared rule and noise."""
    return bool(unexplained <= binom.isf(BARS.accident, n_users, N_TESTS * BARS.accident))


def _contradicted_by_others(
    users: Int[np.ndarray, " users"], unfitted: frozenset[int], abstained: Reasons
) -> Reasons:
    """Clients whose own rows agree with a rule that those of most others contradict.

    All have one rule and one law of the noise. A few ratings, which hardly overdetermine a start, agree with
    any, and surely.
    """
    tested = [user for user in users.tolist() if user not in unfitted]
    against = sum(user in abstained for user in tested)
    if 2 * against <= len(tested):
        return {}
    reason = (
        f"the rows of {against} of {len(tested)} clients contradict the declared rule or noise, and this "
        "client's are too few to do so"
    )
    return dict.fromkeys((user for user in tested if user not in abstained), reason)


def _uninformed(fit: Fitted, nats: Float[np.ndarray, " users"]) -> Reasons:
    """Clients whose rows tell next to nothing about a rating."""
    return {
        user: f"the noise leaves {nats[user]:.1g} nats about a rating"
        for user in fit.users[nats[fit.users] < LEAST_INFORMATION].tolist()
    }


def _information(
    entries: Entries, ratings: Separated, levels: Float[np.ndarray, " levels"], n_users: int
) -> Float[np.ndarray, " users"]:
    """Nats that a client's rows tell about one of its ratings, were all levels as likely and normal.

    Infinite for clients without rows.
    """
    signal = ratings.user_weight[entries.user] * ratings.item_weight[entries.item] * levels.std()
    nats = 0.5 * np.log1p((signal / entries.deviation) ** 2)
    counts = np.bincount(entries.user, minlength=n_users)
    total = np.bincount(entries.user, nats, n_users)
    return np.where(counts > 0, total / np.maximum(counts, 1), np.inf)


def _by_batch(
    ratings: Separated | None, fits: list[Fitted]
) -> list[Float[np.ndarray, "entries levels"] | None]:
    """The posteriors of each batch's rows about items."""
    if ratings is None:
        return [None] * len(fits)
    ends = np.cumsum([int(fit.item_rows.sum()) for fit in fits])[:-1]
    return list(np.split(ratings.posterior, ends))


def _block(
    fit: Fitted,
    posterior: Float[np.ndarray, "entries levels"] | None,
    model: TrajectoryModel,
    abstained: Reasons,
) -> Estimates:
    """Estimates of a batch: the most probable level and the median, or s as it was fitted."""
    silenced = np.isin(fit.users, list(abstained))
    value, probability, median = np.where(fit.valid, fit.value, np.nan), None, None
    if posterior is not None:
        rows, levels = fit.item_rows, model.levels
        probability, median = np.full(value.shape, np.nan), np.full(value.shape, np.nan)
        value[rows] = levels[posterior.argmax(axis=1)]
        probability[rows] = posterior.max(axis=1)
        median[rows] = levels[(np.cumsum(posterior, axis=1) >= 0.5 - 1e-12).argmax(axis=1)]
        probability[silenced] = np.nan
    value[silenced] = np.nan
    return Estimates(fit.users, fit.kind, fit.index, value, probability, median_if_rated=median)
