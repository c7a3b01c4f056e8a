"""What the rounds of some clients say of them: each client's answer is that of the round that fits best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import Estimates
from attacks.closed_form.common_numbers import Learned
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.images import may_be_lowered
from attacks.closed_form.read_rounds import Round
from attacks.closed_form.rows.off_grid import off_grid
from attacks.closed_form.uploads.answered import Answered
from attacks.closed_form.uploads.averaged_rows import LEAST_ROWS
from attacks.closed_form.uploads.item_rows import rounding_of, rows_of
from attacks.closed_form.uploads.readings import Reading, some_of
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, Uploads, UserBatch

DIAGNOSTICS = ("misfit", "steps", "declared", "pull", "upright")
NO_NUMBERS = (
    "no length of the client's factor and scale of its rows, or more than one pair of them, puts its rows on "
    "the rating grid"
)


def by_best_round(
    batch: UserBatch, rounds: Sequence[Round], learned: Learned, levels: Float[np.ndarray, " levels"]
) -> list[Answered]:
    """Answer each client from the round that fits best."""
    fit = np.stack([part.misfit - part.allowed for part, _ in rounds])
    best = np.where(np.isnan(fit), np.inf, fit).argmin(axis=0)
    return [
        _answered(batch.users, uploads, one, best == number, learned, levels)
        for number, (uploads, one) in enumerate(zip(batch.rounds, rounds, strict=True))
        if (best == number).any()
    ]


def _answered(
    everyone: Int[np.ndarray, " users"],
    uploads: Uploads,
    read: Round,
    here: Bool[np.ndarray, " users"],
    learned: Learned,
    levels: Float[np.ndarray, " levels"],
) -> Answered:
    """What one round says of some clients."""
    part, own = read
    users = everyone[here]
    upright = learned.upright if learned.upright >= BARS.upright else np.nan  # nothing is claimed of it
    reasons = _reasons(users, part, here)
    told_so = part.declared & learned.by_declared
    doubted = may_be_lowered(part.value, levels) & ~told_so & (not learned.settled)
    silenced = np.isin(users, list(reasons))[:, None]
    value = np.where(uploads.valid & (uploads.kind == ITEM), part.value, np.nan)[here]
    kind, index = (np.broadcast_to(a, part.value.shape)[here] for a in (uploads.kind, uploads.index))
    told = np.stack([getattr(part, name)[here] for name in DIAGNOSTICS[:-1]], axis=1)
    told = np.concatenate([told, np.full((users.size, 1), upright)], axis=1)
    factor = np.where(silenced | np.isnan(upright), np.nan, own[here])
    block = Estimates(users, kind, index, np.where(silenced, np.nan, value))
    if learned.upright < 1:
        block = replace(block, probability=np.where(np.isnan(block.value), np.nan, upright))
    factors = users, np.full(users.size, uploads.round), factor
    doubted = doubted[here] & ~silenced[:, 0]
    spanned = (part.spanned | np.isnan(part.steps))[here]
    return Answered(block, reasons, told, factors, part.plain[here], doubted, spanned)


def off_the_grid(
    manifest: Manifest, uploads: Uploads, rounds: Sequence[Round], learned: Learned
) -> Bool[np.ndarray, " users"]:
    """Find who was read in no round, and whose exact rows in the first are on no multiple of the grid."""
    rest = ~np.any([part.answered for part, _ in rounds], axis=0)
    out = np.zeros(rest.size, bool)
    if manifest.weighting == "observed-only" and rest.any():
        rows = rows_of(manifest, uploads, None, learned.lowered, learned.pulls[0])
        levels, digit = np.array(manifest.rating_levels), rounding_of(uploads.gradients)
        if learned.with_zeros:  # too few of them to be told by
            levels = np.concatenate([[0.0], levels])
        out[rest] = off_grid(some_of(rows, rest), levels, digit)
        if learned.with_zeros:  # or means, of too few items
            out &= rows.item.sum(axis=1) > 2 * LEAST_ROWS
    return out


def _reasons(users: np.ndarray, part: Reading, here: np.ndarray) -> dict[int, str]:
    """Why clients are abstained on."""
    reasons = {}
    for user, off, most in zip(users.tolist(), part.misfit[here], part.allowed[here], strict=True):
        if np.isnan(off):
            reasons[user] = NO_NUMBERS
        elif not off < most:
            reasons[user] = (
                "the answer fits the rating grid little better than chance "
                f"(misfit {off:.2g} of 1, at most {most:.2g} with so many ratings)"
            )
    return reasons
