"""How the ratings of one item go together: items differ in quality, and their raters agree in part.

Where ratings leave several weights of an item, each weight names other levels of all its raters, and the
likelier ones count. Ten raters of a bad item are no ten independent witnesses that its ratings are low. So a
level l of an item of quality z has probability p(l | z) ~ exp(a_l + z x_l), x_l the levels from -1 to 1 and z
normal; a and the spread of z are fitted to all items by expectation-maximisation, those with several weights
counted by how likely each is. Items that are told alone would mislead: their ratings are spread more widely.

References
----------
R. D. Bock 1972, doi:10.1007/BF02291411, for the model of levels. A. P. Dempster, N. M. Laird, D. B. Rubin
1977, doi:10.1111/j.2517-6161.1977.tb01600.x.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

PASSES, STILL = 2000, 1e-6  # at most; nats by which levels of a fit that has come to rest still move
NODES = np.linspace(-4, 4, 33)  # standard deviations of z
SPREADS = np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # standard deviations of z that are tried


def candidate_shares(
    counts: Sequence[Float[np.ndarray, "_ levels"]],
    log_weight: Sequence[Float[np.ndarray, " _"]],
    levels: Float[np.ndarray, " levels"],
    known: Float[np.ndarray, " levels"],
) -> list[Float[np.ndarray, " _"]]:
    """Weigh the candidates of each item by how its raters' levels go together under them.

    Examples
    --------
    >>> told = [np.array([[6.0, 2, 0]]), np.array([[0.0, 2, 6]])] * 10
    >>> weights = [np.zeros(1)] * 20 + [np.zeros(2)]
    >>> open_ = np.array([[6.0, 0, 0], [0, 6.0, 0]])
    >>> candidate_shares([*told, open_], weights, np.arange(1.0, 4), np.ones(3))[-1].round(2)
    array([0.97, 0.03])
    """
    if not counts:
        return []
    table, offset = np.concatenate(counts), np.concatenate(log_weight)
    starts = np.cumsum([0, *(len(own) for own in counts[:-1])])
    item = np.repeat(np.arange(len(counts)), [len(own) for own in counts])
    x = 2 * (levels - levels[0]) / max(levels[-1] - levels[0], 1e-12) - 1
    best, answer = -np.inf, 1 / np.repeat([len(own) for own in counts], [len(own) for own in counts])
    for spread in SPREADS:
        share, likelihood = _fitted(table, offset, starts, item, x * spread, known)
        if likelihood > best:
            best, answer = likelihood, share
    return np.split(answer, starts[1:])


def _fitted(
    table: np.ndarray,
    offset: np.ndarray,
    starts: np.ndarray,
    item: np.ndarray,
    x: np.ndarray,
    known: np.ndarray,
) -> tuple[np.ndarray, float]:
    """Probabilities of the candidates under one spread of z, and the log likelihood of all items.

    The likelihood is -inf where the frequencies of the levels do not come to rest.
    """
    prior = -0.5 * NODES**2 - np.log(np.exp(-0.5 * NODES**2).sum())
    log_share = np.log(known / known.sum())
    size = table.sum(axis=1)
    for _ in range(PASSES):
        tilted = log_share + NODES[:, None] * x
        tilted -= np.logaddexp.reduce(tilted, axis=1)[:, None]
        joint = table @ tilted.T + prior + offset[:, None]
        own = np.logaddexp.reduce(joint, axis=1)
        whole = np.logaddexp.reduceat(own, starts) if starts.size else own
        candidate = np.exp(own - whole[item])
        weight = np.exp(joint - whole[item][:, None])  # of a candidate and a quality
        seen = candidate @ table + known
        expected = (weight * size[:, None]).sum(axis=0) @ np.exp(tilted) + known.sum() * np.exp(log_share)
        before, log_share = log_share, log_share + np.log(seen / expected)
        log_share -= np.logaddexp.reduce(log_share)
        if np.abs(log_share - before).max() < STILL:
            return candidate, float(whole.sum() + known @ log_share)
    return candidate, -np.inf
