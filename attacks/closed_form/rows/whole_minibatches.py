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

import numpy as np
from jaxtyping import Float

from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.rows.most_on_grid import MostOnGrid, in_one_direction, most_on_grid
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.other_rows import OtherRows, is_plain, rows_of_all, view_of
from attacks.closed_form.uploads.readings import Rows
from victims.transcript.view import Uploads, UserBatch, View

LEAST, MOST = 6, 128  # whole rows of a client, and ratings of one that is asked
NAMED = 6  # rows of a client, whose levels are named, two at a time
LARGEST = 64  # minibatch
ASKED, FEWEST, MOSTLY = 64, 3, 0.75  # clients that tell b, who have to, and the share of those who could
LEVELS = 20  # of a grid, at most


def whole_minibatch_views(view: View, pull: float) -> Iterator[View]:
    """Give the rows of each client's last minibatch the scale of the others."""
    levels = np.array(view.manifest.rating_levels)
    if not is_plain(view) or not 2 <= levels.size <= LEVELS:
        return
    asked = view.select(view.users[:: max(1, view.users.size // ASKED)])
    first = [rows_of(view.manifest, batch.rounds[0], None, 0.0, pull) for batch in asked.batches(BATCH_BYTES)]
    splits = [_split(rows, user, levels) for rows in first for user in _able(rows)]
    size = _minibatch([one for one in splits if one is not None], levels)
    if size is not None:
        others = [_other_rows(*one, size, levels) for one in rows_of_all(view, pull)]
        yield view_of(view, others, np.float64)


def _able(rows: Rows) -> list[int]:
    """Who has enough rows, not too many, and all in one direction."""
    n_rows = rows.item.sum(axis=1)
    return np.flatnonzero(in_one_direction(rows) & (n_rows >= LEAST) & (n_rows <= MOST)).tolist()


def _split(rows: Rows, user: int, levels: Float[np.ndarray, " levels"]) -> MostOnGrid | None:
    """The numbers that put half of a client's rows on the grid, and ``LEAST`` or more; None where none do."""
    half = int(rows.item[user].sum()) // 2
    return most_on_grid(rows, user, levels, named=NAMED, least=max(LEAST, half))


def _fits(split: MostOnGrid, size: int, levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether the rows off the grid are those of a last minibatch, where the others have so many."""
    few, n = int(split.off.sum()), split.off.size
    if n <= size or n % size != few:
        return False
    value = (split.scalar * few / size + split.along)[split.off]
    return bool((distance_to_levels(value, levels) <= split.near).all())


def _minibatch(splits: list[MostOnGrid], levels: Float[np.ndarray, " levels"]) -> int | None:
    """How many ratings a minibatch has, by the clients whose last one is smaller."""
    votes = Counter(
        size for one in splits if one.off.any() for size in range(2, LARGEST + 1) if _fits(one, size, levels)
    )
    if not votes:
        return None
    size, many = votes.most_common(1)[0]
    # who has a smaller one tells, and nobody else is off the grid
    able = sum(bool(one.off.any()) or (one.off.size > size and one.off.size % size > 0) for one in splits)
    return size if many >= max(FEWEST, MOSTLY * able) else None


def _other_rows(
    batch: UserBatch, uploads: Uploads, rows: Rows, size: int, levels: Float[np.ndarray, " levels"]
) -> OtherRows:
    """Rows as means over whole minibatches make them."""
    times = np.ones(rows.item.shape)
    n_rows = rows.item.sum(axis=1)
    times[n_rows < size] = (n_rows[n_rows < size] / size)[:, None]
    smaller = in_one_direction(rows) & (n_rows > size) & (n_rows % size > 0)
    for user in np.flatnonzero(smaller).tolist():
        one = _split(rows, user, levels)
        if one is not None and _fits(one, size, levels):
            times[user, one.at[one.off]] = n_rows[user] % size / size
    return OtherRows(batch.users, uploads, rows.item, rows.rows * times[..., None], rows.factors)
