"""Communities of interest: planted ones are found under noise, nothing in answers that are permuted."""

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Estimates, Reconstruction
from audit.cli.gate import parse
from audit.factories import make_victim
from audit.scoring.communities import PRECISION, top, truth_and_guesses
from audit.scoring.inference import hidden_attributes, inference_scores
from audit.scoring.verdicts import LEAK
from victims.data.ratings import from_triples
from victims.recording import manifest_of


def planted(n_users=240, n_items=80, n_communities=6, seed=0):
    """Of the items of its own community a client rated half, of all others a tenth; lengths say nothing."""
    rng = np.random.default_rng(seed)
    same = (np.arange(n_users) % n_communities)[:, None] == np.arange(n_items) % n_communities
    users, items = np.nonzero(rng.random(same.shape) < np.where(same, 0.5, 0.1))
    return from_triples(
        "communities", users, items, rng.integers(1, 6, users.size).astype(float),
        user_ids=np.arange(n_users), item_ids=np.arange(n_items), levels=(1.0, 2.0, 3.0, 4.0, 5.0),
        attributes=np.zeros((n_users, 0)), attribute_groups=(), attribute_names=(),
        item_features=np.zeros((n_items, 0)), item_feature_names=(),
    )  # fmt: skip


def noisy(ratings, scale, seed=0, order=None):
    """Answers of an attack that sees each rated item as a 1 in normal noise, and knows how many are rated."""
    rated = np.zeros((ratings.n_users, ratings.n_items))
    rated[ratings.users, ratings.items] = 1.0
    seen = rated + np.random.default_rng(seed).normal(0, scale, rated.shape)
    odds = np.log(rated.mean() / (1 - rated.mean())) + (seen - 0.5) / scale**2
    chance = 1 / (1 + np.exp(-odds))
    if order is not None:
        chance = chance[order]
    items = np.arange(ratings.n_items)[None]
    everybody = np.arange(ratings.n_users)
    block = Estimates(everybody, np.zeros_like(items), items, 3 * chance, rated_probability=chance)
    return Reconstruction("noisy", everybody, (block,))


def scored(ratings, found, seed=0):
    about = manifest_of(make_victim("fedmvmf", {"weighting": "include-unrated"}), ratings, [0])
    (hidden,) = hidden_attributes(ratings, ["communities"], seed)
    (score,) = inference_scores(found, about, hidden)
    return score


def test_planted_communities_are_found_under_noise():
    # 140 clients, 10 named; for each of 20 other seeds the value lay 0.24 or more above the guess
    ratings = planted()
    exact, blurred = (scored(ratings, noisy(ratings, scale)) for scale in (0.1, 0.7))
    assert exact.summary.value == pytest.approx(1, abs=1e-3)
    assert blurred.summary.verdict == LEAK
    assert exact.summary.value > blurred.summary.value > blurred.summary.baseline + 0.1


def test_permuted_answers_are_at_chance():
    # each of 20 permutations is a leak with a probability of 0.01 at most: three or more with one below 0.002
    ratings, rng = planted(n_users=120), np.random.default_rng(1)
    scores = [scored(ratings, noisy(ratings, 0.1, order=rng.permutation(120)), seed) for seed in range(20)]
    assert sum(score.summary.verdict == LEAK for score in scores) < 3
    # the mean of 20 lies within 0.05 of chance, 10 of 60 clients
    assert np.mean([one.summary.value for one in scores]) == pytest.approx(10 / 60, abs=0.05)


def test_truth_is_the_largest_jaccard_indices_ties_included():
    ratings = planted(40, 20)
    (hidden,) = hidden_attributes(ratings, ["communities"], 0)
    lists = [set(hidden.lists[[user]].indices) for user in range(40)]
    others = np.setdiff1d(np.arange(40), hidden.known)
    true, guesses = truth_and_guesses(hidden.lists[others], hidden.lists[hidden.known], 5)
    for row, target in enumerate(hidden.known):
        index = np.array(
            [len(lists[user] & lists[target]) / len(lists[user] | lists[target]) for user in others]
        )
        np.testing.assert_array_equal(true[row], index >= np.sort(index)[-5])
    assert all(named.sum(axis=1) == pytest.approx(5) for named in guesses.values())


def test_ties_for_the_last_places_share_them():
    np.testing.assert_allclose(top(np.array([[3.0, 1, 1, 1, 0]]), 2), [[1, 1 / 3, 1 / 3, 1 / 3, 0]])


def test_an_audit_has_the_row_where_it_is_asked_for():
    given = {"victim": "mf", "attacks": "rated-set", "rounds": [4], "factors": 4, "progress": False}
    rows = fl.audit(planted(60, 40), infer="communities", **given).set_index("metric")
    assert rows.loc[PRECISION, "value"] == pytest.approx(1)  # observed-only: uploads name the items
    assert "OPEN" in rows.loc[PRECISION, "reason"]
    assert PRECISION not in set(fl.audit(planted(60, 40), **given)["metric"])
    (condition,) = parse(["community_precision>0.1"])
    assert (condition.metric, condition.field) == (PRECISION, "advantage")
