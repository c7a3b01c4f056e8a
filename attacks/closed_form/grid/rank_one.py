"""The answers of all clients once the length of their factors is known, on all cores.

Every row that a client uploads is a multiple of its factor (``attacks.closed_form.uploads.reduction``), so
that ratings follow from its length (``attacks.closed_form.grid.readout``). How that length is found is the
attack's own idea: ``attacks.closed_form.spectral``, ``attacks.closed_form.grid.rating_grid``, and Chai et
al.'s in ``attacks.closed_form.fedmf_eq24``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from threadpoolctl import threadpool_limits

from attacks.base import Estimates, Progress, Reconstruction, joined
from attacks.closed_form.fit.goodness_of_fit import accidental
from attacks.closed_form.grid.readout import Readout, read_batch
from attacks.closed_form.uploads.reduction import Reduced, reduce_rows
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, BATCH_BYTES, UserBatch, View


class BatchAnswer(NamedTuple):
    """Some clients: estimates, reasons to abstain by client, diagnostics, and factors as for ``joined``."""

    users: Int[np.ndarray, " users"]
    blocks: tuple[Estimates, ...]
    abstained: dict[int, str]
    diagnostics: dict[str, np.ndarray]
    factors: tuple[np.ndarray, np.ndarray, np.ndarray]


Lengths = Callable[[UserBatch, "list[Reduced]"], Float[np.ndarray, "rounds users"]]
Limit = Callable[
    [UserBatch, "list[Reduced]", Float[np.ndarray, "rounds users"], Readout], Float[np.ndarray, " users"]
]


def solve_clients(
    name: str,
    options: Mapping[str, Any],
    view: View,
    lengths: Lengths,
    *,
    max_misfit: float | Limit,
    no_length: str,
    progress: Progress,
    tried: int = 1,
    anchors: int = 0,
) -> Reconstruction:
    """Read all clients of a view, given how their lengths are found."""
    solve = partial(_solve_batch, lengths, view.manifest, max_misfit, (tried, anchors), no_length)
    solved = list(_batch_answers(view, solve, progress))
    users = np.concatenate([part.users for part in solved])
    order = np.argsort(users)
    names = solved[0].diagnostics
    diagnostics = {key: np.concatenate([part.diagnostics[key] for part in solved])[order] for key in names}
    abstained = {user: reason for part in solved for user, reason in part.abstained.items()}
    blocks = tuple(block for part in solved for block in part.blocks)
    factors = joined(part.factors for part in solved)
    return Reconstruction(name, users[order], blocks, abstained, options, diagnostics, factors=factors)


def _batch_answers(
    view: View, solve: Callable[[UserBatch], BatchAnswer], progress: Progress
) -> Iterator[BatchAnswer]:
    """Solve the batches on all cores; NumPy releases the interpreter lock inside its loops."""
    cuts = view.layout.slices(view.manifest.factors, BATCH_BYTES)
    members = [view.layout.order[start:stop] for start, stop in cuts]
    done = 0
    # one thread per batch: BLAS threads of its own would fight with these
    with (
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(min(len(members), os.cpu_count() or 1)) as pool,
    ):
        for part in pool.map(lambda m: solve(view.batch(m)), members):
            done += part.users.size
            progress(done, view.users.size)
            yield part


def _solve_batch(
    lengths: Lengths,
    manifest: Manifest,
    max_misfit: float | Limit,
    chosen: tuple[int, int],
    no_length: str,
    batch: UserBatch,
) -> BatchAnswer:
    # finite files may hold numbers whose squares are not; such clients are abstained on below
    with np.errstate(over="ignore", invalid="ignore"):
        reduced = [reduce_rows(manifest, uploads) for uploads in batch.rounds]
        scales = lengths(batch, reduced)
        readout = read_batch(manifest, batch, reduced, scales)
        length = scales.max(axis=0)
        energy = np.stack([part.energy for part in reduced]).max(axis=0)
        most = max_misfit(batch, reduced, scales, readout) if callable(max_misfit) else max_misfit
    most = np.broadcast_to(most, length.shape)
    allowed = _allowed_misfit(batch, readout, most, *chosen)
    abstained = _reasons(batch, readout, length, energy, allowed, most <= 0, no_length)
    silenced = np.isin(batch.users, list(abstained))
    readout.value[silenced] = np.nan
    if readout.if_rated is not None:
        readout.if_rated[silenced] = np.nan
    block = Estimates(
        batch.users, readout.kind, readout.index, readout.value, rating_if_rated=readout.if_rated
    )
    factor = np.where(silenced[:, None], np.nan, readout.factor)
    told = {"length": length, "misfit": readout.misfit, "allowed": allowed}
    return BatchAnswer(batch.users, (block,), abstained, told, (batch.users, readout.round, factor))


def _allowed_misfit(
    batch: UserBatch, readout: Readout, most: Float[np.ndarray, " users"], tried: int, anchors: int
) -> Float[np.ndarray, " users"]:
    """Largest misfit at which each client is answered: of few ratings less, so that accidents are rare."""
    free = readout.n_judged - anchors * ~_sends_attributes(batch)
    by_accident = np.where(readout.n_judged > 0, accidental(free, tried), np.inf)
    return np.where(np.isinf(most), most, np.minimum(most, by_accident))


def _reasons(
    batch: UserBatch,
    readout: Readout,
    length: Float[np.ndarray, " users"],
    energy: Float[np.ndarray, " users"],
    allowed: Float[np.ndarray, " users"],
    never: Bool[np.ndarray, " users"],
    no_length: str,
) -> dict[int, str]:
    """Why clients are abstained on."""
    reasons = {}
    columns = zip(batch.users, energy, length, readout.misfit, allowed, never, strict=True)
    for user, size, scale, off, most, exactly in columns:
        if size == 0:
            reasons[int(user)] = "all uploaded rows are zero"
        elif not np.isfinite(size):
            reasons[int(user)] = "the uploaded numbers are too large to square"
        elif not scale > 0:
            reasons[int(user)] = no_length
        elif np.isnan(off):
            reasons[int(user)] = "the uploaded numbers and the broadcast factors are too far apart in size"
        elif exactly:
            reasons[int(user)] = (
                f"exact rows are off the rating grid as declared (misfit {off:.2g} of 1): the clients' rule, "
                "or a constant, is not the declared one"
            )
        elif not off <= most:
            reasons[int(user)] = (
                "the answer fits the rating grid little better than chance "
                f"(misfit {off:.2g} of 1, at most {most:.2g} with so many ratings)"
            )
    return reasons


def _sends_attributes(batch: UserBatch) -> Bool[np.ndarray, " users"]:
    sent = [((part.kind == ATTRIBUTE) & part.valid).any(axis=1) for part in batch.rounds]
    return np.broadcast_to(np.any(np.broadcast_arrays(*sent), axis=0), batch.users.shape)
