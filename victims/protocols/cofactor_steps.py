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
    """Constants of the users' steps.

    Attributes
    ----------
    rate : float
        theta.
    implicit_weight, negative_weight : float
        lambda and W.
    users, items, implicit, offsets : float
        lambda_U, lambda_V, lambda_Z, lambda_Q.
    per_sample : bool
        Whether U and Q are regularized with every sample, or once a round as the loss says.
    link : "logistic" or "identity"
        Of explicit scores.
    switches : Switches
    has_offsets : bool
        Whether there is a Q.
    """

    rate: float
    implicit_weight: float
    negative_weight: float
    users: float
    items: float
    implicit: float
    offsets: float
    per_sample: bool
    link: Literal["logistic", "identity"]
    switches: Switches
    has_offsets: bool = True


class Passed(NamedTuple):
    """What a pass leaves.

    Attributes
    ----------
    clients, offsets : (n_users, K)
        U and the mean of Q after it.
    rows : (n_samples, K)
        dL/dV where explicit, dL/dZ where implicit.
    place : (n_samples,) int32, or None
        Of each sample in its user's pass, where they do not go all at once.
    """

    clients: Float[np.ndarray, "users K"]
    offsets: Float[np.ndarray, "users K"]
    rows: Float[np.ndarray, "samples K"]
    place: Int[np.ndarray, " samples"] | None = None


def slopes(
    rules: Rules,
    kind: Int[np.ndarray, " samples"],
    target: Float[np.ndarray, " samples"],
    score: Float[np.ndarray, " samples"],
) -> Float[np.ndarray, " samples"]:
    """dL/dx of every sample.

    Parameters
    ----------
    rules : Rules
    kind, target : (n_samples,)
        As in ``Samples``.
    score : (n_samples,)
        x.

    Returns
    -------
    (n_samples,)
    """
    g, rest = expit(score), expit(-score)  # rest = 1 - g, and stays above 0 where g rounds to 1
    explicit = score - target if rules.link == "identity" else g * rest * (g - target)
    # 1 - W g in two terms that do not cancel; W = 1 leaves g
    negative = rules.negative_weight * g * rest / (rest + (1 - rules.negative_weight) * g)
    implicit = rules.implicit_weight * np.where(kind == NEGATIVE, negative, -rest)
    return np.where(kind == EXPLICIT, explicit, implicit)


def explicit_counts(samples: Samples, n_users: int) -> Int[np.ndarray, " users"]:
    """Count the explicit ratings of every user, |I|.

    Parameters
    ----------
    samples : Samples
    n_users : int

    Returns
    -------
    (users,) int
    """
    return np.bincount(samples.user[samples.kind == EXPLICIT], minlength=n_users)


def over_users(
    user: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows K"], n_users: int
) -> Float[np.ndarray, "users K"]:
    """Add up rows by their user.

    Parameters
    ----------
    user : (rows,) int
    values : (rows, K)
    n_users : int

    Returns
    -------
    (users, K)
    """
    return np.stack([np.bincount(user, column, minlength=n_users) for column in values.T], axis=1)
