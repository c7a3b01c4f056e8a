"""Empirical epsilon on mechanisms with a known one, and the audit of claims."""

from __future__ import annotations

import json

import numpy as np
import pytest

from audit.epsilon import claims
from audit.epsilon.canaries import plant, typical_client, worlds
from audit.epsilon.claims import BOUND, Claim, recorded
from audit.experiments.plan import Claims
from audit.factories import make_defenses
from audit.scoring.lower_bounds import from_one_run, from_repetitions
from audit.scoring.truth import read_truth
from reports.figures import claims_figure
from reports.layout import piped
from reports.tables import claims_table
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.transcript.beside import truth_path

RUNS = 100


def likelihood_ratio(seen, epsilon):
    """Of Laplace noise at distance 1. Rounded: the last bits of 1 + noise tell the world by themselves, as
    Mironov 2012 (doi:10.1145/2382196.2382264) found, and the bound then rightly exceeds epsilon.
    """
    return np.round((np.abs(seen) - np.abs(seen - 1)) * epsilon, 6)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_bounds_on_a_mechanism_with_known_epsilon(epsilon):
    """Below it in at least 95 % of runs, above half of it in all: 2,000 trials of the Laplace mechanism."""
    rng = np.random.default_rng(int(10 * epsilon))
    bounds = []
    for _ in range(RUNS):
        noise = rng.laplace(scale=1 / epsilon, size=(2, 2000))
        scores = likelihood_ratio(noise + np.array([[1.0], [0.0]]), epsilon)
        coin = rng.random(2000) < 0.5
        bounds.append(
            (from_repetitions(*scores).epsilon, from_one_run(np.where(coin, *scores), coin).epsilon)
        )
    assert (np.mean(np.array(bounds) <= epsilon, axis=0) >= 0.95).all()
    assert np.min(bounds) > epsilon / 2


def test_bounds_on_no_leak_are_0():
    rng = np.random.default_rng(0)
    bounds = []
    for _ in range(RUNS):
        inside, outside = rng.normal(size=(2, 500))
        bounds.append((from_repetitions(inside, outside).epsilon,
                       from_one_run(inside, rng.random(500) < 0.5).epsilon))  # fmt: skip
    assert (np.mean(np.array(bounds) == 0, axis=0) >= 0.95).all()


def test_perfect_scores_reach_what_the_trials_allow():
    coin = np.arange(200) % 2 == 0
    bound = from_one_run(np.where(coin, np.inf, -np.inf), coin)
    assert bound.epsilon == bound.most > 3
    bound = from_repetitions(np.full(100, np.inf), np.full(100, -np.inf))
    assert bound.epsilon == bound.most > 2


def test_no_guess_is_no_bound():
    assert from_one_run(np.zeros(50), np.ones(50, bool)).epsilon == 0


@pytest.mark.parametrize("scores", [np.zeros(0), np.array([np.nan])])
def test_bad_scores(scores):
    with pytest.raises(InputError, match="scores must be"):
        from_one_run(scores, np.zeros(scores.size, bool))
    with pytest.raises(InputError, match="confidence of a bound must be"):
        from_one_run(np.ones(3), np.ones(3, bool), 1.0)


@pytest.fixture(scope="module")
def small():
    return generate(Synthetic(users=60, items=16, ratings_per_user=10.0, single=0.0, seed=5))


def test_worlds_differ_in_the_canaries_alone(small):
    canaries = plant(small, 0)
    assert 0.2 < canaries.coin.mean() < 0.8
    for text in ("hdpmf", "pdpmf", "none"):
        both = worlds(canaries, make_defenses(text), 0)
        differ = np.flatnonzero(both.low.values != both.high.values)
        np.testing.assert_array_equal(differ, np.sort(both.entry[both.entry >= 0]))
        np.testing.assert_array_equal(both.low.items, both.high.items)


