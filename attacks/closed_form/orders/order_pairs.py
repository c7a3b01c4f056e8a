"""Two numbers that put the ratings of a client near the grid, of rows that sum steps in any order.

With g a row along the direction of the client's factor and h its item's factor there, a rating is to first
order A g + B h (``attacks.closed_form.orders.hidden_orders``). A and B are searched for coarsely in the range
that errors and predictions can have, and fitted to the levels that the best of them name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.decoding import beside_levels, common_step, distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import step_of

SEARCHED = 48  # rows of a client in the search
FINE = 0.04  # of the range of ratings, from one B of the search to the next
RATIO = 1.04  # from one A to the next
MOST_STEPS = 100  # of a grid, up to its highest level: the search takes as many B for each
WIDEST = 1.5  # times the range of ratings, that errors and predictions reach at most
SMALLEST = 0.1  # of it, that errors reach at least
KEPT = 24  # pairs of a client that are fitted to the levels that they name
ALIKE = 0.06  # relative, within which A B of two clients are one
FINEST = 0.08  # of a step, from one of the largest errors to the next, where many rows lie elsewhere
ELSEWHERE = 0.17  # of a step, from where on rows are off the grid, however far
QUARTER, LONGEST = 0.25, 256.0  # of the rows, that have one length, and times that, at most
MOST_PAIRS = 2_000_000  # that are looked at
SIGMAS, VAGUE = 3.0, 0.5  # times how well a client tells A B, that it may differ, and relative, at most


NOTHING = np.zeros(1)


class FirstOrder(NamedTuple):
    """What one client's rows say to first order."""

    # A row along the common direction, its item's factor along it, and what everybody adds, stars
    g: Float[np.ndarray, " n"]
    # A row along the common direction, its item's factor along it, and what everybody adds, stars
    h: Float[np.ndarray, " n"]
    # A row along the common direction, its item's factor along it, and what everybody adds, stars
    offset: Float[np.ndarray, " n"]
    here: Bool[np.ndarray, " rows"]  # where these rows are
    # by how much a prediction changes from the first pass to the last: B times what the item's own copy moves
    # along the common direction, and what all rows together move the client's factor by, over B
    own: Float[np.ndarray, " some"] = NOTHING
    # by how much a prediction changes from the first pass to the last: B times what the item's own copy moves
    # along the common direction, and what all rows together move the client's factor by, over B
    pull: Float[np.ndarray, " some"] = NOTHING
    longer: float = 0.0  # by how much the client's factor gets longer, times B squared, relative


class Pairs(NamedTuple):
    """Pairs of numbers that put ratings near the grid."""

    numbers: Float[np.ndarray, "pairs 2"]  # A and B
    named: Float[np.ndarray, "pairs n"]  # ratings on the grid
    # by how much these are missed, stars, and how well A B is told (relative)
    missed: Float[np.ndarray, " pairs"]
    # by how much these are missed, stars, and how well A B is told (relative)
    spread: Float[np.ndarray, " pairs"]

    @property
    def constant(self) -> Float[np.ndarray, " pairs"]:
        """A B."""
        return self.numbers[:, 0] * self.numbers[:, 1]

    @property
    def tolerance(self) -> Float[np.ndarray, " pairs"]:
        """Relative, by which A B may differ from those of others."""
        return np.clip(SIGMAS * self.spread, ALIKE, VAGUE)


def nearest_pairs(one: FirstOrder, levels: Float[np.ndarray, " levels"]) -> Pairs:
    """Find the pairs of A and B that put most of a client's ratings near the grid, the nearest first."""
    return fitted_pairs(coarse_pairs(one, levels), one, levels)


def coarse_pairs(one: FirstOrder, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, "pairs 2"]:
    """Find pairs of A and B by search alone, ``nearest_pairs`` not yet fitted, in no order."""
    return _searched(one, levels, RATIO, 1.0, _missed)


def crowded_pairs(one: FirstOrder, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, "pairs 2"]:
    """Find pairs of A and B that put many rows near the grid, wherever the others are, in no order."""
    size = np.abs(one.g)
    # the largest rows may be longer by a multiple that nobody knows
    usual = max(np.quantile(size, QUARTER), size.max() / LONGEST)
    longer = float(size.max() / usual) if usual > 0 else 1.0
    return _searched(
        one,
        levels,
        1 + FINEST * step_of(levels) / (levels[-1] - levels[0] or 1),
        max(1.0, longer / WIDEST),
        _stray,
    )


