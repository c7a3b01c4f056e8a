"""Rows of which some entries are not sent: the largest of each row, of the whole upload, or some at random.

Libraries for federated learning send the largest entries of an update alone (top-k), or each with some
probability, and scaled up by its inverse. An entry that is exactly 0 in a row that has others is taken for
missing: that it is 0 would mean that the client's factor is. A row of zeros alone may be an error of 0.

- Rows of one step, e_j p, have rank one in what is kept. Entries that are kept tell e and p up to a number,
  along rows and columns that share some, and with them what is missing (``filled_in``). The kept ones must
  have rank one to their last digits, so that entries rounded to 0 are not taken for missing. Where every
  column is seen somewhere the rows are as good as whole ones, and read as these.
- Columns that are seen nowhere, U, leave p_U unknown. With h_j the known part of p . q_j a rating is

      r_j = A e_j + B h_j + p_U . q_jU,

  so that the ratings are integers in a span of 2 + |U| dimensions, all known
  (``attacks.closed_form.integer_relation``). Where the client's factor moves between its rows, it does so in
  the columns that all rows have as if there were no others (``attacks.closed_form.moving_factor``), and in U
  by what its steps add up to: B s sum_i g_i q_iU, known up to B as well, beside shrink^b p_U.
- Several steps over all ratings leave each column of the rows in the span of factors and ratings: any single
  one with K + 3 entries or more tells the ratings of the rows that have it, the other columns the rest.
- A row of which nothing was sent, where entries of a threshold were: all it has is below that, so that its
  rating lies near the prediction. It is answered where one level does.

What it assumes: uploads in the clear, rounded at most; entries that are sent are as they were, times a number
that all share. It judges itself as the readings do that it hands rows to. Beyond the papers; the compression
is that of A. F. Aji, K. Heafield, "Sparse Communication for Distributed Gradient Descent", arXiv:1704.05021,
and, at random, of J. Wangni et al., arXiv:1710.09854.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import gammaln

from attacks.closed_form.chain_readings import any_reading, steps_before
from attacks.closed_form.decoding import nearest_level
from attacks.closed_form.goodness_of_fit import step_of
from attacks.closed_form.integer_relation import COARSEST, LOOSE, precision_of, ratings_in_columns
from attacks.closed_form.moving_factor import follow
from attacks.closed_form.readings import Reading, Rows, on_the_rest
from attacks.closed_form.row_readings import LONGEST
from victims.transcript.manifest import Manifest

GROWN = 60  # times, that rows and columns are made of each other, at most
ANGLES = 3  # columns that all rows have, from which on the order of steps is seen
LIMITS = (1e-9, 1e-6, 1e-4)  # share of the ratings outside the span, that angles of moving factors may leave
SURE = 0.01  # of a step: ratings that columns tell one by one are nearer to the grid
CHANCE = 20.0  # nats, by which missing entries that are all smaller than the others are no accident


class Filled(NamedTuple):
    """Some clients' rows with what is missing, where the kept entries are of one step.

    Attributes
    ----------
    rows : (users, rows, K)
        As sent where something else is the case; 0 in columns that are seen nowhere.
    kept : (users, rows, K) bool
        Entries that were sent.
    seen : (users, K) bool
        Columns of which something was.
    joined : (users, rows) bool
        Rows that share columns with the others.
    one_step : (users,) bool
    """

    rows: Float[np.ndarray, "users rows K"]
    kept: Bool[np.ndarray, "users rows K"]
    seen: Bool[np.ndarray, "users K"]
    joined: Bool[np.ndarray, "users rows"]
    one_step: Bool[np.ndarray, " users"]


def reading_with_gaps(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read each client as what its rows fit best, with entries of its rows missing or not.

    Parameters
    ----------
    rows : Rows
    manifest : Manifest
        Names the rating grid.
    max_misfit : float
        Largest misfit at which a client is answered.

    Returns
    -------
    Reading
    """
    gaps = with_gaps(rows)
    if not gaps.any():
        return any_reading(rows, manifest, max_misfit)
    filled = filled_in(rows)
    levels = np.array(manifest.rating_levels)
    whole = gaps & filled.one_step & (filled.seen | ~gaps[:, None]).all(axis=1)
    bound = np.where(whole, _threshold(rows, filled), np.nan)
    item = np.where(whole[:, None], _counted(rows, filled, bound), rows.item)
    full = rows._replace(
        rows=np.where(whole[:, None, None], filled.rows, rows.rows),
        factors=rows.factors * item[..., None],
        offset=rows.offset * item,
        item=item,
    )
    best = any_reading(full, manifest, max_misfit)
    best = on_the_rest(best, _with_unseen, gaps & ~best.answered, rows, manifest, max_misfit)
    return _with_bounds(best, rows, filled, bound, levels)


