"""How long a client's factor was at each row, and its product with the item, told by where the row points.

A client that goes through its ratings in orders that nobody sees sends D_j, the sum over passes of
eta e_j u_j, with the u of the moments at which it came to j. Rows of a client point along d, nearly. What
they have across tells where u was, and so how far it was along d, for u moves by what the client sends: with
g_j = D_j . d, w_j the item's factor half-way and M = sum_i g_i w_i, in units of the length of u,

    D_j = g_j (d + y_j) + c (w_j . M) M + s g_j^2 w_j,    y_j ~ N(0, kappa^2 S),
    S = M M' / 12 + sum_i g_i^2 w_i w_i' / 6,

as a rating's place x in a pass is uniform (its variance is 1/12) and that of each other item is before it
with probability x (the mean of x (1 - x) is 1/6). c is of errors that shrink as u drifts from pass to pass,
s of the item's own step. kappa, c, s and the size of what is left are those that make the entries across d
likeliest; y_j is then the one expected, along d and across, and with it

    g_j' = (g_j - what c and s add) / (1 + y_j . d),    h_j' = w_j . (d + y_j)

are in place of g_j and h_j = w_j . d (``attacks.closed_form.orders.hidden_orders``). No rating is asked for.

What it assumes: orders that do not follow the ratings, steps that move u by a part of its length. Where
another thing turns rows (decay, large steps) it is no better than the first order, and may be worse: the
rating grid says which. Beyond the papers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

TIMES = 2.0 ** np.arange(-6, 2.1, 0.5)  # kappa, of the one that alone would make the entries across
LEFT = np.append(2.0 ** np.arange(-14.0, 0.0), 1e-9)[::-1]  # size of what is left, of the entries across
PARALLEL = 1e-12  # of the longest row, that entries across have to be
TABLE = 1 << 20  # numbers of one table of trials
MOST = 0.5  # of its length, by which u may move along d


class _Across(NamedTuple):
    """Rows across d, in the directions in which S is diagonal there."""

    entries: Float[np.ndarray, "n L"]
    added: Float[np.ndarray, "2 n L"]  # what c and s multiply
    variance: Float[np.ndarray, " L"]  # S
    along: Float[np.ndarray, " L"]  # covariance of these directions with d


def second_order(
    sent: Float[np.ndarray, "n K"],
    halfway: Float[np.ndarray, "n K"],
    direction: Float[np.ndarray, " K"],
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]] | None:
    """Correct rows and products along the common direction for where in each pass the rows were made."""
    g = sent @ direction
    drift = g @ halfway
    added = np.stack([np.outer(halfway @ drift, drift), g[:, None] ** 2 * halfway])
    moved = g[:, None] * halfway
    covariance = np.outer(drift, drift) / 12 + moved.T @ moved / 6
    frame = np.linalg.svd(direction[None])[2][1:]  # across d
    variance, axes = np.linalg.eigh(frame @ covariance @ frame.T)
    frame = axes.T @ frame
    across = _Across(
        sent @ frame.T, added @ frame.T, np.maximum(variance, 0.0), frame @ covariance @ direction
    )
    if not (np.abs(across.entries).max(initial=0.0) > PARALLEL * np.abs(g).max() and variance.max() > 0):
        return None
    kappa, left, number = _likeliest(across, g)
    g = g - (number @ added.reshape(2, -1)).reshape(sent.shape) @ direction
    rest = across.entries - np.tensordot(number, across.added, 1)
    # y_j across, regressed on what the row shows of it
    total = (kappa * g[:, None]) ** 2 * across.variance + left**2
    weight = kappa**2 * g[:, None] * rest / total
    along = weight @ across.along
    if not (np.abs(along) < MOST).all():
        return None
    h = halfway @ direction + along * (halfway @ direction)
    h += ((weight * across.variance) * (halfway @ frame.T)).sum(axis=1)
    return g / (1 + along), h


def _likeliest(across: _Across, g: np.ndarray) -> tuple[float, float, Float[np.ndarray, " 2"]]:
    """kappa, the size of what is left, and c and s, under which the entries across are likeliest."""
    square = np.mean(across.entries**2)
    alone = np.sqrt(across.entries.size * square / ((g**2).sum() * across.variance.sum()))
    # a row for each trial, a column for each entry
    kappa, left = (one.ravel() for one in np.meshgrid(alone * TIMES, np.sqrt(square) * LEFT, indexing="ij"))
    signal = (g[:, None] ** 2 * across.variance).ravel()
    entries, added = across.entries.ravel(), across.added.reshape(2, -1)
    by_trial = np.stack([added[0] ** 2, added[0] * added[1], added[1] ** 2, *(added * entries)], axis=1)
    number, unlikely = np.zeros((kappa.size, 2)), np.zeros(kappa.size)
    some = max(1, TABLE // entries.size)
    for here in (slice(at, at + some) for at in range(0, kappa.size, some)):
        total = kappa[here, None] ** 2 * signal + left[here, None] ** 2
        first, both, second, *right = ((1 / total) @ by_trial).T
        normal = np.stack([first, both, both, second], axis=1).reshape(-1, 2, 2)
        inverse = np.linalg.pinv(normal, hermitian=True)
        number[here] = np.matmul(inverse, np.stack(right, axis=1)[..., None])[..., 0]
        rest = entries - number[here] @ added
        unlikely[here] = (rest**2 / total + np.log(total)).sum(axis=1)
    best = int(np.nan_to_num(unlikely, nan=np.inf).argmin())
    return float(kappa[best]), float(left[best]), number[best]
