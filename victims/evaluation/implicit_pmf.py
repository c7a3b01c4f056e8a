"""Matrix factorisation of implicit feedback as Bernoulli trials: equations (9) to (12) of paper 004.

p(M = 1) = g(U . Z) and p(M = 0) = 1 - W g(U . Z), the second line of (9) as corrected, with Gaussian priors
on U and Z: minimised is

    - sum over positives ln g(U . Z) - sum over negatives ln(1 - W g(U . Z)) + ridge/2 (|U|^2 + |Z|^2).

With everything in one place. This is the "PMF" of the paper's Table 4. As many negatives as positives are
drawn, once; the minimum is found by L-BFGS, which has no learning rate.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.base import Products
from victims.protocols.feedback import EXPLICIT, POSITIVE, Samples, with_negatives

STEPS = 200


def implicit_pmf(
    positives: Ratings,
    rated: Ratings,
    factors: int,
    *,
    negative_weight: float = 0.5,
    ridge: float = 3.0,
    seed: int = 0,
) -> Products:
    """Fit the model."""
    n = positives.n_ratings
    kind = np.full(n, POSITIVE, np.int8)
    samples = with_negatives(
        Samples(positives.users, positives.items.astype(np.int32), kind, np.zeros(n)), rated, seed, 0
    )
    assert not (samples.kind == EXPLICIT).any()
    shape = positives.n_users + positives.n_items, factors
    start = 0.1 * generator(seed, Purpose.REFERENCE_START, factors).normal(size=shape)
    found = minimize(
        _loss,
        start.ravel(),
        args=(samples, positives.n_users, shape, negative_weight, ridge),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": STEPS},
    )
    table = found.x.reshape(shape)
    return Products(table[: positives.n_users], table[positives.n_users :])


def _loss(
    flat: Float[np.ndarray, " numbers"],
    samples: Samples,
    n_users: int,
    shape: tuple[int, int],
    weight: float,
    ridge: float,
) -> tuple[float, Float[np.ndarray, " numbers"]]:
    """Value and gradient."""
    table = flat.reshape(shape)
    left, right = table[samples.user], table[n_users + samples.item]
    x = np.einsum("nk,nk->n", left, right)
    g, rest = expit(x), expit(-x)
    wanted = samples.kind == POSITIVE
    not_chosen = rest + (1 - weight) * g  # 1 - W g, without cancellation
    value = -np.sum(np.where(wanted, log_expit(x), np.log(not_chosen)))
    slope = np.where(wanted, -rest, weight * g * rest / not_chosen)[:, None]
    gradient = ridge * table
    for column in range(shape[1]):
        gradient[:n_users, column] += np.bincount(samples.user, (slope * right)[:, column], n_users)
        gradient[n_users:, column] += np.bincount(samples.item, (slope * left)[:, column], shape[0] - n_users)
    return value + ridge / 2 * np.sum(table**2), gradient.ravel()
