"""Few clients held against their own rows and answers, permuted again and again."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Estimates, Reconstruction, all_abstain
from audit.scoring.metrics import RATING_METRICS
from audit.scoring.nulls import (
    Replicates,
    permuted,
    permuted_scores,
    replicates_of_scores,
    scores_of_others_lists,
)
from audit.scoring.score import score
from audit.scoring.statistics import LEAK_LEVEL, permutation_p_value
from audit.scoring.verdicts import INCONCLUSIVE, LEAK
from tests.audit.scoring.test_metrics import manifest, truth_of
from tests.tools.lists import NULLS, errors

STARS = np.arange(1.0, 6.0)


def recorded(path, n_clients: int, n_ratings: int, moved: bool = False):
    """A program without surprises, a part of whose rows are of somebody else's making."""
    rng = np.random.default_rng(2)
    q, p = rng.normal(0, 0.5, (30, 4)), rng.normal(0, 0.5, (n_clients, 4))
    constants = {"upload_scale": -1.0, "upload_regularization": 0.0}
    with fl.Recorder(path, rating_levels=STARS, constants=constants) as recorder:
        recorder.broadcast(0, q)
        for user in range(n_clients):
            items = rng.choice(30, n_ratings, replace=False)
            stars = rng.permutation(np.resize(STARS, n_ratings))
            sent = rng.permutation(stars) if moved else stars
            recorder.upload(0, user, -(sent - q[items] @ p[user])[:, None] * p[user], items)
            recorder.truth(user, items, stars)
    rows = fl.audit_recording(path, attacks=["grid"])
    return rows.set_index("metric").loc["rated_rating_accuracy"]


@pytest.mark.thorough
def test_a_total_leak_of_next_to_nobody_is_one(tmp_path):
    """12 ratings: neither a sign test nor one of single ratings tells."""
    row = recorded(tmp_path / "t", 1, 12)
    assert (row["value"], row["verdict"]) == (1, "LEAK")
    assert "dealt out" in row["reason"]


def test_ratings_that_are_somebody_elses_are_none(tmp_path):
    """The same rows, read without a doubt, and about other ratings than these clients have."""
    row = recorded(tmp_path / "t", 2, 12, moved=True)
    assert row["verdict"] != "LEAK"


@pytest.mark.parametrize(("n_right", "leak"), [(8, False), (12, True)])
def test_answers_that_are_right_by_luck_are_no_leak(n_right, leak):
    """Nothing is read of dealt rows; of two levels a third of all orders has as many in their place as 8."""
    actual = np.resize([1.0, 2.0], (1, 12))
    sent = np.where(np.arange(12) < n_right, actual, 3 - actual)
    blocks = (Estimates(np.zeros(1, int), np.zeros((1, 12), int), np.arange(12)[None], sent),)
    found = Reconstruction("test", np.zeros(1, int), blocks)
    silent = all_abstain("test", np.zeros(1, int), "nothing", {})
    facts, truth = manifest("observed-only", 1, 12, groups=()), truth_of(actual, np.zeros((1, 0)))
    users, rng = np.zeros(1, int), np.random.default_rng(0)
    read = tuple(permuted_scores(found, silent, facts, truth, users, rng) for _ in range(100))
    scores = {one.metric: one.summary for one in score(found, facts, truth, replicates=Replicates(read, 100))}
    assert (scores["rated_rating_accuracy"].verdict == LEAK) == leak


def test_answers_are_dealt_out_among_rated_items():
    value = np.array([[4.0, 0.0, 1.0, np.nan, 3.0, 2.0], [1.0, 2.0, 0.0, 0.0, np.nan, np.nan]])
    one = Estimates(np.arange(2), np.zeros((1, 6), int), np.arange(6)[None], value, probability=value / 5)
    (moved,) = permuted((one,), list(STARS), np.random.default_rng(0))
    assert not np.array_equal(moved.value, value, equal_nan=True)
    np.testing.assert_array_equal(np.sort(moved.value), np.sort(value))
    np.testing.assert_array_equal(moved.value == 0, value == 0)
    np.testing.assert_array_equal(moved.probability, moved.value / 5)


def test_it_keeps_its_level():
    """Of rows that say nothing all dealings are alike: no more than one in a hundred is called a leak."""
    rng = np.random.default_rng(0)
    for n_users in (1, 2, 5):
        n = replicates_of_scores(n_users, n_users, 100, LEAK_LEVEL)
        draws = rng.binomial(12, 0.3, (4000, n + 1, n_users)) / 12
        told = [permutation_p_value(one[0], one[1:]) < LEAK_LEVEL for one in draws]
        assert np.mean(told) < 0.013


