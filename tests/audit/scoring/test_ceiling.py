"""The ceilings: by hand, never below the best guess, not passed by the attack; and of ratings never sent."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from attacks.likelihood import oracle
from audit.actions import score as answer
from audit.factories import make_attack, make_victim
from audit.scoring import decoder
from audit.scoring.baselines import best_of
from audit.scoring.ceiling import RATED_SET_METRICS, Ceiling, guessed
from audit.scoring.decoder import ceilings, computable, obstacle, true_answers
from audit.scoring.metrics import ERRORS, score_users
from audit.scoring.score import score
from audit.scoring.statistics import interval
from audit.scoring.truth import Truth, read_truth
from tests.attacks.likelihood.test_likelihood import noisy, without
from tests.audit.scoring.test_metrics import baselines
from victims.data.synthetic import Synthetic, generate
from victims.protocols.cofactor_draws import EXPLICIT
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript

UNRATED = [("semi-als", "include-unrated"), ("sgd", "include-unrated")]


def prepared(transcript, scale):
    """Model, the rest of what a noisy view tells, its rows, the true answers and the factors to them."""
    batches, parameters = oracle.prepared(noisy(transcript.view("server"), scale))
    answers = true_answers(batches, 0, read_truth(truth_path(transcript.path)))
    factors = oracle.factors_of(batches, parameters, 0, answers)
    problem = batches.problem
    known = problem.attribute_factors, batches.rows(0), parameters.constants
    return problem.model, known, answers, factors


def cost_by_hand(model, known, user, level, active, p):
    """sum |f - y p| of a client with the given answers, p by (8), or by (9) and (10) from p[0]."""
    attribute_factors, rows, constants = known
    constants = {name: float(value) for name, value in constants._asdict().items()}
    first, ridge, rate = (constants[name] for name in ("lambda_attributes", "lambda_factors", "rate"))
    valid = np.asarray(rows.valid[user])
    weight = np.where(np.array(model.weighted), constants["alpha"], 1.0)[level][valid]
    z = np.array(model.levels)[level][valid]
    total = 0.0
    after = np.asarray(p[user, 0])
    for t in range(rows.items.shape[0]):
        q, u = np.asarray(rows.factors[t, user]).T[valid], attribute_factors[t].T
        square = q.T @ (weight[:, None] * q) + first * u.T @ u
        right = q.T @ (weight * z) + first * u.T @ active
        now = np.linalg.solve(square + ridge * np.eye(len(square)), right) if model.tied else after
        after = (1 - 2 * rate * ridge) * now + 2 * rate * (right - square @ now)
        y = np.concatenate([weight * (z - q @ now), active - u @ now])
        f = np.concatenate([np.asarray(rows.items[t, user]).T[valid], np.asarray(rows.attributes[t, user]).T])
        total += np.abs(f - y[:, None] * now).sum()
    return total


@pytest.mark.parametrize("scenario", [UNRATED[0], pytest.param(UNRATED[1], marks=pytest.mark.thorough)])
def test_likelihoods_by_hand(transcripts, scenario):
    """Every candidate of some slots and attributes: all rows of the client, p solved or stepped anew."""
    scale = 0.5
    model, known, answers, p = prepared(transcripts[scenario], scale)
    rows = known[1]
    assert model.tied == (scenario[0] == "semi-als")
    assert model.n_runs == 1
    items, attributes = decoder.log_likelihoods(model, *known, answers, p)
    truth = np.asarray(answers.items.argmax(axis=0))
    blocks = np.array(model.blocks)
    for user in (0, 5, 11):
        active = np.asarray(answers.attributes[user])
        for slot in np.flatnonzero(rows.valid[user])[:3]:
            by_hand = []
            for candidate in range(len(model.levels)):
                level = truth[user].copy()
                level[slot] = candidate
                by_hand.append(-cost_by_hand(model, known, user, level, active, p) / scale)
            found = np.asarray(items[:, user, slot])
            np.testing.assert_allclose(found - found[0], np.array(by_hand) - by_hand[0], atol=1e-7)
        base = cost_by_hand(model, known, user, truth[user], active, p)
        for column in range(blocks.size):
            other = np.where(blocks == blocks[column], 0.0, active)
            other[column] = 1.0
            by_hand = (base - cost_by_hand(model, known, user, truth[user], other, p)) / scale
            assert float(attributes[user, column]) == pytest.approx(by_hand, abs=1e-7)


def test_many_rows_as_a_quadratic(transcripts, monkeypatch):
    """With 60 rows the posteriors differ by little already, and what the quadratic takes away is rare."""
    model, known, answers, p = prepared(transcripts["semi-als", "include-unrated"], 1.0)

    def right():
        decoder.log_likelihoods.clear_cache()
        found = decoder.log_likelihoods(model, *known, answers, p)[0]
        share = np.exp(found - np.logaddexp.reduce(np.asarray(found), axis=0))
        return np.sum(share * answers.items, axis=0)[np.asarray(known[1].valid)]

    exact = right()
    monkeypatch.setattr(decoder, "FEW", 1)
    near = right()
    decoder.log_likelihoods.clear_cache()
    assert np.abs(near - exact).mean() < 0.02
    assert near.mean() > exact.mean() - 0.005


METRICS = (
    "rating_accuracy", "rated_rating_accuracy", "rating_mae", "rated_set_auc", "rated_set_f1",
    "attribute_group_accuracy",
)  # fmt: skip


class TestLimit:
    @pytest.mark.thorough
    def test_the_attack_does_not_pass_it(self, transcripts):
        """Where the decoder that is told p was passed: clients with one rating and more. Per metric the
        paired interval over clients must reach down to the limit; a fixed run.
        """
        weighting = "observed-only"
        transcript = transcripts["semi-als", weighting]
        view = noisy(transcript.view("server"), 0.5)
        truth = read_truth(truth_path(transcript.path))
        found = make_attack("likelihood").attack(view, 0)
        limits = ceilings(view, truth)
        read = score_users(found.blocks, view.manifest, truth, view.users)
        for metric in METRICS:
            sign = -1 if metric in ERRORS else 1
            over = sign * (read[metric] - limits[metric].map)
            over = over[~np.isnan(over)]
            low, _ = interval(over, 0)
            assert low <= 1e-9, (metric, over.mean())

    def test_it_is_no_less_than_the_best_guess(self, transcripts):
        """And the decoder itself, without guessing, is about as good where the rows say nothing."""
        transcript = transcripts[UNRATED[0]]
        view = noisy(transcript.view("server"), 100.0)
        truth = read_truth(truth_path(transcript.path))
        limits, guess = ceilings(view, truth), baselines(view.manifest, truth, view.users)
        found = make_attack("guess-majority").attack(view, 0)
        for part in score(found, view.manifest, truth, ceilings=limits):
            better = min if part.metric in ERRORS else max
            limit, baseline = part.ceiling.best, part.summary.baseline
            assert better(limit, baseline) == limit, part
            assert better(limit, part.summary.value) == limit, part
        for metric in ("rated_rating_accuracy", "rated_set_auc", "attribute_group_accuracy"):
            baseline = np.nanmean(best_of(metric in ERRORS, guess[metric])[1])
            assert np.nanmean(limits[metric].map) > baseline - 0.06, metric

    @pytest.mark.thorough
    def test_where_the_answers_do_not_explain_the_rows_nothing_limits(self, transcripts):
        """Noise of another scale than declared, which no factors explain, as where training diverges."""
        transcript = transcripts["semi-als", "observed-only"]
        view = noisy(transcript.view("server"), 5.0)
        truth = read_truth(truth_path(transcript.path))
        smaller = [{"name": "laplace", "scale": 1.0}]
        wrong = replace(view, manifest=view.manifest.model_copy(update={"defenses": smaller}))
        assert np.nanmean(ceilings(view, truth)["rated_rating_accuracy"].map) < 0.9
        for metric, limit in ceilings(wrong, truth).items():
            perfect = 0.0 if metric in ERRORS else 1.0
            told = limit.map[~np.isnan(limit.map)]
            assert told.size, metric
            assert (told == perfect).all(), metric

    @pytest.mark.thorough
    def test_without_noise_to_speak_of_everything_is_read(self, transcripts):
        for scenario in (("semi-als", "observed-only"), ("sgd", "include-unrated")):
            transcript = transcripts[scenario]
            view = noisy(transcript.view("server"), 1e-7)
            found = ceilings(view, read_truth(truth_path(transcript.path)))
            assert found["rating_accuracy"].ml.mean() > 0.999, transcript.path
            assert np.nanmean(found["attribute_group_accuracy"].map) == pytest.approx(1.0)

    @pytest.mark.thorough
    def test_the_factors_that_stand_for_the_truth_are_the_likeliest(self, tmp_path):
        """In sgd the limit is told the factor that explains the uploads best under the true answers; from one
        start a client of two ratings was told a worse one, and 0.9958 was the limit of what reads 1.0.
        """
        few = generate(Synthetic(users=150, items=60, ratings_per_user=2.0, single=0.1, seed=2))
        path = tmp_path / "t"
        record(FedMVMF(update="sgd", weighting="observed-only"), few, path, rounds=[4], seed=1)
        view = noisy(open_transcript(path).view("server"), 0.02)
        assert ceilings(view, read_truth(truth_path(path)))["rating_accuracy"].ml.mean() > 0.999

    def test_an_unknown_scale_is_fitted(self, transcripts):
        transcript = transcripts["semi-als", "include-unrated"]
        truth = read_truth(truth_path(transcript.path))
        known, hidden = (
            ceilings(noisy(transcript.view("server"), 0.5, tell=tell), truth)["rating_accuracy"]
            for tell in (True, False)
        )
        assert hidden.map.mean() == pytest.approx(known.map.mean(), abs=0.02)

    def test_not_where_constants_are_not_public(self, transcripts):
        """An attack may estimate them, and then read more than whoever leaves each round's p free."""
        view = noisy(transcripts["semi-als", "observed-only"].view("server"), 0.5)
        assert computable(view)
        assert "not public" in obstacle(without(view, "lambda_factors"))
        linked = noisy(transcripts["sgd", "observed-only"].view("server"), 0.5)
        assert "not public" in obstacle(without(linked, "client_learning_rate"))
        assert computable(without(linked.during(linked.rounds[:1]), "client_learning_rate"))
        clear = view.manifest.model_copy(update={"defenses": [{"name": "paillier"}]})
        assert "paillier" in obstacle(replace(view, manifest=clear))

    def test_over_the_scored_clients(self, transcripts):
        """Clients of whom the decoder says nothing count with the guess, as those of the attack do."""
        transcript = transcripts["semi-als", "observed-only"]
        view = noisy(transcript.view("server"), 0.5)
        truth = read_truth(truth_path(transcript.path))
        found = make_attack("guess-majority").attack(view, 0)
        half = view.users[::2]
        perfect = {"rated_rating_accuracy": Ceiling(half, np.ones(half.size), np.ones(half.size))}
        parts = {part.metric: part for part in score(found, view.manifest, truth, ceilings=perfect)}
        part = parts["rated_rating_accuracy"]
        guess = baselines(view.manifest, truth, view.users)["rated_rating_accuracy"]["majority"]
        expected = (half.size + np.sum(guess[1::2])) / view.users.size
        assert part.ceiling.map == part.ceiling.best == pytest.approx(expected)
        assert parts["rating_accuracy"].ceiling is None


