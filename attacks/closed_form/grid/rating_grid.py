"""One round, no update rule: the length of each client's factor that puts all its rows on the rating grid.

Beyond Chai et al. 2021, whose section 4 needs two rounds and the clients' step. With p = s d
(``attacks.closed_form.uploads.reduction``) a row says r = g / s + s h with h = d . q, and r is one of a few
levels. So one row leaves only the roots of c h s^2 - c z s + g = 0, two for each level z (weight c; in
include-unrated also z = 0 with c = alpha): a search over s in one dimension that needs no step size. Every
root is tried on the other rows.

What it assumes: uploads in the clear and without noise, the rating grid, and alpha in include-unrated. It
abstains where no root, or more than one, meets the grid; with one row all of them do. Under another scale
than the declared one some root of two or three rows lies near the grid by accident: it puts them no nearer
than that, while rows that are parallel to many digits tell ratings to half as many.

References
----------
D. Chai et al., "Secure Federated Matrix Factorization", arXiv:1906.05108, section 4.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.base import Progress, Reconstruction, all_abstain, silent
from attacks.client_rules.premises import unlike
from attacks.closed_form.fit.arbiter import abstain_if_contradicted
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import FIT_ROWS, step_of
from attacks.closed_form.fit.images import abstain_if_higher
from attacks.closed_form.grid.rank_one import solve_clients
from attacks.closed_form.uploads.reduction import Reduced, noise_across, projection
from attacks.obstacles import alpha_unknown, unreadable
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, Uploads, UserBatch, View

ONE_LEVEL = "all ratings are one level: rows of items that are not rated would be taken for more of them"
EXACT = 1e-9  # stars, below which two distances are equal
AT_ONCE = 1 << 18  # answers that are held against the grid together


@dataclass(frozen=True)
class Grid:
    """Hyper-parameters.

    Attributes
    ----------
    max_misfit : float
        Abstain where the distance of the answer from the grid exceeds this share of what random
        pairing gives.
    """

    max_misfit: float = 0.1
    name: str = "grid"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Solve all clients of a view; rounds are used one by one, the one with the longest factor counts."""
        options = {**asdict(self), "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options)
        found = solve_clients(
            self.name,
            options,
            view,
            partial(_lengths, view.manifest),
            max_misfit=self.max_misfit,
            no_length="no length of the client's factor, or more than one, puts its rows on the rating grid",
            progress=progress,
            tried=len(_candidates(view.manifest)),
            anchors=1,
        )
        found = abstain_if_contradicted(found, self.max_misfit)
        return abstain_if_higher(found, np.array(view.manifest.rating_levels))

    def obstacle(self, view: View) -> str:
        """Why no client of the view can be solved, or nothing."""
        reason = unreadable(view) or alpha_unknown(view) or unlike(view, judges=True, own_references=True)
        return reason or (ONE_LEVEL if _of_one_level(view.manifest) else "")


def _of_one_level(manifest: Manifest) -> bool:
    """Whether all rows are taken for ratings, and all ratings for the same."""
    return len(manifest.rating_levels) == 1 and manifest.weighting == "observed-only"


def _lengths(
    manifest: Manifest, batch: UserBatch, reduced: list[Reduced]
) -> Float[np.ndarray, "rounds users"]:
    return np.stack([_length(manifest, *both) for both in zip(batch.rounds, reduced, strict=True)])


def _length(manifest: Manifest, uploads: Uploads, part: Reduced) -> Float[np.ndarray, " users"]:
    """The length in one round; none where ratings are further off the grid than the rows' digits explain.

    Rows that are parallel to many digits tell ratings to half as many, which is what the roots of a quadratic
    have where they are near each other. A single factor shows no digits.
    """
    rows = row_numbers(uploads, part)
    length = best_length(manifest, rows)
    if manifest.factors == 1:
        return length
    most = (
        BARS.lost
        * step_of(np.array(manifest.rating_levels))
        * np.sqrt(_relative_noise(manifest, uploads, part))
    )
    return np.where(distance_from_grid(manifest, rows, length) <= most, length, 0)


def _relative_noise(manifest: Manifest, uploads: Uploads, part: Reduced) -> Float[np.ndarray, " users"]:
    """What rows have off their direction, of the largest; at least the last digit of what was sent."""
    digits = max(float(np.finfo(one.dtype).eps) for one in (uploads.gradients, uploads.factors))
    largest = np.abs(np.where(uploads.valid, part.scalar, 0)).max(axis=1, initial=0)
    off = noise_across(manifest, uploads, part)
    return np.maximum(off / np.where(largest > 0, largest, np.inf), digits)


class RowNumbers(NamedTuple):
    """g and h of some rows, whether they are items, and which are there, (users, rows) each."""

    scalar: np.ndarray
    along: np.ndarray
    item: np.ndarray
    valid: np.ndarray


def row_numbers(uploads: Uploads, reduced: Reduced) -> RowNumbers:
    """Collect what the rows of a round say once they are projected on the clients' directions."""
    shape = reduced.scalar.shape
    return RowNumbers(
        reduced.scalar,
        projection(uploads, reduced.direction),
        np.broadcast_to(uploads.kind == ITEM, shape),
        np.broadcast_to(uploads.valid, shape),
    )


def best_length(manifest: Manifest, rows: RowNumbers) -> Float[np.ndarray, " users"]:
    """Find the one length that puts each client's rows on the rating grid."""
    shape = rows.scalar.shape
    if not shape[1]:  # these clients sent nothing in this round
        return np.zeros(shape[0])
    anchor = np.where(rows.valid, np.abs(rows.scalar), -1).argmax(axis=1)[:, None]
    one = RowNumbers(*(np.take_along_axis(part, anchor, axis=1)[:, 0] for part in rows))
    step = max(1, -(-shape[1] // FIT_ROWS))
    some = RowNumbers(*(part[:, ::step] for part in rows))
    best = np.zeros(shape[0])
    nearest, second = np.full(shape[0], np.inf), np.full(shape[0], np.inf)
    roots = np.array(_roots(manifest, one))
    for length, away in zip(roots, _distances(manifest, some, roots), strict=True):
        same = np.abs(length - best) <= 1e-6 * best
        closer = away < nearest
        second = np.where(closer & ~same, nearest, np.where(same, second, np.minimum(second, away)))
        best, nearest = np.where(closer, length, best), np.minimum(nearest, away)
    clear = second > BARS.clearly * nearest + EXACT
    sent = rows.valid.any(axis=1)  # a round without rows of a client tells nothing
    return np.where(clear & sent & np.isfinite(nearest), best, 0)


def _distances(manifest: Manifest, rows: RowNumbers, roots: Float[np.ndarray, "roots users"]) -> np.ndarray:
    """As far as answers are from the grid with each root, (roots, users), some roots at a time."""
    some = max(1, AT_ONCE // rows.scalar.size)
    parts = [distance_from_grid(manifest, rows, roots[at : at + some]) for at in range(0, len(roots), some)]
    return np.concatenate(parts)


def _roots(manifest: Manifest, row: RowNumbers) -> list[Float[np.ndarray, " users"]]:
    """Positive s at which one row per client is on a level; 0 where there is none."""
    roots = []
    for weight, value, is_item, larger_one in _candidates(manifest):
        with np.errstate(divide="ignore", invalid="ignore"):
            # the stable pair of roots of c h s^2 - c z s + g
            middle = weight * value
            discriminant = np.sqrt(middle**2 - 4 * weight * row.along * row.scalar)
            larger = 0.5 * (middle + np.copysign(discriminant, middle))
            root = larger / (weight * row.along) if larger_one else row.scalar / larger
            usable = np.isfinite(root) & (root > 0) & (row.item == is_item)
            roots.append(np.where(usable, root, 0))
    return roots


def _candidates(manifest: Manifest) -> list[tuple[float, float, bool, bool]]:
    """Weight, value with sign, whether of an item, and which root: what one row may say of s."""
    values = [(1.0, level, True) for level in manifest.rating_levels]
    values += [(1.0, 0.0, False), (1.0, 1.0, False)] if manifest.n_attributes else []
    if manifest.weighting == "include-unrated":
        values.append((manifest.hyperparameters["alpha"], 0.0, True))
    return [
        (weight, sign * value, is_item, larger_one)
        for weight, value, is_item in values
        for sign in ((1, -1) if value else (1,))  # the direction's sign is open
        for larger_one in (True, False)
    ]


def distance_from_grid(
    manifest: Manifest, rows: RowNumbers, length: Float[np.ndarray, "*lengths users"]
) -> Float[np.ndarray, "*lengths users"]:
    """Measure how far answers are from the rating grid, given the lengths of the factors."""
    there = length > 0
    s = np.where(there, length, 1)[..., None]
    error, predicted = rows.scalar / s, rows.along * s
    value = error + predicted
    # the sign of the direction is open: whichever of both the client's rows fit
    fits = []
    n_rows = np.maximum(rows.valid.sum(axis=1), 1)
    for sign in (1, -1):
        near = distance_to_levels(sign * value, np.array(manifest.rating_levels))
        if manifest.weighting == "include-unrated":
            near = np.minimum(near, np.abs(error + manifest.hyperparameters["alpha"] * predicted))
        flag = np.minimum(np.abs(value), np.abs(sign * value - 1))
        near = np.where(rows.item, near, flag) * rows.valid
        fits.append(near.sum(axis=-1) / n_rows)
    return np.where(there, np.minimum(*fits), np.inf)
