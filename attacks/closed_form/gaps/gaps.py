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
  (``attacks.closed_form.numbers.integer_relation``). Where the client's factor moves between its rows, it
  does so in the columns that all rows have as if there were no others
  (``attacks.closed_form.uploads.moving_factor``), and in U by what its steps add up to: B s sum_i g_i q_iU,
  known up to B as well, beside shrink^b p_U.
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

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import gammaln

from attacks.closed_form.chains.chain_readings import any_reading
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.gaps.filled_rows import Filled, filled_in, with_gaps
from attacks.closed_form.gaps.gap_passes import of_passes
from attacks.closed_form.gaps.gap_spans import SURE, OneClient, of_a_chain, of_columns, of_one_step
from attacks.closed_form.gaps.gap_steps import of_steps
from attacks.closed_form.numbers.integer_relation import COARSEST, LOOSE, precision_of
from attacks.closed_form.uploads.kept import kept
from attacks.closed_form.uploads.readings import Reading, Rows, on_the_rest, reading_of
from victims.transcript.manifest import Manifest

CHANCE = 20.0  # nats, by which missing entries that are all smaller than the others are no accident
FITS = (of_steps, of_passes)
ASKED = 4  # clients of a batch that say whether a fit is worth its time for the others
KEPT = 32  # readings, of a number a row


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
    for reading in (of_one_step, of_a_chain, of_columns, of_steps, of_passes):
        open_ = np.flatnonzero(able & ~np.isfinite(value).any(axis=1)).tolist()
        for asked, user in enumerate(open_):
            found = reading(OneClient(rows, filled, user, levels, float(digits[user])))
            if found is not None:
                value[user], steps[user] = found
            if reading in FITS and asked + 1 == ASKED and not np.isfinite(value[open_[:ASKED]]).any():
                break
    told = np.isfinite(value).any(axis=1)
    misfit = np.where(told, 0.0, np.nan)
    return reading_of(value, misfit=misfit, allowed=max_misfit, steps=steps, spanned=True)