RATINGS = generate(Synthetic(users=24, items=60, seed=4))


class Made(NamedTuple):
    """A recording, its truth, which pairs were sent with their rating, and the client who receives most."""

    transcript: Transcript
    truth: Truth
    sent: set[tuple[int, int]]
    adversary: str


def made(path, name, **options) -> Made:
    victim = make_victim(name, {"factors": "4", **options})
    record(victim, RATINGS, path, rounds=[0])
    samples = victim.init(RATINGS, 0).samples
    explicit = samples.kind == EXPLICIT
    sent = set(zip(samples.user[explicit].tolist(), samples.item[explicit].tolist(), strict=True))
    transcript = open_transcript(path)
    receiver = int(np.bincount(transcript.deliveries.receiver).argmax())
    return Made(transcript, read_truth(truth_path(path)), sent, f"neighbour:{receiver}")


@pytest.fixture(scope="module")
def yang(tmp_path_factory):
    return made(tmp_path_factory.mktemp("yang") / "t", "dpmf-yang")


def by_hand(truth: Truth, levels: list[float], user: int, item: int) -> tuple[float, float]:
    """Bayes' rule, one rating at a time."""
    table = truth.ratings.toarray()
    mine, others = np.delete(table[user], item), np.delete(table[:, item], user)
    weights = []
    for level in levels:
        share = ((table == level).sum() + 1) / ((table > 0).sum() + len(levels))
        of_client = ((mine == level).sum() + len(levels) * share) / ((mine > 0).sum() + len(levels))
        of_item = ((others == level).sum() + len(levels) * share) / ((others > 0).sum() + len(levels))
        weights.append(of_client * of_item / share)
    share_below = np.cumsum(weights) / np.sum(weights)
    return levels[int(np.argmax(weights))], levels[int((share_below >= 0.5).argmax())]


