"""Differences between a client's ratings: against brute force, and what a verdict makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from attacks.base import Estimates, Reconstruction, Scope
from audit.scoring.baselines import Population, difference_sizes
from audit.scoring.baselines import differences as no_difference
from audit.scoring.metrics import DIFFERENCES, SIZES, UserScores, score_users
from audit.scoring.reliability import reliability
from audit.scoring.score import score
from audit.scoring.truth import Truth
from audit.scoring.verdicts import INCONCLUSIVE, LEAK, NO_EVIDENCE
from tests.audit.scoring.test_metrics import manifest, truth_of
from victims.transcript.manifest import Manifest

OF_SCOPE = {Scope.DIFFERENCES: DIFFERENCES, Scope.SIZES: SIZES}
LOWER = 4  # the highest level of ratings that may as well be one higher


def clients(n_users: int, n_items: int = 40, seed: int = 0):
    """The manifest, the truth and ratings of clients without one of the highest level."""
    rng = np.random.default_rng(seed)
    there = rng.random((n_users, n_items)) < 0.4
    ratings = np.where(there, rng.integers(1, LOWER + 1, (n_users, n_items)), 0).astype(float)
    truth = truth_of(ratings, np.zeros((n_users, 0)))
    return manifest("observed-only", *ratings.shape, groups=()), truth, ratings


def block(value: np.ndarray) -> Estimates:
    """Answers about all rated items; NaN elsewhere."""
    index = np.arange(value.shape[1])[None]
    return Estimates(np.arange(len(value)), np.zeros_like(index), index, value)


def answered(value: np.ndarray, scope: Scope = Scope.DIFFERENCES) -> Reconstruction:
    return Reconstruction("test", np.arange(len(value)), (block(value),), scope=scope)


def shares(value: np.ndarray, facts: Manifest, truth: Truth) -> UserScores:
    """Both metrics of answers."""
    users = np.arange(len(value))
    return {
        metric: score_users((block(value),), facts, truth, users, scope)[metric]
        for scope, metric in OF_SCOPE.items()
    }


def by_pairs(value: np.ndarray, actual: np.ndarray, of: Callable[[float], float] = float) -> float:
    """The definition, pair by pair."""
    pairs = permutations(np.flatnonzero(actual > 0), 2)
    return float(np.mean([of(value[a] - value[b]) == of(actual[a] - actual[b]) for a, b in pairs]))


def test_it_is_the_share_of_pairs_that_are_right():
    facts, truth, ratings = clients(6)
    rng = np.random.default_rng(1)
    value = np.where(rng.random(ratings.shape) < 0.3, 1.0, ratings)
    value = np.where((ratings > 0) & (rng.random(ratings.shape) < 0.9), value, np.nan)
    found = shares(value, facts, truth)
    for metric, of in ((DIFFERENCES, float), (SIZES, abs)):
        pairs = [by_pairs(*both, of) for both in zip(value, ratings, strict=True)]
        np.testing.assert_allclose(found[metric], pairs)
    same = no_difference(Population(facts, truth, np.arange(6)))["majority"]
    np.testing.assert_allclose(same, [by_pairs(np.zeros(40), one) for one in ratings])


@pytest.mark.parametrize("likes", [10, 18])
def test_the_commonest_size_is_the_guess_of_sizes(likes):
    """Of likes and dislikes in equal parts most pairs differ; where nine in ten are likes, most do not."""
    ratings = np.ones((8, 20))
    ratings[:, :likes] = 2
    truth = truth_of(ratings, np.zeros((8, 0)))
    alike = np.mean([a == b for a, b in permutations(ratings[0], 2)])
    assert (alike < 0.5) == (likes == 10)
    facts = manifest("observed-only", *ratings.shape, groups=())
    found = difference_sizes(Population(facts, truth, np.arange(8)))["majority"]
    np.testing.assert_allclose(found, max(alike, 1 - alike))


def test_one_rating_has_no_difference():
    truth = truth_of(np.array([[3.0, 0.0], [2.0, 4.0]]), np.zeros((2, 0)))
    facts = manifest("observed-only", 2, 2, groups=())
    value = np.array([[3.0, np.nan], [2.0, 4.0]])
    found = shares(value, facts, truth)
    for metric in (DIFFERENCES, SIZES):
        np.testing.assert_array_equal(found[metric], [np.nan, 1.0])


@pytest.mark.parametrize("n_users", [12, 3])
def test_ratings_up_to_a_level_are_a_leak(n_users):
    """All of them one too high, and nothing is lost: of few clients by single ratings, as everywhere."""
    facts, truth, ratings = clients(n_users, n_items=60)
    higher = answered(np.where(ratings, ratings + 1, np.nan))
    scores = {one.metric: one for one in score(higher, facts, truth)}
    assert scores[DIFFERENCES].summary.value == 1
    assert scores[DIFFERENCES].summary.verdict == LEAK
    assert not {"rating_accuracy", "rated_rating_accuracy", "rating_mae", "users_fully_recovered"} & set(
        scores
    )


@pytest.mark.parametrize(("n_users", "verdict"), [(12, LEAK), (3, INCONCLUSIVE)])
def test_ratings_upside_down_are_a_leak(n_users, verdict):
    """Some clients' turned round and a level off; of few clients single distances do not say so."""
    facts, truth, ratings = clients(n_users, n_items=60)
    turned = np.where((np.arange(n_users) % 2)[:, None] == 0, LOWER + 1 - ratings, ratings + 1)
    found = answered(np.where(ratings, turned, np.nan), Scope.SIZES)
    scores = {one.metric: one for one in score(found, facts, truth)}
    assert scores[SIZES].summary.value == 1
    assert scores[SIZES].summary.verdict == verdict
    assert DIFFERENCES not in scores
    assert not {"rating_accuracy", "rated_rating_accuracy", "rating_mae", "users_fully_recovered"} & set(
        scores
    )


