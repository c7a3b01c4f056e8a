"""Baselines: the best guess without the transcript, client by client.

A baseline knows the sizes, the rating grid and the marginals of the scored population: how often each
rating level and attribute occurs and how popular each item is. That is more than most adversaries know,
so an advantage over the best of these guesses is a lower bound. In observed-only the guesser is also
told which items were rated when it guesses their ratings, as Eq. (43) averages over those.

Each function here has the baselines of one metric, by name (``audit.scoring.metrics.METRICS`` says whose).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int
from scipy.special import gammaln

from audit.scoring.answers import Factors, Pairs, active_hits, mean_hits
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest

Candidates = dict[str, Float[np.ndarray, " users"]]
FALSE_POSITIVE_RATE = 0.001
MOST_LEVELS = 32  # whose differences are guessed, the commonest ones


@dataclass(frozen=True, eq=False)
class Population:
    """The scored clients, as a baseline knows them."""

    manifest: Manifest
    truth: Truth
    users: Int[np.ndarray, " users"]

    @cached_property
    def row(self) -> Int[np.ndarray, " users"]:
        """Their rows in the truth."""
        return self.truth.rows(self.users)

    @cached_property
    def ratings(self) -> sp.csr_array:
        """Their ratings."""
        return self.truth.ratings[self.row]

    @cached_property
    def counts(self) -> Int[np.ndarray, " users"]:
        """How many ratings each has."""
        return np.diff(self.ratings.indptr)

    @cached_property
    def owner(self) -> Int[np.ndarray, " ratings"]:
        """Whose each rating is."""
        return np.repeat(np.arange(self.users.size), self.counts)

    def total(self, of_rating: np.ndarray) -> Float[np.ndarray, " users"]:
        """The sum of some number of each rating over a client's ratings."""
        return np.bincount(self.owner, of_rating, minlength=self.users.size)

    def share(self, of_rating: np.ndarray) -> Float[np.ndarray, " users"]:
        """The mean of some number of each rating over a client's ratings; NaN where it has none."""
        return np.where(self.counts > 0, self.total(of_rating) / np.maximum(self.counts, 1), np.nan)

    @cached_property
    def majority(self) -> Bool[np.ndarray, " ratings"]:
        """Whether a rating is the commonest one of all."""
        levels, counts = np.unique(self.truth.ratings.data, return_counts=True)
        return self.ratings.data == (levels[counts.argmax()] if levels.size else np.nan)

    @cached_property
    def popularity(self) -> Int[np.ndarray, " items"]:
        """How many clients rated each item."""
        width = self.truth.ratings.shape[1]
        popularity = np.zeros(max(self.manifest.n_items, width), np.int32)
        popularity[:width] = np.bincount(self.truth.ratings.indices, minlength=width)
        return popularity

    @cached_property
    def position(self) -> Int[np.ndarray, " items"]:
        """Each item's place by popularity, 0 for the most popular one."""
        position = np.empty(self.popularity.size, np.int32)
        position[np.argsort(-self.popularity, kind="stable")] = np.arange(position.size)
        return position

    @cached_property
    def first(self) -> Int[np.ndarray, " ratings"]:
        """Where the ratings of each rating's client begin."""
        return (np.cumsum(self.counts) - self.counts)[self.owner]

    @cached_property
    def n_unrated(self) -> Float[np.ndarray, " users"]:
        """How many items each has not rated."""
        return self.manifest.n_items - self.counts.astype(np.float64)

    @cached_property
    def attributes(self) -> Float[np.ndarray, "users attributes"]:
        """Their attributes."""
        return self.truth.attributes_of(self.row, self.manifest.n_attributes)

    @cached_property
    def attribute_share(self) -> Float[np.ndarray, " attributes"]:
        """How many of all clients have each attribute."""
        everybody = np.arange(self.truth.users.size)
        return self.truth.attributes_of(everybody, self.manifest.n_attributes).mean(axis=0)


def best_of(lower_is_better: bool, candidates: Candidates) -> tuple[str, Float[np.ndarray, " users"]]:
    """Choose the candidate with the best mean over the clients for which it is defined."""
    sign = -1 if lower_is_better else 1
    defined = {name: values for name, values in candidates.items() if ~np.isnan(values).all()}
    if not defined:
        return next(iter(candidates.items()))
    return max(defined.items(), key=lambda pair: sign * np.nanmean(pair[1]))


def null_mean(null: Mapping[str, np.ndarray], metric: str, n_users: int) -> Float[np.ndarray, " users"]:
    """Give every client the null's mean, for it may have been run on a sample of clients only."""
    values = null[metric]
    return np.full(n_users, np.nan if np.isnan(values).all() else np.nanmean(values))


def rated_rating_accuracy(population: Population) -> Candidates:
    """Any level, or the commonest one."""
    uniform = np.where(population.counts > 0, 1 / len(population.manifest.rating_levels), np.nan)
    return {"uniform": uniform, "majority": population.share(population.majority)}


def rating_accuracy(population: Population) -> Candidates:
    """Of all items: that none is rated."""
    if population.manifest.weighting == "observed-only":
        return rated_rating_accuracy(population)
    return {
        "uniform": np.full(population.users.size, 1 / (len(population.manifest.rating_levels) + 1)),
        "all-zero": 1 - population.counts / population.manifest.n_items,
    }


