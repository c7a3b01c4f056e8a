"""Rows of one sender that are parallel to the last digit, each group read as a client of its own.

Where several users share a client (cross-silo), a row is the sum of its raters' rows, sum_i e_ij u_i, and the
rows of a round have the rank of their number. But an item that one of them alone rated shows the row of that
user, and all such rows of a user are parallel: so they are read as one client's, without saying whose. Rows
with several raters stay open. The same groups are a client's minibatches where each has a scale of its own.

A direction that several clients send is nobody's own: what the server handed out (SCAFFOLD's control
variate, which is a mean of all clients' rows of the round before) is in everybody's rows, and shows ratings
of others there.

Groups that are exact and off the grid show that it is not ratings that are learned, but, it may be, ratings
less a number that nobody told, which some groups lack the levels to show: where there are many, none is read.

What it assumes: exact rows, and ``LEAST`` rows of a group; several levels, for one alone is met by any rows
that are linear in their predictions, those of negatives among them. It does not tell whose group it is, or
how many users there are; users with fewer lone items are not seen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

from attacks.closed_form.fit.affine_grid import best_numbers
from attacks.closed_form.fit.arbiter import exact_alone, mostly_on_the_grid
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.uploads.moving_factor import PARALLEL, grouped
from attacks.closed_form.uploads.readings import Reading, Rows, nothing
from attacks.closed_form.uploads.reduction import leading_direction
from victims.transcript.manifest import Manifest

LEAST = 5  # rows of a group
EXACT = 0.01  # misfit of rows that are exact: many groups are tried


def by_group(
    rows: Rows, manifest: Manifest, max_misfit: float, reading: Callable[[Rows, Manifest, float], Reading]
) -> Reading:
    """Read every group of parallel rows alone."""
    label = grouped(rows.rows, rows.factors, rows.item, rows.precision).label
    users, n = label.shape
    size = np.zeros((users, n), int)
    at = np.nonzero(label >= 0)
    np.add.at(size, (at[0], label[at]), 1)
    user, head = np.nonzero(size >= LEAST)
    best = nothing((users, n))._replace(allowed=np.full(users, max_misfit))
    if not user.size or len(manifest.rating_levels) == 1:
        return best
    member = label[user] == head[:, None]
    order = np.argsort(~member, axis=1, kind="stable")[:, : int(size.max())]
    there = np.take_along_axis(member, order, axis=1)
    one = user[:, None]
    alone = Rows(
        rows.rows[one, order] * there[..., None],
        rows.factors[one, order] * there[..., None],
        rows.offset[one, order] * there,
        there,
        rows.scale[user],
        rows.precision,
        None,
    )
    levels = np.array(manifest.rating_levels)
    found = exact_alone(reading(alone, manifest, min(max_misfit, EXACT)), alone, levels)
    direction = leading_direction(alone.rows)[0]
    own = ~_of_several(user, direction, rows.precision)
    good = found.answered & own
    if not mostly_on_the_grid(found.value, good, own & ~good & _off(alone, direction, levels), levels):
        return best
    value = np.where(there & good[:, None], found.value, np.nan)
    told = np.isfinite(value)
    best.value[np.broadcast_to(one, order.shape)[told], order[told]] = value[told]
    misfit = np.full(users, -np.inf)
    np.maximum.at(misfit, user[good], found.misfit[good])
    return best._replace(misfit=np.where(np.isfinite(misfit), misfit, np.nan), plain=np.isfinite(misfit))


def _off(
    alone: Rows, direction: Float[np.ndarray, "groups K"], levels: Float[np.ndarray, " levels"]
) -> Bool[np.ndarray, " groups"]:
    """Groups that no two numbers put on the grid."""
    columns = np.stack(
        [np.einsum("grk,gk->gr", part, direction) for part in (alone.rows, alone.factors)], axis=2
    )
    return best_numbers(columns, alone.offset, alone.item, levels).distance > BARS.off_grid * step_of(levels)


def _of_several(
    user: Int[np.ndarray, " groups"], direction: Float[np.ndarray, "groups K"], precision: float
) -> Bool[np.ndarray, " groups"]:
    """Groups whose direction, either way round, another user's group has: of the nearest, one is its own."""
    near, other = cKDTree(np.concatenate([direction, -direction])).query(direction, k=3)
    # the last number is of no neighbour
    others = np.concatenate([user, user, [-1]])[other]
    return ((near <= PARALLEL * precision) & (others >= 0) & (others != user[:, None])).any(axis=1)