def test_ratings_turned_at_the_middle_are_no_leak_of_few_clients():
    """Nine tenths known beforehand, the rest upside down: many distances are right all the same."""
    rng = np.random.default_rng(0)
    ratings = rng.choice(np.arange(1.0, 6), (3, 80), p=[0.075, 0.075, 0.7, 0.075, 0.075])
    turned = np.where(rng.random(ratings.shape) < 0.9, ratings, 6 - ratings)
    truth = truth_of(ratings, np.zeros((3, 0)))
    facts = manifest("observed-only", *ratings.shape, groups=())
    verdicts = {one.metric: one.summary.verdict for one in score(answered(turned, Scope.SIZES), facts, truth)}
    assert verdicts[SIZES] == INCONCLUSIVE


@pytest.mark.parametrize("scope", [Scope.DIFFERENCES, Scope.SIZES])
@pytest.mark.parametrize("n_users", [12, 3])
def test_the_same_for_all_items_is_none(n_users, scope):
    facts, truth, ratings = clients(n_users)
    (one,) = (
        one
        for one in score(answered(np.where(ratings, 3.0, np.nan), scope), facts, truth)
        if one.metric == OF_SCOPE[scope]
    )
    assert one.summary.value <= one.summary.baseline
    assert one.summary.verdict != LEAK


@pytest.mark.parametrize("scope", [Scope.DIFFERENCES, Scope.SIZES])
def test_random_answers_are_none(scope):
    facts, truth, ratings = clients(12)
    drawn = np.random.default_rng(5).integers(1, LOWER + 1, ratings.shape).astype(float)
    scores = score(answered(np.where(ratings, drawn, np.nan), scope), facts, truth)
    (verdict,) = (one.summary.verdict for one in scores if one.metric == OF_SCOPE[scope])
    assert verdict in (INCONCLUSIVE, NO_EVIDENCE)


def test_whoever_reads_ratings_is_not_asked():
    facts, truth, ratings = clients(12)
    found = answered(np.where(ratings, ratings, np.nan), Scope.RATINGS_AND_ATTRIBUTES)
    assert DIFFERENCES not in {one.metric for one in score(found, facts, truth)}


def test_probabilities_of_ratings_are_not_asked_of_differences():
    """All of them may be a level lower: 1.000 was claimed, and 0.000 right."""
    facts, truth, ratings = clients(6)
    value = np.where(ratings > 1, ratings - 1, np.nan)
    sure = replace(block(value), probability=np.where(ratings > 1, 1.0, np.nan))
    of_ratings, of_differences = (
        reliability(Reconstruction("test", np.arange(6), (sure,), scope=scope), facts, truth)
        for scope in (Scope.RATINGS_AND_ATTRIBUTES, Scope.DIFFERENCES)
    )
    assert [(one.what, one.right) for one in of_ratings] == [("ratings", 0.0)]
    assert of_differences == []
