"""One step over all ratings by clients who start alike, all factors equal: what their rows say together.

Where users start as items do, all at v, rows of one step are along v, and the number of each is

    g_j = a (r_j - x),    x = v . v,

with one a for all clients, or a / n_i where a client's loss is a mean over its n_i ratings. Rows are as many
numbers as there are levels, so that sizes alone put ratings in order; x, which is known, tells ratings from
their mirror image and from multiples. A pull of the items that nobody declared is a little more in x.

What it assumes: the first round; ratings as they are; all clients' rows on the grid with one a.

References
----------
D. Chai et al., "Secure Federated Matrix Factorization", arXiv:1906.05108, whose start it is.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import ACCIDENT, step_of

DIGITS = 64.0  # times the last digit of the largest row, within which rows are the same
ROOM = 0.125  # of a step, that digits may take up
PULLED = 0.25  # of a step, that a pull may add to x


def equal_step(
    scalar: Float[np.ndarray, "clients rows"],
    there: Bool[np.ndarray, "clients rows"],
    predicted: float,
    levels: Float[np.ndarray, " levels"],
    precision: float,
) -> Float[np.ndarray, "clients rows"] | None:
    """Read the ratings of all clients together.

    Examples
    --------
    >>> ratings = np.array([[1.0, 4.0, 5.0], [2.0, 2.0, 0.0]])
    >>> equal_step(-0.3 * (ratings - 0.04), ratings > 0, 0.04, np.arange(1.0, 6.0), 1e-15)
    array([[ 1.,  4.,  5.],
           [ 2.,  2., nan]])
    """
    scaled = [scalar[there], (scalar * there.sum(axis=1, keepdims=True))[there]]
    for pulled in (False, True):
        found = [value for g in scaled for value in _on_the_grid(g, predicted, levels, precision, pulled)]
        if found and all(np.array_equal(value, found[0]) for value in found):
            out = np.full(scalar.shape, np.nan)
            out[there] = found[0]
            return out
        if found:
            return None
    return None


def _on_the_grid(
    g: Float[np.ndarray, " rows"], predicted: float, levels: np.ndarray, precision: float, pulled: bool
) -> list[Float[np.ndarray, " rows"]]:
    """Ratings under every a that puts all rows on the grid, to their digits and by more than chance."""
    step, largest = step_of(levels), np.abs(g).max(initial=0.0)
    if not largest > 0 or levels.size < 2:
        return []
    digit = DIGITS * precision * largest
    numbers = np.sort(g)
    n_numbers = 1 + int((np.diff(numbers) > 2 * digit).sum())
    found = []
    for a, x in _pulled(numbers, predicted, levels) if pulled else _plain(g, predicted, levels):
        loose = digit / abs(a)
        by_chance = 2 * levels.size**2 * min(1.0, 2 * loose / step) ** (n_numbers - 1 - pulled)
        if loose > ROOM * step or by_chance > ACCIDENT:
            continue
        value = g / a + x
        if (distance_to_levels(value, levels) <= loose).all():
            found.append(nearest_level(value, levels))
    return found


def _plain(g: np.ndarray, predicted: float, levels: np.ndarray) -> list[tuple[float, float]]:
    """What a may be, and x, by each level of the largest number."""
    top = float(g[np.abs(g).argmax()])
    return [(top / (level - predicted), predicted) for level in levels.tolist() if level != predicted]


def _pulled(numbers: np.ndarray, predicted: float, levels: np.ndarray) -> list[tuple[float, float]]:
    """The same, with a little more in x, by the levels of both ends; ascending ``numbers``."""
    ends = []
    for low in levels.tolist():
        for high in levels.tolist():
            if low != high and numbers[-1] != numbers[0]:
                a = float(numbers[-1] - numbers[0]) / (high - low)
                x = high - float(numbers[-1]) / a
                if abs(x - predicted) <= PULLED * step_of(levels):
                    ends.append((a, x))
    return ends
