"""From fitted trajectories to a reconstruction: ratings with their probabilities, and reasons to abstain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import binom

from attacks.base import Estimates, Outcome, Reconstruction, joined
from attacks.closed_form.fit.bars import BARS
from attacks.trajectory.judgement import Reasons, judge, lowered_before_stretching, unexplained
from attacks.trajectory.passes import Entries, entries_of, separated
from attacks.trajectory.stretched_ratings import Separated
from attacks.trajectory.trajectory_model import Fitted, TrajectoryModel

N_TESTS = 3  # of a client: rows further from the fit or nearer to it than the noise, numbers between levels
LEAST_INFORMATION = 0.01  # nats about a rating, below which an answer could be better by 0.07 (Pinsker)


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
