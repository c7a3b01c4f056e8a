"""Worst-off clients, clients and items in thirds, held against sums written out here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attacks.base import Reconstruction
from audit.experiments.rows import metric_rows
from audit.scoring.groups import GROUP_METRICS, group_scores
from audit.scoring.score import score
from tests.audit.scoring.test_metrics import block, manifest, truth_of

N_USERS, N_ITEMS = 36, 30


def planted(seed=0, right_for=lambda user, item, counts: user < 12):
    """Clients with 5, 10 or 15 ratings; items nearer to 0 are rated more often. Answers are right where told,
    elsewhere one star beside.
    """
    rng = np.random.default_rng(seed)
    counts = np.repeat([5, 10, 15], N_USERS // 3)
    ratings = np.zeros((N_USERS, N_ITEMS))
    odds = 1 / (1 + np.arange(N_ITEMS))
    for user, count in enumerate(counts):
        items = rng.choice(N_ITEMS, count, replace=False, p=odds / odds.sum())
        ratings[user, items] = rng.integers(1, 6, count)
    user, item = np.nonzero(ratings)
    hit = np.zeros_like(ratings, bool)
    hit[user, item] = [right_for(u, i, counts) for u, i in zip(user, item, strict=True)]
    estimate = np.where(hit, ratings, np.where(ratings == 5, 4, ratings + 1))
    attributes = np.zeros((N_USERS, 5))
    facts = manifest("observed-only", N_USERS, N_ITEMS)
    found = Reconstruction("spectral", np.arange(N_USERS), (block(estimate, attributes, ratings > 0),))
    return found, facts, truth_of(ratings, attributes), ratings, hit


def by_name(found, facts, truth):
    scores = score(found, facts, truth)
    return {one.metric: one for one in group_scores(scores, found, facts, truth)}


def test_clients_with_few_ratings_are_read_and_the_mean_hides_it():
    groups = by_name(*planted()[:3])
    assert set(groups) <= set(GROUP_METRICS)
    assert groups["rated_rating_accuracy/few_ratings"].value == 1
    assert groups["rated_rating_accuracy/some_ratings"].value == 0
    assert groups["rated_rating_accuracy/many_ratings"].value == 0
    worst = groups["rated_rating_accuracy/worst_tenth"]
    assert (worst.value, worst.ci_low, worst.ci_high, worst.n_users) == (1, 1, 1, N_USERS)
    assert worst.baseline_name == "majority"  # the tenth for which the commonest rating is most often right
    assert 0.3 < worst.baseline < 1


def test_items_in_thirds_are_sums_over_their_ratings():
    found, facts, truth, ratings, hit = planted(1, lambda user, item, counts: (user + item) % 3 == 0)
    groups = by_name(found, facts, truth)
    raters = (ratings > 0).sum(axis=0)
    over_ratings = raters[np.nonzero(ratings)[1]]
    low, high = np.quantile(over_ratings, [1 / 3, 2 / 3])
    for name, items in (
        ("rare_items", raters <= low),
        ("common_items", (raters > low) & (raters <= high)),
        ("popular_items", raters > high),
    ):
        rated = (ratings > 0) & items
        there = rated.any(axis=1)
        share = (hit & rated).sum(axis=1)[there] / rated.sum(axis=1)[there]
        one = groups[f"rated_rating_accuracy/{name}"]
        assert one.value == pytest.approx(share.mean())
        assert one.n_users == there.sum()
        assert one.ci_low <= one.value <= one.ci_high
        mode = np.bincount(ratings[ratings > 0].astype(int)).argmax()
        majority = ((ratings == mode) & rated).sum(axis=1)[there] / rated.sum(axis=1)[there]
        assert one.baseline == pytest.approx(max(majority.mean(), 0.2))


def test_the_interval_is_that_of_resampled_clients():
    """Of 12 clients: within a fifth of 2 x 1.96 standard errors of the mean."""
    found, facts, truth, ratings, hit = planted(2, lambda user, item, counts: (user * 7 + item) % 4 == 0)
    one = by_name(found, facts, truth)["rated_rating_accuracy/many_ratings"]
    rated = (ratings > 0)[24:]
    share = (hit[24:] & rated).sum(axis=1) / rated.sum(axis=1)
    width = 2 * 1.96 * share.std() / np.sqrt(share.size)
    assert one.ci_high - one.ci_low == pytest.approx(width, rel=0.2)


def first(count, found):
    (part,) = found.blocks
    part = replace(part, users=part.users[:count], value=part.value[:count])
    return Reconstruction("spectral", found.users[:count], (part,))


def test_few_clients_are_no_group_and_neither_are_clients_that_are_alike():
    found, facts, truth, *_ = planted()
    few = first(6, found)
    assert group_scores(score(few, facts, truth), few, facts, truth) == []
    same = first(12, found)
    names = set(by_name(same, facts, truth))
    assert "rated_rating_accuracy/worst_tenth" in names
    assert not any(name.endswith("_ratings") for name in names)


def test_rows_of_groups_describe_and_give_no_verdict():
    found, facts, truth, *_ = planted()
    rows = [
        row for row in metric_rows({}, found, facts, truth, by_group=True) if row["metric"] in GROUP_METRICS
    ]
    assert len(rows) >= 7
    assert {row["verdict"] for row in rows} == {""}
    assert all(np.isnan(row["advantage"]) and np.isnan(row["p_value"]) for row in rows)
    assert not any(row["metric"] in GROUP_METRICS for row in metric_rows({}, found, facts, truth))
