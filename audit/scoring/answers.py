"""What a reconstruction says beside the truth: the parts of which metrics are made, each computed once.

Rounding and clipping as in Mai & Pang 2022, Eq. (43): an estimate is clipped to [0, largest level] and
rounded to the nearest of 0 and the rating levels, an attribute to 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import OPTIONAL, ClientFactors, Estimates
from audit.scoring.truth import FactorTruth, Truth
from victims.common.errors import InputError
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM

BLOCK_ROWS = 1 << 21  # rows of one block that are scored at a time


def ratio(part: np.ndarray, whole: np.ndarray) -> Float[np.ndarray, ...]:
    """Divide part by whole, NaN where the whole is empty."""
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def round_ratings(value: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Clip to [0, largest level] and round to the nearest of 0 and the levels.

    References
    ----------
    P. Mai, Y. Pang, arXiv:2210.07775, Eq. (43).

    Examples
    --------
    >>> round_ratings(np.array([-3.0, 0.4, 3.6, 9.0]), [1.0, 2.0, 3.0, 4.0, 5.0])
    array([0., 0., 4., 5.])
    """
    grid = np.array([0.0, *levels])
    return grid[np.searchsorted((grid[1:] + grid[:-1]) / 2, value)]


def parts_of(blocks: Sequence[Estimates]) -> Iterator[Estimates]:
    """Cut blocks into parts of at most ``BLOCK_ROWS`` rows."""
    for block in blocks:
        step = max(1, BLOCK_ROWS // max(block.value.shape[1], 1))
        for start in range(0, block.users.size, step):
            here = slice(start, start + step)
            given = {name: part[here] for name in OPTIONAL if (part := getattr(block, name)) is not None}
            kind, index = (part if len(part) == 1 else part[here] for part in (block.kind, block.index))
            yield Estimates(block.users[here], kind, index, block.value[here], **given)


@dataclass(frozen=True, eq=False)
class Answers:
    """A block of answers beside the truth of its clients; tables are (clients, rows of the block)."""

    block: Estimates
    manifest: Manifest
    truth: Truth

    @cached_property
    def row(self) -> Int[np.ndarray, " users"]:
        """The clients' rows in the truth."""
        return self.truth.rows(self.block.users)

    @cached_property
    def given(self) -> Bool[np.ndarray, "users rows"]:
        """Whether a row answers about an item."""
        return ~np.isnan(self.block.value) & (self.block.kind == ITEM)

    @cached_property
    def value(self) -> Float[np.ndarray, "users rows"]:
        """The answer, not rounded; 0 where none is given."""
        return np.where(self.given, self.block.value, 0.0)

    @cached_property
    def rounded(self) -> Float[np.ndarray, "users rows"]:
        """The answer, one of 0 and the rating levels."""
        return round_ratings(self.value, self.manifest.rating_levels)

    @cached_property
    def actual(self) -> Float[np.ndarray, "users rows"]:
        """The true rating, 0 where there is none or no answer is given."""
        true = self.truth.ratings_at(self.row, self.block.index, self.block.value.shape)
        return np.where(self.given, true, 0.0)

    @cached_property
    def rated(self) -> Bool[np.ndarray, "users rows"]:
        """Whether the item of an answer is rated."""
        return self.actual > 0

    @cached_property
    def right(self) -> Bool[np.ndarray, "users rows"]:
        """Whether the rounded answer is the truth."""
        return (self.rounded == self.actual) & self.given

    @cached_property
    def right_if_rated(self) -> Bool[np.ndarray, "users rows"]:
        """Whether a rated item has the right rating, by the answer to that question where there is one."""
        answer = self.rounded
        if self.block.rating_if_rated is not None:  # rounded to the levels alone: it does not say "unrated"
            levels = np.array(self.manifest.rating_levels)
            there = ~np.isnan(self.block.rating_if_rated)
            place = np.searchsorted(
                (levels[1:] + levels[:-1]) / 2, np.where(there, self.block.rating_if_rated, 0.0)
            )
            answer = np.where(there, levels[place], answer)
        return np.asarray(self.rated & (answer == self.actual))

    @cached_property
    def stars(self) -> Float[np.ndarray, "users rows"]:
        """The estimate of least absolute error: the median if rated, the rating if rated, or the answer."""
        found = self.value
        for answer in (self.block.rating_if_rated, self.block.median_if_rated):
            if answer is not None:
                found = np.where(np.isnan(answer), found, answer)
        return found

    @cached_property
    def n_rated(self) -> Float[np.ndarray, " users"]:
        """How many ratings each client has."""
        return np.diff(self.truth.ratings.indptr)[self.row].astype(np.float64)

    @cached_property
    def n_missed(self) -> Float[np.ndarray, " users"]:
        """How many rated items have no answer."""
        return self.n_rated - self.rated.sum(axis=1)

    @cached_property
    def n_unanswered_unrated(self) -> Float[np.ndarray, " users"]:
        """How many unrated items have no answer."""
        return self.manifest.n_items - self.given.sum(axis=1) - self.n_missed

    @property
    def _listed_are_rated(self) -> bool:
        """Whether an answered row is about a rated item by itself, whatever the attack says of it."""
        return self.manifest.weighting == "observed-only" and not self.manifest.samples_unrated

    @cached_property
    def claimed(self) -> Bool[np.ndarray, "users rows"]:
        """Which items are said to be rated: the most probable ones, as many as maximise the expected F1."""
        if self.block.rated_probability is None or self._listed_are_rated:
            return (self.rounded > 0) & self.given
        probability = np.nan_to_num(self.block.rated_probability, nan=0.0)
        order = np.argsort(-probability, axis=1, kind="stable")
        hits = np.cumsum(np.take_along_axis(probability, order, axis=1), axis=1)
        expected = hits / (np.arange(1, probability.shape[1] + 1) + hits[:, -1:])
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(order.shape[1])[None], axis=1)
        return (rank <= expected.argmax(axis=1)[:, None]) & (probability > 0) & self.given

    @cached_property
    def strength(self) -> Float[np.ndarray, "users rows"]:
        """How strongly each row says "rated": its probability where given, else what the answer implies.

        In observed-only an answered row says it by itself, unless the answer is 0, the word for "unrated": a
        rating that was estimated badly is still one. Where rows of zeros about unrated items lie among the
        uploads they are left out, and an attack that cannot tell them gives probabilities.
        """
        if not self._listed_are_rated and self.block.rated_probability is not None:
            return np.nan_to_num(self.block.rated_probability, nan=0.0)
        if self.manifest.weighting == "observed-only":
            return (self.value != 0).astype(np.float64)
        if self.block.probability is None:
            return self.value
        probability = np.nan_to_num(self.block.probability, nan=0.5)
        # a rating is claimed on rated rows only, however sure the attack is which one
        return np.where(self.rounded > 0, 1 + probability, 1 - probability)

    @cached_property
    def _attribute_given(self) -> Bool[np.ndarray, "users rows"]:
        return ~np.isnan(self.block.value) & (self.block.kind == ATTRIBUTE)

    @cached_property
    def says_attributes(self) -> Bool[np.ndarray, " users"]:
        """Who has an answer about an attribute."""
        return np.asarray(self._attribute_given.any(axis=1))

    @cached_property
    def attributes(self) -> Float[np.ndarray, "users attributes"]:
        """The estimate of each attribute, 0 where none is given."""
        table = np.zeros((self.block.users.size, self.manifest.n_attributes))
        user, slot = np.nonzero(self._attribute_given)
        index = np.broadcast_to(self.block.index, self.block.value.shape)
        table[user, index[user, slot]] = self.block.value[user, slot]
        return table

    @cached_property
    def actual_attributes(self) -> Float[np.ndarray, "users attributes"]:
        """The true attributes."""
        return self.truth.attributes_of(self.row, self.manifest.n_attributes)


