"""A step after every rating, all factors equal, and a multiple of its factor in each row that nobody told.

As ``attacks.closed_form.equal_start.equal_unscaled`` of the published start of Chai et al. 2021, whose
clients regularise the item as well: g_k = sigma (e_k s_k - mu h_k), and s_{k+1} = a s_k + b e_k h_k. With c =
sigma mu, G_k = g_k + c h_k and lengths in units of the first, S_k = s_k / s_0,

    r_k = A G_k / S_k + (p / A) S_k h_k,    S_{k+1} = a S_k + rho A^2 h_k G_k / S_k,
    A = 1 / (sigma s_0),    p = 1 / sigma,    rho = b sigma,

and where a row is about the length after the step S_{k+1}^2 = a S_k S_{k+1} + rho A^2 h_k G_k, with
G_k / S_{k+1} in place of G_k / S_k. Four of the five numbers, p, rho, c and a, are the same for all clients;
in the first round the fifth, A, is so, too.

Regularisation is small: with a = 1 and c = 0, or 1 where rows were taken for weights and lost their factor,
a client with many ratings names most of them, and Newton's steps from the levels that it names reach all five
numbers, to the digits. Its four numbers are lent to the others, of whom each level of the first row leaves
two A, and are fitted together with every A. Where clients start alike a single row is enough, and clients
with few ratings are asked together, with one A.

What else could be meant is asked of all clients together. Ratings less some number would be another column of
that fit: that number has to be 0 as far as rows tell, and they have to tell it. Multiples of the ratings, c A
and c B, fit as well: where all of them are on the grid, a declared p says which.

What it assumes: the order of the rows, uploads in the clear, constants that all clients share, seven ratings
of one client, or of clients that start alike.

References
----------
D. Chai et al., "Secure Federated Matrix Factorization", arXiv:1906.05108, Algorithm 1 and its
published program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.equal_start.equal_pulled_alone import EXACT, alone
from attacks.closed_form.equal_start.equal_pulled_lengths import Grid, Lists
from attacks.closed_form.equal_start.equal_pulled_together import (
    DIGITS,
    LEAST_ROWS,
    MOST,
    SAME_SCALE,
    Together,
    together,
)
from attacks.closed_form.fit.decoding import nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of

ASKED, SILENT = 4, 2  # clients that are asked, those with most ratings; how many if none of them tells
ENOUGH_ROWS = 32  # of clients that are asked together


class Pulled(NamedTuple):
    """What clients' rows say."""

    value: Float[np.ndarray, "users rows"]  # ratings in stars, NaN where not told
    told: Bool[np.ndarray, " users"]
    pull: Float[np.ndarray, " users"]  # what is to be taken off rows, as a multiple of their factors: -c
    of_error: Float[np.ndarray, " users"]  # A, and p / A
    of_factor: Float[np.ndarray, " users"]  # A, and p / A


def follow_pulled(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    offset: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    sequence: Int[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    precision: float,
    *,
    after: bool = False,
    scale_known: bool = False,
    pulls: tuple[float, ...] = (0.0,),
) -> Pulled:
    """Follow all clients' lengths from row to row under any scale, rate and regularisation.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> r, h, s, g = rng.choice(np.arange(1.0, 6.0), (4, 12)), np.full((4, 12), 0.02), np.full(4, 0.02), []
    >>> for k in range(12):
    ...     error = r[:, k] - s * h[:, k]
    ...     g.append(-0.3 * (error * s - 0.01 * h[:, k]))
    ...     s = 0.999 * s + 0.01 * error * h[:, k]
    >>> order, all_, none = np.tile(np.arange(12), (4, 1)), np.ones((4, 12), bool), np.zeros((4, 12))
    >>> found = follow_pulled(np.stack(g, axis=1), h, none, all_, order, np.arange(1.0, 6.0), 2.0**-52)
    >>> bool(found.told.all() and np.abs(found.value - r).max() < 1e-9), found.pull[0].round(9)
    (True, np.float64(0.003))
    """
    grid = Grid(levels, max(DIGITS * precision * np.abs(levels).max(), EXACT * step_of(levels)), after)
    order = np.argsort(np.where(valid, sequence, np.inf), axis=1, kind="stable")
    facing = np.where((along * valid).sum(axis=1) < 0, -1.0, 1.0)[:, None]  # a direction's sign is open
    masked = (np.where(valid, part, 0.0) for part in (scalar * facing, along * facing, offset))
    lists = Lists(*(np.take_along_axis(part, order, axis=1) for part in (*masked, valid)))
    with np.errstate(all="ignore"):
        found = (_best(lists, grid, scale_known, c) for c in pulls)
        best = next((one for one in found if one is not None), None)
    none = np.full(len(scalar), np.nan)
    if best is None:
        return Pulled(np.full(scalar.shape, np.nan), np.zeros(len(scalar), bool), none, none, none)
    value = np.full(scalar.shape, np.nan)
    np.put_along_axis(value, order, np.where(lists.there & best.told[:, None], best.value, np.nan), axis=1)
    first, p, _rate, c, _shrink = np.where(best.told[:, None], best.numbers, np.nan).T
    return Pulled(value, best.told, -c, first * facing[:, 0], p / first * facing[:, 0])


def _best(lists: Lists, grid: Grid, scale_known: bool, c: float) -> Together | None:
    """What explains most clients; None where too few are explained, or no single one explains so many."""
    size = lists.there.sum(axis=1)
    found: list[Together] = []
    for number, some in enumerate(_asked(size)):
        if (found and some.size > 1) or (not found and number >= SILENT):
            break
        for numbers in alone(lists.of(some), grid, c):
            if not any(_same(numbers, one.numbers[0]) for one in found):
                found += together(numbers, lists, grid, scale_known)
        if any(one.clear and one.told[size > 0].all() for one in found):
            break
    most = max((int(one.told.sum()) for one in found), default=0)
    best = [one for one in found if one.told.sum() == most and one.clear]
    judged = size >= min(LEAST_ROWS, size.max(initial=0))
    if not best or best[0].told[judged].mean() < MOST:
        return None
    named = [nearest_level(one.value, grid.levels)[lists.there & one.told[:, None]] for one in best]
    return best[0] if all(np.array_equal(one, named[0]) for one in named) else None


def _asked(size: Int[np.ndarray, " users"]) -> Iterator[Int[np.ndarray, " some"]]:
    """Clients with many ratings one by one, and then as many together, started alike, as have enough."""
    most = np.argsort(-size, kind="stable")
    yield from most[: min(ASKED, (size >= LEAST_ROWS).sum())][:, None]
    crowd = most[: np.searchsorted(np.cumsum(size[most]), ENOUGH_ROWS) + 1]
    if crowd.size > 1 and size[crowd].sum() >= LEAST_ROWS:
        yield crowd


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two clients say the same of what they share."""
    return bool(np.allclose(first[1:], second[1:], rtol=SAME_SCALE, atol=0))
