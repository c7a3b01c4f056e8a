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
from jaxtyping import Float, Int

from attacks.base import Reconstruction
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.rows.equal_start import PARALLEL
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.answered import Answered, answered_alone
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from victims.transcript.view import View

ALREADY = 0.5  # share of the clients that are answered: nothing else is looked for
ALIKE = 1e-6  # relative, within which all items have one factor
NOT_READ = "all factors start equal, and no single step puts the rows of all clients on the rating grid"
DIGITS = 64.0  # times the last digit of the largest row, within which rows are the same
ROOM = 0.125  # of a step, that digits may take up
PULLED = 0.25  # of a step, that a pull may add to x


def read_equal_step(view: View, told: Reconstruction, pull: float) -> list[Answered]:
    """Read all clients of a view in its first round together, where few are answered otherwise."""
    manifest = view.manifest
    few = len(told.abstained) > ALREADY * view.users.size
    if manifest.weighting == "include-unrated" or not few or not _one_item(view):
        return []
    owner, item, g, along, precision = [], [], [], [], 0.0
    for batch in view.batches(BATCH_BYTES):
        uploads = next((one for one in batch.rounds if one.round == view.rounds[0]), None)
        if uploads is None or not uploads.index.shape[-1]:
            continue
        rows = rows_of(manifest, uploads, None, 0.0, pull)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            numbers = one_step(rows)
        if not (numbers.across[rows.item.any(axis=1)] <= PARALLEL).all():
            return []
        user, row = np.nonzero(numbers.there)
        owner.append(batch.users[user])
        item.append(np.broadcast_to(uploads.index, rows.item.shape)[user, row])
        h = numbers.along[user, row]
        g.append(numbers.scalar[user, row] * np.sign(h))  # the direction's sign is of no meaning
        along.append(h)
        precision = max(precision, float(np.finfo(uploads.gradients.dtype).eps))
    if not sum(one.size for one in owner):
        return []
    whose, items, sizes = np.concatenate(owner), np.concatenate(item), np.concatenate(g)
    predicted = float(np.median(np.concatenate(along))) ** 2
    n_rated = np.unique(whose, return_inverse=True, return_counts=True)
    ratings = equal_step(
        sizes, n_rated[2][n_rated[1]], predicted, np.array(manifest.rating_levels), precision
    )
    if ratings is None:
        return []
    values = {user: (items[whose == user], ratings[whose == user]) for user in view.users.tolist()}
    there = np.isin(view.users, whose)
    out = answered_alone(values, view, np.where(there, 0.0, np.nan))
    out.diagnostics[:, 1] = 1  # step
    left = dict.fromkeys(view.users[~there].tolist(), NOT_READ)
    return [out._replace(reasons=left, plain=~out.plain, spanned=False)]


def _one_item(view: View) -> bool:
    """Whether all items have the same factors in the first round, and no biases."""
    one = view.broadcasts.get(int(view.rounds[0]))
    if one is None or (one.bias is not None and one.bias.any()):
        return False
    return bool(one.factors.size and np.ptp(one.factors) <= ALIKE * np.abs(one.factors).max())


def equal_step(
    g: Float[np.ndarray, " rows"],
    n_rated: Int[np.ndarray, " rows"],
    predicted: float,
    levels: Float[np.ndarray, " levels"],
    precision: float,
) -> Float[np.ndarray, " rows"] | None:
    """Read the rows of all clients together; ``n_rated`` of the client of each.

    Examples
    --------
    >>> ratings = np.array([1.0, 4.0, 5.0, 2.0, 2.0])
    >>> equal_step(-0.3 * (ratings - 0.04), np.array([3, 3, 3, 2, 2]), 0.04, np.arange(1.0, 6.0), 1e-15)
    array([1., 4., 5., 2., 2.])
    """
    for pulled in (False, True):
        found = [
            value
            for one in (g, g * n_rated)
            for value in _on_the_grid(one, predicted, levels, precision, pulled)
        ]
        if found:
            return found[0] if all(np.array_equal(value, found[0]) for value in found) else None
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
        if loose > ROOM * step or by_chance > BARS.accident:
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
