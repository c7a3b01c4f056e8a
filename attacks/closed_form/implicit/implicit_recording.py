"""All clients of a recording of implicit feedback: who send rows of positives, and of negatives they drew.

Each round of a client is split by label (``attacks.closed_form.links.label_split``), and clients and rounds
together say which label is that of the positives (``attacks.closed_form.implicit.positives``). The answer
about a negative is 0, unrated; a positive that a client sent no row about is not seen.

What it assumes: one level, the mark of a positive; exact rows, of one step or of a chain of steps, or rows
of both labels that lie apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from attacks.base import OPTIONAL, Estimates, Reconstruction
from attacks.closed_form.centres.unmirrored import SURE
from attacks.closed_form.fit.contradicted import silent_about
from attacks.closed_form.implicit.positives import Named, named
from attacks.closed_form.implicit.repeats import repeats_of
from attacks.closed_form.implicit.sides import Sides, joined
from attacks.closed_form.links.label_split import apart, sides
from attacks.closed_form.rows.row_readings import LONGEST, one_step
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rounding_of, rows_of
from attacks.closed_form.uploads.moving_factor import PARALLEL, follow
from attacks.closed_form.uploads.readings import Rows, some_of
from attacks.closed_form.uploads.shared_pull import without_pull
from victims.transcript.view import ITEM, View

ASKED = 20  # clients who are asked first, spread over all: long lists of several steps take minutes
FEWEST, SELDOM = 3, 0.1  # clients whose rows are of a loss of labels, and share: a few may be by accident
OPEN_LABEL = (
    "its rows fall into two labels, and neither its numbers of both, nor its rounds, nor others who list the "
    "same items say which are the positives"
)
NO_POSITIVE = "its rows say of no item that it is a positive, and a client without one sends nothing"


def with_positives(found: Reconstruction, view: View) -> Reconstruction:
    """Answer clients by the labels of their rows, where these are of a loss of labels."""
    found = silent_about(found, ~_with_a_positive(found), NO_POSITIVE)
    split = {user: own for user, own in labels_of(view).items() if own is not None}
    if not split:
        return found
    # ratings that rows of labels meet are an accident of coarse rounding
    found = silent_about(found, np.isin(found.users, list(set(split) - set(found.abstained))), OPEN_LABEL)
    told = named(list(split.values()), view.manifest.n_items)
    sure = told.probability >= SURE
    users = np.array(list(split))
    reasons = dict.fromkeys(users[~sure].tolist(), OPEN_LABEL)
    kept = {user: why for user, why in found.abstained.items() if user not in users[sure]}
    place = np.searchsorted(found.users, users[sure])
    diagnostics = {name: column.copy() for name, column in found.diagnostics.items()}
    for name, column in (("misfit", 0.0), ("steps", np.nan), ("upright", told.probability[sure])):
        diagnostics[name][place] = column
    blocks = found.blocks
    if sure.any():
        rest = (_but(block, users[sure]) for block in blocks)
        blocks = tuple(block for block in rest if block.users.size)
        chosen = [one for one, take in zip(split.values(), sure, strict=True) if take]
        answers = Named(told.positive[sure], told.probability[sure])
        blocks += (label_estimates(users[sure], chosen, answers, float(view.manifest.rating_levels[0])),)
    return replace(found, blocks=blocks, abstained=kept | reasons, diagnostics=diagnostics)


def labels_of(view: View, *, exact: bool = False) -> dict[int, Sides | None]:
    """Split the rows of each client by label, where they are of a loss of labels."""
    some = view.users[:: max(view.users.size // ASKED, 1)]
    if some.size < view.users.size and all(own is None for _, own in _split(view.select(some), exact)):
        return {}
    every = dict(_split(view, exact))
    n_split = sum(own is not None for own in every.values())
    return every if n_split >= max(FEWEST, SELDOM * len(every)) else {}


def _with_a_positive(found: Reconstruction) -> np.ndarray:
    """Clients who are abstained on, or answered with at least one item that is not unrated."""
    some = [block.users[(block.value > 0).any(axis=1)] for block in found.blocks]
    return np.isin(found.users, np.concatenate([*some, np.array(list(found.abstained), int)]))


def _split(view: View, exact: bool) -> Iterator[tuple[int, Sides | None]]:
    """The labels of each client that sent rows; None where there are no two in any round."""
    for batch in view.batches(BATCH_BYTES):
        rounds: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in batch.users]
        repeats = [(0, 0)] * batch.users.size  # of the first of them, whose labels are those of all
        sent = np.zeros(batch.users.size, bool)
        for uploads in batch.rounds:
            rows = rows_of(view.manifest, uploads, None)
            if not rows.item.any():
                continue
            sent |= rows.item.any(axis=1)
            index = np.broadcast_to(uploads.index, rows.item.shape)
            for user, here, first, even in _told(rows, rounding_of(uploads.gradients), exact):
                repeats[user] = repeats[user] if rounds[user] else even
                rounds[user].append((index[user, here], np.where(first, 1, -1)))
        for user, own, any_row, even in zip(batch.users.tolist(), rounds, sent, repeats, strict=True):
            if any_row:
                both = joined(own, view.manifest.n_items) if own else None
                yield user, both and both._replace(even=even[0], repeats=even[1])


def _told(
    rows: Rows, precision: float, exact: bool
) -> Iterator[tuple[int, np.ndarray, np.ndarray, tuple[int, int]]]:
    """Clients with rows of two labels, as they are or unregularised; which rows, labels, repeats."""
    open_ = rows.item.any(axis=1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        clean, pull = without_pull(rows.rows, rows.factors, rows.item)
        for sent, some in ((rows.rows, open_), (clean, open_ & (pull != 0))):
            scalar, along, step = _by_step(rows._replace(rows=sent), precision)
            first, told = sides(scalar, along, rows.offset, step, precision)
            for user in np.flatnonzero(told & some & open_):
                here = step[user] >= 0
                alone = step[user].max() == 0
                even = repeats_of(scalar[user, here], first[user, here]) if alone else (0, 0)
                yield int(user), here, first[user, here], even
            open_ = open_ & ~told
        for sent in () if exact else (rows.rows, clean):
            first, told = apart(sent, rows.item)
            for user in np.flatnonzero(told & open_):
                here = rows.item[user]
                yield int(user), here, first[user, here], (0, 0)
            open_ = open_ & ~told


def _by_step(rows: Rows, precision: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """g and h of each row, and the number of its step, -1 where there is none; long lists are of one step."""
    one = one_step(rows)
    alone = one.whole & (one.across <= PARALLEL * precision)
    scalar, along, step = one.scalar, one.along, np.where(one.there & alone[:, None], 0, -1)
    several = np.flatnonzero(rows.item.any(axis=1) & ~alone)
    if several.size and rows.rows.shape[1] <= LONGEST:  # a chain takes its rows squared
        some = some_of(rows, several)
        chain = follow(some.rows, some.factors, some.item, precision)
        scalar[several], along[several] = chain.scalar, chain.along
        step[several] = np.where(chain.whole[:, None], chain.step, -1)
    return scalar, along, step


def _but(block: Estimates, users: np.ndarray) -> Estimates:
    """The block without some users."""
    keep = ~np.isin(block.users, users)
    kind, index = (part if part.shape[0] == 1 else part[keep] for part in (block.kind, block.index))
    told = {name: getattr(block, name) for name in OPTIONAL}
    rest = {name: None if part is None else part[keep] for name, part in told.items()}
    return Estimates(block.users[keep], kind, index, block.value[keep], **rest)


def label_estimates(
    users: Int[np.ndarray, " clients"], split: list[Sides], told: Named, level: float
) -> Estimates:
    """Answer the level for positives and 0 for negatives, padded to one length."""
    shape = users.size, max(one.item.size for one in split)
    value, index = np.full(shape, np.nan), np.zeros(shape, np.int32)
    for row, (one, positive) in enumerate(zip(split, told.positive, strict=True)):
        index[row, : one.item.size] = one.item
        value[row, : one.item.size] = np.where(one.sign == positive, level, 0.0)
    probability = np.where(np.isnan(value), np.nan, told.probability[:, None])
    order = np.argsort(users)
    kind = np.full((1, shape[1]), ITEM, np.int8)
    return Estimates(users[order], kind, index[order], value[order], probability=probability[order])
