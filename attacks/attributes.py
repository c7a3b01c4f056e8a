"""Attributes that nobody uploads (gender, age, occupation), inferred from what an attack recovered.

A logistic regression is fitted to people whose attribute the adversary knows, and asked about the clients of
a reconstruction:

    source    of those who are known            of the clients
    ratings   their ratings                     ratings that the attack recovered
    lists     the items that they rated         items that it says are rated
    factors   factors that it recovered         factors that it recovered

The adversary is taken to know ratings and the attribute of other users, say of an older data set, and for
``factors`` the attribute of clients who take part. The strength of the regularization is chosen by
cross-validation among the known; nothing depends on the clients who are asked about.

References
----------
U. Weinsberg, S. Bhagat, S. Ioannidis, N. Taft, "BlurMe", RecSys 2012, doi:10.1145/2365952.2365989 (logistic
regression on ratings); S. Zhang, W. Yuan, H. Yin, arXiv:2205.11857 (from uploads of federated recommenders).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits

from attacks.base import Estimates, Identities, Reconstruction, Scope
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM

FOLDS = 3
STRENGTHS = (0.1, 1.0, 10.0)  # inverse regularization; rows of features have about unit length


@dataclass(frozen=True, eq=False)
class Known:
    """People whose ratings and attribute the adversary knows, none of whom is asked about."""

    users: Int[np.ndarray, " known"]  # ascending; as clients where they take part
    ratings: sp.csr_array  # (n_known, n_items), in stars
    category: Int[np.ndarray, " known"]  # of the attribute, from 0
    seed: int = 0  # of the folds

    @cached_property
    def _by_ratings(self) -> Any:
        return fitted(tastes(self.ratings), self.category, self.seed)

    @cached_property
    def _by_lists(self) -> Any:
        return fitted(tastes(self.ratings, lists=True), self.category, self.seed)

    def classify(
        self, source: str, ratings: sp.csr_array, n_categories: int
    ) -> Float[np.ndarray, "users categories"] | None:
        """Probabilities of others by their ratings, or by their lists alone; None where too few are known."""
        lists = source == "lists"
        classifier = self._by_lists if lists else self._by_ratings
        if classifier is None:
            return None
        return probabilities(classifier, tastes(ratings, lists=lists), n_categories)


class Inferred(NamedTuple):
    """Probabilities of the categories, (n_users, n_categories), of clients who are not known."""

    source: str  # "ratings", "lists" or "factors"
    n_known: int  # whom the classifier learned from
    users: Int[np.ndarray, " users"]
    probability: Float[np.ndarray, "users categories"]


def infer(found: Reconstruction, manifest: Manifest, known: Known, n_categories: int) -> Iterator[Inferred]:
    """Infer the attribute of each client that an attack answered and that is not known, from each source."""
    if found.identities != Identities.CLIENTS:
        return
    users, ratings = recovered(found, manifest)
    asked = ~np.isin(users, known.users)
    users, ratings = users[asked], ratings[np.flatnonzero(asked)]
    sources = ("ratings", "lists") if found.scope == Scope.RATINGS_AND_ATTRIBUTES else ("lists",)
    for source in sources if users.size else ():
        if (answer := known.classify(source, ratings, n_categories)) is not None:
            yield Inferred(source, known.users.size, users, answer)
    if found.factors is not None:
        yield from _by_factors(found, known, n_categories)


def _by_factors(found: Reconstruction, known: Known, n_categories: int) -> Iterator[Inferred]:
    """From recovered factors: those of known clients are what is learned from."""
    factors = found.factors
    assert factors is not None
    theirs = np.isin(factors.users, known.users)
    if not theirs.any() or theirs.all():
        return
    centre, spread = factors.value[theirs].mean(axis=0), factors.value[theirs].std(axis=0)
    length = np.sqrt(factors.value.shape[1]) * np.where(spread > 0, spread, 1.0)
    value = (factors.value - centre) / length
    category = known.category[np.searchsorted(known.users, factors.users[theirs])]
    classifier = fitted(value[theirs], category, known.seed)
    if classifier is not None:
        answer = probabilities(classifier, value[~theirs], n_categories)
        yield Inferred("factors", int(theirs.sum()), factors.users[~theirs], answer)


def recovered(found: Reconstruction, manifest: Manifest) -> tuple[Int[np.ndarray, " users"], sp.csr_array]:
    """The clients of whom an attack names rated items, and their ratings in stars, as far as it tells."""
    levels = manifest.rating_levels
    rows, items, stars = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
    answers = found.scope in (Scope.RATINGS_AND_ATTRIBUTES, Scope.RATED_SET)
    for block in found.blocks if answers else ():
        given = ~np.isnan(block.value) & (block.kind == ITEM)
        user, row = np.nonzero(given & (chance_rated(block, manifest) > 0.5))
        value = block.value[user, row]
        if block.rating_if_rated is not None:
            better = block.rating_if_rated[user, row]
            value = np.where(np.isnan(better), value, better)
        rows.append(block.users[user])
        items.append(np.broadcast_to(block.index, block.value.shape)[user, row])
        stars.append(np.clip(value, levels[0], levels[-1]))
    users, client = np.unique(np.concatenate(rows), return_inverse=True)
    shape = users.size, manifest.n_items
    return users, sp.csr_array((np.concatenate(stars), (client, np.concatenate(items))), shape=shape)


def in_open(manifest: Manifest) -> bool:
    """Whether uploaded rows say which items are rated."""
    return manifest.weighting == "observed-only" and not manifest.samples_unrated


def chance_rated(block: Estimates, manifest: Manifest) -> Float[np.ndarray, "users rows"]:
    """The probability that an item is rated, as far as an attack tells it; else 0 or 1."""
    if in_open(manifest):
        return (block.value != 0).astype(float)  # an uploaded row says it, unless the answer is "unrated"
    if block.rated_probability is not None:
        return np.nan_to_num(block.rated_probability.astype(float))
    return (block.value > manifest.rating_levels[0] / 2).astype(float)


def tastes(ratings: sp.csr_array, *, lists: bool = False) -> sp.csr_array:
    """Features of length about 1: which items somebody rated, and how far from the mean of these ratings."""
    counts = np.diff(ratings.indptr)
    owner = np.repeat(np.arange(counts.size), counts)
    length = np.sqrt(counts)[owner]
    rated = sp.csr_array((1 / length, ratings.indices, ratings.indptr), shape=ratings.shape)
    if lists:
        return rated
    mean = np.bincount(owner, ratings.data, counts.size) / np.maximum(counts, 1)
    liked = ((ratings.data - mean[owner]) / length, ratings.indices, ratings.indptr)
    return sp.hstack([rated, sp.csr_array(liked, shape=ratings.shape)], format="csr")


def fitted(features: Any, category: Int[np.ndarray, " known"], seed: int) -> Any:
    """Fit a logistic regression to categories that enough are known of; None for fewer than two of them."""
    enough = np.flatnonzero(np.bincount(category)[category] >= FOLDS)
    if np.unique(category[enough]).size < 2:
        return None
    from sklearn.linear_model import LogisticRegression  # a second, for those alone who infer attributes
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    order = generator(seed, Purpose.INFERENCE_FOLDS).permutation(enough)
    search = GridSearchCV(
        LogisticRegression(tol=1e-3, max_iter=1000),
        {"C": STRENGTHS},
        scoring="neg_log_loss",
        cv=StratifiedKFold(FOLDS),
    )
    with threadpool_limits(1):  # threads wait for each other for longer than these products take
        return search.fit(features[order], category[order]).best_estimator_


def probabilities(classifier: Any, features: Any, n_categories: int) -> Float[np.ndarray, "users categories"]:
    """The probability of each category, 0 of those that were not learned."""
    found = np.zeros((features.shape[0], n_categories))
    found[:, classifier.classes_] = classifier.predict_proba(features)
    return found
