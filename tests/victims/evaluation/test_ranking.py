"""Ranking: what is held out, its measures restated, cold starts, and encryption, which changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.factories import make_defenses
from audit.papers.plans import Quality
from audit.papers.ranking_quality import run, with_popularity
from victims.common.errors import InputError
from victims.data.subsets import of_users
from victims.evaluation.ranking import SCENARIOS, Cut, case, measure, popular, rank
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.training import start


def test_cases_share_nothing(ratings):
    known = case("existing", ratings, 0)
    both = np.concatenate([c.users * 1000 + c.items for c in (known.train, known.test)])
    assert np.unique(both).size == both.size == ratings.n_ratings
    users = case("new user", ratings, 0)
    assert not set(users.train.user_ids.tolist()) & set(users.test.user_ids.tolist())
    assert users.test.n_users == 4
    items = case("new item", ratings, 0)
    assert not set(items.train.items.tolist()) & set(items.test.items.tolist())
    assert items.open_items.sum() == 6


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


VICTIM = FedMVMF(weighting="include-unrated")


def test_new_clients_and_items_are_ridge_regressions(ratings):
    """(15) and (17), against the minimum of the loss with p and q regularised."""
    state = start(VICTIM, ratings, (), 0).trained(0).trained(1).state
    sides = np.asarray(state.attribute_factors)
    p = VICTIM.new_clients(state, ratings.attributes[:3])
    gradient = (p @ sides.T - ratings.attributes[:3]) @ sides + VICTIM.lambda_factors * p
    np.testing.assert_allclose(gradient, 0, atol=1e-10)
    sides = np.asarray(state.feature_factors)
    q = VICTIM.new_items(state, ratings.item_features[:3])
    gradient = (q @ sides.T - ratings.item_features[:3]) @ sides + VICTIM.lambda_factors * q
    np.testing.assert_allclose(gradient, 0, atol=1e-10)


@pytest.mark.parametrize("scenario", ["existing", "new item"])
def test_encryption_changes_the_ranking_by_rounding_alone(ratings, scenario):
    chosen = case(scenario, ratings, 3)
    sampling = make_defenses("unrated-sampling:rho=1")
    plain, sealed = (
        measure(VICTIM, chosen, rounds=8, defenses=defenses, seed=3)
        for defenses in (sampling, make_defenses("unrated-sampling:rho=1+paillier:ideal=true"))
    )
    np.testing.assert_allclose(plain["rated"], sealed["rated"], atol=1e-6)
    np.testing.assert_allclose(plain["all"], sealed["all"], atol=1e-6)
    if scenario != "existing":
        return
    # a coarse encoding is not the same
    coarse = make_defenses("unrated-sampling:rho=1+paillier:ideal=true,fraction_bits=1")
    rough = measure(VICTIM, chosen, rounds=8, defenses=coarse, seed=3)
    assert rough["rated"] != plain["rated"]


def test_refusals(ratings):
    lonely = of_users(ratings, np.flatnonzero(np.diff(ratings.indptr) == 1))
    assert lonely.n_users > 0
    with pytest.raises(InputError, match="existing holds out no rating of synthetic"):
        case("existing", lonely, 0)
    with pytest.raises(InputError, match="scenario of a split must be existing, new user or new item"):
        case("cold", ratings, 0)
    with pytest.raises(InputError, match="no factors for a new item"):
        measure(FedMF(factors=3), case("new item", ratings, 0), rounds=1)


def test_other_splits(ratings, tmp_path):
    """The last of every user are held out for existing users; other scenarios draw users and items."""
    timed = replace(ratings, times=np.arange(float(ratings.n_ratings)))
    chosen = case("existing", timed, 0, "last:1")
    assert chosen.test.n_ratings == (np.diff(ratings.indptr) > 1).sum()
    rows = run(Quality(rounds=1, runs=1, scenarios=("existing",), split="last:1"), timed, tmp_path, jobs=1)
    plain = run(Quality(rounds=1, runs=1, scenarios=("existing",)), timed, tmp_path, jobs=1)
    assert [row["value"] for row in rows] != [row["value"] for row in plain]
    with pytest.raises(InputError, match="tells no times"):
        run(Quality(rounds=1, runs=1, scenarios=("existing",), split="time"), ratings, tmp_path, jobs=1)
    with pytest.raises(InputError, match="is about existing users"):
        run(Quality(rounds=1, runs=1, scenarios=("new user",), split="time"), timed, tmp_path, jobs=1)


def test_rows_of_the_table(ratings, tmp_path):
    found = run(Quality(rounds=2, runs=2, scenarios=("existing",)), ratings, tmp_path, jobs=1)
    errors = [row for row in found if row["metric"] == "rmse"]
    assert {row["baseline_name"] for row in errors} == {"training mean"}
    assert len(errors) == 2 * 2
    found = [row for row in found if row not in errors]
    assert len(found) == 2 * 2 * 2 * 4
    assert {row["baseline_name"] for row in found} == {"popularity"}
    rows = with_popularity([*found, *errors])
    assert len(rows) == 2 * 3 * 2 * 4
    assert {row["system"] for row in rows} == {"encrypted", "plain", "popularity"}
    assert all(0 <= row["value"] <= 1 for row in rows)