def _searched(
    one: FirstOrder,
    levels: Float[np.ndarray, " levels"],
    ratio: float,
    longer: float,
    missed_by: Callable[[np.ndarray], np.ndarray],
) -> Float[np.ndarray, "pairs 2"]:
    """Search in the range that errors and predictions have, where the largest row may be ``longer``."""
    some = slice(None, None, max(1, -(-one.g.size // SEARCHED)))
    g, h, offset = one.g[some], one.h[some], one.offset[some]
    top, wide = float(levels[-1]), float(levels[-1] - levels[0])
    largest, longest = np.abs(g).max(), np.abs(h).max()
    # what puts ratings on a grid of one level says nothing of the pair
    if levels.size < 2 or not (largest > 0 and longest > 0) or top > MOST_STEPS * step_of(levels):
        return np.zeros((0, 2))
    n_sizes = int(np.log(longer * WIDEST / SMALLEST) / np.log(ratio)) + 1
    sizes = SMALLEST * wide / largest * ratio ** np.arange(n_sizes)
    errors = np.concatenate([sizes, -sizes])
    lengths = np.arange(FINE / 2, WIDEST * top, FINE * step_of(levels)) / longest
    lengths = np.concatenate([lengths, -lengths])  # the direction's sign is open
    if errors.size * lengths.size > MOST_PAIRS:
        return np.zeros((0, 2))
    missed = _over_lengths(errors[:, None] * g, lengths[:, None] * h + offset, levels, missed_by)
    at = np.argpartition(missed.ravel(), min(8 * KEPT, missed.size - 1))[: 8 * KEPT]
    return np.stack([errors[at % errors.size], lengths[at // errors.size]], axis=1)


def _stray(away: Float[np.ndarray, "errors rows"]) -> Float[np.ndarray, " errors"]:
    """How few rows are near the grid, on a scale that counts far ones alike."""
    np.square(away, out=away)
    return np.minimum(away, ELSEWHERE**2, out=away).sum(axis=1)


def _missed(away: Float[np.ndarray, "errors rows"]) -> Float[np.ndarray, " errors"]:
    """How far ratings are from the grid, squared."""
    return np.einsum("er,er->e", away, away)


def _over_lengths(
    error: Float[np.ndarray, "errors rows"],
    predicted: Float[np.ndarray, "lengths rows"],
    levels: Float[np.ndarray, " levels"],
    missed_by: Callable[[np.ndarray], np.ndarray],
) -> Float[np.ndarray, "lengths errors"]:
    """What every pair costs, by how many steps its ratings are away from the grid."""
    missed = np.empty((len(predicted), len(error)), np.float32)
    step = step_of(levels)
    if not common_step(levels):
        for number, one in enumerate(predicted):
            missed[number] = missed_by(distance_to_levels(error + one, levels) / step)
        return missed
    # single precision tells which pairs are fitted, in a third of the time
    error, predicted = (error / step).astype(np.float32), ((predicted - levels[0]) / step).astype(np.float32)
    off = np.empty_like(error)
    for number, one in enumerate(predicted):
        missed[number] = missed_by(beside_levels(np.add(error, one, out=off), levels.size))
    return missed


def fitted_pairs(
    trials: Float[np.ndarray, "pairs 2"], one: FirstOrder, levels: Float[np.ndarray, " levels"]
) -> Pairs:
    """Fit pairs by least squares to the levels that they name, each once."""
    if not len(trials):
        return Pairs(np.zeros((0, 2)), np.zeros((0, one.g.size)), np.zeros(0), np.zeros(0))
    table = np.stack([one.g, one.h], axis=1)
    inverse = np.linalg.pinv(table, rcond=1e-10)
    for _ in range(4):
        named = nearest_level(trials @ table.T + one.offset, levels)
        trials = (named - one.offset) @ inverse.T
    value = trials @ table.T + one.offset
    named, first = np.unique(nearest_level(value, levels), axis=0, return_index=True)
    free = max(1, one.g.size - 2)
    missed = np.sqrt(((value[first] - named) ** 2).sum(axis=1) / free)
    order = np.argsort(missed, kind="stable")[:KEPT]
    numbers = trials[first][order]
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = missed[order] * np.linalg.norm((1 / numbers) @ inverse, axis=1)
    return Pairs(numbers, named[order], missed[order], np.where(np.isfinite(spread), spread, np.inf))


def nats_of(pairs: Pairs, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " pairs"]:
    """How improbable it is by chance that ratings are so near to the grid."""
    n = pairs.named.shape[1] - 2
    chance = step_of(levels) / np.sqrt(12)
    return n * np.log(chance / np.maximum(pairs.missed, 1e-9))
