"""Clients whose rows are exact, and of numbers that are on no multiple of the rating grid.

Ratings less a number that nobody told are on the grid for some clients, one factor of each being open: for
many with two levels, for a few with three. Most others show that it is not ratings that are learned, if their
rows are exact: parallel, or a chain of single steps, to the last digit, which no scale and length put near
the grid. Rows of unrated items, zeros with a weight of their own, are on no grid and say nothing. What
clients with few levels seem to say is an accident then
(``attacks.closed_form.contradicted.unless_off_the_grid``).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.affine_grid import best_numbers
from attacks.closed_form.goodness_of_fit import step_of
from attacks.closed_form.grid_reading import equally_long
from attacks.closed_form.moving_factor import follow
from attacks.closed_form.readings import Rows
from attacks.closed_form.row_readings import LONGEST, one_step
from attacks.closed_form.shared_pull import without_pull
from attacks.closed_form.weighted_zeros import HALF, on_one_line

FEWEST = 4  # rows of a client that is judged: two more than numbers
OFF = 1e-2  # of a step, in the mean, beyond which exact rows are not of ratings


def off_grid(rows: Rows, levels: Float[np.ndarray, " levels"]) -> Bool[np.ndarray, " users"]:
    """Find the clients whose exact rows no two numbers put on the grid.

    Parameters
    ----------
    rows : Rows
    levels : (n_levels,)
        Ratings that exist, ascending, in stars.

    Returns
    -------
    (n_users,)
        False where rows are not exact, some are zeros or equally long (clipped), or too few.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q, p = rng.normal(size=(8, 4)), rng.normal(size=4)
    >>> r, all_ = np.array([1.0, 2, 3, 4, 5, 4, 2, 1]), np.ones((1, 8), bool)
    >>> sent = [(((r - c) - q @ p)[:, None] * p)[None] for c in (0.0, 3.53)]
    >>> [bool(off_grid(Rows(s, q[None], 0.0 * all_, all_, np.ones(1), 2.0**-52, None), np.arange(1.0, 6))[0])
    ...  for s in sent]
    [False, True]
    """
    nobody = np.zeros(len(rows.rows), bool)
    if not FEWEST <= rows.rows.shape[1] <= LONGEST:
        return nobody
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        clean, _ = without_pull(rows.rows, rows.factors, rows.item)
        out, judged = nobody.copy(), nobody.copy()
        for part in (rows.rows, clean):
            unrated = on_one_line(one_step(rows._replace(rows=part)), rows.precision**HALF).here
            item = rows.item & ~unrated
            size = item.sum(axis=1)
            chain = follow(part, rows.factors, item, rows.precision)
            there = item & (part != 0).any(axis=2) & (chain.step >= 0)
            alone = (chain.n_steps == 1) | (chain.n_steps == size)
            exact = chain.whole & alone & (there.sum(axis=1) == size) & (size >= FEWEST)
            exact &= ~equally_long(chain.scalar, there).any(axis=1) & ~judged
            columns = np.stack([chain.scalar, chain.along], axis=2) * there[..., None]
            found = best_numbers(columns, rows.offset, there & exact[:, None], levels)
            out |= exact & np.isfinite(found.distance) & (found.distance > OFF * step_of(levels))
            judged |= exact
    return out
