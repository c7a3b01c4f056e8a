"""What is said of values beside a guess, and where no attack answered; how often tests and intervals err."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import factorleak as fl
from attacks.base import Estimates, Identities, Linked, Outcome, Reconstruction, all_abstain
from attacks.likelihood.abstention import p_value
from audit.experiments.rows import metric_rows
from audit.factories import make_attack
from audit.scoring.pseudonyms import Senders
from audit.scoring.score import score
from audit.scoring.statistics import FEWEST, GUESSED, LEAK_LEVEL, ratings_test, sign_test
from audit.scoring.truth import read_truth
from audit.scoring.verdicts import BELOW, grouped, in_words, summarise, verdict, why_verdict
from tests.audit.scoring.test_metrics import block, manifest, population, truth_of
from tests.oracles.strangers import item_biases
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript

USERS, ITEMS = 40, 30
RATED = "rated_rating_accuracy"


@pytest.fixture(scope="module")
def clients():
    return population(7, n_users=USERS, n_items=ITEMS)


def answers(clients, right: int, wrong: int = 0) -> Reconstruction:
    """The first clients read rightly, the next ones wrongly, the others not at all."""
    _, ratings, attributes = clients
    whole = block(ratings, attributes, ratings > 0)
    value = np.array(whole.value, float)
    # the truth is the majority rating where it is wrong by one: never right, and far from the guess
    value[right : right + wrong, :ITEMS] = 6 - value[right : right + wrong, :ITEMS]
    value[right : right + wrong, :ITEMS][value[right : right + wrong, :ITEMS] == 3] = 1
    value[right + wrong :] = np.nan
    silent = {int(user): f"misfit {user}.5 of 1" for user in whole.users[right + wrong :]}
    return Reconstruction(
        "test", whole.users, (Estimates(whole.users, whole.kind, whole.index, value),), silent
    )


def scored(clients, found: Reconstruction):
    _, ratings, attributes = clients
    declared = manifest("observed-only", USERS, ITEMS)
    return {row.metric: row for row in score(found, declared, truth_of(ratings, attributes))}


@pytest.mark.parametrize(
    ("low", "high", "p", "word"),
    [
        (0.2, 0.4, 1e-6, "LEAK"),
        (0.2, 0.4, 0.2, "INCONCLUSIVE"),
        (-0.01, 0.02, 0.4, "NO EVIDENCE"),
        (-0.3, -0.1, 1.0, "INCONCLUSIVE"),
        (-0.2, 0.3, 0.4, "INCONCLUSIVE"),
    ],
)
def test_preset_thresholds(low, high, p, word):
    assert verdict(low, high, p) == word


def test_nobody_answered_is_not_tested(clients):
    """Before: NO EVIDENCE with an advantage of exactly 0."""
    row = scored(clients, answers(clients, 0))["rated_rating_accuracy"]
    assert row.summary.verdict == "NOT TESTED"
    assert np.isnan([row.summary.value, row.summary.advantage, row.summary.p_value]).all()
    assert row.summary.baseline > 0
    assert row.n_abstained == USERS
    assert (
        row.reason == f"{USERS} of {USERS} clients got no answer: misfit 0.5 to {USERS - 1}.5 of 1 ({USERS})"
    )


def test_most_unanswered_is_a_leak_or_not_tested(clients):
    """15 of 40 clients read entirely are a leak; three are too few to tell, and 37 were not tested."""
    assert scored(clients, answers(clients, 15))["rated_rating_accuracy"].summary.verdict == "LEAK"
    few = scored(clients, answers(clients, 3))["rated_rating_accuracy"]
    assert few.summary.verdict == "NOT TESTED"
    assert few.n_abstained == USERS - 3


def test_an_attack_that_found_noise_has_answered(clients):
    _, ratings, attributes = clients
    users = np.arange(USERS)
    nothing = all_abstain("test", users, "noise alone explains it", {}, outcome=Outcome.NOTHING_FOUND)
    rows = scored(clients, nothing)
    assert rows["rated_rating_accuracy"].summary.verdict == "NO EVIDENCE"
    assert rows["rated_rating_accuracy"].n_abstained == USERS
    declared, truth = manifest("observed-only", USERS, ITEMS), truth_of(ratings, attributes)
    (row,) = metric_rows({}, all_abstain("test", users, "does not apply", {}), declared, truth)
    assert (row["status"], row["verdict"]) == ("not applicable", "NOT TESTED")
    assert {r["status"] for r in metric_rows({}, nothing, declared, truth)} == {"ran"}


def test_worse_than_the_guess_is_said(clients):
    """Before: NO EVIDENCE, for the interval of the advantage ends below 0.05."""
    row = scored(clients, answers(clients, 0, USERS))["rated_rating_accuracy"]
    assert row.summary.advantage_high < 0
    assert row.summary.verdict == "INCONCLUSIVE"
    assert BELOW in row.reason


def test_chance_is_rarely_called_worse_than_the_guess():
    """Values and baseline of one distribution, 200 times: a one-sided test at 1 % with the interval's 2.5 %
    calls more than 8 of them with a probability below 1e-3.
    """
    found = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found += summarise("rating_accuracy", rng.random(80), rng.random(80), seed).below
    assert found <= 8


def test_an_interval_below_zero_reassures_nobody():
    """Before: NO EVIDENCE where the sign test was not significant, and where three clients were scored."""
    rng = np.random.default_rng(0)
    guess = rng.random(30)
    worse = summarise("rating_accuracy", guess - np.where(np.arange(30) < 16, 0.3, -0.02), guess)
    assert (worse.below, worse.advantage_high < 0, worse.verdict) == (False, True, "INCONCLUSIVE")
    assert "worse than the best guess" in why_verdict(worse)
    assert verdict(-0.01, 0.0, 0.5) == "NO EVIDENCE"
    assert verdict(-0.01, 0.0, 0.5, n_users=FEWEST - 1) == "INCONCLUSIVE"


def test_an_inconclusive_verdict_says_why():
    """Before: an empty reason."""
    few = summarise("rating_accuracy", np.ones(3), np.zeros(3))
    assert few.verdict == "INCONCLUSIVE"
    assert why_verdict(few).startswith("3 clients are too few for a verdict: the sign test gives 0.12")
    assert summarise("rating_accuracy", np.ones(FEWEST), np.zeros(FEWEST)).verdict == "LEAK"
    rng = np.random.default_rng(1)
    wide = summarise("rating_accuracy", rng.random(12), rng.random(12))
    assert wide.verdict == "INCONCLUSIVE"
    assert "is not ruled out" in why_verdict(wide)
    some = summarise("rating_accuracy", np.array([1.0] * 12 + [0.4] * 8), np.full(20, 0.5))
    assert (some.verdict, some.advantage_low > 0) == ("INCONCLUSIVE", True)
    assert "the sign test gives 0.25" in why_verdict(some)


def test_a_guess_has_no_verdict(clients):
    """Before: LEAK, where lists lie in the open, and NO EVIDENCE."""
    _, ratings, attributes = clients
    found = replace(answers(clients, USERS), attack="guess-majority")
    rows = scored(clients, found)
    assert {row.summary.verdict for row in rows.values()} == {""}
    assert not any(row.reason for row in rows.values())
    declared, truth = manifest("observed-only", USERS, ITEMS), truth_of(ratings, attributes)
    silent = all_abstain("guess-majority", np.arange(USERS), "encrypted", {})
    (row,) = metric_rows({}, silent, declared, truth)
    assert (row["status"], row["verdict"]) == ("not applicable", "")


def test_reasons_that_differ_in_their_numbers_are_one():
    reasons = {n: f"the fit leaves {n / 7:.3g} of 1e-{n}" for n in range(1, 5)} | {9: "all rows are zero"}
    assert grouped(reasons.values()) == [
        ("the fit leaves 0.143 to 0.571 of 1e-4 to 1e-1", 4),
        ("all rows are zero", 1),
    ]
    assert in_words({}, 5) == ""
    assert in_words(reasons, 9).startswith("5 of 9 clients got no answer: the fit leaves 0.143 to 0.571 of ")


@pytest.mark.parametrize("attack", ["spectral", "grid", "trajectory"])
def test_item_biases_are_not_called_safe(tmp_path: Path, attack: str):
    """Federated MF with item biases, as a stranger writes it: its rows can be read whole by an SVD and a
    search for the length. Before: every client abstained and the verdict was NO EVIDENCE with advantage 0.
    """
    item_biases(tmp_path / "t")
    transcript = open_transcript(tmp_path / "t")
    found = make_attack(attack).attack(transcript.view(), 0)
    rows = metric_rows({}, found, transcript.manifest, read_truth(truth_path(tmp_path / "t")))
    judged = [row for row in rows if row["metric"] in ("rating_accuracy", "rated_rating_accuracy")]
    assert judged
    assert {row["verdict"] for row in judged} == {"NOT TESTED"}
    assert all("got no answer" in row["reason"] or row["reason"] == found.obstacle for row in judged)
    assert all(row["reason"] for row in judged)


@pytest.mark.thorough
def test_a_wrong_rule_is_noticed_under_noise_of_known_scale(tmp_path: Path):
    """Before: 0.155 of the ratings right where the guess has 0.227, and NO EVIDENCE."""
    item_biases(tmp_path / "t", noise=0.2, declared=True)
    found = make_attack("likelihood").attack(open_transcript(tmp_path / "t").view(), 0)
    assert len(found.abstained) == found.users.size
    assert found.outcome != Outcome.NOTHING_FOUND
    assert "is not the declared one" in found.abstained[0]


class TestNoiseAlone:
    def test_a_direction_in_common_is_seen_under_noise(self, tmp_path):
        item_biases(tmp_path / "t", noise=0.1)
        view = open_transcript(tmp_path / "t").view()
        assert p_value(view, np.random.default_rng(0)) <= 0.01

    @pytest.mark.thorough  # counts
    def test_pure_noise_is_rarely_structure(self, tmp_path):
        """Recordings of noise alone: at a level of 1 %, more than 5 of 100 with a probability below 1e-3."""
        item_biases(tmp_path / "t")
        view = open_transcript(tmp_path / "t").view()
        low = 0
        for seed in range(100):
            rng = np.random.default_rng(seed)
            gradient = tuple(rng.laplace(size=chunk.shape) for chunk in view.messages.gradient)
            noisy = replace(view, messages=replace(view.messages, gradient=gradient))
            low += p_value(noisy, rng) <= 0.01
        assert low <= 5


def test_a_share_of_nothing_reassures_nobody(clients):
    """Links without ratings: of pseudonyms whom nobody reads no share was tested. Before: NO EVIDENCE."""
    _, ratings, attributes = clients
    users = np.arange(USERS)
    linked = Linked(np.zeros(1, int), np.full(1, -1))
    reasons = dict.fromkeys(users.tolist(), "off the grid")
    nothing = Reconstruction("peers", users, (), reasons, identities=Identities.PSEUDONYMS, linked=linked)
    declared, truth = manifest("observed-only", USERS, ITEMS), truth_of(ratings, attributes)
    rows = metric_rows({}, nothing, declared, truth)
    assert {row["metric"]: row["verdict"] for row in rows} == {
        "claimed_rating_accuracy": "NOT TESTED",
        "share_of_ratings_read": "NOT TESTED",
        "share_of_clients_read": "NOT TESTED",
    }


def test_links_that_nobody_claims_reassure_nobody(clients):
    """Rows of 40 clients, of which none is linked or named. Before: NO EVIDENCE of both."""
    _, ratings, attributes = clients
    users, sender = np.arange(USERS), np.repeat(np.arange(USERS), 3)
    reasons = dict.fromkeys(users.tolist(), "off the grid")
    declared, truth = manifest("observed-only", USERS, ITEMS), truth_of(ratings, attributes)
    whose = Senders(sender, np.zeros(sender.size, int))
    for label, name, links in (
        (np.full(sender.size, -1), np.zeros(0, int), "NOT TESTED"),
        (sender, np.full(USERS, -1), "LEAK"),
    ):
        found = Reconstruction(
            "peers", users, (), reasons, identities=Identities.PSEUDONYMS, linked=Linked(label, name)
        )
        rows = metric_rows({}, found, declared, truth, senders=whose)
        said = {row["metric"]: row["verdict"] for row in rows}
        assert said["link_precision"] == said["link_recall"] == links
        assert said["names_right"] == said["claimed_names_right"] == "NOT TESTED"


def test_guess_that_is_always_right_bounds_nothing():
    """Of implicit feedback all ratings are 1: the list is what leaks, and no word of it may reassure."""
    for metric, right in (("rated_rating_accuracy", 1.0), ("rating_mae", 0.0)):
        perfect = np.full(20, right)
        summary = summarise(metric, perfect, perfect)
        assert summary.verdict == "INCONCLUSIVE"
        assert "nothing to read" in why_verdict(summary)
        almost = np.where(np.arange(20) == 0, 0.5, right)
        assert summarise(metric, almost, almost).verdict == "NO EVIDENCE"


class TestFewClients:
    """No sign test of fewer than seven clients is below 0.01; their ratings may tell a leak all the same."""

    @pytest.mark.parametrize(("n_users", "n_ratings", "told"), [(5, 10, True), (5, 8, False), (1, 44, True)])
    def test_enough_ratings_that_are_all_right_are_a_leak(self, n_users, n_ratings, told):
        values, guess = np.ones(n_users), np.full(n_users, 0.3)
        found = summarise(
            "rated_rating_accuracy", values, guess, n_ratings=np.full(n_users, float(n_ratings))
        )
        assert found.verdict == ("LEAK" if told else "INCONCLUSIVE")
        assert found.p_value == 0.5**n_users  # that of the sign test
        assert ("44 ratings" in why_verdict(found)) != told
        assert ("few clients: a test of their single ratings" in why_verdict(found)) == told
        of_lists = summarise("rated_set_auc", values, guess)
        assert "ratings" not in why_verdict(of_lists)

    def test_what_can_be_guessed_is_none(self):
        """Everybody but one is known beforehand."""
        guess = np.array([1.0, 1.0, 1.0, 0.3])
        found = summarise(
            "rated_rating_accuracy", np.ones(4), guess, n_ratings=np.array([100.0, 100, 100, 20])
        )
        assert found.verdict == "INCONCLUSIVE"

    @pytest.mark.parametrize(("of_one_level", "leak"), [(1.0, False), (0.5, True)])
    def test_one_level_that_is_met_by_luck_is_none(self, of_one_level, leak):
        """The best guess names another level; who names this one is right everywhere, knowing nothing."""
        ratings = np.full((6, 60), 2.0)
        ratings[1:, ::5] = 3
        ratings[0] = np.where(np.arange(60) < 60 * of_one_level, 5.0, 1.0)
        answer = block(ratings[:1], np.zeros((1, 0)), ratings[:1] > 0)
        silent = dict.fromkeys(range(1, 6), "no answer")
        found = Reconstruction("mine", np.arange(6), (answer,), silent, {})
        rows = score(found, manifest("observed-only", 6, 60, ()), truth_of(ratings, np.zeros((6, 0))))
        row = next(row for row in rows if row.metric == RATED)
        assert row.summary.baseline < 0.75
        assert (row.summary.verdict == "LEAK") == leak

    def test_who_has_no_answer_takes_no_part(self):
        values, guess = np.array([1.0, *[0.4] * 20]), np.array([0.3, *[0.4] * 20])
        silent = np.array([False, *[True] * 20])
        found = summarise(RATED, values, guess, 0, silent, np.array([50.0, *[500.0] * 20]))
        assert found.verdict == "LEAK"

    @pytest.mark.thorough  # counts
    def test_who_is_told_all_others_is_rarely_called_a_leak(self):
        """Each rating right with 0.9, as the null has it, whatever the clients' lengths."""
        rng = np.random.default_rng(5)
        called = 0
        for _ in range(500):
            n = rng.integers(5, 60, 6).astype(float)
            values = rng.binomial(n.astype(int), 0.9) / n
            called += summarise(RATED, values, np.full(6, 0.4), n_ratings=n).verdict == "LEAK"
        assert called <= 12  # of 5 expected at 0.01: three standard deviations

    def test_a_recording_of_five_clients_is_a_leak(self, tmp_path):
        ratings = fl.synthetic(users=5, items=60, ratings_per_user=20)
        fl.record(tmp_path / "t", ratings, victim="fedmf", factors=4, rounds=[0])
        scores = fl.score(fl.attack(tmp_path / "t", "undeclared"), transcript=tmp_path / "t")
        verdicts = scores.set_index("metric")["verdict"]
        assert verdicts["rating_accuracy"] == verdicts["rated_rating_accuracy"] == "LEAK"


