"""Items with numbers that are no ratings, as a client's own model predicts them, among those that it rated.

FedRec's hybrid filling hides what a client rated among items that it drew; they get numbers of its own that
are no levels. One step leaves A g + B h of ratings on the grid, and of numbers that a model predicts anywhere
between: the two numbers that put most rows on the grid leave those out
(``attacks.closed_form.rows.most_on_grid``). The rated rows are read as any others then.

It is believed of numbers that are all different, or more than levels are, and not at simple fractions of a
step: ratings less a number, or scaled, have as many values as there are levels, and where a factor puts two
of these on the grid the others are at such fractions. A row or two beside many ratings may be anything else,
that of the item that a program fills minibatches up with, say.

What it assumes: one direction of a client's rows, exact or in single precision, and five ratings on three
levels of each client that is read.

References
----------
G. Lin, F. Liang, W. Pan, Z. Ming, "FedRec: Federated Recommendation With Explicit Feedback", IEEE Intelligent
Systems 36(5), 2021, doi:10.1109/MIS.2020.3017205: hybrid filling.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.rows.most_on_grid import MostOnGrid, in_one_direction, most_on_grid
from attacks.closed_form.uploads.other_rows import OtherRows, is_plain, rows_of_all, view_of
from attacks.closed_form.uploads.readings import Rows
from victims.transcript.view import View

RATED, LEVELS_USED, DRAWN = 5, 3, 4  # rows of a client on the grid, levels that they have, and rows off it
PLENTY, MOST = 18, 400  # rows of a client that is asked, and of one that is read
NAMED = 14  # rows of a client, whose levels are named, two at a time
DIFFERENT = 0.8  # share of the numbers off the grid that have a place of their own between the levels,
TIMES = 2  # or so many times as many places as there are levels
ASKED, FEWEST, MOSTLY = 32, 3, 0.75  # clients that are asked, who have to tell, and the share of those asked
MOST_LEVELS = 12  # of a grid
SELDOM = 0.02  # share of all rows off the grid that may be at simple fractions of a step
ACCIDENTS = 2  # of them that may be at simple fractions of a step, or be one number with another one
MANY = 8  # rows on the grid, beside fewer than ``DRAWN`` off it
FRACTIONS = np.unique([up / down for down in range(1, MOST_LEVELS) for up in range(down + 1)])


def views_without_predicted_items(view: View, pull: float) -> Iterator[View]:
    """Leave out rows of numbers that are no ratings."""
    levels = np.array(view.manifest.rating_levels)
    if not is_plain(view) or not LEVELS_USED <= levels.size <= MOST_LEVELS:
        return
    able, splits = 0, []
    for _, _, rows in rows_of_all(view.select(_some(view)), pull):
        plenty = _able(rows) & (rows.item.sum(axis=1) >= PLENTY)
        able += int(plenty.sum())
        splits += [one for user, one in _splits(rows, levels) if plenty[user]]
    simple, off = (
        sum(part) for part in zip((0, 0), *(_at_fractions(one, levels) for one in splits), strict=True)
    )
    if len(splits) < max(FEWEST, MOSTLY * able) or simple > max(ACCIDENTS, SELDOM * off):
        return
    others = [
        OtherRows(batch.users, uploads, _rated(rows, levels), rows.rows, rows.factors)
        for batch, uploads, rows in rows_of_all(view, pull)
    ]
    yield view_of(view, others, np.float64)


def _some(view: View) -> Int[np.ndarray, " some"]:
    return view.users[:: max(1, view.users.size // ASKED)]


def _able(rows: Rows) -> Bool[np.ndarray, " users"]:
    """Who has enough rows, not too many, and all in one direction."""
    n_rows = rows.item.sum(axis=1)
    return in_one_direction(rows) & (n_rows >= RATED + DRAWN) & (n_rows <= MOST)


def _splits(rows: Rows, levels: Float[np.ndarray, " levels"]) -> Iterator[tuple[int, MostOnGrid]]:
    """Which rows are on the grid, of clients who have others as well."""
    for user in np.flatnonzero(_able(rows)).tolist():
        one = most_on_grid(rows, user, levels, named=NAMED, least=RATED)
        if one is not None and _are_predicted(one, levels):
            yield user, one


def _rated(rows: Rows, levels: Float[np.ndarray, " levels"]) -> Bool[np.ndarray, "users rows"]:
    """Rows on the grid."""
    here = np.zeros(rows.item.shape, bool)
    for user, one in _splits(rows, levels):
        here[user, one.at[~one.off]] = True
    return here


def _at_fractions(one: MostOnGrid, levels: Float[np.ndarray, " levels"]) -> tuple[int, int]:
    """How many rows off the grid are at simple fractions of a step, of how many."""
    step = step_of(levels)
    place = (one.scalar + one.along)[one.off] / step % 1
    return int((distance_to_levels(place, FRACTIONS) <= one.near / step).sum()), place.size


def _are_predicted(one: MostOnGrid, levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether rows on the grid are on several levels, and the others anywhere between them."""
    value, step = one.scalar + one.along, step_of(levels)
    place = np.sort(value[one.off] / step % 1)
    used = np.unique(nearest_level(value[~one.off], levels)).size
    simple, _ = _at_fractions(one, levels)
    few = place.size < DRAWN
    # what a factor puts on few levels of the grid is beside others, and ratings repeat each other
    if used < LEVELS_USED or not place.size or simple > (0 if few else ACCIDENTS):
        return False
    if few:
        return bool((~one.off).sum() >= MANY)
    off = np.sort(value[one.off])
    if (off[ACCIDENTS:] - off[:-ACCIDENTS] <= one.near).any():
        return False
    different = (np.diff(np.r_[place, place[0] + 1]) > one.near / step).sum()
    return bool(different >= min(DIFFERENT * place.size, TIMES * levels.size))
