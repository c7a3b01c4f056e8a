"""Cold starts, refusals, and that encryption changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.factories import make_defenses
from audit.papers.plans import Quality
from audit.papers.ranking_quality import run, with_popularity
from victims.common.errors import InputError
from victims.data.subsets import of_users
from victims.evaluation.ranking import case, measure
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.training import start

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