def test_nobody_of_a_few_bounds_little():
    """None of 12 clients fully recovered: 0.26 of all may be. Before: NO EVIDENCE, bounded by 0."""
    few, many = (summarise("users_fully_recovered", np.zeros(n), np.zeros(n), binary=True) for n in (12, 73))
    assert few.verdict == "INCONCLUSIVE"
    assert "[0, 0.26]" in why_verdict(few)
    assert many.verdict == "NO EVIDENCE"
    assert 0.049 < many.advantage_high < 0.05


@pytest.mark.thorough  # counts
def test_interval_covers():
    """95 % intervals of a mean of 60 clients cover it; 300 runs, failure probability < 1e-4
    if the true rate is 0.93.
    """
    covered = 0
    for seed in range(300):
        values = np.random.default_rng(seed).beta(2, 3, 60)
        found = summarise("rating_accuracy", values, np.zeros(60), seed)
        covered += found.ci_low <= 0.4 <= found.ci_high
    assert covered / 300 > 0.87


def test_no_leak_is_rarely_called_a_leak():
    """Values and baseline of one distribution: at most 5 of 100 verdicts may be LEAK. At a level
    of 1 % the probability of more than 5 is 5e-4.
    """
    leaks = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        found = summarise("rating_accuracy", rng.random(80), rng.random(80), seed)
        leaks += found.verdict == "LEAK"
    assert leaks <= 5


