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
  (``attacks.closed_form.numbers.integer_relation``).
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

from attacks.closed_form.chains.chain_readings import any_reading
from attacks.closed_form.fit.decoding import nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.gaps.filled_rows import Filled, filled_in, with_gaps
from attacks.closed_form.numbers.integer_relation import COARSEST, LOOSE, precision_of, ratings_in_columns
from attacks.closed_form.uploads.kept import kept
from attacks.closed_form.uploads.readings import Reading, Rows, on_the_rest, reading_of
from victims.transcript.manifest import Manifest

CHANCE = 20.0  # nats, by which missing entries that are all smaller than the others are no accident
SURE = 0.01  # of a step: ratings that columns tell one by one are nearer to the grid
KEPT = 32  # readings, of a number a row

Told = tuple[Float[np.ndarray, " n"], float] | None  # ratings of one client's rows, and its steps


@kept(KEPT, lambda rows, manifest, max_misfit: (*rows, manifest, max_misfit))
def reading_with_gaps(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read each client as what its rows fit best, with entries of its rows missing or not."""
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
    able = np.isfinite(rows.rows).all(axis=(1, 2)) & (digits < COARSEST)
    for user in np.flatnonzero(able).tolist():
        one = _OneClient(rows, filled, user, levels, float(digits[user]))
        if (found := _of_one_step(one) or _of_columns(one)) is not None:
            value[user], steps[user] = found
    told = np.isfinite(value).any(axis=1)
    misfit = np.where(told, 0.0, np.nan)
    return reading_of(value, misfit=misfit, allowed=max_misfit, steps=steps, spanned=True)


class _OneClient(NamedTuple):
    """Whose rows are read, and what is known of everybody's."""

    rows: Rows
    filled: Filled  # the same rows
    user: int  # place of the client among them
    levels: Float[np.ndarray, " levels"]  # ratings that exist, ascending, stars
    digits: float  # relative size of the last digits of the client's rows


def _of_one_step(one: _OneClient) -> Told:
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
    return _in_columns(table, one, here)


def _of_columns(one: _OneClient) -> Told:
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


def _in_columns(table: Float[np.ndarray, "told m"], one: _OneClient, here: np.ndarray) -> Told:
    """Ratings in the span of columns, among all rows of the client."""
    found = ratings_in_columns(table, one.rows.offset[one.user, here], one.levels, one.digits)
    if found is None:
        return None
    value = np.full(one.rows.item.shape[1], np.nan)
    value[here] = found
    return value, 1.0
