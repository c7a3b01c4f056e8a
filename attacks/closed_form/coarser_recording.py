"""Clients who all rate in whole stars on a grid of halves, among others who do not.

Several steps over copies that move tell which ratings are in a span, and no scale of them: whole stars r
leave r / 2 open (``attacks.closed_form.fit.coarser_grids``). To first order in the steps a rating is
A g + B h, with a row and its item's factor (half-way, where copies move) along the client's direction, and
A B = 1 / (steps times rate) is what clients share, as it is or in proportion to how many ratings they have,
or to one over that. For r / 2 it is a quarter of what it is for r. Those who are read on the grid as it is
declared tell it; of the others it says which of the two they have.

Beyond the papers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import Reconstruction, Scope, joined
from attacks.closed_form.fit.decoding import nearest_level
from attacks.closed_form.uploads.answered import block_of
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.readings import Rows
from attacks.closed_form.uploads.reduction import leading_direction
from victims.transcript.view import ITEM, Uploads, View

FEWEST = 3  # clients who tell what all share
NEAR = 1.5  # times, by which it may differ: that of another multiple is four times as large, or more
FEWEST_ROWS = 6  # ratings of a client
SPREAD = 0.4  # of the rows' size, across their common direction, above which steps are not small
VARIED = (
    0.02  # of predictions, by which they must differ: equal ones leave all ratings shifted by a level open
)
POWERS = (0, 1, -1)  # of how many ratings a client has, that it may be in proportion to
MOST = 0.8  # of those who are read, that have to agree


class _Shared(NamedTuple):
    """A B of clients, and how many ratings they have."""

    users: Int[np.ndarray, " clients"]
    constant: Float[np.ndarray, " clients"]
    n_rated: Int[np.ndarray, " clients"]

    def over(self, power: int) -> Float[np.ndarray, " clients"]:
        """A B, less what it owes to how many ratings there are."""
        return self.constant / self.n_rated.astype(float) ** power


def with_coarser(
    found: Reconstruction,
    view: View,
    grids: Sequence[Float[np.ndarray, " _levels"]],
    pull: float,
    read: Callable[[View], Reconstruction],
) -> Reconstruction:
    """Read who is left open on coarser grids, and believe those who share A B with the others."""
    if found.scope != Scope.RATINGS_AND_ATTRIBUTES or not found.abstained:
        return found
    said = _agreed(_shared_by(found, view, pull))
    if said is None:
        return found
    power, middle = said
    for levels in grids:
        if not found.abstained:
            break
        rest = view.select(np.array(sorted(found.abstained)))
        more = read(rest.declared(rating_levels=levels.tolist()))
        if more.scope != found.scope:
            continue
        told = _shared_by(more, rest, pull)
        with np.errstate(invalid="ignore", divide="ignore"):
            near = np.abs(np.log(told.over(power) / middle)) < np.log(NEAR)
        found = _with(found, more, told.users[near])
    return found


def _agreed(told: _Shared) -> tuple[int, float] | None:
    """What most clients share, and in proportion to which power of the number of their ratings."""
    if told.users.size < FEWEST:
        return None
    best = None
    for power in POWERS:
        each = told.over(power)
        middle = float(np.median(each))
        with np.errstate(invalid="ignore", divide="ignore"):
            off = np.abs(np.log(each / middle))
        agree = off < np.log(NEAR)  # NaN of the other sign
        if agree.sum() >= max(FEWEST, MOST * agree.size):
            spread = float(np.median(off[agree]))
            best = min(best, (spread, power, middle)) if best else (spread, power, middle)
    return None if best is None else best[1:]


def _shared_by(found: Reconstruction, view: View, pull: float) -> _Shared:
    """A B of each client that is answered, of the first round that shows it."""
    levels = np.array(view.manifest.rating_levels)
    out: dict[int, tuple[float, int]] = {}
    ratings = _ratings_of(found, levels)
    for batch in view.batches(BATCH_BYTES):
        for uploads in batch.rounds:
            out |= _of_a_round(view, uploads, batch.users, ratings, set(out), pull)
    users = sorted(out)
    constant, n_rated = (np.array([out[user][at] for user in users]) for at in (0, 1))
    return _Shared(np.array(users, int), constant.astype(float), n_rated.astype(int))


def _of_a_round(
    view: View,
    uploads: Uploads,
    users: Int[np.ndarray, " users"],
    ratings: dict[int, dict[int, float]],
    known: set[int],
    pull: float,
) -> dict[int, tuple[float, int]]:
    """Clients of one round who are answered and not known yet."""
    asked = {at for at, user in enumerate(users.tolist()) if user in ratings and user not in known}
    if not asked or not uploads.index.shape[-1]:
        return {}
    rows = rows_of(view.manifest, uploads, None, 0.0, pull)
    index = np.broadcast_to(uploads.index, rows.item.shape)
    out = {}
    for at in sorted(asked):
        here = rows.item[at] & (rows.rows[at] != 0).any(axis=1)
        table = _coordinates(rows, at, here)
        if table is None:
            continue
        own = ratings[int(users[at])]
        value = np.array([own.get(item, np.nan) for item in index[at, here].tolist()]) - rows.offset[at, here]
        told = np.isfinite(value)
        if told.sum() > 2 and np.linalg.matrix_rank(table[told]) == 2:
            a, b = np.linalg.lstsq(table[told], value[told], rcond=None)[0]
            out[int(users[at])] = float(a * b), len(table)
    return out


def _coordinates(rows: Rows, user: int, here: Bool[np.ndarray, " rows"]) -> Float[np.ndarray, "n 2"] | None:
    """Rows and factors along a client's direction; None where few rows tell it, or predictions are alike."""
    sent, v = rows.rows[user, here], rows.factors[user, here].astype(float)
    if here.sum() < FEWEST_ROWS or not np.isfinite(sent).all():
        return None
    directions, energy = leading_direction(sent[None])
    direction = directions[0]
    g, h = sent @ direction, v @ direction
    across = np.linalg.norm(sent - g[:, None] * direction) / np.sqrt(energy[0])
    if not across < SPREAD or np.std(h) < VARIED * np.abs(np.mean(h)):
        return None
    # rows that are no changes of copies are larger, or smaller, and leave these where they were
    return np.stack([g, h + g / 2 if np.linalg.norm(sent) < np.linalg.norm(v) else h], axis=1)


