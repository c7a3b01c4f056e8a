"""Ratings as integers in a span, of rows of which some columns are missing, client by client.

Columns that are seen nowhere, U, leave p_U unknown. With h_j the known part of p . q_j a rating is

    r_j = A e_j + B h_j + p_U . q_jU,

so that the ratings are integers in a span of 2 + |U| dimensions, all known
(``attacks.closed_form.numbers.integer_relation``). Where the client's factor moves between its rows, it does
so in the columns that all rows have as if there were no others
(``attacks.closed_form.uploads.moving_factor``), and in U by what its steps add up to: B s sum_i g_i q_iU,
known up to B as well, beside shrink^b p_U. Several steps over all ratings leave each column of the rows in
the span of factors and ratings: any single one with K + 3 entries or more tells the ratings of the rows that
have it, the other columns the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.closed_form.chains.chain_readings import steps_before
from attacks.closed_form.fit.decoding import nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.gaps.filled_rows import Filled
from attacks.closed_form.numbers.integer_relation import ratings_in_columns
from attacks.closed_form.rows.row_readings import LONGEST
from attacks.closed_form.uploads.moving_factor import follow
from attacks.closed_form.uploads.readings import Rows

ANGLES = 3  # columns that all rows have, from which on the order of steps is seen
LIMITS = (1e-9, 1e-6, 1e-4)  # share of the ratings outside the span, that angles of moving factors may leave
SURE = 0.01  # of a step: ratings that columns tell one by one are nearer to the grid

Told = tuple[Float[np.ndarray, " n"], float] | None  # ratings of one client's rows, and its steps


class OneClient(NamedTuple):
    """Whose rows are read, and what is known of everybody's."""

    rows: Rows
    filled: Filled  # the same rows
    user: int  # place of the client among them
    levels: Float[np.ndarray, " levels"]  # ratings that exist, ascending, stars
    digits: float  # relative size of the last digits of the client's rows


def of_one_step(one: OneClient) -> Told:
    """A e + B h + p_U . q_U."""
    rows, filled, user, _, _ = one
    here = np.flatnonzero(rows.item[user] & filled.joined[user])
    if not filled.one_step[user]:
        return None
    full, v = filled.rows[user, here], rows.factors[user, here].astype(float)
    lead = np.linalg.norm(full, axis=1).argmax()
    direction = full[lead] / np.linalg.norm(full[lead])
    known = [(full @ direction)[:, None], (v @ direction)[:, None]]
    table = np.concatenate([*known, v[:, ~filled.seen[user]]], axis=1)
    return _in_columns(table, one, here, one.digits, 1.0)


def of_a_chain(one: OneClient) -> Told:
    """The same of a factor that moves, in the columns that all rows have."""
    rows, filled, user, _, _ = one
    here = np.flatnonzero(rows.item[user] & filled.kept[user].any(axis=1))
    common = filled.kept[user, here].all(axis=0)
    if common.sum() < ANGLES or not ANGLES < len(here) <= LONGEST:
        return None
    sent, v = rows.rows[user, here], rows.factors[user, here].astype(float)
    with np.errstate(all="ignore"):
        chain = follow(
            sent[None][..., common], v[None][..., common], np.ones((1, len(here)), bool), rows.precision
        )
    there = chain.step[0] >= 0
    if not chain.whole[0] or chain.n_steps[0] < 2 or not there.all():
        return None
    moved, decay = steps_before(chain, v[None][..., ~common])
    along = chain.along[0] + (moved[0] * v[:, ~common]).sum(axis=1)
    table = np.concatenate(
        [chain.scalar[0][:, None], along[:, None], decay[0][:, None] * v[:, ~common]], axis=1
    )
    if not np.isfinite(table).all():
        return None
    return nearly_in_columns(table, one, here, float(chain.n_steps[0]))


def of_columns(one: OneClient) -> Told:
    """Any steps over all ratings: the column with most entries, and what it tells of the others."""
    rows, filled, user, levels, digits = one
    kept = filled.kept[user] & rows.item[user][:, None]
    v, offset = rows.factors[user].astype(float), rows.offset[user]
    first = int(kept.sum(axis=0).argmax())
    here = np.flatnonzero(kept[:, first])
    if not here.size:
        return None
    table = np.concatenate([rows.rows[user, here, first][:, None], v[here]], axis=1)
    found = ratings_in_columns(table, offset[here], levels, digits)
    if found is None:
        return None
    value = np.full(len(v), np.nan)
    value[here] = found
    for column in np.argsort(-kept.sum(axis=0), kind="stable"):
        told = kept[:, column] & np.isfinite(value)
        open_ = kept[:, column] & ~np.isfinite(value)
        table = np.concatenate([rows.rows[user, :, column][:, None], v], axis=1)
        if told.sum() <= table.shape[1] or not open_.any():
            continue
        numbers, *_ = np.linalg.lstsq(table[told], value[told] - offset[told], rcond=None)
        fitted = table @ numbers + offset
        exact = np.abs(fitted - value)[told].max() <= SURE * step_of(levels)
        near = np.abs(fitted - nearest_level(fitted, levels)) <= SURE * step_of(levels)
        value = np.where(open_ & near & exact, nearest_level(fitted, levels), value)
    return value, np.nan


def nearly_in_columns(
    table: Float[np.ndarray, "told m"], one: OneClient, here: np.ndarray, steps: float
) -> Told:
    """Find ratings in the span of columns that lengths of moving factors leave less exact than rows are."""
    for limit in LIMITS:
        if limit > one.digits and (told := _in_columns(table, one, here, limit, steps)) is not None:
            return told
    return None


def _in_columns(
    table: Float[np.ndarray, "told m"], one: OneClient, here: np.ndarray, digits: float, steps: float
) -> Told:
    """Ratings in the span of columns, among all rows of the client."""
    found = ratings_in_columns(table, one.rows.offset[one.user, here], one.levels, digits)
    if found is None:
        return None
    value = np.full(one.rows.item.shape[1], np.nan)
    value[here] = found
    return value, steps
