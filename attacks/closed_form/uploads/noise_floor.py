"""Rows of rounding noise, as compressed uploads (a truncated SVD, say) leave for items that nobody touched.

A gap in the sizes of a client's rows shows them: so many rows that are all so much smaller than the next
larger one have a probability of that ratio to the power of their number, if sizes are spread continuously.
They are looked for where rows cover most of the catalogue, or most of them would go: a few errors may well be
0 but for rounding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from victims.transcript.view import ITEM, View, rows_of

SMALL = 1e-5  # of the client's largest row, beyond which no row is noise
GAP = 10.0  # times the largest row of noise, that the smallest other one has at least
ACCIDENT = 1e-6  # probability of such a gap
MOST = 0.5  # of the catalogue, or of the rows


def without_noise(view: View) -> View:
    """Leave out the rows of items that are rounding noise."""
    messages = view.messages
    if messages.gradient is None or not messages.n_rows:
        return view
    size = np.concatenate([np.abs(chunk).max(axis=1, initial=0) for chunk in messages.gradient])
    sender, round_, kind = (
        np.concatenate(column) for column in (messages.sender, messages.round, messages.kind)
    )
    some = np.flatnonzero((kind == ITEM) & (size > 0) & np.isfinite(size))
    order = some[np.lexsort((size[some], round_[some], sender[some]))]
    if not order.size:
        return view
    log = np.log(size[order])
    new = (np.diff(sender[order]) != 0) | (np.diff(round_[order]) != 0)
    first = np.flatnonzero(np.append(True, new))
    n = np.diff(np.append(first, order.size))
    top, below = np.repeat(log[first + n - 1], n), np.arange(order.size) - np.repeat(first, n) + 1
    gap = np.append(np.diff(log), 0.0)
    gap[first + n - 1] = 0
    many = (below > MOST * np.repeat(n, n)) | (np.repeat(n, n) >= MOST * view.manifest.n_items)
    noise = (log <= top + np.log(SMALL)) & (gap >= np.log(GAP)) & (below * gap >= -np.log(ACCIDENT)) & many
    last = np.maximum.reduceat(np.where(noise, below, 0), first)
    drop = np.zeros(messages.n_rows, bool)
    drop[order[below <= np.repeat(last, n)]] = True
    return replace(view, messages=rows_of(messages, np.flatnonzero(~drop))) if drop.any() else view
