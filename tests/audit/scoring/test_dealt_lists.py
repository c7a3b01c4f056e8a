"""Which items few clients rated, held against their own rows, dealt out again and again."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Estimates, Reconstruction, all_abstain
from audit.scoring.dealings import Dealings
from audit.scoring.dealt_rows import dealt_out
from audit.scoring.score import lists_of_others, score, values_anyhow
from audit.scoring.statistics import LEAK_LEVEL
from audit.scoring.verdicts import INCONCLUSIVE, LEAK
from tests.audit.scoring.test_metrics import manifest, truth_of
from tests.tools.lists import NULLS, errors

LISTS = ("rated_set_auc", "rated_set_f1", "tpr_at_fpr_0.1pct")


@pytest.mark.thorough  # counts
@pytest.mark.parametrize("n_users", [3, 6])
def test_it_keeps_its_level_where_items_depend_on_each_other(n_users):
    """Answers dealt out among items alone would not: they take for evidence how many items go together."""
    n_trials = 500
    whole, alone = errors(NULLS[0], n_users, n_trials)
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
    others = lists_of_others(Reconstruction("test", users, blocks), facts, truth, users)
    np.testing.assert_allclose(others["rated_set_f1"], [1.0, 1.0, 0.0])


def scored(said: np.ndarray, rated: np.ndarray):
    """Scores of answers, nothing being read of dealt rows."""
    users = np.arange(len(rated))
    facts = manifest("include-unrated", *rated.shape, groups=())
    truth = truth_of(rated, np.zeros((len(rated), 0)))
    blocks = (Estimates(users, np.zeros((1, rated.shape[1]), int), np.arange(rated.shape[1])[None], said),)
    found, silent = Reconstruction("test", users, blocks), all_abstain("test", users, "nothing", {})
    rng = np.random.default_rng(0)
    read = tuple(values_anyhow(found, silent, facts, truth, users, rng) for _ in range(100))
    return {one.metric: one for one in score(found, facts, truth, dealt=Dealings(read, 100))}


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
    assert all(scores[metric].summary.by_dealings is None for metric in LISTS)


def test_what_all_clients_like_is_no_leak():
    """Answers that are better than any dealing, and no better than what popularity tells of each client."""
    rated = np.zeros((3, 40))
    rated[:, :15] = 1.0
    scores = scored(rated, rated)
    for metric in LISTS:
        assert scores[metric].summary.verdict == INCONCLUSIVE
        assert scores[metric].summary.by_dealings == 1


def test_answers_are_dealt_out_among_all_items_that_have_one():
    value = np.array([[1.0, 0.0, 1.0, np.nan, 0.0, 0.0]])
    one = Estimates(np.zeros(1, int), np.zeros((1, 6), int), np.arange(6)[None], value, probability=value / 5)
    moved = [dealt_out((one,), None, np.random.default_rng(seed))[0] for seed in range(20)]
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
