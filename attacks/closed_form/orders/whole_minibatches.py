"""Means over minibatches at one factor of the client: rows of the last, smaller one are longer.

TensorFlow Federated's matrix factorisation reconstructs the client's factor first and learns items with it
then, by minibatches of b of one pass: each row is one step, F = s e p / b, but for the c = n mod b rows of
the last minibatch, which a mean divides by c. In one direction, with g the row along it and h its factor,

    r = A g + B h    of most rows,        r = A (c / b) g + B h    of c of them.

Two rows with levels that are named tell A and B; right ones put all rows but c on the grid, and those c with
c / b in their place. All clients have one b. Rows of the last minibatch are divided by b instead then, and
read as any others.

What it assumes: one direction of a client's rows, exact or in single precision, and three clients of at least
six whole rows whose last minibatch is smaller.

References
----------
K. Singhal et al. 2021, "Federated Reconstruction: Partially Local Federated Learning", NeurIPS 34,
arXiv:2102.03448.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.credible import HALF
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.other_rows import OtherRows, view_of
from attacks.closed_form.uploads.readings import Rows, some_of
from victims.transcript.view import Uploads, UserBatch, View

LEAST, MOST = 6, 128  # whole rows of a client, and ratings of one that is asked
NAMED = 6  # rows of a client, whose levels are named, two at a time
LARGEST = 64  # minibatch
ASKED, FEWEST, MOSTLY = 64, 3, 0.75  # clients that tell b, who have to, and the share of those who could
LEVELS = 20  # of a grid, at most


class _Split(NamedTuple):
    """One client's rows, under the numbers that put most of them on the grid.

    Attributes
    ----------
    at : (n,) int
        Places of the rows.
    scalar, along : (n,)
        A g and B h, stars.
    last : (n,) bool
        Which are off the grid.
    near : float
        Distance from the grid within which a row is on it, stars.
    """

    at: Int[np.ndarray, " n"]
    scalar: Float[np.ndarray, " n"]
    along: Float[np.ndarray, " n"]
    last: Bool[np.ndarray, " n"]
    near: float

    def fits(self, size: int, levels: Float[np.ndarray, " levels"]) -> bool:
        """Whether the rows off the grid are those of a last minibatch, where the others have so many."""
        few, n = int(self.last.sum()), self.last.size
        if n <= size or n % size != few:
            return False
        value = (self.scalar * few / size + self.along)[self.last]
        return bool((distance_to_levels(value, levels) <= self.near).all())


def whole_minibatch_views(view: View) -> Iterator[View]:
    """Give the rows of each client's last minibatch the scale of the others.

    Parameters
    ----------
    view : View

    Yields
    ------
    View
        None where clients do not tell that they average over minibatches.
    """
    levels = np.array(view.manifest.rating_levels)
    told = view.messages.gradient is not None and view.messages.reference is None
    biased = any(one.bias is not None for one in view.broadcasts.values())
    if not told or biased or not 2 <= levels.size <= LEVELS:
        return
    asked = view.select(view.users[:: max(1, view.users.size // ASKED)])
    first = [rows_of(view.manifest, batch.rounds[0], None) for batch in asked.batches(BATCH_BYTES)]
    splits = [_split(rows, user, levels) for rows in first for user in np.flatnonzero(_able(rows)).tolist()]
    size = _minibatch([one for one in splits if one is not None], levels)
    if size is not None:
        yield view_of(view, [_other_rows(view, *one, size, levels) for one in _all_uploads(view)], np.float64)


def _all_uploads(view: View) -> Iterator[tuple[UserBatch, Uploads]]:
    for batch in view.batches(BATCH_BYTES):
        yield from ((batch, one) for one in batch.rounds if one.gradients.shape[1])


def _able(rows: Rows) -> Bool[np.ndarray, " users"]:
    """Who has enough rows, not too many, and all in one direction."""
    n_rows = rows.item.sum(axis=1)
    with np.errstate(all="ignore"):
        steady = one_step(rows).across <= PARALLEL * rows.precision
    return steady & (n_rows >= LEAST) & (n_rows <= MOST)


def _split(rows: Rows, user: int, levels: Float[np.ndarray, " levels"]) -> _Split | None:
    """The numbers that put most of a client's rows on the grid; None where they are fewer than ``LEAST``."""
    at = np.flatnonzero(rows.item[user])
    numbers = one_step(some_of(rows, np.array([user])))
    g, h = numbers.scalar[0, at], numbers.along[0, at]
    few = np.unique(np.linspace(0, at.size - 1, NAMED).astype(int))
    pairs = np.array(list(combinations(few.tolist(), 2)))
    table = np.stack([g[pairs], h[pairs]], axis=2)
    with np.errstate(all="ignore"):
        usable = np.abs(np.linalg.det(table)) > 0
        named = np.stack(np.meshgrid(levels, levels, indexing="ij"), axis=-1).reshape(-1, 2)
        tried = np.linalg.solve(table[usable], np.broadcast_to(named.T, (int(usable.sum()), *named.T.shape)))
        tried = tried.transpose(0, 2, 1).reshape(-1, 2)
        tried = tried[np.isfinite(tried).all(axis=1) & (tried != 0).all(axis=1)]
        away = distance_to_levels(tried[:, :1] * g + tried[:, 1:] * h, levels)
    near = rows.precision**HALF * step_of(levels)
    whole = (away <= near).sum(axis=1)
    if not whole.size or whole.max() < max(LEAST, at.size / 2):
        return None
    best = int(whole.argmax())
    a, b = tried[best]
    return _Split(at, a * g, b * h, away[best] > near, near)


def _minibatch(splits: list[_Split], levels: Float[np.ndarray, " levels"]) -> int | None:
    """How many ratings a minibatch has, by the clients whose last one is smaller."""
    votes = Counter(
        size for one in splits if one.last.any() for size in range(2, LARGEST + 1) if one.fits(size, levels)
    )
    if not votes:
        return None
    size, many = votes.most_common(1)[0]
    # who has a smaller one tells, and nobody else is off the grid
    able = sum(bool(one.last.any()) or (one.last.size > size and one.last.size % size > 0) for one in splits)
    return size if many >= max(FEWEST, MOSTLY * able) else None


def _other_rows(
    view: View, batch: UserBatch, uploads: Uploads, size: int, levels: Float[np.ndarray, " levels"]
) -> OtherRows:
    """Rows as means over whole minibatches make them."""
    rows = rows_of(view.manifest, uploads, None)
    times = np.ones(rows.item.shape)
    n_rows = rows.item.sum(axis=1)
    times[n_rows < size] = (n_rows[n_rows < size] / size)[:, None]
    for user in np.flatnonzero((n_rows > size) & (n_rows % size > 0)).tolist():
        one = _split(rows, user, levels)
        if one is not None and one.fits(size, levels):
            times[user, one.at[one.last]] = n_rows[user] % size / size
    return OtherRows(batch.users, uploads, rows.item, rows.rows * times[..., None], rows.factors)