def active_hits(
    estimate: Float[np.ndarray, "users attributes"],
    actual: Float[np.ndarray, "users attributes"],
    group: Sequence[int],
) -> Float[np.ndarray, " users"]:
    """Whether the largest estimate of a one-hot block is at the active attribute; NaN where none is."""
    if not group:
        return np.full(len(actual), np.nan)
    hit = estimate[:, group].argmax(axis=1) == actual[:, group].argmax(axis=1)
    return np.where(actual[:, group].max(axis=1) > 0.5, hit, np.nan)


def mean_hits(blocks: Sequence[np.ndarray]) -> Float[np.ndarray, " users"]:
    """Each client's mean over the blocks that have an active attribute."""
    table = np.stack(blocks)
    return ratio(np.nansum(table, axis=0), np.sum(~np.isnan(table), axis=0))


@dataclass(frozen=True)
class Pairs:
    """Pairs of each client's ratings, in either order."""

    owner: Int[np.ndarray, " ratings"]  # whose a rating is; those of one client lie together
    n_rated: Int[np.ndarray, " users"]

    def count_equal(self, *numbers: Float[np.ndarray, " ratings"]) -> Float[np.ndarray, " users"]:
        """Count the pairs that have the same numbers."""
        label = self.owner
        for number in numbers:
            different, place = np.unique(np.round(number, 9), return_inverse=True)
            label = label * max(different.size, 1) + place
            _, label = np.unique(label, return_inverse=True)
        _, first, count = np.unique(label, return_index=True, return_counts=True)
        pairs = (count * (count - 1)).astype(np.float64)
        return np.bincount(self.owner[first], pairs, minlength=self.n_rated.size).astype(np.float64)

    def share(self, pairs: Float[np.ndarray, " users"]) -> Float[np.ndarray, " users"]:
        """Of all pairs; NaN where there is none."""
        return ratio(pairs, (self.n_rated * (self.n_rated - 1)).astype(np.float64))


