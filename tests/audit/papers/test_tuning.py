"""The k-fold search: folds, resuming, and trials that diverge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.papers.plans import Search
from audit.papers.tuning import ranges_of, search, settled
from victims.common.errors import InputError
from victims.data.subsets import folds, of_users

PLAN = Search(trials=4, folds=2, rounds=2, victim_options={"factors": 3})


def test_folds_hold_every_rating_out_once(ratings):
    def pairs(part):
        return part.users.astype(int) * 1000 + part.items

    held_out = []
    for train, test in folds(ratings, 3, 1):
        both = np.concatenate([pairs(train), pairs(test)])
        np.testing.assert_array_equal(np.sort(both), np.sort(pairs(ratings)))
        counts = np.diff(test.indptr) - np.diff(ratings.indptr) / 3
        assert np.abs(counts).max() < 1
        held_out.append(pairs(test))
    only = int((np.diff(ratings.indptr) == 1).sum())
    assert only > 0
    assert np.unique(np.concatenate(held_out)).size == sum(map(len, held_out)) == ratings.n_ratings - only


@pytest.mark.thorough
def test_a_stopped_search_goes_on_as_if_it_had_not_stopped(ratings, tmp_path):
    at_once = search(PLAN, ratings, tmp_path / "once")
    search(replace(PLAN, trials=2), ratings, tmp_path / "twice")
    said = []
    later = search(PLAN, ratings, tmp_path / "twice", report=lambda *told: said.append(told[:2]))
    assert [trial.options for trial in later] == [trial.options for trial in at_once]
    assert [trial.value for trial in later] == [trial.value for trial in at_once]
    assert said == [(2, 4), (3, 4), (4, 4)]
    assert search(PLAN, ratings, tmp_path / "twice") == later  # nothing is tried again
    assert len(list((tmp_path / "twice").iterdir())) >= 1


def test_the_best_is_first_and_within_its_ranges(ratings, tmp_path):
    plan = replace(PLAN, weighting="include-unrated", update="sgd")
    found = search(plan, ratings, tmp_path)
    assert [trial.value for trial in found] == sorted(trial.value for trial in found)
    assert set(found[0].options) == set(ranges_of(plan))
    assert {"alpha", "client_learning_rate"} <= set(ranges_of(plan))
    assert "factors" not in ranges_of(plan)  # given
    for trial in found:
        assert all(ranges_of(plan)[name].low <= value <= ranges_of(plan)[name].high
                   for name, value in trial.options.items())  # fmt: skip
        assert 0 < trial.value < 1


def test_what_diverges_is_a_failed_trial(ratings, tmp_path):
    alone = of_users(ratings, np.arange(6))
    plan = Search(update="sgd", trials=2, folds=2, rounds=40, victim_options={"client_learning_rate": 100.0})
    with pytest.raises(InputError, match=r"all 2 trials failed.*diverged"):
        search(plan, alone, tmp_path)


def test_a_misspelt_option_is_no_trial(ratings, tmp_path):
    with pytest.raises(InputError, match="facters"):
        search(replace(PLAN, victim_options={"facters": 3}), ratings, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"trials": 0}, {"folds": 1}, {"rounds": 0}])
def test_bad_plans(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        settled(Search(**wrong))
