"""Steps of users on their samples: constants, slopes, and what a pass leaves (paper 004).

=================  ================================================================================
x, g               score U . Z or U^ . V; g = 1 / (1 + exp(-x)), or x itself for the link identity
U, U^              ``clients``; U^ = U + mean of the Q_k of the rated k, kept as ``offsets``
lambda, W          ``implicit_weight``, ``negative_weight``
=================  ================================================================================

Equations (15) to (18) as corrected: with g' = g (1 - g) and the slope s = dL/dx,

    explicit  s = g' (g - R)                   dU = s V   dV = s U^   dQ_k = s V / |I| for every rated k
    positive  s = -lambda (1 - g)              dU = s Z   dZ = s U
    negative  s = lambda W g (1 - g)/(1 - W g) dU = s Z   dZ = s U

(15) lost the Z of the negatives, (14), (15) and (17) a minus. All Q_k of a user get the same step, and
only their mean is ever used: it is all that is kept.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from victims.protocols.feedback import EXPLICIT, NEGATIVE, Samples
from victims.protocols.switches import Switches


class Rules(NamedTuple):
    """Constants of the users' steps."""

    rate: float  # theta
    implicit_weight: float  # lambda and W
    negative_weight: float  # lambda and W
    users: float  # lambda_U, lambda_V, lambda_Z, lambda_Q
    items: float  # lambda_U, lambda_V, lambda_Z, lambda_Q
    implicit: float  # lambda_U, lambda_V, lambda_Z, lambda_Q
    offsets: float  # lambda_U, lambda_V, lambda_Z, lambda_Q
    per_sample: bool  # whether U and Q are regularized with every sample, or once a round as the loss says
    link: Literal["logistic", "identity"]  # of explicit scores
    switches: Switches
    has_offsets: bool = True  # whether there is a Q


class Passed(NamedTuple):
    """What a pass leaves."""

    clients: Float[np.ndarray, "users K"]  # U and the mean of Q after it
    offsets: Float[np.ndarray, "users K"]  # U and the mean of Q after it
    rows: Float[np.ndarray, "samples K"]  # dL/dV where explicit, dL/dZ where implicit
    # of each sample in its user's pass, where they do not go all at once
    place: Int[np.ndarray, " samples"] | None = None


def slopes(
    rules: Rules,
    kind: Int[np.ndarray, " samples"],
    target: Float[np.ndarray, " samples"],
    score: Float[np.ndarray, " samples"],
) -> Float[np.ndarray, " samples"]:
    """dL/dx of every sample."""
    g, rest = expit(score), expit(-score)  # rest = 1 - g, and stays above 0 where g rounds to 1
    explicit = score - target if rules.link == "identity" else g * rest * (g - target)
    # 1 - W g in two terms that do not cancel; W = 1 leaves g
    negative = rules.negative_weight * g * rest / (rest + (1 - rules.negative_weight) * g)
    implicit = rules.implicit_weight * np.where(kind == NEGATIVE, negative, -rest)
    return np.where(kind == EXPLICIT, explicit, implicit)


def explicit_counts(samples: Samples, n_users: int) -> Int[np.ndarray, " users"]:
    """Count the explicit ratings of every user, |I|."""
    return np.bincount(samples.user[samples.kind == EXPLICIT], minlength=n_users)


def over_users(
    user: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows K"], n_users: int
) -> Float[np.ndarray, "users K"]:
    """Add up rows by their user."""
    return np.stack([np.bincount(user, column, minlength=n_users) for column in values.T], axis=1)
