"""Steps of a client over all its ratings with Adam and its relatives, between broadcast and upload.

Factor u and copies w_j of the items, each entry with moments of its own, none at the start of a round:

    e_j = r_j - u . w_j,    g = e_j u - l_w w_j for w_j, sum_j e_j w_j - l_u u for u,
    m <- a m + (1 - a) g,    s <- b s + c g^2,    x <- (1 - eta d) x + eta m' / (sqrt(s') + eps),

m' = m / (1 - a^t) and s' = s / (1 - b^t) where a rule corrects them. What multiplies the loss goes out but
for eps, which is in its units; a sum or a mean are the same. The first step tells signs alone.

References
----------
D. P. Kingma, J. Ba 2015, arXiv:1412.6980, Algorithm 1; I. Loshchilov, F. Hutter 2019, arXiv:1711.05101 (decay
beside the step); J. Duchi et al. 2011, JMLR 12:2121 (Adagrad); T. Tieleman, G. Hinton 2012 (RMSprop).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

RATE, EPSILON, FACTOR_DECAY, ITEM_DECAY, WEIGHT_DECAY = range(5)
CONSTANTS = ("log_rate", "epsilon", "factor_decay", "item_decay", "weight_decay")


class Optimizer(NamedTuple):
    """How moments of gradients are kept.

    Attributes
    ----------
    name : str
    first, second : float
        Shares of both moments that are kept from step to step, a and b.
    taken : float
        Weight of a squared gradient, c.
    corrected : bool
        Whether moments are divided by the weight that they hold.
    """

    name: str
    first: float
    second: float
    taken: float
    corrected: bool


ADAM = Optimizer("adam", 0.9, 0.999, 0.001, True)
RMSPROP = Optimizer("rmsprop", 0.0, 0.99, 0.01, False)
ADAGRAD = Optimizer("adagrad", 0.0, 1.0, 1.0, False)


class Upload(NamedTuple):
    """What a client sends, and its factor before each step.

    Attributes
    ----------
    rows : (..., n, K)
        Changes of its copies.
    path : (..., steps, K)
    """

    rows: Float[np.ndarray, "*some n K"]
    path: Float[np.ndarray, "*some steps K"]


def step(
    optimizer: Optimizer, moments: np.ndarray, gradient: np.ndarray, number: int, epsilon: np.ndarray | float
) -> np.ndarray:
    """Step once in units of the rate; both moments are moved on in place.

    Parameters
    ----------
    optimizer : Optimizer
    moments : (2, ...)
        Zeros before the first step.
    gradient : (...)
        Upwards.
    number : int
        Of the step, >= 1.
    epsilon : array or float
        In units of the gradient, >= 0.

    Returns
    -------
    (...)

    Examples
    --------
    >>> step(ADAM, np.zeros((2, 1)), np.array([0.3]), 1, 0.0).round(12)
    array([1.])
    """
    moments[0] *= optimizer.first
    moments[0] += (1 - optimizer.first) * gradient
    moments[1] *= optimizer.second
    moments[1] += optimizer.taken * gradient**2
    up, size = 1.0, 1.0
    if optimizer.corrected:
        up, size = 1 / (1 - optimizer.first**number), 1 / (1 - optimizer.second**number)
    below = np.sqrt(size * moments[1]) + epsilon
    return up * moments[0] / np.where(below > 0, below, 1.0)


def upload(
    optimizer: Optimizer,
    n_steps: int,
    factor: Float[np.ndarray, "*some K"],
    error: Float[np.ndarray, "*some n"],
    constants: Float[np.ndarray, "*some c"],
    factors: Float[np.ndarray, "n K"],
    path: Float[np.ndarray, "*some steps K"] | None = None,
) -> Upload:
    """Compute what clients upload.

    Parameters
    ----------
    optimizer : Optimizer
    n_steps : int
        >= 1.
    factor : (..., K)
        As a client starts.
    error : (..., n)
        Of its ratings, at the start, stars.
    constants : (..., c)
        ``CONSTANTS``.
    factors : (n, K)
        As broadcast.
    path : (..., n_steps, K), optional
        The factor before each step; as its own steps make it if it is not given.

    Returns
    -------
    Upload
    """
    rate = np.exp(constants[..., RATE, None])
    epsilon, of_factor, of_item, decay = (constants[..., one, None] for one in range(1, len(CONSTANTS)))
    u, w = factor, np.broadcast_to(factors, (*factor.shape[:-1], *factors.shape))
    ratings = error + factor @ factors.T
    own, items = np.zeros((2, *u.shape)), np.zeros((2, *w.shape))
    walked = []
    for number in range(1, n_steps + 1):
        u = u if path is None else path[..., number - 1, :]
        walked.append(u)
        off = ratings - (w @ u[..., None])[..., 0]
        gradient = off[..., None] * u[..., None, :] - of_item[..., None] * w
        if path is None and number < n_steps:
            ascent = (off[..., None, :] @ w)[..., 0, :] - of_factor * u
            u = (1 - rate * decay) * u + rate * step(optimizer, own, ascent, number, epsilon)
        moved = step(optimizer, items, gradient, number, epsilon[..., None])
        w = (1 - (rate * decay)[..., None]) * w + rate[..., None] * moved
    return Upload(w - factors, np.stack(walked, axis=-2))
