"""Ratings of each sender, from rows that are sorted by sender and freed of what regularises the item.

What is left of a row is W e u with the u of its moment: the closed forms of one round read it, with the
weight W for unknown (``attacks.closed_form.rows.row_readings``). With r = A g + B h, the numbers A and B that
put a sender's rows on the rating grid, tell W = 1 / |A B|, whatever the sender's u.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.rows.row_readings import best_reading
from attacks.closed_form.uploads.readings import Rows
from victims.transcript.manifest import Manifest


class Read(NamedTuple):
    """What is read of the rows of one round."""

    value: Float[np.ndarray, " rows"]  # ratings in stars, not rounded; NaN where not told
    # distance of a sender's ratings from the grid, 1 is chance; NaN where there is no answer
    misfit: Float[np.ndarray, " senders"]
    # what multiplies a sender's rows, as they tell it; NaN where they do not
    scale: Float[np.ndarray, " senders"]


def read_senders(
    label: Int[np.ndarray, " rows"],
    rows: Float[np.ndarray, "rows K"],
    factors: Float[np.ndarray, "rows K"],
    manifest: Manifest,
    max_misfit: float,
    precision: float,
) -> Read:
    """Read the senders of one round."""
    n = int(label.max(initial=-1)) + 1
    value, misfit, scale = np.full(label.size, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    kept = np.flatnonzero(label >= 0)
    order = kept[np.argsort(label[kept], kind="stable")]
    count = np.bincount(label[kept], minlength=n)
    start = np.cumsum(count) - count
    for members in _alike(count):
        width = int(count[members].max())
        slot = np.arange(width)
        there = slot < count[members, None]
        at = order[np.where(there, start[members, None] + slot, 0)]
        row, factor = (np.where(there[..., None], part[at], 0.0) for part in (rows, factors))
        unknown = np.full(members.size, np.nan)
        nothing = np.zeros(there.shape)
        found = best_reading(
            Rows(row, factor, nothing, there, unknown, precision, None), manifest, max_misfit
        )
        answered = found.answered
        told = there & answered[:, None]
        value[at[told]] = found.value[told]
        misfit[members] = np.where(answered, found.misfit, np.nan)
        with np.errstate(divide="ignore"):
            scale[members] = np.where(answered, 1 / np.abs(found.of_error * found.of_factor), np.nan)
    return Read(value, misfit, scale)


def _alike(count: Int[np.ndarray, " senders"]) -> list[np.ndarray]:
    """Senders by the number of their rows, so that padding at most doubles a table."""
    order = np.argsort(count, kind="stable")
    order = order[count[order] > 0]
    out = []
    while order.size:
        size = int(np.searchsorted(count[order], 2 * max(count[order[0]], 8), side="right"))
        out.append(order[:size])
        order = order[size:]
    return out