def rating_mae(population: Population) -> Candidates:
    """The median of all ratings."""
    ordered = np.sort(population.truth.ratings.data)
    median = ordered[ordered.size // 2] if ordered.size else np.nan
    return {"median": population.share(np.abs(population.ratings.data - median))}


def differences(population: Population) -> Candidates:
    """The same for every pair of ratings: no difference."""
    pairs = Pairs(population.owner, population.counts)
    return {"majority": pairs.share(pairs.count_equal(population.ratings.data))}


def difference_sizes(population: Population) -> Candidates:
    """The same for every pair of ratings: the commonest absolute difference."""
    pairs = Pairs(population.owner, population.counts)
    levels, place, count = np.unique(population.ratings.data, return_inverse=True, return_counts=True)
    common = np.sort(np.argsort(-count, kind="stable")[:MOST_LEVELS])
    of_level = np.zeros((levels.size, population.users.size))
    np.add.at(of_level, (place, population.owner), 1.0)
    sizes: dict[float, np.ndarray] = {}  # absolute difference -> pairs of each client that have it
    for low, high in combinations(common.tolist(), 2):
        size = round(float(levels[high] - levels[low]), 9)
        sizes[size] = sizes.get(size, 0.0) + 2 * of_level[low] * of_level[high]
    shares = [pairs.share(alike) for alike in (pairs.count_equal(population.ratings.data), *sizes.values())]
    means = [0.0 if np.isnan(one).all() else np.nanmean(one) for one in shares]
    return {"majority": shares[int(np.argmax(means))]}


def rated_set_auc(population: Population) -> Candidates:
    """Rank items by the number of other clients who rated them; counted over sorted popularity."""
    owner, own = population.owner, population.popularity[population.ratings.indices]
    others = own - 1  # this client's own rating does not count
    ascending = np.sort(population.popularity)
    base = int(population.popularity.max(initial=0)) + 2
    key = np.sort(owner * base + own)

    def unrated_with(side: Literal["left", "right"]) -> np.ndarray:
        everything = np.searchsorted(ascending, others, side=side)
        return everything - (np.searchsorted(key, owner * base + others, side=side) - population.first)

    wins = population.total((unrated_with("left") + unrated_with("right")) / 2)
    n_pairs = population.counts * population.n_unrated
    return {
        "uniform": np.where(n_pairs > 0, 0.5, np.nan),
        "popularity": np.where(n_pairs > 0, wins / np.maximum(n_pairs, 1), np.nan),
    }


def rated_set_f1(population: Population) -> Candidates:
    """Claim every item, or as many popular ones as clients have ratings on average."""
    size = max(1, round(float(np.diff(population.truth.ratings.indptr).mean())))
    hits = population.total(population.position[population.ratings.indices] < size)
    counts = population.counts
    share = counts / population.manifest.n_items
    return {
        "everything": np.where(counts > 0, 2 * share / (1 + share), np.nan),
        "popularity": np.where(counts > 0, 2 * hits / (size + counts), np.nan),
    }


def tpr_at_low_fpr(population: Population) -> Candidates:
    """Claim the most popular items until the allowed share of unrated ones is reached."""
    owner, position = population.owner, population.position
    ranks = np.sort(owner * position.size + position[population.ratings.indices]) - owner * position.size
    n_unrated_before = ranks - (np.arange(owner.size) - population.first)
    allowed = np.floor(FALSE_POSITIVE_RATE * population.n_unrated)
    claimed = population.share(n_unrated_before <= allowed[owner])
    defined = population.counts * population.n_unrated > 0
    return {
        "uniform": np.where(defined, FALSE_POSITIVE_RATE, np.nan),
        "popularity": np.where(defined, claimed, np.nan),
    }


def attribute_accuracy(population: Population) -> Candidates:
    """A coin, nobody has any, or what most clients have."""
    return {
        "uniform": np.full(population.users.size, 0.5),
        "all-zero": (population.attributes <= 0.5).mean(axis=1),
        "majority": ((population.attributes > 0.5) == (population.attribute_share > 0.5)).mean(axis=1),
    }


def attribute_groups(population: Population, block: int | None = None) -> Candidates:
    """Of a one-hot block, or of all: any attribute, or the commonest one."""
    groups = population.manifest.attribute_groups
    chosen = groups if block is None else [groups[block]]
    share = np.broadcast_to(population.attribute_share, population.attributes.shape)
    hits = [active_hits(share, population.attributes, group) for group in chosen]
    majority = mean_hits(hits) if block is None else hits[0]
    chance = float(np.mean([1 / max(len(group), 1) for group in chosen]))
    return {"uniform": np.where(np.isnan(majority), np.nan, chance), "majority": majority}


def users_fully_recovered(population: Population) -> Candidates:
    """Who has the commonest rating and attributes throughout."""
    right = rating_accuracy(population).get("majority", np.zeros(population.users.size)) == 1
    if population.manifest.n_attributes:
        right &= attribute_accuracy(population)["majority"] == 1
    return {"majority": right.astype(np.float64)}


def factor_cosine(factors: Factors) -> Candidates:
    """A random direction, of which the mean |cos| is known, or the mean factor of the other clients."""
    expected = np.exp(gammaln(factors.width / 2) - gammaln((factors.width + 1) / 2)) / np.sqrt(np.pi)
    return {"random": factors.defined * float(expected), "mean": factors.cosine(factors.mean_of_others)}


def factor_relative_error(factors: Factors) -> Candidates:
    """Nothing, whose relative error is 1, or the mean factor of the other clients."""
    return {"zero": factors.defined, "mean": factors.relative_error(factors.mean_of_others)}
