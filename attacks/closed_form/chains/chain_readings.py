"""Clients whose factor moves from row to row, and whose rows are more than one number short of ratings.

A chain (``attacks.closed_form.uploads.moving_factor``) reads a row as r = A g + B h, g and h with the lengths
of their step. Beyond that, with b a minibatch of n_b rows and G_b the sum of its g:

- rows that are means over their minibatch: g n_b in place of g. The last minibatch, which has fewer ratings,
  has another scale, and so has each factor's step, which leaves the chain as it is;
- a bias c of the client that nobody told, and which steps as the factor does, c <- shrink c + pull sum_b e:
  with A and B as they are, c_b = shrink^b c_0 + B s sum_{a < b} shrink^(b - a) G_a, s the sign of sigma, so
  that r = A g + B (h + s sum) + C shrink^b. The third number is C = c_0. Ratings shifted by a level, or
  mirrored, have another C; where the client regularises (shrink < 1) they fit the rows no longer, and the
  shift is told. In a client's first round C may be 0;
- errors that were clipped to a bound: rows of one length along the chain, which leave the others as they are
  and tell of their ratings that they lie so far away at least;
- predictions that go through a link (``attacks.closed_form.links.link_grid``): the chain knows nothing of
  errors.

What it assumes: as ``attacks.closed_form.uploads.moving_factor``. Beyond Chai et al. 2021 and Hu & Fang 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.fit.affine_grid import best_numbers, nearest_numbers
from attacks.closed_form.fit.arbiter import exact_alone, without_improbable
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import accidental, step_of
from attacks.closed_form.grid.grid_reading import beyond, equally_long
from attacks.closed_form.links.link_grid import ratings_through_links
from attacks.closed_form.rows.row_readings import LONGEST, best_reading, in_span
from attacks.closed_form.uploads.fitted_chain import chain_of
from attacks.closed_form.uploads.moving_factor import Chain
from attacks.closed_form.uploads.readings import Reading, Rows, on_the_rest, reading_of, some_of
from victims.transcript.manifest import Manifest

ASKED = 8  # clients of a batch that say whether a reading is worth its time for the others
TELLING = 0.2  # of how much predictions differ: an answer farther from the grid owes it to the errors alone
LEAST = 1e-3  # of a step, by which predictions must differ
ALONE = 0.999  # leverage of a row that tells a number alone: whatever it holds, it is on a level then
NAMES = (
    PLAIN := "sums",
    MEAN := "means of a step",
    CLIPPED := "clipped errors",
    CLIPPED_MEAN := "means of clipped errors",
    NEW_BIAS := "a bias of the client that starts from 0",
    MEAN_AND_NEW_BIAS := "means of a step and a bias of the client that starts from 0",
    OWN_BIAS := "a bias of the client",
    MEAN_AND_BIAS := "means of a step and a bias of the client",
    LINK := "a link",
    LINK_OF_MEAN := "a link of means of a step",
)
LINKS = frozenset((LINK, LINK_OF_MEAN))  # they take long: asked of the others where they answer some


def any_reading(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read each client as what its rows fit best, the readings of this module last."""
    nearly = best_reading(rows, manifest, max_misfit)
    levels = np.array(manifest.rating_levels)
    best = exact_alone(nearly, rows, levels)
    # a direction that was rounded alike in all rows is not the client's, but leaves their lengths exact
    best = on_the_rest(best, in_span, nearly.answered & ~best.answered, rows, manifest, max_misfit)
    # what one step reads nearly, a chain of steps may read exactly
    inexact = best.misfit > rows.precision**BARS.half
    asked = ~best.answered | ((best.steps <= 1) & inexact)
    # sums and means of minibatches differ in the last one alone, if that has fewer ratings
    asked |= (best.steps > 1) & (best.steps < rows.item.sum(axis=1)) & inexact
    if levels.size == 1 and asked.any():  # labels: attacks.closed_form.implicit.implicit_recording
        return best
    if levels.size == 1 or not 0 < rows.rows.shape[1] <= LONGEST:
        return without_improbable(best, rows, levels)
    open_ = np.flatnonzero(asked)
    most = open_[np.argsort(-rows.item[open_].sum(axis=1), kind="stable")]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        names = frozenset(NAMES[1:])  # plain chains were read before
        for here in (most[:ASKED], most[ASKED:]):
            if not here.size:
                break
            new, answering = _read(some_of(rows, here), levels, max_misfit, names)
            if not answering:
                break
            best = _with(best, new, here)
            names = (names - LINKS) | answering
        best = _without_closer_means(best, rows, levels)
    return without_improbable(best, rows, levels)


class Candidate(NamedTuple):
    """One idea of what rows are."""

    name: str  # one of ``NAMES``
    numbers: int  # that are open, of each client
    able: Bool[np.ndarray, " users"]  # of whom it can be asked
    # from places of clients to their reading and, where rows go through a link, its place in
    # ``attacks.closed_form.links.links.LINKS``, else -1
    read: Callable[[Int[np.ndarray, " some"]], tuple[Reading, Int[np.ndarray, " some"]]]


