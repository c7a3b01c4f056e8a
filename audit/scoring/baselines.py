"""The best guess without the transcript, client by client.

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

    def share(self, of_rating: np.ndarray) -> Float[np.ndarray, " users"]:
        """The mean of some number of each rating over a client's ratings; NaN where it has none."""
        total = np.bincount(self.owner, of_rating, minlength=self.users.size)
        return np.where(self.counts > 0, total / np.maximum(self.counts, 1), np.nan)

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
    def both(self) -> Bool[np.ndarray, " users"]:
        """Who has rated and unrated items."""
        return self.counts * self.n_unrated > 0

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


def rated_rating_accuracy(of: Population) -> Candidates:
    """Any level, or the commonest one."""
    uniform = np.where(of.counts > 0, 1 / len(of.manifest.rating_levels), np.nan)
    return {"uniform": uniform, "majority": of.share(of.majority)}


def rating_accuracy(of: Population) -> Candidates:
    """Of all items: that none is rated."""
    if of.manifest.weighting == "observed-only":
        return rated_rating_accuracy(of)
    return {
        "uniform": np.full(of.users.size, 1 / (len(of.manifest.rating_levels) + 1)),
        "all-zero": 1 - of.counts / of.manifest.n_items,
    }


def rating_mae(of: Population) -> Candidates:
    """The median of all ratings."""
    ordered = np.sort(of.truth.ratings.data)
    median = ordered[ordered.size // 2] if ordered.size else np.nan
    return {"median": of.share(np.abs(of.ratings.data - median))}


def differences(of: Population) -> Candidates:
    """The same for every pair of ratings: no difference."""
    pairs = Pairs(of.owner, of.counts)
    return {"majority": pairs.share(pairs.alike(of.ratings.data))}


def difference_sizes(of: Population) -> Candidates:
    """The same for every pair of ratings: the commonest absolute difference."""
    pairs = Pairs(of.owner, of.counts)
    levels, place, count = np.unique(of.ratings.data, return_inverse=True, return_counts=True)
    common = np.sort(np.argsort(-count, kind="stable")[:MOST_LEVELS])
    of_level = np.zeros((levels.size, of.users.size))
    np.add.at(of_level, (place, of.owner), 1.0)
    sizes: dict[float, np.ndarray] = {}  # absolute difference -> pairs of each client that have it
    for low, high in combinations(common.tolist(), 2):
        size = round(float(levels[high] - levels[low]), 9)
        sizes[size] = sizes.get(size, 0.0) + 2 * of_level[low] * of_level[high]
    shares = [pairs.share(alike) for alike in (pairs.alike(of.ratings.data), *sizes.values())]
    means = [0.0 if np.isnan(one).all() else np.nanmean(one) for one in shares]
    return {"majority": shares[int(np.argmax(means))]}


def rated_set_auc(of: Population) -> Candidates:
    """Rank items by the number of other clients who rated them; counted over sorted popularity."""
    own = of.popularity[of.ratings.indices]
    others = own - 1  # this client's own rating does not count
    ascending = np.sort(of.popularity)
    base = int(of.popularity.max(initial=0)) + 2
    key = np.sort(of.owner * base + own)

    def unrated_with(side: Literal["left", "right"]) -> np.ndarray:
        everything = np.searchsorted(ascending, others, side=side)
        return everything - (np.searchsorted(key, of.owner * base + others, side=side) - of.first)

    wins = (unrated_with("left") + unrated_with("right")) / 2
    auc = np.bincount(of.owner, wins, minlength=of.users.size) / np.maximum(of.counts * of.n_unrated, 1)
    return {"uniform": np.where(of.both, 0.5, np.nan), "popularity": np.where(of.both, auc, np.nan)}


def rated_set_f1(of: Population) -> Candidates:
    """Claim every item, or as many popular ones as clients have ratings on average."""
    size = max(1, round(float(np.diff(of.truth.ratings.indptr).mean())))
    hits = np.bincount(of.owner, of.position[of.ratings.indices] < size, minlength=of.users.size)
    share = of.counts / of.manifest.n_items
    return {
        "everything": np.where(of.counts > 0, 2 * share / (1 + share), np.nan),
        "popularity": np.where(of.counts > 0, 2 * hits / (size + of.counts), np.nan),
    }


def tpr_at_low_fpr(of: Population) -> Candidates:
    """Claim the most popular items until the allowed share of unrated ones is reached."""
    rank = np.sort(of.owner * of.position.size + of.position[of.ratings.indices])
    rank = rank - of.owner * of.position.size
    before = rank - (np.arange(of.owner.size) - of.first)  # more popular items that are unrated
    allowed = np.floor(FALSE_POSITIVE_RATE * of.n_unrated)
    reached = np.bincount(of.owner, before <= allowed[of.owner], minlength=of.users.size)
    return {
        "uniform": np.where(of.both, FALSE_POSITIVE_RATE, np.nan),
        "popularity": np.where(of.both, reached / np.maximum(of.counts, 1), np.nan),
    }


def attribute_accuracy(of: Population) -> Candidates:
    """A coin, nobody has any, or what most clients have."""
    return {
        "uniform": np.full(of.users.size, 0.5),
        "all-zero": (of.attributes <= 0.5).mean(axis=1),
        "majority": ((of.attributes > 0.5) == (of.attribute_share > 0.5)).mean(axis=1),
    }


def attribute_groups(of: Population, block: int | None = None) -> Candidates:
    """Of a one-hot block, or of all: any attribute, or the commonest one."""
    groups = of.manifest.attribute_groups
    chosen = groups if block is None else [groups[block]]
    share = np.broadcast_to(of.attribute_share, of.attributes.shape)
    hits = [active_hits(share, of.attributes, group) for group in chosen]
    majority = mean_hits(hits) if block is None else hits[0]
    chance = float(np.mean([1 / max(len(group), 1) for group in chosen]))
    return {"uniform": np.where(np.isnan(majority), np.nan, chance), "majority": majority}


def users_fully_recovered(of: Population) -> Candidates:
    """Who is told entirely by the commonest rating and attributes."""
    right = rating_accuracy(of).get("majority", np.zeros(of.users.size)) == 1
    if of.manifest.n_attributes:
        right &= attribute_accuracy(of)["majority"] == 1
    return {"majority": right.astype(np.float64)}


def factor_cosine(of: Factors) -> Candidates:
    """A random direction, of which the mean |cos| is known, or the mean factor of the other clients."""
    expected = np.exp(gammaln(of.width / 2) - gammaln((of.width + 1) / 2)) / np.sqrt(np.pi)
    return {"random": of.defined * float(expected), "mean": of.cosine(of.mean_of_others)}


def factor_relative_error(of: Factors) -> Candidates:
    """Nothing, whose relative error is 1, or the mean factor of the other clients."""
    return {"zero": of.defined, "mean": of.error(of.mean_of_others)}