@dataclass(frozen=True, eq=False)
class Factors:
    """The clients' factors as an attack recovered them, beside the true ones of the same rounds."""

    found: ClientFactors
    truth: FactorTruth
    users: Int[np.ndarray, " users"]

    def __post_init__(self) -> None:
        if self.width != self.truth.value.shape[1]:
            raise InputError(
                f"the factors of the truth must have as many numbers as those of the reconstruction, "
                f"{self.width}, got {self.truth.value.shape[1]}; give the truth that was recorded with it"
            )

    @property
    def width(self) -> int:
        """K."""
        return int(self.found.value.shape[1])

    @cached_property
    def round(self) -> Int[np.ndarray, " users"]:
        """The round of each client's factor; the last one where none was recovered."""
        round_ = np.full(self.users.size, self.found.round.max(initial=0))
        round_[np.searchsorted(self.users, self.found.users)] = self.found.round
        return round_

    @cached_property
    def recovered(self) -> Float[np.ndarray, "users K"]:
        """The recovered factors; NaN where there is none."""
        table = np.full((self.users.size, self.width), np.nan)
        table[np.searchsorted(self.users, self.found.users)] = self.found.value
        return table

    @cached_property
    def actual(self) -> Float[np.ndarray, "users K"]:
        """The true factors; NaN where the file has none."""
        return self.truth.of(self.users, self.round)

    @cached_property
    def mean_of_others(self) -> Float[np.ndarray, "users K"]:
        """The mean factor of all other clients in the same round."""
        mean = np.full(self.actual.shape, np.nan)
        for one in np.unique(self.round):
            everybody = self.truth.everybody(int(one))
            if len(everybody) > 1:
                here = self.round == one
                mean[here] = (everybody.sum(axis=0) - self.actual[here]) / (len(everybody) - 1)
        return mean

    @cached_property
    def defined(self) -> Float[np.ndarray, " users"]:
        """1 where there is a factor to recover, else NaN."""
        there = np.isfinite(self.actual).all(axis=1) & (np.linalg.norm(self.actual, axis=1) > 0)
        return np.where(there, 1.0, np.nan)

    def cosine(self, guess: Float[np.ndarray, "users K"]) -> Float[np.ndarray, " users"]:
        """|cos| of the angle to the true factor; 0 for a vector without a direction."""
        size = np.linalg.norm(guess, axis=1) * np.linalg.norm(self.actual, axis=1)
        product = np.abs(np.einsum("uk,uk->u", guess, self.actual))
        return self.defined * np.where(
            size == 0, 0.0, np.minimum(product / np.where(size == 0, 1, size), 1.0)
        )

    def relative_error(self, guess: Float[np.ndarray, "users K"]) -> Float[np.ndarray, " users"]:
        """|guess - true| / |true|."""
        size = np.linalg.norm(self.actual, axis=1)
        away = np.linalg.norm(guess - self.actual, axis=1)
        return self.defined * (away / np.where(size > 0, size, np.nan))