def _read(
    rows: Rows, levels: np.ndarray, max_misfit: float, names: frozenset[str]
) -> tuple[Reading, frozenset[str]]:
    """The first of the readings with some names that answers, client by client, and which do."""
    chain, answering = chain_of(rows), set()
    best = reading_of(np.full(rows.item.shape, np.nan), np.nan, 0.0)
    for candidate in candidates(chain, rows, levels, max_misfit):
        open_ = np.flatnonzero(candidate.able & ~best.answered)
        if candidate.name in names and open_.size:
            new = candidate.read(open_)[0]
            if new.answered.any():
                answering.add(candidate.name)
            best = _with(best, new, open_)
    return best, frozenset(answering)


def candidates(chain: Chain, rows: Rows, levels: np.ndarray, max_misfit: float) -> Iterator[Candidate]:
    """Everything that the rows of a chain, or of one step, may be; those with fewer numbers first."""
    there = rows.item & (chain.step >= 0)
    whole = chain.whole | (there.sum(axis=1) == rows.item.sum(axis=1))
    several = whole & (chain.n_steps > 1)
    size = batch_sizes(chain.step)
    bias, decay = own_bias(chain)
    g, h = chain.scalar, chain.along

    def on_the_grid(name: str, able: np.ndarray, *columns: np.ndarray) -> Candidate:
        def reading(open_: np.ndarray) -> tuple[Reading, np.ndarray]:
            table = np.stack([column[open_] for column in columns], axis=2)
            new = _on_the_grid(table, rows.offset[open_], there[open_], levels, max_misfit)
            return new._replace(steps=chain.n_steps[open_].astype(float)), np.full(open_.size, -1)

        return Candidate(name, len(columns), able, reading)

    def clipped(name: str, able: np.ndarray, errors: np.ndarray) -> Candidate:
        top = equally_long(errors, there)

        def reading(open_: np.ndarray) -> tuple[Reading, np.ndarray]:
            counted = there[open_] & ~top[open_]
            table = np.stack([errors[open_], h[open_]], axis=2)
            new = _on_the_grid(table, rows.offset[open_], counted, levels, max_misfit)
            a, b = new.of_error[:, None], new.of_factor[:, None]
            error = a * errors[open_]
            least = beyond(error + b * h[open_] + rows.offset[open_], error, levels)
            value = np.where(top[open_], least, new.value)
            told = new._replace(value=value, steps=chain.n_steps[open_].astype(float))
            return told, np.full(open_.size, -1)

        return Candidate(name, 2, able & top.any(axis=1), reading)

    def through_links(name: str, able: np.ndarray, times: Any) -> Candidate:
        def reading(open_: np.ndarray) -> tuple[Reading, np.ndarray]:
            new, link = _through_links(chain._replace(scalar=g * times), rows, there, open_, levels)
            return new._replace(steps=chain.n_steps[open_].astype(float)), link

        return Candidate(name, 2, able, reading)

    yield on_the_grid(PLAIN, whole, g, h)
    yield on_the_grid(MEAN, several, g * size, h)
    yield clipped(CLIPPED, whole, g)
    yield clipped(CLIPPED_MEAN, several, g * size)
    yield on_the_grid(NEW_BIAS, several, g, h + bias)
    yield on_the_grid(MEAN_AND_NEW_BIAS, several, g * size, h + bias)
    yield on_the_grid(OWN_BIAS, whole, g, h + bias, decay)
    yield on_the_grid(MEAN_AND_BIAS, several, g * size, h + bias, decay)
    yield through_links(LINK, whole, 1)
    yield through_links(LINK_OF_MEAN, several, size)


def batch_sizes(step: Int[np.ndarray, "users rows"]) -> Int[np.ndarray, "users rows"]:
    """Count the rows that the step of each row has."""
    out = np.zeros(step.shape, int)
    for user, own in enumerate(step):
        here = own >= 0
        out[user, here] = np.bincount(own[here])[own[here]]
    return out


def own_bias(
    chain: Chain,
) -> tuple[Float[np.ndarray, "users rows"], Float[np.ndarray, "users rows"]]:
    """By how much a bias that steps as the factor does has moved before each row; how much of it is left."""
    moved, decay = np.zeros(chain.scalar.shape), np.zeros(chain.scalar.shape)
    for user, own in enumerate(chain.step):
        here = own >= 0
        if not here.any():
            continue
        by_step = np.bincount(own[here], chain.scalar[user, here])
        shrink, before = chain.shrink[user], np.zeros(by_step.size)
        for step in range(by_step.size - 1):
            before[step + 1] = shrink * (before[step] + by_step[step])
        moved[user, here] = chain.sign[user] * before[own[here]]
        decay[user, here] = shrink ** own[here]
    return moved, decay


