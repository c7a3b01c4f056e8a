"""Explicit and implicit feedback as Yang et al. 2022 use them: split (4.1.2), measures, baselines."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from audit.papers.plans import PACKAGES
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import require, strictly_between
from victims.data.ratings import Ratings
from victims.data.subsets import without
from victims.evaluation.ranking import EXISTING, Case, Cut, rank
from victims.protocols.base import Products
from victims.protocols.cofactor_draws import (
    EXPLICIT,
    POSITIVE,
    RatingMap,
    Samples,
    positives,
    unit_ratings,
    with_negatives,
)
from victims.protocols.cofactor_round import State
from victims.protocols.cofactor_users import AmongTrusted


class Feedback(NamedTuple):
    """Ratings of one part, and its explicit and implicit halves; same users and items."""

    both: Ratings
    explicit: Ratings
    implicit: Ratings


class FeedbackSplit(NamedTuple):
    """What is trained on, and what is measured on."""

    train: Feedback
    test: Feedback


def feedback_split(ratings: Ratings, test_fraction: float, share: float, seed: int) -> FeedbackSplit:
    """Hold out records at random, whoever they are of, and take both parts apart."""
    require("a split", "test_fraction", test_fraction, strictly_between(0, 1))
    order = generator(seed, Purpose.HELD_OUT_RECORDS).permutation(ratings.n_ratings)
    is_test = np.zeros(ratings.n_ratings, bool)
    is_test[order[: round(test_fraction * ratings.n_ratings)]] = True
    parts = [_halved(without(ratings, left_out), share, seed) for left_out in (is_test, ~is_test)]
    for part in parts:
        for half in part:
            if half.n_ratings == 0:
                raise InputError(
                    f"{ratings.name} has too few ratings ({ratings.n_ratings}) to hold some out and to take "
                    "some as implicit feedback; use more of them"
                )
    return FeedbackSplit(*parts)


def _halved(ratings: Ratings, share: float, seed: int) -> Feedback:
    implicit = positives(ratings, share, seed)
    return Feedback(ratings, without(ratings, implicit), without(ratings, ~implicit))


LISTED = 5


def unit_values(ratings: Ratings, rating_map: RatingMap) -> Float[np.ndarray, " ratings"]:
    """Put ratings on the scale 0..1.

    References
    ----------
    Yang et al. 2022 (doi:10.3390/app122111118), which only says that ratings are scaled.
    """
    return unit_ratings(ratings.values, ratings.levels, rating_map)


def unit_rmse(predicted: Float[np.ndarray, " ratings"], test: Ratings, rating_map: RatingMap) -> float:
    """Root mean square error of predictions in 0..1, which are clipped to the levels."""
    levels = unit_ratings(np.array([test.levels[0], test.levels[-1]]), test.levels, rating_map)
    error = np.clip(predicted, levels[0], levels[1]) - unit_values(test, rating_map)
    return float(np.sqrt(np.mean(error**2)))


def hits(split: FeedbackSplit, scores: Callable[[np.ndarray], np.ndarray]) -> dict[str, float]:
    """P@5 and R@5 in both universes."""
    everything = np.ones(split.train.both.n_items, bool)
    cut = Cut(LISTED, split.train.both.levels[0])
    found = {}
    for universe, train, test in (
        ("implicit", split.train.implicit, split.test.implicit),
        ("all", split.train.both, split.test.both),
    ):
        quality = rank(Case(EXISTING, train, test, everything), scores, cut)["all"]
        found[f"precision_at_{LISTED}_{universe}"] = quality.precision
        found[f"recall_at_{LISTED}_{universe}"] = quality.recall
    return found


def popularity(split: FeedbackSplit, seed: int) -> dict[str, float]:
    """The same by the number of training ratings of an item."""
    ties = generator(seed, Purpose.POPULARITY_TIES)
    found: dict[str, float] = {}
    for universe, train in (("implicit", split.train.implicit), ("all", split.train.both)):
        counts = np.bincount(train.items, minlength=train.n_items) + 0.5 * ties.random(train.n_items)
        values = hits(split, lambda users, counts=counts: np.tile(counts, (users.size, 1)))
        found |= {name: value for name, value in values.items() if name.endswith(f"_{universe}")}
    return found


STEPS = 200


def implicit_pmf(
    positives: Ratings,
    rated: Ratings,
    factors: int,
    *,
    negative_weight: float = 0.5,
    ridge: float = 3.0,
    seed: int = 0,
) -> Products:
    """Fit the model."""
    n = positives.n_ratings
    kind = np.full(n, POSITIVE, np.int8)
    samples = with_negatives(
        Samples(positives.users, positives.items.astype(np.int32), kind, np.zeros(n)), rated, seed, 0
    )
    assert not (samples.kind == EXPLICIT).any()
    shape = positives.n_users + positives.n_items, factors
    start = 0.1 * generator(seed, Purpose.REFERENCE_START, factors).normal(size=shape)
    found = minimize(
        _loss,
        start.ravel(),
        args=(samples, positives.n_users, shape, negative_weight, ridge),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": STEPS},
    )
    table = found.x.reshape(shape)
    return Products(table[: positives.n_users], table[positives.n_users :])


def _loss(
    flat: Float[np.ndarray, " numbers"],
    samples: Samples,
    n_users: int,
    shape: tuple[int, int],
    weight: float,
    ridge: float,
) -> tuple[float, Float[np.ndarray, " numbers"]]:
    """Value and gradient."""
    table = flat.reshape(shape)
    left, right = table[samples.user], table[n_users + samples.item]
    x = np.einsum("nk,nk->n", left, right)
    g, rest = expit(x), expit(-x)
    wanted = samples.kind == POSITIVE
    not_chosen = rest + (1 - weight) * g  # 1 - W g, without cancellation
    value = -np.sum(np.where(wanted, log_expit(x), np.log(not_chosen)))
    slope = np.where(wanted, -rest, weight * g * rest / not_chosen)[:, None]
    gradient = ridge * table
    for column in range(shape[1]):
        gradient[:n_users, column] += np.bincount(samples.user, (slope * right)[:, column], n_users)
        gradient[n_users:, column] += np.bincount(samples.item, (slope * left)[:, column], shape[0] - n_users)
    return value + ridge / 2 * np.sum(table**2), gradient.ravel()


MODULES = {"scikit-surprise": "surprise"}  # where the name of the package is not that of its module
Predict = Callable[[Ratings], np.ndarray]


def version_of(name: str) -> str | None:
    """Version of the package behind a reference; None where it is not installed."""
    try:
        return version(PACKAGES[name])
    except PackageNotFoundError:
        return None


def _package(name: str) -> Any:
    """The module behind a reference."""
    package = PACKAGES[name]
    if version_of(name) is None:
        raise InputError(
            f"{name} needs the package {package}, which is not installed; "
            "run pip install 'factorleak[references]'"
        )
    return import_module(MODULES.get(package, package))


def svd_plus_plus(train: Ratings, values: Float[np.ndarray, " ratings"], factors: int, seed: int) -> Predict:
    """Fit SVD++ to ratings."""
    surprise = _package("svd++")
    low, high = float(values.min()), float(values.max())
    reader = surprise.Reader(rating_scale=(low, high))
    frame = pd.DataFrame({"user": train.users, "item": train.items, "value": values})
    data = surprise.Dataset.load_from_df(frame, reader).build_full_trainset()
    state = seed % 2**32
    fitted = surprise.SVDpp(n_factors=factors, random_state=state).fit(data)

    def predict(test: Ratings) -> np.ndarray:
        pairs = zip(test.users.tolist(), test.items.tolist(), strict=True)
        return np.array([fitted.predict(user, item).est for user, item in pairs])

    return predict


def weighted_factorisation(positives: Ratings, factors: int, seed: int) -> Products:
    """Fit WRMF to pairs."""
    _package("wrmf")
    als = import_module("implicit.als")
    pairs = positives.matrix().astype(np.float32)
    pairs.data[:] = 1
    state = seed % 2**32
    model = als.AlternatingLeastSquares(factors=factors, random_state=state, num_threads=1, use_gpu=False)
    model.fit(sp.csr_matrix(pairs), show_progress=False)
    return Products(np.asarray(model.user_factors, float), np.asarray(model.item_factors, float))


def gaussian_pmf(train: Ratings, values: Float[np.ndarray, " ratings"], factors: int, seed: int) -> Predict:
    """Fit PMF with a logistic link to ratings."""
    cornac = _package("gaussian-pmf")
    triples = list(zip(train.users.tolist(), train.items.tolist(), values.tolist(), strict=True))
    data = cornac.data.Dataset.from_uir(triples, seed=seed % 2**32)
    model = cornac.models.PMF(k=factors, variant="non_linear", seed=seed % 2**32, verbose=False).fit(data)
    mean = float(values.mean())

    def predict(test: Ratings) -> np.ndarray:
        users, items = _numbers(data.uid_map, test.users), _numbers(data.iid_map, test.items)
        known = (users >= 0) & (items >= 0)
        out = np.full(test.n_ratings, mean)
        out[known] = [
            model.score(int(user), int(item)) for user, item in zip(users[known], items[known], strict=True)
        ]
        return out

    return predict


def _numbers(found: dict[int, int], ours: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    return np.array([found.get(int(number), -1) for number in ours])


INDEX_BYTES, NUMBER_BYTES = 4, 8  # an item, and a float64 of a row


class Traffic(NamedTuple):
    """Of one round."""

    rows: int  # gradients that are computed
    # gradients that arrive: a row once for every edge of its sender, as often as its weight says
    messages: int
    bytes: int  # of the messages: an index and K numbers each


def traffic(victim: AmongTrusted, state: State, ratings: Ratings) -> Traffic:
    """Count what is sent in the next round."""
    samples, edges = victim.samples_of(state, ratings), victim.edges_of(state, ratings)
    rows = np.bincount(samples.user, minlength=ratings.n_users)
    messages = int(np.sum(rows[edges.sender] * edges.weight))
    return Traffic(int(rows.sum()), messages, messages * (INDEX_BYTES + NUMBER_BYTES * victim.factors))