def _ratings_of(found: Reconstruction, levels: Float[np.ndarray, " levels"]) -> dict[int, dict[int, float]]:
    """What is answered about whom, on the grid, by item."""
    out: dict[int, dict[int, float]] = {}
    for block in found.blocks:
        kind, index = (np.broadcast_to(part, block.value.shape) for part in (block.kind, block.index))
        told = np.isfinite(block.value) & (block.value != 0) & (kind == ITEM)
        near = nearest_level(np.where(told, block.value, levels[0]), levels)
        for user, here, items, values in zip(block.users.tolist(), told, index, near, strict=True):
            if here.any():
                out[user] = dict(zip(items[here].tolist(), values[here].tolist(), strict=True))
    return out


def _with(found: Reconstruction, more: Reconstruction, users: Int[np.ndarray, " some"]) -> Reconstruction:
    """What is said of some clients by another reading, the rest as before."""
    if not users.size:
        return found
    diagnostics = {name: column.copy() for name, column in found.diagnostics.items()}
    here, there = np.isin(found.users, users), np.isin(more.users, users)
    for name, column in diagnostics.items():
        column[here] = more.diagnostics[name][there]
    kept = [block_of(one, ~np.isin(one.users, users)) for one in found.blocks]
    new = [block_of(one, np.isin(one.users, users)) for one in more.blocks]
    known = [found.factors, None if more.factors is None else more.factors.of(users)]
    return replace(
        found,
        blocks=tuple(one for one in (*kept, *new) if one.users.size),
        abstained={user: why for user, why in found.abstained.items() if user not in set(users.tolist())},
        diagnostics=diagnostics,
        factors=joined((one.users, one.round, one.value) for one in known if one is not None),
    )