def _on_the_grid(
    columns: Float[np.ndarray, "users rows n"],
    offset: Float[np.ndarray, "users rows"],
    there: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    max_misfit: float,
) -> Reading:
    """The one combination of the columns that lies on the grid."""
    columns = columns * there[..., None]
    found = best_numbers(columns, offset, there, levels)
    n = columns.shape[2]
    numbers = np.where(found.told[:, None], found.numbers, np.nan)
    predicted = np.matmul(columns[..., 1:], numbers[:, 1:, None])[..., 0] + offset
    value = predicted + columns[..., 0] * numbers[:, :1]
    shifted = (offset != 0).any(axis=1) | (n > 2)
    turned = ((value * there).sum(axis=1) < 0) & ~shifted
    value = np.where(turned[:, None], -value, value)
    count = np.maximum(there.sum(axis=1), 1)
    away = np.where(there, distance_to_levels(value, levels), 0).sum(axis=1) / count
    # a bias of the client is no prediction: with it alone two errors meet any two levels
    of_items = columns[..., 1] * numbers[:, 1:2] + offset
    middle = np.where(there, of_items, 0).sum(axis=1) / count
    spread = np.where(there, np.abs(of_items - middle[:, None]), 0).sum(axis=1) / count
    step = step_of(levels)
    told = found.told & (spread > np.maximum(away / TELLING, LEAST * step)) & (away <= BARS.exact * step)
    near = (distance_to_levels(value, levels) < BARS.between * step) & (_leverage(columns) < ALONE)
    chance = accidental(there.sum(axis=1) - n, levels.size**n, BARS.accident_of_many)
    own = numbers[:, 2] if n > 2 else np.zeros(len(numbers))
    sign = np.where(turned, -1.0, 1.0)
    return reading_of(
        np.where(there & near, value, np.nan),
        np.where(told, away / (step / 4), np.nan),
        np.minimum(max_misfit, chance),
        of_error=numbers[:, 0] * sign,
        of_factor=numbers[:, 1] * sign,
        own_bias=own,
    )


def _leverage(columns: Float[np.ndarray, "users rows n"]) -> Float[np.ndarray, "users rows"]:
    """How much of what a fit says of a row is due to itself: 1 where the others leave a number open."""
    known = np.where(np.isfinite(columns), columns, 0.0)
    size = np.linalg.norm(known, axis=1, keepdims=True)
    basis, _ = np.linalg.qr(known / np.where(size > 0, size, 1.0))
    return (basis**2).sum(axis=2)


def _through_links(
    chain: Chain, rows: Rows, there: np.ndarray, open_: np.ndarray, levels: np.ndarray
) -> tuple[Reading, np.ndarray]:
    """Ratings on the other side of a link, and which it is."""
    known = chain.scalar[open_], chain.along[open_], rows.offset[open_], there[open_]
    found = ratings_through_links(*known, levels, rows.precision)
    told = found.told & ~_meets(*known, levels, BARS.closer * np.maximum(found.misfit, rows.precision))
    return reading_of(found.value, found.misfit, np.where(told, 1.0, 0.0)), found.link


def _meets(
    g: np.ndarray,
    h: np.ndarray,
    offset: np.ndarray,
    there: np.ndarray,
    levels: np.ndarray,
    misfit: Float[np.ndarray, " users"],
) -> Bool[np.ndarray, " users"]:
    """Whose rows meet the grid as they are, if more than once, within a misfit.

    Whole stars of a grid of halves, for one, are met by every multiple; with a sigmoid, where predictions are
    small, a single one is left, ratings half as far from the highest.
    """
    columns = np.stack([g, h], axis=2) * there[..., None]
    numbers = nearest_numbers(columns, offset, there, levels)
    value = np.matmul(numbers, columns.transpose(0, 2, 1)) + offset[:, None]
    away = np.where(there[:, None], distance_to_levels(value, levels), 0.0).sum(axis=2)
    away = np.where(np.isfinite(away), away, np.inf).min(axis=1, initial=np.inf)
    return away / np.maximum(there.sum(axis=1), 1) / (step_of(levels) / 4) <= misfit


def _without_closer_means(best: Reading, rows: Rows, levels: np.ndarray) -> Reading:
    """Without inexact answers that means of minibatches explain far better, if variously."""
    inexact = best.misfit > rows.precision**BARS.half
    open_ = np.flatnonzero(best.answered & ~best.declared & inexact)
    if not open_.size:
        return best
    some = some_of(rows, open_)
    chain = chain_of(some)
    there, means = some.item & (chain.step >= 0), chain.scalar * batch_sizes(chain.step)
    closer = _meets(means, chain.along, some.offset, there, levels, best.misfit[open_] / BARS.closer)
    misfit = best.misfit.copy()
    misfit[open_[closer & (chain.n_steps > 1)]] = np.nan
    return best._replace(misfit=misfit)


def _with(best: Reading, new: Reading, users: np.ndarray) -> Reading:
    """The new answers of some users taken up, but for those that fit worse than several steps do."""
    old = best.answered[users] & (best.steps[users] > 1) & (best.misfit[users] <= new.misfit)
    told = new.answered & ~old
    out = [part.copy() for part in best]
    for whole, part in zip(out, new, strict=True):
        whole[users[told]] = part[told]
    return Reading(*out)
