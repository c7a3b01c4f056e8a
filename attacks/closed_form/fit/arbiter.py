"""Whether an answer is believed: what is near the levels by accident speaks against itself.

An answer that is not exact has a reason, rounding say, which is the same in all rows and for all clients. So
it counts for little where the rows themselves are exact, where clients with as many ratings are not answered,
or where the client's other ratings are much nearer to the levels. And what most clients contradict, a
declaration or an idea of what programs learn, is answered of the others by accident.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import Reconstruction, silent_about
from attacks.closed_form.fit.affine_grid import level_ratios
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.images import rows_against_multiples
from attacks.closed_form.uploads.readings import Reading, Rows
from attacks.closed_form.uploads.reduction import across_direction

BIASED_ALONE = (
    "its ratings are near the grid with a bias of its own alone, which next to nobody else's rows ask for"
)


def exact_alone(best: Reading, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave out answers that are farther from the grid than rows are from their directions.

    Rounding moves ratings off the grid, and rows off the client's direction as far. Rows that are parallel to
    the last digit, with ratings that are not on the grid to theirs, come from another rule, which they fit by
    accident.
    """
    if not rows.rows.shape[1]:
        return best
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        clean = rows.rows - np.nan_to_num(best.pull)[:, None, None] * rows.factors
        _, across = across_direction(clean)
    # where there are several steps each has its own direction, to the last digit
    several = best.steps > 1
    inexact = np.where(several, rows.precision**BARS.third, np.nan_to_num(across) + rows.precision**BARS.half)
    there = _rated(best, rows)
    away = np.where(there, distance_to_levels(np.nan_to_num(best.value), levels), 0.0).sum(axis=1)
    far = away / np.maximum(there.sum(axis=1), 1) > BARS.slack * inexact * max(
        levels[-1] - levels[0], step_of(levels)
    )
    # equal factors, followed from row to row, add up their rounding; they need a declared scale
    far &= ~(several & best.declared)
    return best._replace(misfit=np.where(far, np.nan, best.misfit))