def with_gaps(rows: Rows) -> Bool[np.ndarray, " users"]:
    """Tell who sent rows with some entries exactly 0 and others not.

    Parameters
    ----------
    rows : Rows

    Returns
    -------
    (users,) bool
    """
    kept = rows.rows != 0
    return (kept.any(axis=2) & ~kept.all(axis=2) & rows.item).any(axis=1)


def filled_in(rows: Rows) -> Filled:
    """Complete rows of one step by their kept entries.

    Parameters
    ----------
    rows : Rows

    Returns
    -------
    Filled
    """
    sent = np.where(rows.item[..., None] & np.isfinite(rows.rows), rows.rows, 0.0)
    size = np.abs(sent).max(axis=(1, 2), initial=0)
    sent = sent / np.where(size > 0, size, 1)[:, None, None]
    kept = sent != 0
    error, factor, joined = _of_rank_one(sent, kept)
    product = error[..., None] * factor[:, None]
    digits = LOOSE * precision_of(rows.rows, rows.factors, rows.precision)
    away = np.where(kept & joined[..., None], np.abs(sent - product), 0.0).max(axis=(1, 2), initial=0)
    one_step = (away <= digits) & joined.any(axis=1)
    whole = np.where(kept, sent, product) * np.where(size > 0, size, 1)[:, None, None]
    return Filled(
        np.where(one_step[:, None, None], whole, rows.rows), kept, kept.any(axis=1), joined, one_step
    )


def _of_rank_one(
    sent: Float[np.ndarray, "users rows K"], kept: Bool[np.ndarray, "users rows K"]
) -> tuple[Float[np.ndarray, "users rows"], Float[np.ndarray, "users K"], Bool[np.ndarray, "users rows"]]:
    """What the kept entries are the product of, from the longest row on, and rows that it leads to."""
    users, n, k = sent.shape
    error, factor = np.zeros((users, n)), np.zeros((users, k))
    if not n:
        return error, factor, np.zeros((users, n), bool)
    user = np.arange(users)
    first = (kept.sum(axis=2) + np.linalg.norm(sent, axis=2) / np.sqrt(k)).argmax(axis=1)
    factor[user] = sent[user, first]
    weight = kept.astype(float)
    for _ in range(GROWN):
        before = factor
        error = _quotient(np.einsum("unk,uk->un", sent, factor), np.einsum("unk,uk->un", weight, factor**2))
        factor = _quotient(np.einsum("unk,un->uk", sent, error), np.einsum("unk,un->uk", weight, error**2))
        if np.abs(factor - before).max(initial=0) <= 1e-15 * np.abs(factor).max(initial=0):
            break
    return error, factor, error != 0