def test_who_is_not_answered_is_not_read():
    dealt = np.full((10, 3), np.nan)
    assert permutation_p_value(np.full(3, np.nan), dealt) == 1
    assert permutation_p_value(np.array([1, 1, np.nan]), dealt) > permutation_p_value(np.ones(3), dealt)


def test_dealings_that_end_early_keep_the_level():
    """Of rows that say nothing: as soon as no dealing that is left could help, the verdict is the same."""
    rng, n_trials = np.random.default_rng(1), 600
    for n_users in (1, 2, 5):
        n = replicates_of_scores(n_users, n_users, 100, LEAK_LEVEL)
        draws = rng.binomial(12, 0.3, (n_trials, n + 1, n_users)) / 12
        ended, made = np.zeros(n_trials), np.zeros(n_trials, int)
        for trial, one in enumerate(draws):
            count = next(m for m in range(1, n + 1) if m == n or hopeless(one, m, n))
            ended[trial], made[trial] = permutation_p_value(one[0], one[1 : count + 1]), count
        whole = np.array([permutation_p_value(one[0], one[1:]) for one in draws])
        np.testing.assert_array_equal(ended < LEAK_LEVEL, whole < LEAK_LEVEL)
        # a right p-value fails one of these with a probability below 0.001: 3.5 standard deviations
        for level in (0.002, 0.005, 0.01, *((0.1, 0.3) if n_users == 1 else ())):
            assert (ended < level).mean() <= level + 3.5 * np.sqrt(level / n_trials)
        assert made.mean() < n / 2


def hopeless(draws, n_made: int, n_dealings: int) -> bool:
    """Whether the draws that are left could not make the first one significant."""
    best = permutation_p_value(draws[0], draws[1 : n_made + 1], n_beaten=n_dealings - n_made)
    return best >= LEAK_LEVEL


def test_dealings_that_were_not_made_count_as_they_are_said_to():
    right, dealt = np.array([0.9, 0.5]), np.array([[0.1, 0.5], [0.95, 0.2]])
    worse, as_good = np.zeros((3, 2)), np.ones((3, 2))
    for name, rest in (("n_beaten", worse), ("n_unbeaten", as_good)):
        assert permutation_p_value(right, dealt, **{name: 3}) == permutation_p_value(
            right, np.concatenate([dealt, rest])
        )


@pytest.mark.parametrize(("seconds", "words"), [(0.0, "could not have changed"), (600.0, "600 s allowed")])
def test_what_was_not_dealt_is_said(seconds, words):
    """Where time ended it, four dealings of a hundred are no leak, whatever they say."""
    actual = np.resize([1.0, 2.0], (1, 12))
    blocks = (Estimates(np.zeros(1, int), np.zeros((1, 12), int), np.arange(12)[None], actual),)
    found = Reconstruction("test", np.zeros(1, int), blocks)
    facts, truth = manifest("observed-only", 1, 12, groups=()), truth_of(actual, np.zeros((1, 0)))
    read = (dict.fromkeys(RATING_METRICS, np.zeros(1)),) * 4
    dealings = Replicates(read, 100, seconds)
    scores = {one.metric: one for one in score(found, facts, truth, replicates=dealings)}
    one = scores["rated_rating_accuracy"]
    assert "4 of 100 times" in one.reason
    assert words in one.reason
    assert one.summary.verdict != LEAK
    assert one.summary.by_permutation == pytest.approx(97 / 101 if seconds else 1 / 5)


LISTS = ("rated_set_auc", "rated_set_f1", "tpr_at_fpr_0.1pct")


@pytest.mark.thorough  # counts
def test_it_keeps_its_level_where_items_depend_on_each_other():
    """Answers dealt out among items alone would not: they take for evidence how many items go together."""
    n_trials = 500
    whole, alone = errors(NULLS[0], 3, n_trials)
    # a right p-value fails with a probability below 0.001: 3.5 standard deviations
    assert whole <= LEAK_LEVEL + 3.5 * np.sqrt(LEAK_LEVEL / n_trials)
    assert alone > 5 * LEAK_LEVEL


def test_it_keeps_its_level_where_lists_are_made_up():
    """Rows that fit together, and get no answer dealt out."""
    n_trials = 500
    assert errors(NULLS[1], 3, n_trials)[0] <= LEAK_LEVEL + 3.5 * np.sqrt(LEAK_LEVEL / n_trials)


