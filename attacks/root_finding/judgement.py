"""Whether what a solver ended with may be believed: numbers on the rating grid, by more than chance.

The systems hold for the declared rule alone. Under another one, or under other constants, a solver finds a
root as well, or stops somewhere, and the numbers there are no ratings. Without noise that shows: the right
root lies on the grid (``attacks.closed_form.fit.goodness_of_fit``). In include-unrated a second root has the
ratings and puts unrated items anywhere, so that there it is enough that more numbers lie on a level than
chance would put there. A solver that did not move from its start, which may be a level, shows nothing.

Rows that are parallel to many digits show more: next to the length of the factor that was found all of them
are on the grid, or that is not the client's factor (``attacks.closed_form.grid.exact_grid``). They also tell
which items are unrated whatever root was found for these, so that what a second root says of them is not
told.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import bdtrc

from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import accidental, misfit, step_of
from attacks.closed_form.grid.exact_grid import labels_at
from attacks.closed_form.grid.rating_grid import RowNumbers
from attacks.closed_form.uploads.reduction import across_direction
from attacks.root_finding.problems import ClientRows
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM

LEAVE_NUMBERS = {"unrated-sampling", "personalized-sampling", "paillier", "secure-sum"}  # defenses
MAX_MISFIT = 0.5  # of chance, as the closed forms allow
STOPPED = 0.1  # the same beside unrated items, of a solver that stopped short: what it has is no draw
NEAR = (1e-3, 1e-2, 1e-1)  # of a step of the grid
NOTHING = 1e-3  # of the lowest level
PARALLEL = 1e-3  # sine of the angle between a factor that solves the system and the client's rows
MISSES = 0.25  # of a step of the grid, by which numbers miss what the rows say
NO_RATINGS = "by numbers off the rating grid: the clients' rule, or a constant, is not the declared one"
NOT_SOLVED = (
    "the solver did not converge and ended by numbers off the rating grid: it failed, or the clients' rule, "
    "or a constant, is not the declared one"
)


def is_judged(manifest: Manifest) -> bool:
    """Tell whether right answers lie on the grid: nothing that is declared moves the rows."""
    return {str(entry.get("name")) for entry in manifest.defenses} <= LEAVE_NUMBERS


def sends_unrated(manifest: Manifest, n_sent: int) -> bool:
    """Tell whether a client that sent so many items may have sent unrated ones: all of them, or a sample."""
    sampled = any(entry.get("name") == "unrated-sampling" for entry in manifest.defenses)
    return manifest.weighting == "include-unrated" and (sampled or n_sent == manifest.n_items)


class Told(NamedTuple):
    """What is told of a client: numbers, NaN where rows say another one, or why there are none."""

    value: Float[np.ndarray, " rows"]
    reason: str  # empty where they may be believed
    contradicts: bool  # whether exact rows show that the declared rule, or a constant, is another one


def told_by_rows(
    manifest: Manifest,
    client: ClientRows,
    value: Float[np.ndarray, " rows"],
    factor: Float[np.ndarray, " K"],
    *,
    solved: bool,
) -> Told:
    """Hold numbers against exact rows, at the length of the factor that was found."""
    direction, across = across_direction(client.rows[None])
    along = float(direction[0] @ factor)
    item = client.kind == ITEM
    scalar, predicted = client.rows @ direction[0], client.factors @ direction[0]
    rows = RowNumbers(scalar[None], predicted[None], item[None], np.ones((1, value.size), bool))
    found, mirrored = (labels_at(manifest, rows, across, np.array([sign * along])) for sign in (1.0, -1.0))
    if not found.exact[0]:
        return Told(value, "", False)
    square = float(factor @ factor)
    beside = solved and square - along**2 > PARALLEL**2 * square
    one_root = manifest.update == "semi-als"
    if found.off[0] or (beside and one_root):
        # two rounds (sgd) have several roots: one that is not along the rows says nothing about the others
        shown = solved and bool(mirrored.off[0]) and (one_root or not beside)
        return Told(value, f"exact rows are contradicted {NO_RATINGS}", shown)
    misses = item & (np.abs(value - found.label[0]) > MISSES * step_of(np.array(manifest.rating_levels)))
    return Told(np.where(misses, np.nan, value), "", False)


def off_the_grid(
    value: Float[np.ndarray, " rows"],
    item: Bool[np.ndarray, " rows"],
    levels: Float[np.ndarray, " levels"],
    *,
    unrated: bool = False,
    start: float | None = None,
    converged: bool = True,
) -> str:
    """Say why a client's numbers are no ratings.

    Examples
    --------
    >>> stars, everything = np.arange(1.0, 6.0), np.ones(3, bool)
    >>> off_the_grid(np.array([1.0, 4.0, 5.0]), everything, stars)
    ''
    >>> off_the_grid(np.array([1.4, 4.6, 5.3]), everything, stars)[:21]
    'the system is solved,'
    """
    moved = item if start is None or converged else item & (np.abs(value - start) > step_of(levels) / 2)
    if not item.any():
        return ""
    if unrated:
        believed = _more_than_chance(value[moved], levels) or _all_on_it(
            value, moved, levels, MAX_MISFIT if converged else STOPPED
        )
    else:
        believed = _fits(value, moved, moved | ~item, levels)
    if believed:
        return ""
    return f"the system is solved, but {NO_RATINGS}" if converged else NOT_SOLVED


def _fits(
    value: Float[np.ndarray, " rows"],
    item: Bool[np.ndarray, " rows"],
    judged: Bool[np.ndarray, " rows"],
    levels: Float[np.ndarray, " levels"],
    most: float = MAX_MISFIT,
) -> bool:
    """Whether numbers are nearer to the grid than chance would put them."""
    away, n_judged = misfit(value[None], np.zeros((1, value.size)), item[None], judged[None], levels, None)
    # nothing is shown where all ratings are still at the start
    return bool(n_judged[0] > 0 and away[0] <= min(most, accidental(n_judged)[0]))


def _more_than_chance(value: Float[np.ndarray, " rows"], levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether numbers gather on the levels of rated items."""
    away = np.abs(value[:, None] - levels).min(axis=1, initial=np.inf) / step_of(levels)
    by_chance = [bdtrc((away < near).sum() - 1, value.size, 2 * near) for near in NEAR]
    return bool(value.size > 0 and min(by_chance) < BARS.accident / len(NEAR))


def _all_on_it(
    value: Float[np.ndarray, " rows"],
    item: Bool[np.ndarray, " rows"],
    levels: Float[np.ndarray, " levels"],
    most: float,
) -> bool:
    """Whether all numbers but zeros fit the grid with "unrated" on it, and so do the ratings alone.

    Zeros show nothing: a row whose sign is wrong is read as one, and what is next to nothing stays there
    under any length of the factor, on the way of a solver that stopped short as well.
    """
    told = item & (np.abs(value) > NOTHING * levels[0])
    rated = told & (value > levels[0] / 2)
    alone = _fits(value, rated, rated, levels, most)
    return alone and _fits(value, told, told, np.append(0.0, levels), most)