def test_advantage_of_errors():
    found = summarise("rating_mae", np.full(5, 0.2), np.full(5, 0.8))
    assert found.advantage == pytest.approx(0.75)


def test_nothing_defined():
    found = summarise("rating_accuracy", np.full(3, np.nan), np.zeros(3))
    assert found.n_users == 0
    assert found.verdict == "NOT TESTED"


def test_sign_test_is_exact():
    values = np.array([1.0, 1, 1, 1, 0, 0.5])
    baseline = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    assert sign_test(values - baseline) == pytest.approx((6 / 32, 31 / 32))
    assert sign_test(np.zeros(6)) == (1.0, 1.0)


def test_of_few_clients_the_test_by_ratings_adds_next_to_nothing_to_that_of_dealt_rows():
    """Both are at 0.01; the best guess that is let in passes the first with less than 0.000004."""
    worst = 0.0
    for n in (43, 44, 45, 60, 100, 300):
        fewest = n + 1  # right answers that are called a leak
        while ratings_test(np.array([(fewest - 1) / n]), np.zeros(1), np.array([n + 0.0])) < LEAK_LEVEL:
            fewest -= 1
        worst = max(worst, float(binom.sf(fewest - 1, n, GUESSED)))
    assert 0 < worst < 4e-6
    one, best = np.ones(1), np.full(1, GUESSED + 0.01)
    assert ratings_test(one, best, np.array([400.0])) == 1