def test_guesses_by_hand(yang):
    levels = yang.transcript.manifest.rating_levels
    row, item = yang.truth.ratings.nonzero()
    mode, median = guessed(yang.truth, np.array(levels), row[::7], item[::7])
    expected = [by_hand(yang.truth, levels, user, at) for user, at in zip(row[::7], item[::7], strict=True)]
    np.testing.assert_array_equal(np.stack([mode, median], axis=1), expected)


def test_what_is_never_sent_is_guessed(yang):
    """Each client's limit is what explicit rows carry and the guesses that are right; sets are told whole.

    Of all ratings 3 stars is the most frequent one.
    """
    view, truth = yang.transcript.view(yang.adversary), yang.truth
    assert computable(view)
    limits = ceilings(view, truth)
    table, levels = truth.ratings.toarray(), yang.transcript.manifest.rating_levels
    users = limits["rated_rating_accuracy"].users
    assert users.size > 3
    for place, user in enumerate(users.tolist()):
        right, error, most = [], [], []
        for item in np.flatnonzero(table[user]).tolist():
            told = (user, item) in yang.sent
            mode, median = (table[user, item],) * 2 if told else by_hand(truth, levels, user, item)
            right.append(mode == table[user, item])
            error.append(abs(median - table[user, item]))
            most.append(told or table[user, item] == 3)
        assert limits["rated_rating_accuracy"].ml[place] == pytest.approx(np.mean(most))
        assert limits["rated_rating_accuracy"].map[place] == pytest.approx(np.mean(right))
        assert limits["rating_mae"].map[place] == pytest.approx(np.mean(error))
        assert limits["users_fully_recovered"].map[place] == all(right)
    assert 0.5 < limits["rated_rating_accuracy"].map.mean() < 0.9
    assert all(np.nanmin([limits[name].ml, limits[name].map]) == 1 for name in RATED_SET_METRICS)


