"""Steps of a client over all its ratings with Adam and its relatives, between broadcast and upload.

Factor u and copies w_j of the items, each entry with moments of its own, none at the start of a round:

    e_j = r_j - u . w_j,    g = e_j u - l_w w_j for w_j, sum_j e_j w_j - l_u u for u,
    m <- a m + (1 - a) g,    s <- b s + c g^2,    x <- (1 - eta d) x + eta m' / (sqrt(s') + eps),

m' = m / (1 - a^t) and s' = s / (1 - b^t) where a rule corrects them. What multiplies the loss goes out but
for eps, which is in its units; a sum or a mean are the same. The first step tells signs alone.

The formulas are of NumPy's and of JAX's arrays alike: closed forms step on batches of any shape, and
``attacks.client_rules.adaptive_rule`` is the same steps to be differentiated and compiled.

References
----------
D. P. Kingma, J. Ba 2015, arXiv:1412.6980, Algorithm 1; I. Loshchilov, F. Hutter 2019, arXiv:1711.05101 (decay
beside the step); J. Duchi et al. 2011, JMLR 12:2121 (Adagrad); T. Tieleman, G. Hinton 2012 (RMSprop).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

RATE, EPSILON, FACTOR_DECAY, ITEM_DECAY, WEIGHT_DECAY = range(5)
CONSTANTS = ("log_rate", "epsilon", "factor_decay", "item_decay", "weight_decay")


class Optimizer(NamedTuple):
    """How moments of gradients are kept."""

    name: str
    first: float  # shares of both moments that are kept from step to step, a and b
    second: float  # shares of both moments that are kept from step to step, a and b
    taken: float  # weight of a squared gradient, c
    corrected: bool  # whether moments are divided by the weight that they hold


ADAM = Optimizer("adam", 0.9, 0.999, 0.001, True)
RMSPROP = Optimizer("rmsprop", 0.0, 0.99, 0.01, False)
ADAGRAD = Optimizer("adagrad", 0.0, 1.0, 1.0, False)


class Moments(NamedTuple):
    """Of a gradient, each of its shape."""

    mean: Any  # m and s; 0 before the first step
    square: Any  # m and s; 0 before the first step


class Client(NamedTuple):
    """A client between two steps."""

    factor: Any  # u
    items: Any  # its copies of the items' factors, w
    of_factor: Moments  # of both gradients
    of_items: Moments  # of both gradients


class Upload(NamedTuple):
    """What a client sends, and its factor before each step."""

    rows: Float[np.ndarray, "*some n K"]  # changes of its copies
    path: Float[np.ndarray, "*some steps K"]


def step(
    optimizer: Optimizer, moments: Moments, gradient: Any, number: Any, epsilon: Any
) -> tuple[Any, Moments]:
    """Step once in units of the rate.

    Examples
    --------
    >>> step(ADAM, none_yet(np.zeros(1)), np.array([0.3]), 1, 0.0)[0].round(12)
    array([1.])
    """
    where, sqrt = (getattr(gradient.__array_namespace__(), name) for name in ("where", "sqrt"))
    mean = optimizer.first * moments.mean + (1 - optimizer.first) * gradient
    square = optimizer.second * moments.square + optimizer.taken * gradient**2
    up, size = 1.0, 1.0
    if optimizer.corrected:
        up, size = 1 / (1 - optimizer.first**number), 1 / (1 - optimizer.second**number)
    some = square > 0
    # the root of a number that is surely not 0, so that its derivative is finite
    below = sqrt(where(some, size * square, 1.0)) + epsilon
    return where(some, up * mean / below, 0.0), Moments(mean, square)


def none_yet(like: Any) -> Moments:
    """Make moments before the first step."""
    return Moments(0.0 * like, 0.0 * like)


def begun(factor: Any, factors: Any) -> Client:
    """Make a client as it starts."""
    items = factor.__array_namespace__().broadcast_to(factors, (*factor.shape[:-1], *factors.shape))
    return Client(factor, items, none_yet(factor), none_yet(items))


def stepped(
    optimizer: Optimizer, client: Client, ratings: Any, constants: Any, number: Any, *, moves: bool = True
) -> Client:
    """Step once, factor and items from the same point."""
    u, w, own, items = client
    rate = constants.__array_namespace__().exp(constants[..., RATE, None])
    epsilon, of_factor, of_item, decay = (constants[..., one, None] for one in range(1, len(CONSTANTS)))
    off = ratings - (w @ u[..., None])[..., 0]
    if moves:
        ascent = (off[..., None, :] @ w)[..., 0, :] - of_factor * u
        by, own = step(optimizer, own, ascent, number, epsilon)
        u = (1 - rate * decay) * u + rate * by
    gradient = off[..., None] * client.factor[..., None, :] - of_item[..., None] * w
    by, items = step(optimizer, items, gradient, number, epsilon[..., None])
    return Client(u, (1 - (rate * decay)[..., None]) * w + rate[..., None] * by, own, items)


def upload(
    optimizer: Optimizer,
    n_steps: int,
    factor: Float[np.ndarray, "*some K"],
    error: Float[np.ndarray, "*some n"],
    constants: Float[np.ndarray, "*some c"],
    factors: Float[np.ndarray, "n K"],
    path: Float[np.ndarray, "*some steps K"] | None = None,
) -> Upload:
    """Compute what clients upload."""
    ratings = error + factor @ factors.T
    client, walked = begun(factor, factors), []
    for number in range(1, n_steps + 1):
        if path is not None:
            client = client._replace(factor=path[..., number - 1, :])
        walked.append(client.factor)
        moves = path is None and number < n_steps
        client = stepped(optimizer, client, ratings, constants, number, moves=moves)
    return Upload(client.items - factors, np.stack(walked, axis=-2))