def _quotient(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return above / np.where(below > 0, below, np.inf)


def _threshold(rows: Rows, filled: Filled) -> Float[np.ndarray, " users"]:
    """What missing entries are smaller than, and no others are; NaN where that may be an accident."""
    out = np.full(len(rows.item), np.nan)
    size = np.abs(filled.rows)
    for user in np.flatnonzero(filled.one_step):
        kept = filled.kept[user]
        missing = ~kept & filled.joined[user][:, None]
        n, m = int(kept.sum()), int(missing.sum())
        least = size[user][kept].min(initial=np.inf)
        nats = gammaln(n + m + 1) - gammaln(n + 1) - gammaln(m + 1)
        if nats > CHANCE and (size[user][missing] <= least * (1 + LOOSE * rows.precision)).all():
            out[user] = least
    return out


def _counted(
    rows: Rows, filled: Filled, bound: Float[np.ndarray, " users"]
) -> Bool[np.ndarray, "users rows"]:
    """Rows that are told: those of zeros alone say that their error is 0 where every row was sent in part."""
    alike = (filled.kept.sum(axis=2) == filled.kept.sum(axis=2).max(axis=1, keepdims=True)) | ~filled.joined
    by_row = alike.all(axis=1) & np.isnan(bound)
    return rows.item & (filled.joined | (by_row[:, None] & ~filled.kept.any(axis=2)))


def _with_bounds(
    best: Reading, rows: Rows, filled: Filled, bound: Float[np.ndarray, " users"], levels: np.ndarray
) -> Reading:
    """Ratings of rows of which nothing was sent, where one level is as near to the prediction as it says."""
    silent = rows.item & ~filled.kept.any(axis=2) & (best.answered & np.isfinite(bound))[:, None]
    value, slack = best.value.copy(), SURE * step_of(levels)
    for user in np.flatnonzero(silent.any(axis=1)):
        read = np.isfinite(value[user]) & filled.joined[user]
        full, v = filled.rows[user], rows.factors[user].astype(float)
        direction = full[np.linalg.norm(full, axis=1).argmax()]
        direction = direction / np.linalg.norm(direction)
        table, offset = np.stack([full @ direction, v @ direction], axis=1), rows.offset[user]
        numbers, _, rank, _ = np.linalg.lstsq(table[read], value[user, read] - offset[read], rcond=None)
        off = np.abs(table @ numbers + offset - value[user])[read]
        if rank < 2 or read.sum() < 3 or off.max() > slack:
            continue
        most = np.abs(numbers[0]) * bound[user] / np.abs(direction).max()
        away = np.abs((numbers[1] * table[:, 1] + offset)[:, None] - levels)
        one = silent[user] & ((away <= most + slack).sum(axis=1) == 1)
        value[user] = np.where(one, levels[away.argmin(axis=1)], value[user])
    return best._replace(value=value)


def _with_unseen(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Ratings in the span of what is known of rows with columns missing, client by client."""
    levels = np.array(manifest.rating_levels)
    filled = filled_in(rows)
    digits = LOOSE * precision_of(rows.rows, rows.factors, rows.precision)
    value = np.full(rows.item.shape, np.nan)
    steps = np.full(len(value), np.nan)
    for user in np.flatnonzero(np.isfinite(rows.rows).all(axis=(1, 2)) & (digits < COARSEST)).tolist():
        for reading in (_of_one_step, _of_a_chain, _of_columns):
            found = reading(rows, filled, user, levels, float(digits[user]))
            if found is not None:
                value[user], steps[user] = found
                break
    told = np.isfinite(value).any(axis=1)
    unknown = np.full(told.shape, np.nan)
    none = np.zeros(told.shape)
    return Reading(
        value,
        np.where(told, 0.0, np.nan),
        np.full(told.shape, max_misfit),
        np.zeros(told.shape, bool),
        steps,
        none,
        unknown,
        unknown,
        none,
    )


_Told = tuple[Float[np.ndarray, " n"], float] | None  # ratings of one client's rows, and its steps


def _of_one_step(rows: Rows, filled: Filled, user: int, levels: np.ndarray, digits: float) -> _Told:
    """A e + B h + p_U . q_U."""
    here = np.flatnonzero(rows.item[user] & filled.joined[user])
    if not filled.one_step[user]:
        return None
    full, v = filled.rows[user, here], rows.factors[user, here].astype(float)
    lead = np.linalg.norm(full, axis=1).argmax()
    direction = full[lead] / np.linalg.norm(full[lead])
    known = [(full @ direction)[:, None], (v @ direction)[:, None]]
    table = np.concatenate([*known, v[:, ~filled.seen[user]]], axis=1)
    return _spread(rows, user, here, ratings_in_columns(table, rows.offset[user, here], levels, digits), 1.0)


def _of_a_chain(rows: Rows, filled: Filled, user: int, levels: np.ndarray, digits: float) -> _Told:
    """The same of a factor that moves, in the columns that all rows have."""
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
    for limit in LIMITS:
        if limit > digits:
            found = ratings_in_columns(table, rows.offset[user, here], levels, limit)
            if found is not None:
                return _spread(rows, user, here, found, float(chain.n_steps[0]))
    return None


def _of_columns(rows: Rows, filled: Filled, user: int, levels: np.ndarray, digits: float) -> _Told:
    """Any steps over all ratings: the column with most entries, and what it tells of the others."""
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


def _spread(rows: Rows, user: int, here: np.ndarray, found: np.ndarray | None, steps: float) -> _Told:
    """Ratings of some rows among all of a client."""
    if found is None:
        return None
    value = np.full(rows.item.shape[1], np.nan)
    value[here] = found
    return value, steps
