"""The differencing estimator: noise that repeats cancels between rounds, and no update rule is needed.

Beyond Hu & Fang 2023. Where a client's noise is drawn once, a row of round t is w_j (s_j - p^t . t_j^t) p^t +
x_j, and the difference of two rounds, free of x_j, is a combination of p^t and p^{t+1}. So the rows of one
difference span a plane that holds both; two consecutive planes meet in the direction of the p between them (K
>= 3). In these directions a difference splits into a_j^t = w_j (s_j - p^t . t_j) |p^t| of either round, and
s_j = a_j^t / (w_j l) + l d . t_j is the same in both: the null vector of four columns is
(1/l, l, 1/l', l'). Four rounds and four rated items are enough; learning rate, regularisation, start,
and the noise's size may be unknown. Where rows are sigma times that, of any sign, the null vector is
(1/(sigma l), l, ..) and says s_j up to a factor; ratings on the grid tell it
(``attacks.closed_form.fit.affine_grid``).

References
----------
W. Hu, H. Fang, "Decentralized Matrix Factorization with Heterogeneous Differential Privacy",
arXiv:2212.00306.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.affine_grid import best_numbers
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import step_of

EXACT, FEWEST_JUDGED = (
    1e-6,
    6,
)  # misfit, and rows, of clients whose ratings would be on the grid to many digits
SAFETY = 100.0  # times what ratings are off by, to first order, where the null vector is


class DifferencingEstimate(NamedTuple):
    """What differences tell."""

    start: Float[np.ndarray, "users K"]  # p of the first round
    value: Float[np.ndarray, "users n"]  # s
    misfit: Float[np.ndarray, " users"]  # of the null vector; inf without one
    on_grid: Bool[np.ndarray, " users"]  # whether the grid told what rows are multiplied with
    # whose rows are exact, and of ratings that no factor puts on the grid
    off_grid: Bool[np.ndarray, " users"]


def from_differences(
    rows: Float[np.ndarray, "users T n K"],
    factors: Float[np.ndarray, "users T n K"],
    row_weight: Float[np.ndarray, "users n"],
    valid: Bool[np.ndarray, "users n"],
    levels: Float[np.ndarray, " levels"] | None = None,
    lowered: float = 0.0,
) -> DifferencingEstimate:
    """Estimate start and ratings from the best pair of neighbouring rounds, client by client."""
    users, rounds, n, k = rows.shape
    nowhere = np.zeros(users, bool)
    nothing = DifferencingEstimate(
        np.zeros((users, k)), np.zeros((users, n)), np.full(users, np.inf), nowhere, nowhere
    )
    if rounds < 4 or k < 3:
        return nothing
    weight = np.where(valid, row_weight, 1.0)
    apart = np.diff(rows, axis=1)
    gram = np.einsum("utnk,utnl->utkl", apart, apart)
    planes = np.linalg.eigh(gram)[1][..., -2:]
    inside = planes @ planes.swapaxes(-1, -2)
    between = np.linalg.eigh(inside[:, :-1] + inside[:, 1:])[1][..., -1]  # directions of rounds 1 .. T - 2
    best, exact = nothing, np.full(users, EXACT)
    for number in range(1, rounds - 2):
        now, then = between[:, number - 1], between[:, number]
        both = np.stack([-now, then], axis=-1)
        split = np.einsum("unk,ukc->unc", apart[:, number], _inverse(both)) / weight[..., None]
        along = [np.einsum("unk,uk->un", factors[:, number + later], d) for later, d in ((0, now), (1, then))]
        table = np.stack([split[..., 0], along[0], -split[..., 1], -along[1]], axis=-1) * valid[..., None]
        size = np.linalg.norm(table, axis=1)
        scaled = table / np.where(size > 0, size, 1)[:, None]
        _, singular, right = np.linalg.svd(np.einsum("unc,und->ucd", scaled, scaled))
        null = right[:, -1] / np.where(size > 0, size, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            misfit = np.sqrt(singular[:, 3] / singular[:, 2])
        told, multiple, away = _multiple(null, table, levels, lowered)
        if levels is not None:
            wrong = np.sqrt(2) * misfit * np.abs(multiple)
            told &= _close(table[..., :2], null * multiple[:, None], wrong, levels, lowered)
        usable = told & (misfit < 1)
        numbers = np.where(usable[:, None], null * multiple[:, None], 0)
        value = np.einsum("unc,uc->un", table[..., :2], numbers[:, :2])
        sign = np.where((value * valid).sum(axis=1) < 0, -1.0, 1.0)[:, None]
        value, factor = value * sign * valid, now * numbers[:, 1:2] * sign
        scale = _scale(numbers) if levels is not None else np.ones(users)
        start = _first_factor(rows, factors, weight * scale[:, None], valid, value, factor, number)
        closer = usable & (misfit < best.misfit)
        judged = misfit < exact
        exact = np.where(judged, misfit, exact)
        best = DifferencingEstimate(
            np.where(closer[:, None], start, best.start),
            np.where(closer[:, None], value, best.value),
            np.where(closer, misfit, best.misfit),
            best.on_grid | (closer & (levels is not None)),
            np.where(judged, away & ~usable, best.off_grid),
        )
    enough = valid.sum(axis=1) >= FEWEST_JUDGED
    return best._replace(off_grid=best.off_grid & ~best.on_grid & enough)


def _multiple(
    null: Float[np.ndarray, "users 4"],
    table: Float[np.ndarray, "users n 4"],
    levels: Float[np.ndarray, " levels"] | None,
    lowered: float,
) -> tuple[Bool[np.ndarray, " users"], Float[np.ndarray, " users"], Bool[np.ndarray, " users"]]:
    """Whom a null vector tells, and what times it is (1/(sigma l), l, ..); sigma is 1 or told by the grid.

    And whose ratings it puts off the grid, whatever it is multiplied with.
    """
    if levels is None:
        with np.errstate(divide="ignore", invalid="ignore"):
            both = null[:, 0] * null[:, 1], null[:, 2] * null[:, 3]
            multiple = 1 / np.sqrt(both[0])
            usable = (both[0] > 0) & (both[1] > 0) & np.isfinite(multiple + null[:, 3] / null[:, 2])
        return usable, np.where(usable, multiple, 0), np.zeros(usable.shape, bool)
    raw = np.einsum("unc,uc->un", table[..., :2], null[:, :2])
    there = table.any(axis=2) & np.isfinite(raw)
    found = best_numbers(np.where(there, raw, 0)[..., None], lowered * there, there, levels)
    return found.told, found.numbers[:, 0], found.distance > BARS.off_grid * step_of(levels)


def _close(
    table: Float[np.ndarray, "users n 2"],
    numbers: Float[np.ndarray, "users 4"],
    wrong: Float[np.ndarray, " users"],
    levels: Float[np.ndarray, " levels"],
    lowered: float,
) -> Bool[np.ndarray, " users"]:
    """Whether ratings are as near to the grid as the null vector is exact.

    A bias shifts ratings off the grid; on two levels some factor brings them near again, but exact rows not
    on it. A vector that is off by ``misfit`` in units of the columns' sizes puts all ratings together off by
    ``wrong`` = sqrt(2) misfit times the factor.
    """
    there = table.any(axis=2)
    value = np.einsum("unc,uc->un", table, numbers[:, :2])
    value *= np.where(value.sum(axis=1) < 0, -1, 1)[:, None]
    off = np.where(there, distance_to_levels(value + lowered, levels), 0)
    digits = BARS.digits * step_of(levels) * np.sqrt(there.sum(axis=1))
    return np.linalg.norm(off, axis=1) <= SAFETY * wrong + digits


def _scale(numbers: Float[np.ndarray, "users 4"]) -> Float[np.ndarray, " users"]:
    """sigma, given (1/(sigma l), l, ..)."""
    product = numbers[:, 0] * numbers[:, 1]
    return 1 / np.where(product != 0, product, 1)


def _inverse(pair: Float[np.ndarray, "users K 2"]) -> Float[np.ndarray, "users K 2"]:
    """Columns that pick the coefficients of two directions out of a row; pseudo-inverse, transposed."""
    return np.linalg.pinv(pair).swapaxes(-1, -2)


def _first_factor(
    rows: np.ndarray,
    factors: np.ndarray,
    weight: np.ndarray,
    valid: np.ndarray,
    value: np.ndarray,
    factor: np.ndarray,
    number: int,
) -> Float[np.ndarray, "users K"]:
    """p^0, given s and p of round ``number``: the rows of round 0 without noise have rank one."""
    error = value - np.einsum("unk,uk->un", factors[:, number], factor)
    clean = (weight * error * valid)[..., None] * factor[:, None] + rows[:, 0] - rows[:, number]
    clean *= valid[..., None]
    direction = np.linalg.eigh(np.einsum("unk,unl->ukl", clean, clean))[1][..., -1]
    scalar = np.einsum("unk,uk->un", clean, direction) / weight
    along = np.einsum("unk,uk->un", factors[:, 0], direction) * valid
    # scalar = l s - l^2 along, linear in l and l^2
    columns = np.stack([value, -along], axis=-1)
    length = np.einsum("ucn,un->uc", np.linalg.pinv(columns), scalar)[:, :1]
    return direction * length
