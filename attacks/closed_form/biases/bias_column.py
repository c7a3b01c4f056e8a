"""Biases of items that a program keeps as one more column of their factors, and sends their errors with.

A program that stores (q_j, b_j) in one table, and p with a 1 at its end, sends rows e_j (p, 1). With a bias c
of the client that nobody told,

    r_j = A g_j + B h_j + c,

whose mirror image makes the same rows (``attacks.closed_form.centres.centred``) as long as the 1 is not
known. One column taken for biases is known: b_j is added to predictions with the factor 1, and no mirror
image, nor a multiple of the ratings, fits (``attacks.closed_form.centres.shifted``). So each is tried, on a
few clients. The wrong one would have to have a factor of 1 in all of them.

What it assumes: biases in stars, as many factors as that beside them as a client's rows need anyhow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from attacks.base import ClientFactors, Reconstruction
from attacks.closed_form.centres.centred import even
from attacks.closed_form.centres.shifted import read_any_shifted, read_shifted
from attacks.closed_form.chains.chain_readings import NEW_BIAS, OWN_BIAS, candidates
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.item_rows import rows_of
from attacks.closed_form.uploads.moving_factor import follow
from attacks.closed_form.uploads.readings import Rows, some_of
from attacks.closed_form.uploads.shared_pull import without_pull
from victims.transcript.view import Broadcast, View

ASKED, FEWEST, MOST = (
    8,
    3,
    0.5,
)  # clients that are asked, who must be read with a column, and the share of all
USUAL, LONG = 60, 300  # rows of a client that is asked, and most where its factor moves in a round
LEAST, MOVING, WIDEST = 3, 32, 256  # factors, with that of the biases; most where a client's moves in a round


def bias_column(view: View, open_: Iterable[int], max_misfit: float) -> int | None:
    """Find the column of the factors that holds biases of the items."""
    levels, width = np.array(view.manifest.rating_levels), view.manifest.factors
    possible = view.manifest.weighting == "observed-only" and even(levels) and LEAST <= width <= WIDEST
    if not possible or view.messages.reference is not None:
        return None
    rows = _asked(view, np.array(sorted(open_), int))
    if rows is None:
        return None
    rows, steady = _cleaned(rows)
    if not steady and max(width / MOVING, rows.rows.shape[1] / LONG) > 1:
        return None
    told = _of_one_step if steady else _of_steps
    read = [_n_read(_with_column(rows, column), levels, max_misfit, told) for column in range(width)]
    best = int(np.argmax(read))
    return best if read[best] >= max(FEWEST, MOST * len(rows.rows)) else None


def _asked(view: View, open_: Int[np.ndarray, " open"]) -> Rows | None:
    """Those with about ``USUAL`` rows in the last round, in which biases have moved most; None where few."""
    n_rows = sum(
        (np.bincount(chunk, minlength=view.manifest.n_users) for chunk in view.messages.sender),
        start=np.zeros(view.manifest.n_users, int),
    )
    n_rows = n_rows[open_] / max(len(view.broadcasts), 1)
    most = open_[np.argsort(np.abs(n_rows - USUAL), kind="stable")][:ASKED]
    if most.size < FEWEST:
        return None
    batch = next(iter(view.select(most).batches()))
    rows = rows_of(view.manifest, batch.rounds[-1], None)
    here = np.flatnonzero(rows.item.any(axis=1))
    if here.size < FEWEST or rows.offset.any():
        return None
    return some_of(rows, here)


def _with_column(rows: Rows, column: int) -> Rows:
    """The rows with one column of the factors taken for biases."""
    return rows._replace(
        rows=np.delete(rows.rows, column, axis=2),
        factors=np.delete(rows.factors, column, axis=2),
        offset=rows.offset + rows.factors[..., column],
    )


def _cleaned(rows: Rows) -> tuple[Rows, bool]:
    """Rows without a multiple of their factors, where that leaves one direction; whether most have one."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        clean, _ = without_pull(rows.rows, rows.factors, rows.item)
        steady, pulled = (
            one_step(rows._replace(rows=some)).across <= rows.precision**BARS.half
            for some in (rows.rows, clean)
        )
    taken = (pulled & ~steady)[:, None, None]
    return rows._replace(rows=np.where(taken, clean, rows.rows)), bool((steady | pulled).mean() >= MOST)


Told = Callable[[Rows, np.ndarray, float], int]


def _n_read(rows: Rows, levels: np.ndarray, max_misfit: float, told: Told) -> int:
    """How many clients are read; 0 where none of the first are."""
    first = told(some_of(rows, np.arange(FEWEST)), levels, max_misfit)
    if not first or len(rows.rows) == FEWEST:
        return first
    return first + told(some_of(rows, np.arange(FEWEST, len(rows.rows))), levels, max_misfit)


def _of_one_step(rows: Rows, levels: np.ndarray, max_misfit: float) -> int:
    """How many are read as one step over all ratings, with a bias of their own."""
    del max_misfit
    return int(read_shifted(rows, levels, pulled=False).told.sum())


def _of_steps(rows: Rows, levels: np.ndarray, max_misfit: float) -> int:
    """How many are read as several, or as a chain, with a bias of their own."""
    told = read_any_shifted(rows, levels, pulled=False).told
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        chain = follow(rows.rows, rows.factors, rows.item, rows.precision)
        for moving in candidates(chain, rows, levels, max_misfit):
            open_ = np.flatnonzero(moving.able & ~told)
            if moving.name in (NEW_BIAS, OWN_BIAS) and open_.size:
                told[open_] = moving.read(open_)[0].answered
    return int(told.sum())


def without_column(view: View, column: int) -> View:
    """The same view as if one column of the factors were broadcast as biases."""
    gradient = view.messages.gradient
    assert gradient is not None
    chunks = tuple(np.delete(chunk, column, axis=1) for chunk in gradient)
    return replace(
        view.declared(factors=view.manifest.factors - 1),
        messages=replace(view.messages, gradient=chunks),
        broadcasts={round_: _moved(known, column) for round_, known in view.broadcasts.items()},
    )


def _moved(known: Broadcast, column: int) -> Broadcast:
    """Factors without a column, which is a bias."""
    noise = None if known.noise_scale is None else np.delete(known.noise_scale, column, axis=1)
    added = 0.0 if known.bias is None else known.bias
    return replace(
        known,
        factors=np.delete(known.factors, column, axis=1),
        noise_scale=noise,
        bias=known.factors[:, column] + added,
    )


def with_ones(found: Reconstruction, column: int) -> Reconstruction:
    """Put the client's 1 back among its factors."""
    if found.factors is None:
        return found
    whole = np.insert(found.factors.value, column, 1.0, axis=1)
    return replace(found, factors=ClientFactors(found.factors.users, found.factors.round, whole))