@pytest.mark.thorough
def test_claims(small, tmp_path):
    plan = Claims(
        protocols=("hdpmf", "mf"), noises=("once", "fresh"), rounds=5, epochs=6,
        epsilons=(1.0,), repetitions=10, victim_options={"factors": "4", "learning_rate": "0.01"},
    )  # fmt: skip
    rows = claims.run(plan, small, tmp_path, jobs=1)
    assert {row["status"] for row in rows} <= {"ran", "not applicable"}
    bounds = {
        (row["victim"], row["defense"], row["adversary"]): row for row in rows if row["metric"] == BOUND
    }
    once = bounds["hdpmf", "hdpmf:noise=once,epochs=6,epsilon=1", "all rounds, all"]
    assert once["verdict"] == "CLAIM REFUTED"
    # least squares, for clients of few ratings, may miss a canary: it ends as the machine's last bits tell
    assert once["baseline"] < 0.8 * once["ceiling"] < once["value"] <= once["ceiling"]
    final = bounds["hdpmf", "hdpmf:noise=once,epochs=6,epsilon=1", "final V, all"]
    assert final["verdict"] == "not refuted"
    assert "nothing is proved" in final["reason"]
    # noise once: every run is told apart, so that the bound is the largest that so many runs can show
    repeated = [row for row in bounds.values() if "runs a world" in row["adversary"]]
    assert [row["n_users"] for row in repeated] == [20] * 3
    exact = next(row for row in repeated if "noise=once" in row["defense"])
    assert exact["value"] == exact["ceiling"] > 0
    assert 0 < exact["baseline"] <= 1
    read = [row for row in rows if row["metric"] == "rated_rating_accuracy" and row["status"] == "ran"]
    for row in read:
        assert np.isfinite([row["value"], row["baseline"], row["ci_low"], row["ci_high"]]).all()
    fresh = next(row for row in read if "noise=fresh" in row["defense"])
    assert 0 < fresh["ceiling"] <= 1
    fellows = [row for row in rows if str(row["adversary"]).startswith("client:")]
    assert {row["attack"] for row in fellows} == {"aggregate"}
    assert all(row["reason"] for row in fellows if row["status"] != "ran")
    assert {row["victim"] for row in fellows} == {"hdpmf", "mf"}
    assert len(claims_table(rows, "x").rows) > 4 + len({(row["victim"], row["defense"]) for row in fellows})
    assert len(claims_figure(rows, tmp_path)) == 2
    again = claims.run(plan, small, tmp_path, jobs=1)
    assert json.dumps(again) == json.dumps(rows)
    with pytest.raises(InputError, match="rounds of claims must be a whole number from 2"):
        claims.run(Claims(rounds=1), small, tmp_path)


def test_what_a_fellow_client_reads(tmp_path):
    """Under mf V tells the sums in every round, and clients who are alone in some of them show."""
    sparse = generate(Synthetic(users=60, items=300, ratings_per_user=6.0, single=0.0, seed=5))
    claim = Claim(Claims(protocols=("mf",), rounds=2, epochs=2), "mf", "none", 1.0, 0, sparse.n_users)
    recorded(claim, sparse, tmp_path / "leak")
    truth = read_truth(truth_path(tmp_path / "leak"))
    shared = {"victim": "mf", "defense": "none", "n_users": 60}
    rows = claims.read_by_a_fellow(claim, sparse, tmp_path / "leak", truth, shared)
    assert {row["adversary"] for row in rows} == {f"client:{typical_client(sparse)}"}
    found = {row["metric"]: row for row in rows}
    assert found["claimed_rating_accuracy"]["verdict"] == "LEAK"
    assert found["claimed_rating_accuracy"]["value"] > 0.99
    lone = np.bincount(sparse.items, minlength=sparse.n_items)[sparse.items] == 1
    alone = np.bincount(sparse.users[lone], minlength=sparse.n_users) >= 3
    assert alone.sum() >= 10
    assert found["share_of_clients_read"]["value"] >= 0.9 * alone.mean()
    assert "nameless clients" in piped(claims_table(rows, "x"))
