"""The limit beside a score: by hand, never below the best guess, and not passed by the attack."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attacks.likelihood import oracle
from audit.factories import make_attack
from audit.scoring import all_but_one
from audit.scoring.baselines import best_guess, guesses
from audit.scoring.ceiling import ceilings, computable, obstacle, true_answers
from audit.scoring.limits import Ceiling
from audit.scoring.metrics import LOWER_IS_BETTER, score_users
from audit.scoring.score import score
from audit.scoring.statistics import interval
from audit.scoring.truth import read_truth
from tests.attacks.likelihood.test_likelihood import noisy, without
from victims.data.synthetic import Synthetic, generate
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript

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
    items, attributes = all_but_one.log_likelihoods(model, *known, answers, p)
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
        all_but_one.log_likelihoods.clear_cache()
        found = all_but_one.log_likelihoods(model, *known, answers, p)[0]
        share = np.exp(found - np.logaddexp.reduce(np.asarray(found), axis=0))
        return np.sum(share * answers.items, axis=0)[np.asarray(known[1].valid)]

    exact = right()
    monkeypatch.setattr(all_but_one, "FEW", 1)
    near = right()
    all_but_one.log_likelihoods.clear_cache()
    assert np.abs(near - exact).mean() < 0.02
    assert near.mean() > exact.mean() - 0.005


METRICS = (
    "rating_accuracy", "rated_rating_accuracy", "rating_mae", "rated_set_auc", "rated_set_f1",
    "attribute_group_accuracy",
)  # fmt: skip


class TestLimit:
    @pytest.mark.thorough
    @pytest.mark.parametrize("weighting", ["observed-only"])
    def test_the_attack_does_not_pass_it(self, transcripts, weighting):
        """Where the decoder that is told p was passed: clients with one rating and more. Per metric the
        paired interval over clients must reach down to the limit; a fixed run.
        """
        transcript = transcripts["semi-als", weighting]
        view = noisy(transcript.view("server"), 0.5)
        truth = read_truth(truth_path(transcript.path))
        found = make_attack("likelihood").attack(view, 0)
        limits = ceilings(view, truth)
        read = score_users(found.blocks, view.manifest, truth, view.users).values
        for metric in METRICS:
            sign = -1 if metric in LOWER_IS_BETTER else 1
            over = sign * (read[metric] - limits[metric].map)
            over = over[~np.isnan(over)]
            low, _ = interval(lambda v, axis: v.mean(axis=axis), (over,), 0)
            assert low <= 1e-9, (metric, over.mean())

    @pytest.mark.parametrize("scenario", [UNRATED[0], pytest.param(UNRATED[1], marks=pytest.mark.thorough)])
    def test_it_is_no_less_than_the_best_guess(self, transcripts, scenario):
        """And the decoder itself, without guessing, is about as good where the rows say nothing."""
        transcript = transcripts[scenario]
        view = noisy(transcript.view("server"), 100.0)
        truth = read_truth(truth_path(transcript.path))
        limits, guess = ceilings(view, truth), guesses(view.manifest, truth, view.users)
        found = make_attack("guess-majority").attack(view, 0)
        for part in score(found, view.manifest, truth, ceilings=limits):
            better = min if part.metric in LOWER_IS_BETTER else max
            limit, baseline = part.ceiling.best, part.summary.baseline
            assert better(limit, baseline) == limit, part
            assert better(limit, part.summary.value) == limit, part
        for metric in ("rated_rating_accuracy", "rated_set_auc", "attribute_group_accuracy"):
            baseline = np.nanmean(best_guess(metric, guess[metric])[1])
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
            perfect = 0.0 if metric in LOWER_IS_BETTER else 1.0
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
        guess = guesses(view.manifest, truth, view.users)["rated_rating_accuracy"]["majority"]
        expected = (half.size + np.sum(guess[1::2])) / view.users.size
        assert part.ceiling.map == part.ceiling.best == pytest.approx(expected)
        assert parts["rating_accuracy"].ceiling is None
