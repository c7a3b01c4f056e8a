"""Measures of lists against a restatement."""

from __future__ import annotations

import numpy as np
import pytest

from victims.evaluation.ranking import SCENARIOS, Cut, case, popular, rank


def by_hand(scores, actual, among, k=10, threshold=4):
    """NDCG, precision and recall of one user, from the formulas (50) to (54) as corrected."""
    listed = [j for j in sorted(range(len(scores)), key=lambda j: (-scores[j], j)) if among[j]][:k]
    gain = sum((2 ** actual[j] - 1) / np.log2(place + 2) for place, j in enumerate(listed))
    ideal = sum(
        (2**stars - 1) / np.log2(place + 2) for place, stars in enumerate(sorted(actual, reverse=True)[:k])
    )
    hits = sum(actual[j] >= threshold for j in listed)
    relevant = sum(stars >= threshold for stars in actual)
    return gain / ideal, hits / max(len(listed), 1), hits / relevant if relevant else np.nan


@pytest.mark.parametrize("cut", [Cut(), Cut(3, 2.5)], ids=["as published", "3 items"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_metrics_are_the_formulas(ratings, scenario, cut):
    chosen = case(scenario, ratings, 1)
    scores = np.random.default_rng(2).normal(size=(chosen.test.n_users, ratings.n_items)).round(1)
    found = rank(chosen, lambda users: scores[users], cut)
    test = chosen.test.matrix().toarray()
    train = np.zeros_like(test) if scenario == "new user" else chosen.train.matrix().toarray()
    for reading in ("rated", "all"):
        rows = np.array(
            [
                by_hand(
                    scores[i],
                    test[i],
                    test[i] > 0 if reading == "rated" else chosen.open_items & (train[i] == 0),
                    cut.k,
                    cut.relevant,
                )
                for i in range(test.shape[0])
                if test[i].any()
            ]
        )
        ndcg, precision, recall = np.nanmean(rows, axis=0)
        np.testing.assert_allclose(found[reading][:3], (ndcg, precision, recall))
        both = precision + recall
        np.testing.assert_allclose(found[reading].f1, 2 * precision * recall / both if both else 0)


def test_a_perfect_ranking_is_one(ratings):
    chosen = case("existing", ratings, 0)
    actual = chosen.test.matrix().toarray()
    found = rank(chosen, lambda users: actual[users])
    assert found["rated"].ndcg == found["all"].ndcg == 1


def test_popularity_is_by_training_ratings(ratings):
    chosen = case("existing", ratings, 0)
    counts = np.bincount(chosen.train.items, minlength=ratings.n_items)
    found, other = popular(chosen, 0), rank(chosen, lambda users: np.tile(counts + 0.0, (users.size, 1)))
    assert abs(found["all"].ndcg - other["all"].ndcg) < 0.1
