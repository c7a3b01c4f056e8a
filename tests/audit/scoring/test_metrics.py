"""Scores against brute force, baselines against what they claim to know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.base import Estimates, Reconstruction
from audit.scoring.answers import Answers, round_ratings
from audit.scoring.baselines import Candidates, Population, best_of
from audit.scoring.metrics import METRICS, metrics_of, score_users
from audit.scoring.reliability import reliability
from audit.scoring.score import NO_ATTRIBUTES, score
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest


def manifest(weighting: str, n_users: int, n_items: int, groups=((0, 1), (2, 3, 4))) -> Manifest:
    return Manifest(
        format="factorleak-transcript",
        version=1,
        protocol="test",
        update="semi-als",
        weighting=weighting,
        n_users=n_users,
        n_items=n_items,
        n_attributes=sum(map(len, groups)),
        factors=2,
        rounds=[0],
        rating_levels=[1, 2, 3, 4, 5],
        attribute_groups=[list(group) for group in groups],
    )


def truth_of(ratings: np.ndarray, attributes: np.ndarray) -> Truth:
    return Truth(np.arange(ratings.shape[0]), sp.csr_array(ratings), attributes)


def population(seed: int, n_users: int = 9, n_items: int = 14):
    rng = np.random.default_rng(seed)
    ratings = np.where(rng.random((n_users, n_items)) < 0.4, rng.integers(1, 6, (n_users, n_items)), 0)
    ratings[:, 0] = 3
    ratings = ratings.astype(float)
    attributes = np.zeros((n_users, 5))
    attributes[np.arange(n_users), rng.integers(0, 2, n_users)] = 1
    attributes[np.arange(n_users), rng.integers(2, 5, n_users)] = 1
    return rng, ratings, attributes


def block(estimate: np.ndarray, attributes: np.ndarray, keep: np.ndarray) -> Estimates:
    """One block with all items and attributes; NaN where an item has no row."""
    n_users, n_items = estimate.shape
    value = np.concatenate([np.where(keep, estimate, np.nan), attributes], axis=1)
    kind = np.repeat(np.array([0, 1], np.int8), [n_items, attributes.shape[1]])[None]
    index = np.concatenate([np.arange(n_items), np.arange(attributes.shape[1])])[None]
    return Estimates(np.arange(n_users), kind, index, value)


def baselines(facts: Manifest, truth: Truth, users: np.ndarray) -> dict[str, Candidates]:
    """Those of every metric of ratings and attributes."""
    population = Population(facts, truth, users)
    return {one.name: one.baselines(population) for one in metrics_of(facts)}


def brute_auc(strength: np.ndarray, rated: np.ndarray) -> float:
    pairs = [(a > b) + 0.5 * (a == b) for a in strength[rated] for b in strength[~rated]]
    return float(np.mean(pairs)) if pairs else np.nan


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), ties=st.booleans(), partial=st.booleans())
def test_include_unrated_scores_equal_brute_force(seed, ties, partial):
    rng, ratings, attributes = population(seed)
    estimate = np.abs(rng.normal(1, 2, ratings.shape)) + 0.001
    if ties:
        estimate = np.rint(estimate)
    keep = rng.random(ratings.shape) < (0.6 if partial else 1.1)
    keep[:, 1] = True
    facts = manifest("include-unrated", *ratings.shape)
    noisy = attributes + rng.normal(0, 0.5, attributes.shape)
    scores = score_users((block(estimate, noisy, keep),), facts, truth_of(ratings, attributes), np.arange(9))
    for user in range(9):
        shown = np.where(keep[user], estimate[user], 0)
        answer = np.array([min([0, 1, 2, 3, 4, 5], key=lambda x, v=v: abs(x - v)) for v in shown])
        rated = ratings[user] > 0
        assert scores["rating_accuracy"][user] == pytest.approx((answer == ratings[user]).mean())
        assert scores["rated_rating_accuracy"][user] == pytest.approx((answer == ratings[user])[rated].mean())
        error = np.abs(np.clip(shown, 0, 5) - ratings[user])[rated].mean()
        assert scores["rating_mae"][user] == pytest.approx(error)
        strength = np.where(keep[user], estimate[user], -1)
        assert scores["rated_set_auc"][user] == pytest.approx(brute_auc(strength, rated), nan_ok=True)
        claimed = answer > 0
        f1 = 2 * (claimed & rated).sum() / (claimed.sum() + rated.sum())
        assert scores["rated_set_f1"][user] == pytest.approx(f1)
        if (~rated).any():
            top = np.sort(strength[~rated])[-1]  # 14 items: no false positive is allowed
            assert scores["tpr_at_fpr_0.1pct"][user] == pytest.approx(
                ((strength > top) & rated).sum() / rated.sum()
            )
        assert scores["attribute_accuracy"][user] == pytest.approx(
            ((noisy[user] > 0.5) == attributes[user]).mean()
        )
        hits = [
            noisy[user, group].argmax() == attributes[user, group].argmax() for group in ([0, 1], [2, 3, 4])
        ]
        assert scores["attribute_group_accuracy"][user] == pytest.approx(np.mean(hits))


def test_observed_only_counts_wrong_and_missing_items():
    ratings = np.array([[4.0, 0, 2, 5]])
    attributes = np.zeros((1, 5))
    facts = manifest("observed-only", 1, 4)
    keep = np.array([[True, True, True, False]])  # claims item 1, misses item 3
    scores = score_users(
        (block(np.array([[4.2, 3.0, 1.0, 0]]), attributes, keep),),
        facts,
        truth_of(ratings, attributes),
        np.arange(1),
    )
    assert scores["rating_accuracy"][0] == pytest.approx(1 / 4)  # items 0, 1, 2 and the missed 3
    assert scores["rated_rating_accuracy"][0] == pytest.approx(1 / 3)
    assert np.isnan(scores["attribute_group_accuracy"][0])  # nobody is active in a block


def test_an_answer_of_zero_says_unrated_in_observed_only():
    """Rows of all items, and all is read: which items were rated is, too, in every measure of it."""
    _, ratings, attributes = population(4)
    unrated = manifest("observed-only", *ratings.shape)
    whole = block(ratings, attributes, np.ones(ratings.shape, bool))
    scores = score_users((whole,), unrated, truth_of(ratings, attributes), np.arange(9))
    for name in ("rated_set_auc", "rated_set_f1", "tpr_at_fpr_0.1pct"):
        assert (scores[name] == 1).all(), name
    poor = block(np.where(ratings > 0, 0.3, 0), attributes, np.ones(ratings.shape, bool))
    scores = score_users((poor,), unrated, truth_of(ratings, attributes), np.arange(9))
    assert (scores["rated_set_auc"] == 1).all(), "an estimate below the grid is one of a rating"


def test_rounding_follows_equation_43_on_other_grids():
    found = round_ratings(np.array([-1.0, 0.2, 0.3, 1.3, 7.0]), [0.5, 1.0, 1.5])
    np.testing.assert_array_equal(found, [0, 0, 0.5, 1.5, 1.5])


def test_the_table_of_metrics_is_whole():
    """Each name once; of perfect answers each is ``best``, and its baselines are about every client."""
    _, ratings, attributes = population(1)
    assert len({one.name for one in METRICS}) == len(METRICS)
    for weighting in ("observed-only", "include-unrated"):
        facts, truth = manifest(weighting, *ratings.shape), truth_of(ratings, attributes)
        perfect = block(ratings, attributes, np.ones(ratings.shape, bool))
        guessed = Population(facts, truth, np.arange(9))
        for scope in {scope for one in METRICS for scope in one.scopes}:
            values = score_users((perfect,), facts, truth, np.arange(9), scope)
            asked = metrics_of(facts, scope)
            assert [one.name for one in asked] == list(values)
            for one in asked:
                np.testing.assert_allclose(values[one.name], one.best, err_msg=one.name)
                assert {guess.shape for guess in one.baselines(guessed).values()} == {(9,)}


def test_a_truth_about_attributes_alone_has_no_ratings():
    who = np.array([[1.0, 0, 0, 1, 0], [0, 1, 1, 0, 0]])
    claimed = block(np.array([[4.0, 2, 5], [1, 3, 3]]), who, np.ones((2, 3), bool))
    own_lists = replace(claimed, kind=claimed.kind.repeat(2, axis=0), index=claimed.index.repeat(2, axis=0))
    nothing = truth_of(np.zeros((2, 3)), who)
    scores = score_users((own_lists,), manifest("observed-only", 2, 3), nothing, np.arange(2))
    assert (scores["attribute_accuracy"] == 1).all()
    assert np.isnan(scores["rated_rating_accuracy"]).all()


def test_answers_about_ratings_alone_say_nothing_of_attributes():
    """Nor of whole clients, where these have attributes; all that is asked is right here."""
    _, ratings, attributes = population(0)
    facts, truth = manifest("observed-only", *ratings.shape), truth_of(ratings, attributes)
    blocks = (block(ratings, np.full(attributes.shape, np.nan), ratings > 0),)
    found = {one.metric: one for one in score(Reconstruction("test", np.arange(9), blocks), facts, truth)}
    assert found["rated_rating_accuracy"].summary.verdict == "LEAK"
    for metric in ("attribute_accuracy", "attribute_group_accuracy/0", "users_fully_recovered"):
        assert found[metric].summary.verdict == "NOT TESTED"
        assert found[metric].reason == NO_ATTRIBUTES
    whole = (block(ratings, attributes, ratings > 0),)
    told = {one.metric: one for one in score(Reconstruction("test", np.arange(9), whole), facts, truth)}
    assert told["users_fully_recovered"].summary.value == 1


class TestBaselines:
    @settings(max_examples=30, deadline=None)
    @given(seed=st.integers(0, 10_000))
    def test_popularity_equals_brute_force(self, seed):
        _, ratings, attributes = population(seed)
        facts = manifest("include-unrated", *ratings.shape)
        found = baselines(facts, truth_of(ratings, attributes), np.arange(9))
        counts = (ratings > 0).sum(axis=0)
        for user in range(9):
            rated = ratings[user] > 0
            others = counts - rated
            expected = brute_auc(others, rated)
            assert found["rated_set_auc"]["popularity"][user] == pytest.approx(expected, nan_ok=True)

    def test_names_and_values(self):
        _, ratings, attributes = population(4)
        truth = truth_of(ratings, attributes)
        found = baselines(manifest("include-unrated", *ratings.shape), truth, np.arange(9))
        name, values = best_of(False, found["rating_accuracy"])
        assert name == "all-zero"
        np.testing.assert_allclose(values, (ratings == 0).mean(axis=1))
        found = baselines(manifest("observed-only", *ratings.shape), truth, np.arange(9))
        name, values = best_of(False, found["rated_rating_accuracy"])
        assert name == "majority"
        mode = np.bincount(ratings[ratings > 0].astype(int)).argmax()
        np.testing.assert_allclose(values, [(r[r > 0] == mode).mean() for r in ratings])
        assert found["attribute_accuracy"]["all-zero"] == pytest.approx(1 - 2 / 5)


def test_abstained_clients_count_with_the_guess():
    _, ratings, attributes = population(7)
    truth = truth_of(ratings, attributes)
    facts = manifest("observed-only", *ratings.shape)
    whole = block(ratings, attributes, ratings > 0)
    value = whole.value.copy()
    value[2] = np.nan
    found = Reconstruction(
        "test", np.arange(9), (Estimates(whole.users, whole.kind, whole.index, value),), {2: "no"}
    )
    rows = {part.metric: part for part in score(found, facts, truth)}
    accuracy = rows["rating_accuracy"]
    guess = baselines(facts, truth, np.arange(9))["rating_accuracy"]["majority"][2]
    assert accuracy.n_abstained == 1
    assert accuracy.summary.value == pytest.approx((8 + guess) / 9)


def test_reliability_is_what_a_loop_counts():
    """An attack that is right as often as it says; then the same answers, each called certain."""
    rng, ratings, attributes = population(4, n_users=300, n_items=20)
    claimed = rng.choice([0.4, 0.6, 0.9], (300, 25))
    truth = np.concatenate([ratings, attributes], axis=1)
    right = rng.random(truth.shape) < claimed
    wrong = np.where(np.arange(25) < 20, (truth + 1) % 6, 1 - truth)
    whole = block(np.zeros((300, 20)), attributes, np.ones((300, 20), bool))
    value = np.where(right, truth, wrong)
    value[0, :3] = np.nan
    for probability in (claimed, np.ones_like(claimed)):
        answer = Estimates(whole.users, whole.kind, whole.index, value, probability)
        bins = reliability(
            Reconstruction("test", whole.users, (answer,)), manifest("observed-only", 300, 20),
            truth_of(ratings, attributes),
        )  # fmt: skip
        assert sum(part.answers for part in bins) == 300 * 25 - 3
        for part in bins:
            columns = slice(0, 20) if part.what == "ratings" else slice(20, 25)
            here = (probability[:, columns] >= part.least) & (probability[:, columns] <= part.below)
            here &= ~np.isnan(value[:, columns])
            assert part.answers == here.sum()
            assert part.right == pytest.approx(right[:, columns][here].mean())
            assert part.right_low < part.right < part.right_high
            calibrated = part.right_low - 0.02 <= part.claimed <= part.right_high + 0.02
            assert calibrated == (probability is claimed)


def test_reliability_without_probabilities_is_nothing():
    _, ratings, attributes = population(5)
    whole = block(np.zeros((9, 14)), attributes, np.ones((9, 14), bool))
    found = Reconstruction("test", np.arange(9), (whole,))
    assert reliability(found, manifest("observed-only", 9, 14), truth_of(ratings, attributes)) == []


class TestEachQuestionHasItsAnswer:
    """include-unrated: "unrated" is the most probable answer, and a rating is known if it is rated."""

    def scored(self, **given):
        ratings = np.array([[4.0, 2.0, 0, 0, 0, 0]])
        whole = block(np.zeros((1, 6)), np.zeros((1, 5)), np.ones((1, 6), bool))
        blank = np.full((1, 5), np.nan)
        given = {name: np.concatenate([np.array([part]), blank], axis=1) for name, part in given.items()}
        answer = replace(whole, **given)
        facts = manifest("include-unrated", 1, 6)
        scores = score_users((answer,), facts, truth_of(ratings, np.zeros((1, 5))), np.arange(1))
        return {name: values[0] for name, values in scores.items()}

    def test_without_them_the_answer_itself_stands_for_all(self):
        found = self.scored()
        assert found["rating_accuracy"] == pytest.approx(4 / 6)
        assert (found["rated_rating_accuracy"], found["rated_set_f1"], found["rated_set_auc"]) == (0, 0, 0.5)
        assert found["rating_mae"] == 3

    def test_ratings_if_rated(self):
        """Rounded to the levels alone: whoever is told that an item is rated does not answer 0."""
        found = self.scored(rating_if_rated=[3.8, -1.0, 5, 5, 5, 5])
        assert found["rating_accuracy"] == pytest.approx(4 / 6)
        assert found["rated_rating_accuracy"] == 0.5
        assert found["rating_mae"] == pytest.approx((0.2 + 2) / 2)
        assert self.scored(rating_if_rated=[4, np.nan, 5, 5, 5, 5])["rated_rating_accuracy"] == 0.5

    def test_the_median_if_rated(self):
        found = self.scored(rating_if_rated=[5, 1, 5, 5, 5, 5], median_if_rated=[4, 2, 3, 3, 3, 3])
        assert (found["rated_rating_accuracy"], found["rating_mae"]) == (0, 0)

    def test_probability_of_being_rated(self):
        """Ranks, and the set of the largest expected F1: none is above one half, and two are claimed."""
        found = self.scored(rated_probability=[0.4, 0.3, 0.35, 0.01, 0.01, 0.01])
        assert found["rated_set_auc"] == pytest.approx(7 / 8)
        assert found["rated_set_f1"] == pytest.approx(2 * 2 / (3 + 2))
        assert found["rating_accuracy"] == pytest.approx(4 / 6)

    @pytest.mark.parametrize("seed", range(5))
    def test_claims_of_the_largest_expected_f1(self, seed):
        """Expected F1 of k claims as 2 E[hits] / (k + E[rated]): no other number of claims has more."""
        share = np.random.default_rng(seed).beta(0.3, 1, (3, 30))
        whole = Estimates(np.arange(3), np.zeros((1, 30), np.int8), np.arange(30)[None], share)
        said = replace(whole, rated_probability=share)
        nothing = truth_of(np.zeros((3, 30)), np.zeros((3, 0)))
        claimed = Answers(said, manifest("include-unrated", 3, 30, ()), nothing).claimed
        for row, mine in zip(share, claimed, strict=True):
            ordered = np.sort(row)[::-1]
            expected = [2 * ordered[:k].sum() / (k + row.sum()) for k in range(1, 31)]
            assert 2 * row[mine].sum() / (mine.sum() + row.sum()) == pytest.approx(max(expected))


def test_reliability_of_being_rated():
    _, ratings, attributes = population(6, n_users=200, n_items=20)
    whole = block(np.zeros((200, 20)), attributes, np.ones((200, 20), bool))
    share = np.pad(np.full((200, 20), 0.4), ((0, 0), (0, 5)), constant_values=np.nan)
    found = Reconstruction("test", whole.users, (replace(whole, rated_probability=share),))
    (only,) = reliability(found, manifest("include-unrated", 200, 20), truth_of(ratings, attributes))
    assert (only.what, only.answers, only.claimed) == ("is it rated", 4000, pytest.approx(0.4))
    assert only.right == pytest.approx((ratings > 0).mean())