def test_what_is_as_true_of_others_is_no_reading():
    """Three clients, two of whom got each other's lists; nobody but the third is told best by his own."""
    rated = np.eye(3, 12) + np.eye(3, 12, 3) + np.eye(3, 12, 6)
    users, index = np.arange(3), np.arange(12)[None]
    truth, facts = truth_of(rated, np.zeros((3, 0))), manifest("include-unrated", 3, 12, groups=())
    blocks = (Estimates(users, np.zeros((1, 12), int), index, rated[[1, 0, 2]]),)
    others = scores_of_others_lists(Reconstruction("test", users, blocks), facts, truth, users)
    np.testing.assert_allclose(others["rated_set_f1"], [1.0, 1.0, 0.0])


def scored(said: np.ndarray, rated: np.ndarray):
    """Scores of answers, nothing being read of dealt rows."""
    users = np.arange(len(rated))
    facts = manifest("include-unrated", *rated.shape, groups=())
    truth = truth_of(rated, np.zeros((len(rated), 0)))
    blocks = (Estimates(users, np.zeros((1, rated.shape[1]), int), np.arange(rated.shape[1])[None], said),)
    found, silent = Reconstruction("test", users, blocks), all_abstain("test", users, "nothing", {})
    rng = np.random.default_rng(0)
    read = tuple(permuted_scores(found, silent, facts, truth, users, rng) for _ in range(100))
    return {one.metric: one for one in score(found, facts, truth, replicates=Replicates(read, 100))}


def test_lists_that_are_right_are_a_leak():
    rng = np.random.default_rng(1)
    rated = np.where(rng.random((3, 40)) < 0.4, 1.0, 0.0)
    scores = scored(rated, rated)
    for metric in LISTS:
        assert scores[metric].summary.verdict == LEAK
        assert scores[metric].summary.by_ratings is None
        assert "dealt out" in scores[metric].reason


def test_lists_that_are_right_by_luck_are_none():
    """Three of five items rightly told are better than the guess, and than half of the orders."""
    rng = np.random.default_rng(1)
    rated = np.where(rng.random((3, 40)) < 0.4, 1.0, 0.0)
    said = np.where(rng.random(rated.shape) < 0.6, rated, 1 - rated)
    scores = scored(said, rated)
    assert all(scores[metric].summary.verdict != LEAK for metric in LISTS)


def test_lists_of_two_are_not_asked():
    """Nobody tells then whether they are theirs, or those of others who like what all like."""
    rated = np.where(np.random.default_rng(1).random((2, 40)) < 0.4, 1.0, 0.0)
    scores = scored(rated, rated)
    assert all(scores[metric].summary.verdict == INCONCLUSIVE for metric in LISTS)
    assert all(scores[metric].summary.by_permutation is None for metric in LISTS)


def test_what_all_clients_like_is_no_leak():
    """Answers that are better than any dealing, and no better than what popularity tells of each client."""
    rated = np.zeros((3, 40))
    rated[:, :15] = 1.0
    scores = scored(rated, rated)
    for metric in LISTS:
        assert scores[metric].summary.verdict == INCONCLUSIVE
        assert scores[metric].summary.by_permutation == 1


def test_answers_are_dealt_out_among_all_items_that_have_one():
    value = np.array([[1.0, 0.0, 1.0, np.nan, 0.0, 0.0]])
    one = Estimates(np.zeros(1, int), np.zeros((1, 6), int), np.arange(6)[None], value, probability=value / 5)
    moved = [permuted((one,), None, np.random.default_rng(seed))[0] for seed in range(20)]
    assert {tuple(part.value[0]).index(1.0) for part in moved} > {0}
    for part in moved:
        np.testing.assert_array_equal(np.sort(part.value), np.sort(value))
        np.testing.assert_array_equal(np.isnan(part.value), np.isnan(value))
        np.testing.assert_array_equal(part.probability, part.value / 5)


def test_lists_of_three_clients_are_a_leak_from_the_recording_on(tmp_path):
    """They send a row for every item, and which ones are of ratings only the rows tell."""
    rng = np.random.default_rng(2)
    q, p = rng.normal(0, 0.5, (30, 4)), rng.normal(0, 0.5, (3, 4))
    constants = {"upload_scale": -1.0, "upload_regularization": 0.0, "alpha": 0.5}
    levels = np.arange(1.0, 6.0)
    with fl.Recorder(
        tmp_path / "t", rating_levels=levels, weighting="include-unrated", constants=constants
    ) as recorder:
        recorder.broadcast(0, q)
        for user in range(3):
            items = rng.choice(30, 12, replace=False)
            error = -0.5 * q @ p[user]
            stars = rng.choice(levels, 12)
            error[items] = stars - q[items] @ p[user]
            recorder.upload(0, user, -error[:, None] * p[user])
            recorder.truth(user, items, stars)
    rows = fl.audit_recording(tmp_path / "t", attacks=["grid"]).set_index("metric")
    assert (rows.loc[list(LISTS), "verdict"] == LEAK).all()
