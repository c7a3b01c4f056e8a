"""Does the recommender work? Prediction error on held-out ratings, beside centralised baselines.

The centralised baseline fits the same kind of model (r = p . q, ridge on both sides, the same weight on
unrated items) to the same ratings by alternating least squares (Y. Zhou et al., AAIM 2008,
doi:10.1007/978-3-540-68880-8_32; with unrated items Y. Hu et al., ICDM 2008, doi:10.1109/ICDM.2008.22), with
every rating in one place and both sides solved exactly; its ``capabilities`` says which model it is.
The bias baseline is mu + b_i + b_j.

A model that counts unrated items as zeros predicts low on purpose: its error on ratings says how far it
is from its centralised twin, not how well it ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.base import Centralised, Defense, Victim
from victims.training import Run, start

WORSE = "the model predicts held-out ratings worse than the training mean"
TOO_EARLY = f"{WORSE}; train more rounds, or lower the rates or the noise of a defense"
ON_PURPOSE = f"{WORSE}: it counts unrated items as zeros, and so predicts low; judge it by its ranking"
BLOCK_CELLS = 1 << 22  # numbers of the squares that are formed together: 32 MiB


@dataclass(frozen=True)
class Learning:
    """Root mean square error on held-out ratings, in stars."""

    rounds: list[int]
    rmse: list[float]
    centralised: float
    bias: float
    mean: float
    stopped: bool = False


def learning_curve(
    victim: Victim,
    train: Ratings,
    test: Ratings,
    rounds: Sequence[int],
    *,
    defenses: Sequence[Defense] = (),
    seed: int = 0,
    sweeps: int = 15,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Learning:
    """Train a victim and measure it after the given numbers of rounds, beside the baselines."""
    if not rounds or rounds[0] < 1 or any(later <= earlier for earlier, later in pairwise(rounds)):
        raise InputError(f"rounds must ascend and be >= 1, got {rounds!r:.80}; name at least one")
    if victim.capabilities.implicit:
        raise InputError(
            "this victim learns that an item is rated and predicts no ratings; measure its ranking with "
            "`factorleak compare`"
        )
    run = start(victim, train, defenses, seed)
    rmse_of, measured = [], []
    for done in range(1, rounds[-1] + 1):
        run = run.trained(done - 1)
        if done in rounds or run.stopped:
            measured.append(done)
            rmse_of.append(errors(run, train, test)[0])
        progress(done, rounds[-1])
        if run.stopped:
            break
    return Learning(
        measured,
        rmse_of,
        _alternating_least_squares(train, test, victim.capabilities.centralised, sweeps, seed),
        _bias_model(train, test),
        errors(run, train, test)[1],
        run.stopped,
    )


def errors(run: Run, train: Ratings, test: Ratings) -> tuple[float, float]:
    """Root mean square errors on held-out ratings, in stars: of a model, and of the training mean."""
    guesses = predictions(run, test), np.full(test.n_ratings, train.values.mean())
    own, mean = (float(np.sqrt(np.mean((guess - test.values) ** 2))) for guess in guesses)
    return own, mean


def why_poor(own: float, mean: float, model: Centralised) -> str:
    """Say that a model is worse than the training mean, and what to do.

    Examples
    --------
    >>> why_poor(1.1, 1.2, Centralised(2, 0.1))
    ''
    >>> why_poor(1.5, 1.2, Centralised(2, 0.1)).partition(";")[0]
    'the model predicts held-out ratings worse than the training mean'
    """
    if own <= mean:
        return ""
    return ON_PURPOSE if model.unrated_weight else TOO_EARLY


def predictions(run: Run, test: Ratings, *, clip: bool = True) -> Float[np.ndarray, " entries"]:
    """Predicted ratings for the entries of ``test``, clipped to the rating grid."""
    predicted = run.predictor(int(run.state.round)).pairs(test.users, test.items)
    for defense in run.defenses:
        predicted = defense.predicted(predicted, test, run.seed)
    return np.clip(predicted, test.levels[0], test.levels[-1]) if clip else predicted


def rmse(clients: Float[np.ndarray, "users K"], items: Float[np.ndarray, "items K"], test: Ratings) -> float:
    """Error of the predictions p . q, clipped to the rating grid, in stars."""
    predicted = np.einsum("rk,rk->r", clients[test.users], items[test.items])
    predicted = np.clip(predicted, test.levels[0], test.levels[-1])
    return float(np.sqrt(np.mean((predicted - test.values) ** 2)))


def _alternating_least_squares(
    train: Ratings, test: Ratings, model: Centralised, sweeps: int, seed: int
) -> float:
    ratings = train.matrix()
    rng = generator(seed, Purpose.LEAST_SQUARES_START)
    items = rng.normal(0, 0.1, (train.n_items, model.factors))
    best = np.inf
    for _ in range(sweeps):
        clients = _ridge_rows(ratings, items, model)
        items = _ridge_rows(sp.csr_array(ratings.T), clients, model)
        best = min(best, rmse(clients, items, test))
    return best


def _ridge_rows(
    ratings: sp.csr_array,
    other: Float[np.ndarray, "columns K"],
    model: Centralised,
) -> Float[np.ndarray, "rows K"]:
    """Ridge regression of every row on the factors of all columns, unrated ones down-weighted.

    Some rows at a time, and some columns of their squares: all of them are rows x K x K numbers.
    """
    everywhere = model.unrated_weight * other.T @ other
    rows = max(1, BLOCK_CELLS // other.shape[1] ** 2)
    found = [
        _ridge_block(ratings[first : first + rows], other, everywhere, model)
        for first in range(0, ratings.shape[0], rows)
    ]
    return np.concatenate(found)


def _ridge_block(
    ratings: sp.csr_array,
    other: Float[np.ndarray, "columns K"],
    everywhere: Float[np.ndarray, "K K"],
    model: Centralised,
) -> Float[np.ndarray, "rows K"]:
    n_columns, k = other.shape
    rated = sp.csr_array((np.ones_like(ratings.data), ratings.indices, ratings.indptr), ratings.shape)
    squares = np.empty((ratings.shape[0], k, k))
    width = max(1, BLOCK_CELLS // (n_columns * k))
    for first in range(0, k, width):
        some = other[:, first : first + width]
        products = (some[:, :, None] * other[:, None, :]).reshape(n_columns, -1)
        squares[:, first : first + width] = (rated @ products).reshape(-1, some.shape[1], k)
    squares = (1 - model.unrated_weight) * squares + everywhere
    # a row without ratings keeps one ridge, so that it is solved to zeros
    times = np.maximum(np.diff(ratings.indptr), 1) if model.per_rating else np.ones(ratings.shape[0])
    sums = (ratings @ other)[..., None]
    if model.ridge == 0:  # rows with fewer ratings than factors: the shortest solution
        return (np.linalg.pinv(squares, hermitian=True) @ sums)[..., 0]
    ridge = model.ridge * times[:, None, None] * np.eye(k)
    return np.linalg.solve(squares + ridge, sums)[..., 0]


def _bias_model(train: Ratings, test: Ratings, damping: float = 5.0) -> float:
    """mu + b_i + b_j with damped means."""
    mean = train.values.mean()
    counts = np.bincount(train.items, minlength=train.n_items)
    items = np.bincount(train.items, train.values - mean, minlength=train.n_items)
    items /= counts + damping
    rest = train.values - mean - items[train.items]
    users = np.bincount(train.users, rest, minlength=train.n_users)
    users /= np.diff(train.indptr) + damping
    predicted = np.clip(mean + users[test.users] + items[test.items], test.levels[0], test.levels[-1])
    return float(np.sqrt(np.mean((predicted - test.values) ** 2)))
