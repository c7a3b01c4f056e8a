"""Which rows of a client are of one label and which of the other, where rows of both are all that is sent.

Beyond the papers, for implicit feedback: clients upload rows of the items that they used, and of items that
they drew as negatives. Each row is f u, and whatever the loss, positives pull and negatives push: the sign of
f tells them apart, up to which is which (``attacks.closed_form.implicit.positives``). That the rows are of
such a loss shows without any constant:

- cross-entropy or squared error of a sigmoid, y - p or (y - p) p (1 - p) with y 1 or 0: with y known from the
  signs two numbers explain all rows to their last digits (``attacks.closed_form.links.link_grid``);
- the pairwise loss of Bayesian personalised ranking (BPR), f and -f for a positive and its negative: in each
  step the errors of a client add up to 0.

Both take exact rows, of one step or of a chain of steps (``attacks.closed_form.uploads.moving_factor``).
After several steps over all of a client's items, under rounding or noise, or with another loss of labels, no
two numbers explain the rows, and the labels still lie apart (``apart``): a factor moves little in a round, so
that rows have next to one direction, and f is about one number for all positives and another, of the other
sign, for all negatives. Numbers that were spread evenly between their ends would leave such a gap about 0
by accident, with a probability that falls with each row.

References
----------
S. Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", arXiv:1205.2618. Its use
against uploads is ours.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.goodness_of_fit import FIT_ROWS
from attacks.closed_form.links.link_fit import REACH, STEPS, Client, gauss_newton, values_of
from attacks.closed_form.links.link_grid import HALF
from attacks.closed_form.links.links import Link, cross_entropy, squared_sigmoid

LINKS = (Link("cross-entropy", cross_entropy), Link("squared", squared_sigmoid))
BALANCED = 8.0  # times the last digit of their root sum of squares, that errors of pairs may add up to
FEWEST = 4  # rows of a client whose labels a link has to explain
# probability that a link explains a client's rows about something else, or that they leave a gap
ACCIDENT = 1e-4
ACROSS = 0.5  # of the size of rows along their direction, up to which it is taken for the only one


def sides(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    bias: Float[np.ndarray, "users rows"],
    step: Int[np.ndarray, "users rows"],
    precision: float,
) -> tuple[Bool[np.ndarray, "users rows"], Bool[np.ndarray, " users"]]:
    """Split the rows of each client by label.

    Examples
    --------
    >>> h = np.random.RandomState(0).randn(3, 9)
    >>> y = np.tile([0, 0, 1, 0, 1, 0, 0, 1, 0.], (3, 1))
    >>> rows = y - 1 / (1 + np.exp(-0.7 * h))
    >>> found, told = sides(rows, h, 0 * h, np.zeros((3, 9), int), 2e-16)
    >>> bool(told.all()), bool((found == (y > 0)).all())
    (True, True)
    """
    first, told = np.zeros(scalar.shape, bool), np.zeros(len(scalar), bool)
    for user, own in enumerate(step):
        here = own >= 0
        g = scalar[user, here]
        if not (np.isfinite(g).all() and (g > 0).any() and (g < 0).any()):
            continue
        first[user, here] = g > 0
        client = Client(g / np.abs(g).max(), along[user, here], bias[user, here])
        told[user] = _pairs(g, own[here], precision) or (g.size >= FEWEST and _labels(client, precision))
    return first, told


def apart(
    rows: Float[np.ndarray, "users rows K"], item: Bool[np.ndarray, "users rows"]
) -> tuple[Bool[np.ndarray, "users rows"], Bool[np.ndarray, " users"]]:
    """Split the rows of each client that lie in two heaps, on either side of 0 along one direction.

    Examples
    --------
    >>> y = np.array([0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0])
    >>> size = np.stack([y - 0.4, np.linspace(-1, 1, 12)])
    >>> first, told = apart(size[:, :, None] * np.ones(3), np.ones((2, 12), bool))
    >>> told.tolist(), len(set((first[0] == (y > 0)).tolist()))
    ([True, False], 1)
    """
    sent = np.where(item[:, :, None], rows, 0.0)
    largest = np.abs(sent).max(axis=(1, 2), initial=0)
    able = np.isfinite(largest) & (largest > 0)
    sent = np.where(able[:, None, None], sent, 0.0) / np.where(able, largest, 1.0)[:, None, None]
    square, direction = np.linalg.eigh(np.swapaxes(sent, 1, 2) @ sent)
    able &= square[:, :-1].sum(axis=1) <= ACROSS**2 * square[:, -1]
    f = (sent @ direction[:, :, -1:])[:, :, 0]
    near = np.abs(f).min(axis=1, where=item, initial=np.inf)
    far = np.abs(f).max(axis=1, initial=0)
    share = np.where(able, near, 0.0) / np.where(able, far, 1.0)
    with np.errstate(divide="ignore"):
        nats = -(item.sum(axis=1) - 1) * np.log1p(-np.minimum(share, 1.0))
    both = (item & (f > 0)).any(axis=1) & (item & (f < 0)).any(axis=1)
    return item & (f > 0), able & both & (nats >= -np.log(ACCIDENT))


def _pairs(g: np.ndarray, step: np.ndarray, precision: float) -> bool:
    """Whether the errors of each step add up to 0."""
    total, square = np.bincount(step, weights=g), np.bincount(step, weights=g**2)
    return bool((np.abs(total) <= BALANCED * precision * np.sqrt(square)).all())


def _labels(client: Client, precision: float) -> bool:
    """Whether y - p of labels by sign explains the rows, under a link of ``LINKS``."""
    size = np.abs(client.along).max()
    if not size > 0:
        return False
    client = Client(client.scalar, client.along / size, client.bias)
    # by which sign is which: both are tried, and with known biases one of them fails
    for y in ((client.scalar > 0).astype(float), (client.scalar < 0).astype(float)):
        for link in LINKS:
            off = max(_left(client, y, link), precision)
            nats = -(y.size - 2) * np.log(2 * off)
            if off <= precision**HALF and nats >= np.log(2 * len(LINKS) / ACCIDENT):
                return True
    return False


def _left(client: Client, y: Float[np.ndarray, " rows"], link: Link) -> float:
    """What the best two numbers leave of y - p, as a share of the largest error.

    Not of y: where predictions separate the labels, ever larger ones leave nothing of it, whatever the rows.
    """
    some = slice(None, None, max(1, -(-y.size // FIT_ROWS)))
    few = Client(*(part[some] for part in client))
    b = np.concatenate([REACH, -REACH])
    p, _, times, _ = link.curve(b[:, None] * few.along + few.bias)
    error = few.scalar * times
    a = ((y[some] - p) * error).sum(axis=1) / (error**2).sum(axis=1)
    off = np.abs(y[some] - p - a[:, None] * error).max(axis=1)
    numbers = np.stack([a, b], axis=1)[np.argsort(off)[:STEPS]]
    for _ in range(STEPS):
        value, by_a, by_b = values_of(numbers, client, link)
        numbers = numbers + gauss_newton(y - value, by_a, by_b)
    value, error, _ = values_of(numbers, client, link)
    largest = np.minimum(np.abs(numbers[:, :1] * error).max(axis=1), 1.0)  # no label is farther from p
    left = np.abs(y - value).max(axis=1) / largest
    return float(np.min(left, where=np.isfinite(left), initial=np.inf))