def test_beside_the_score(yang):
    """The attack's score has that limit, in the library and in the command; without the recording, none."""
    view = yang.transcript.view(yang.adversary)
    found = make_attack("cofactors").attack(view, 0)
    scored = answer(found, yang.truth, transcript=yang.transcript, adversary=yang.adversary)
    rows = {row["metric"]: row for row in scored.metrics}
    limit = rows["rated_rating_accuracy"]["ceiling"]
    limits = ceilings(view, yang.truth)["rated_rating_accuracy"]
    assert limit == pytest.approx(max(limits.ml.mean(), limits.map.mean()))
    assert limit < 0.9
    assert rows["rated_set_auc"]["ceiling"] == 1
    unseen = score(found, yang.transcript.manifest, yang.truth)
    assert all(one.ceiling is None for one in unseen)


def test_all_is_sent(tmp_path):
    """Without positives every rating has a row."""
    every = made(tmp_path / "t", "dpmf-yang", positive_share="0")
    assert not every.transcript.manifest.withholds_ratings
    found = make_attack("cofactors").attack(every.transcript.view(every.adversary), 0)
    scores = {one.metric: one for one in score(found, every.transcript.manifest, every.truth)}
    assert scores["rated_rating_accuracy"].ceiling.best == 1


def test_pairs_left_out(tmp_path):
    """DMF says nothing about the items of ratings that it leaves out: their set has no limit here."""
    left = made(tmp_path / "t", "dmf", positive_share="0.4")
    limits = ceilings(left.transcript.view(left.adversary), left.truth)
    assert 0.6 < limits["rated_rating_accuracy"].map.mean() < 1
    assert not set(RATED_SET_METRICS) & set(limits)


def test_no_limit(yang):
    """For whoever receives no rows, and under a defense."""
    helper = yang.transcript.view("eavesdropper").select(np.zeros(0, int))
    assert obstacle(helper) == "the view has no clients"
    noisy = yang.transcript.manifest.model_copy(update={"defenses": [{"name": "laplace", "scale": 1.0}]})
    view = yang.transcript.view(yang.adversary)
    assert "together with laplace" in obstacle(type(view)(**{**vars(view), "manifest": noisy}))
