"""Attributes that nobody uploads: planted ones are inferred, permuted ones not, and truth stays closed."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import factorleak as fl
from attacks.attributes import infer
from attacks.base import Estimates, Reconstruction
from audit.cli.gate import parse
from audit.factories import make_victim
from audit.scoring.inference import ACCURACY, AUC, _placements, hidden_attributes, inference_scores
from audit.scoring.verdicts import LEAK
from victims.common.errors import InputError
from victims.data.ratings import Ratings, from_triples, one_hot
from victims.recording import manifest_of


def planted(n_users=120, n_items=40, seed=0):
    """Whoever is of camp 0 likes the first half of the items, camp 1 the second; lists say nothing."""
    rng = np.random.default_rng(seed)
    camp = rng.choice(2, n_users, p=[0.4, 0.6])
    users, items = np.nonzero(rng.random((n_users, n_items)) < 0.5)
    liked = (items < n_items // 2) == (camp[users] == 0)
    values = np.clip(np.rint(3 + np.where(liked, 0.7, -0.7) + rng.normal(0, 0.8, users.size)), 1, 5)
    attributes, groups, names = one_hot({"camp": (camp, ("left", "right"))})
    return from_triples(
        "camps", users, items, values,
        user_ids=np.arange(n_users), item_ids=np.arange(n_items), levels=(1.0, 2.0, 3.0, 4.0, 5.0),
        attributes=attributes, attribute_groups=groups, attribute_names=names,
        item_features=np.zeros((n_items, 0)), item_feature_names=(),
    )  # fmt: skip


def all_recovered(ratings: Ratings) -> Reconstruction:
    """The answer of an attack that recovers every rating."""
    table = np.full((ratings.n_users, ratings.n_items), np.nan)
    table[ratings.users, ratings.items] = ratings.values
    items = np.arange(ratings.n_items)[None]
    block = Estimates(np.arange(ratings.n_users), np.zeros_like(items), items, table)
    return Reconstruction("all", np.arange(ratings.n_users), (block,))


def manifest(ratings):
    return manifest_of(make_victim("mf", {}), ratings, [0])


def test_a_planted_attribute_is_inferred_from_recovered_ratings():
    # of 60 clients nine tenths are inferred: that the sign test misses them has a probability below 1e-9
    rows = fl.audit(
        planted(), victim="mf", attacks="spectral", infer="camp", rounds=[4, 5], factors=4, progress=False
    ).set_index("metric")
    found = rows.loc[f"{ACCURACY}/camp/ratings"]
    assert found["verdict"] == LEAK
    assert found["ci_low"] > 0.8 > found["baseline"]
    assert found["value"] == pytest.approx(found["ceiling"], abs=0.05)
    assert rows.loc[f"{AUC}/camp/ratings", "verdict"] == LEAK
    assert rows.loc[f"{ACCURACY}/camp/lists", "verdict"] != LEAK
    assert f"{ACCURACY}/camp/factors" in rows.index


def test_permuted_attributes_are_not():
    # each of 10 permutations is a leak with a probability of 0.02 at most (two tests at 0.01), so that four
    # or more are with one below 1e-4
    ratings, leaks = planted(n_users=80), 0
    found, about = all_recovered(ratings), manifest(ratings)
    rng = np.random.default_rng(1)
    for seed in range(10):
        (hidden,) = hidden_attributes(ratings, ["camp"], seed)
        rng.shuffle(hidden.category)
        scores = inference_scores(found, about, hidden)
        leaks += any(one.summary.verdict == LEAK for one in scores if one.metric.endswith("/ratings"))
    assert leaks < 4


def test_nothing_depends_on_the_attribute_of_whoever_is_asked():
    ratings = planted()
    (one,), (other,) = (hidden_attributes(ratings, ["camp"], 0) for _ in range(2))
    asked = one.asked(np.arange(ratings.n_users))
    assert not np.isin(asked, one.known.users).any()
    other.category[asked] = 1 - other.category[asked]
    answers = [list(infer(all_recovered(ratings), manifest(ratings), each.known, 2)) for each in (one, other)]
    for first, second in zip(*answers, strict=True):
        assert (first.users == asked).all()
        np.testing.assert_array_equal(first.probability, second.probability)


def test_the_area_is_that_of_the_reference_ties_included():
    rng = np.random.default_rng(0)
    score, positive = rng.integers(0, 5, 60).astype(float), rng.random(60) < 0.3
    area, share = _placements(score, positive)
    assert area == pytest.approx(roc_auc_score(positive, score))
    assert share[~positive].mean() == pytest.approx(area)


def test_names_are_checked_before_anything_runs(tmp_path):
    with pytest.raises(
        InputError, match="infer must name attributes of users of camps, got 'gendre'; it has camp"
    ):
        fl.audit(planted(8, 6), victim="mf", infer="gendre", out=tmp_path, progress=False)
    assert not list(tmp_path.rglob("*.json"))


def test_a_bar_may_be_set():
    (condition,) = parse(["inferred_auc/camp/lists>0.1"])
    assert (condition.metric, condition.field) == ("inferred_auc/camp/lists", "advantage")