def without_improbable(best: Reading, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave out answers and ratings that the other clients, or the client's other ratings, speak against."""
    return _without_outliers(_without_loners(best, rows), rows, levels)


def without_multiples(best: Reading, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave out answers that are a multiple of what the scale that clients share says.

    Numbers c A and c B put c times the ratings on the grid, with a scale that is c^2 times smaller. Where
    some of a client's numbers are no ratings (2.5 beside 2 and 2: the mean of an item that it did not rate),
    a multiple may be on the grid (5 beside 4 and 4) where they are not. A rating of the client and its
    multiple are levels both, which leaves few c; a scale that differs for another reason meets none of them.
    """
    ratios = np.array(sorted(level_ratios(levels)))
    with np.errstate(invalid="ignore", over="ignore"):
        times = np.sqrt(best.of_error * best.of_factor)
        meets = (np.abs(times[:, None] - ratios) <= BARS.same_multiple * ratios).any(axis=1)
    other = meets & ~best.declared & (best.steps <= 1)  # minibatches have scales of their own
    return best._replace(misfit=np.where(other, np.nan, best.misfit))


def _rated(best: Reading, rows: Rows) -> Bool[np.ndarray, "users rows"]:
    """Rows that are answered with a rating: 0 says that there is none."""
    return np.isfinite(best.value) & (best.value != 0) & rows.item


def _without_loners(best: Reading, rows: Rows) -> Reading:
    """Without inexact answers where next to none of the clients with as many ratings is answered.

    Another rule, a link for one, may be nearly what was thought for a client with few ratings; who has more
    shows the difference. Rounding would leave those answered.
    """
    n_rated = rows.item.sum(axis=1)
    inexact = best.answered & (best.misfit > rows.precision**BARS.half)
    lonely = np.zeros(n_rated.size, bool)
    for user in np.flatnonzero(inexact):
        others = n_rated >= n_rated[user]
        others[user] = False
        lonely[user] = others.sum() >= BARS.fewest and best.answered[others].mean() < BARS.seldom
    return best._replace(misfit=np.where(lonely, np.nan, best.misfit))


def _without_outliers(best: Reading, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Without ratings that are much farther from the grid than those of the same client.

    Rounding is alike in all rows; a row that is off by more is of another step than was thought, or, where
    it is the longest, was clipped. Where ratings are inexact such a row may be near a wrong level by
    accident, unless that is the last on either side. A row of zeros says that its error is none, or that
    its item took no part: only where the rating is exact, the former.
    """
    away = np.where(_rated(best, rows), distance_to_levels(best.value, levels), np.nan)
    with np.errstate(invalid="ignore"):
        usual = np.array(
            [np.median(own[np.isfinite(own)]) if np.isfinite(own).any() else 0.0 for own in away]
        )
        size = np.linalg.norm(rows.rows, axis=2)
        longest = size >= BARS.long * size.max(axis=1, initial=0)[:, None]
        times = np.where(longest, BARS.longest, BARS.farther)
        off = away > np.maximum(times * usual[:, None], BARS.exact * step_of(levels))
        inner = (
            np.minimum(np.abs(best.value - levels[0]), np.abs(best.value - levels[-1])) > step_of(levels) / 2
        )
        off |= longest & inner & (best.steps > 1)[:, None] & (usual > BARS.exact * step_of(levels))[:, None]
        off |= (size == 0) & (away > rows.precision**BARS.half * step_of(levels))
    return best._replace(value=np.where(off, np.nan, best.value))


def without_open_multiples(best: Reading, rows: Rows, levels: Float[np.ndarray, " levels"]) -> Reading:
    """Leave out answers of which few rounded rows say which multiple they are.

    Those of a smaller last minibatch may have a scale of their own, and be on the grid with it by accident.
    """
    there = _rated(best, rows)
    asked = best.answered & ~best.declared & (best.misfit > BARS.rounded)
    open_ = np.zeros(asked.size, bool)
    for user in np.flatnonzero(asked):
        value, offset = best.value[user, there[user]], rows.offset[user, there[user]]
        if not value.size:
            continue
        near = nearest_level(value, levels)
        usual = max(float(np.median(np.abs(value - near))), np.finfo(float).tiny)
        each = np.log(max(step_of(levels) / (2 * BARS.within * usual), 1.0))
        against = rows_against_multiples(near - offset, offset, levels)
        # of one step no minibatch is smaller, but a few rows may be nearly parallel to the others
        few = best.steps[user] > 1 or against <= 1 + BARS.few * value.size
        open_[user] = few and each * against < BARS.nats
    return best._replace(misfit=np.where(open_, np.nan, best.misfit))


def abstain_if_contradicted(
    found: Reconstruction, max_misfit: float, clear: Bool[np.ndarray, " users"] | None = None
) -> Reconstruction:
    """Answer nobody where most clients whose ratings suffice to judge are off the rating grid."""
    misfit = found.diagnostics["misfit"]
    answered = ~np.isin(found.users, list(found.abstained))
    if clear is None:
        judged, fewest = answered | (misfit >= BARS.off), BARS.fewest
    else:
        judged, fewest = (
            (found.diagnostics["allowed"] >= max_misfit) & np.isfinite(misfit) & clear,
            BARS.fewest_noisy,
        )
    return _if_most_fit(found, answered, judged, fewest)


def abstain_if_few_fit(found: Reconstruction, contradicting: Bool[np.ndarray, " users"]) -> Reconstruction:
    """Answer nobody where exact rows of more clients than are answered contradict the declaration."""
    answered = ~np.isin(found.users, list(found.abstained))
    return _if_most_fit(found, answered, answered | contradicting, BARS.fewest)


def _if_most_fit(
    found: Reconstruction,
    answered: Bool[np.ndarray, " users"],
    judged: Bool[np.ndarray, " users"],
    fewest: int,
) -> Reconstruction:
    """Answer nobody where most of those who can be judged are not answered."""
    if judged.sum() < fewest or answered[judged].mean() >= BARS.most:
        return found
    reason = (
        f"of {judged.sum()} clients who can be judged {answered[judged].sum()} fit the rating grid: the "
        "others contradict the declared rule, scale or levels"
    )
    return silent_about(found, answered, reason)


def abstain_if_off_the_grid(
    found: Reconstruction,
    off: Bool[np.ndarray, " users"],
    levels: Float[np.ndarray, " levels"],
    plain: Bool[np.ndarray, " users"] | None = None,
) -> Reconstruction:
    """Answer nobody where exact rows of more than a fifth of clients that can be judged are off the grid.

    Ratings less a number that nobody told lie on the grid for some clients, one factor of each being open:
    always for those with two levels, which therefore speak for nothing.
    """
    abstained = np.isin(found.users, list(found.abstained))
    answered = ~abstained if plain is None else ~abstained & plain
    telling = np.zeros(found.users.size, bool)
    for block in found.blocks:
        near = np.where(
            np.isnan(block.value) | (block.value == 0), np.nan, nearest_level(block.value, levels)
        )
        used = np.array([np.unique(own[np.isfinite(own)]).size for own in near])
        telling[np.searchsorted(found.users, block.users)] = used >= BARS.levels
    n_off, n_fit = int((off & abstained).sum()), int((answered & telling).sum())
    if n_fit >= BARS.most_exact * (n_off + n_fit) or not n_off:
        return found
    reason = (
        f"{n_off} clients' rows are of one step, of numbers on no multiple of the rating grid, {n_fit} with "
        "three levels or more are on it: the program takes something off ratings, or the levels are others"
    )
    return silent_about(found, answered, reason)


def abstain_if_biased_alone(found: Reconstruction, biased: Bool[np.ndarray, " users"]) -> Reconstruction:
    """Abstain on who is near the grid with a bias of its own alone, where most clients are without one.

    A program keeps biases of all clients or of none, and one number more brings ratings near to many a grid:
    whole stars of a grid of halves may come out half a star lower.
    """
    answered = ~np.isin(found.users, list(found.abstained))
    n_biased, n_others = int((answered & biased).sum()), int((answered & ~biased).sum())
    if n_others < BARS.fewest or n_biased >= n_others:
        return found
    return silent_about(found, answered & biased & (found.diagnostics["misfit"] > BARS.alone), BIASED_ALONE)
