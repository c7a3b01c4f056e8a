"""How right the clients' factors are that an attack read, beside what a guess makes of them.

Paper 001 counts a user's learned latent vector among what must stay private (its section 1).
``factor_cosine`` is the cosine of the angle between p_i as read and as it was, without its sign: the line
that every single row of a client gives away, length and sign being what it leaves open.
``factor_relative_error`` is |read - true| / |true|, which asks for both.

Guesses know the mean factor of the other clients in the same round (``mean``), else nothing: ``zero``, whose
relative error is 1, and a random direction (``random``), whose expected cosine is
Gamma(K/2) / (sqrt(pi) Gamma((K+1)/2)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from attacks.base import ClientFactors
from audit.scoring.factor_truth import FactorTruth
from victims.common.errors import InputError

FACTOR_COSINE, FACTOR_ERROR = "factor_cosine", "factor_relative_error"
FACTOR_METRICS = (FACTOR_COSINE, FACTOR_ERROR)


class FactorScores(NamedTuple):
    """Per client what was read and the guesses by name, (n_users,) each; NaN where it is not defined."""

    values: Float[np.ndarray, " users"]
    guesses: dict[str, Float[np.ndarray, " users"]]


def score_factors(
    found: ClientFactors, truth: FactorTruth, users: Int[np.ndarray, " users"]
) -> dict[str, FactorScores]:
    """Score the factors of some clients."""
    if found.value.shape[1] != truth.value.shape[1]:
        raise InputError(
            f"the factors of the truth must have as many numbers as those of the reconstruction, "
            f"{found.value.shape[1]}, got {truth.value.shape[1]}; give the truth that was recorded with it"
        )
    read, round_ = (
        np.full((users.size, found.value.shape[1]), np.nan),
        np.full(users.size, found.round.max(initial=0)),
    )
    here = np.searchsorted(users, found.users)
    read[here], round_[here] = found.value, found.round
    actual = truth.of(users, round_)
    mean = np.full(read.shape, np.nan)
    for one_round in np.unique(round_):
        everybody = truth.everybody(int(one_round))
        if len(everybody) > 1:  # the client itself does not count
            asked = round_ == one_round
            mean[asked] = (everybody.sum(axis=0) - actual[asked]) / (len(everybody) - 1)
    defined = np.isfinite(actual).all(axis=1) & (np.linalg.norm(actual, axis=1) > 0)
    ones = np.where(defined, 1.0, np.nan)
    return {
        FACTOR_COSINE: FactorScores(
            ones * _cosine(read, actual),
            {"random": ones * _expected_cosine(read.shape[1]), "mean": ones * _cosine(mean, actual)},
        ),
        FACTOR_ERROR: FactorScores(
            ones * _relative_error(read, actual),
            {"zero": ones, "mean": ones * _relative_error(mean, actual)},
        ),
    }


def _cosine(
    guess: Float[np.ndarray, "users K"], actual: Float[np.ndarray, "users K"]
) -> Float[np.ndarray, " users"]:
    """|cos|; 0 for a vector without a direction."""
    size = np.linalg.norm(guess, axis=1) * np.linalg.norm(actual, axis=1)
    product = np.abs(np.einsum("uk,uk->u", guess, actual))
    return np.where(size == 0, 0.0, np.minimum(product / np.where(size == 0, 1, size), 1.0))


def _relative_error(
    guess: Float[np.ndarray, "users K"], actual: Float[np.ndarray, "users K"]
) -> Float[np.ndarray, " users"]:
    size = np.linalg.norm(actual, axis=1)
    return np.linalg.norm(guess - actual, axis=1) / np.where(size > 0, size, np.nan)


def _expected_cosine(factors: int) -> float:
    """Mean of |cos| between a direction and a random one."""
    return float(np.exp(gammaln(factors / 2) - gammaln((factors + 1) / 2)) / np.sqrt(np.pi))
