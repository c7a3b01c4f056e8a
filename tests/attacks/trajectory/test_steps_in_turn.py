"""Hu & Fang's published order: rows at factors of their own, clients that step in an order nobody sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attacks.base import silent
from attacks.client_rules.client_update import step_of
from attacks.trajectory.answers import reconstruct
from attacks.trajectory.attack import Trajectory
from attacks.trajectory.factor_trajectories import Packed
from attacks.trajectory.passes import fit_clients, order_spread
from attacks.trajectory.trajectory_model import model_of
from audit.factories import make_defenses
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from victims.data.synthetic import Synthetic, generate
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.recording import record
from victims.training import start
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript

VICTIM = DecentralisedMF(factors=4, order="per-rating", learning_rate=0.02)


@pytest.fixture(scope="module")
def community():
    return generate(Synthetic(users=30, items=15, ratings_per_user=9.0, single=0.03, seed=2))


@pytest.fixture(scope="module")
def recorded(community, tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("in-turn"), {}

    def make(text):
        if text not in made:
            path = folder / str(len(made))
            record(VICTIM, community, path, rounds=range(5), defenses=make_defenses(text), seed=4)
            made[text] = open_transcript(path)
        return made[text]

    return make


def model(view):
    return model_of(view, max_rounds=12, n_starts=5, max_steps=100)


@pytest.mark.thorough
def test_noise_once_cancels_in_this_order_too(community, recorded):
    """W o R to 1e-6 for nearly all clients with four ratings; the others have a reason."""
    found = Trajectory(answer="stretched").attack(recorded("hdpmf").view("server"), 0)
    truth = start(VICTIM, community, make_defenses("hdpmf"), 4).ratings.matrix().toarray()
    user, _, item, value, _ = (np.concatenate(part) for part in zip(*found.rows(), strict=True))
    worst = np.full(community.n_users, np.inf)
    worst[np.unique(user)] = 0
    np.maximum.at(worst, user, np.abs(value - truth[user, item]))
    assert np.mean(worst[np.diff(community.indptr) >= 4] < 1e-6) >= 0.97
    assert (worst[np.isfinite(worst)] < 1e-6).all()


@pytest.mark.thorough
def test_stretched_ratings_of_few_items_are_taken_apart(community, recorded):
    found = Trajectory().attack(recorded("hdpmf").view("server"), 0)
    truth = community.matrix().toarray()
    user, _, item, value, _ = (np.concatenate(part) for part in zip(*found.rows(), strict=True))
    assert len(found.abstained) <= 0.4 * community.n_users
    assert (value == truth[user, item]).mean() >= 0.98


@pytest.mark.thorough
def test_fresh_noise_is_read_as_surely_as_the_fit_says(community, recorded):
    transcript = recorded("objective-noise:noise=fresh,epsilon=40")
    view = transcript.view("server")
    assert model(view).loose
    truth = community.matrix().toarray()
    fits = fit_clients(view, model(view), 0, silent)
    away = [(part.value - truth[part.users[:, None], part.index]) / part.deviation for part in fits]
    score_ = np.concatenate([part[fit.valid] for part, fit in zip(away, fits, strict=True)])
    assert np.quantile(np.abs(score_), 0.68) == pytest.approx(1.0, abs=0.2)
    # a pass more starts from what chance added, too, and stays where it is
    again = fit_clients(view, model(view), 0, silent, prior_passes=3)
    for fit, more in zip(fits, again, strict=True):
        assert more.start.shape == fit.start.shape == (fit.users.size, view.rounds.size * 4)
        moved = np.abs(more.posterior_value - fit.posterior_value)[fit.valid]
        assert np.median(moved / fit.deviation[fit.valid]) < 0.1
    found = reconstruct("trajectory", model(view), fits, {}, answer="ratings", max_misfit=0.5)
    rows = score(found, transcript.manifest, read_truth(truth_path(transcript.path)))
    verdict = {row.metric: row.summary.verdict for row in rows}
    for metric in ("rated_rating_accuracy", "factor_cosine", "factor_relative_error"):
        assert verdict[metric] == "LEAK", metric


@pytest.mark.thorough
def test_spread_over_orders_is_that_of_plain_loops():
    """One client, two rounds: 400 orders by hand; the drawn ones' root mean square is within a quarter."""
    rng = np.random.default_rng(1)
    n, k, rate = 12, 3, 0.03
    seen, value, p = rng.normal(size=(n, k)), rng.uniform(1, 5, n), 0.3 * rng.normal(size=k)
    victim = DecentralisedMF(factors=k, order="per-rating", learning_rate=rate)
    manifest = victim.manifest(generate(Synthetic(users=3, items=40)), [0, 1])
    step = step_of(manifest, np.arange(2), np.array([n]))
    rows, listed = np.zeros((1, 2, n, k)), np.zeros((1, n), int)
    factors = np.stack([np.zeros((n, k)), seen])[None]  # clients step with what is broadcast next
    packed = Packed(
        np.array([0]), listed, np.arange(n)[None], np.ones((1, n), bool), rows, rows, None, np.ones((1, n)),
        np.array([True]), factors,
    )  # fmt: skip
    path = np.broadcast_to(p, (1, 2, k))
    found = np.sqrt(
        np.mean([order_spread(packed, step, path, value[None], rng)[0, 0] ** 2 for _ in range(50)])
    )

    def by_hand():
        u = p.copy()
        for j in rng.permutation(n):
            u = u - rate * (2 * (u @ seen[j] - value[j]) * seen[j] + 2 * 0.01 * u)
            u /= max(1, np.linalg.norm(u))
        return u

    ends = np.array([by_hand() for _ in range(400)])
    assert found >= 0.99 * ends.std(axis=0).max() / 2
    assert np.sqrt(((ends - ends.mean(axis=0)) ** 2).mean()) <= 1.1 * found
    assert found <= 3 * np.sqrt(((ends - ends.mean(axis=0)) ** 2).mean())


@pytest.mark.thorough
def test_a_client_that_moves_between_its_rows_is_not_fitted(recorded):
    """References of their own, and clients that are said to step before they send: no factor for a round."""
    view = recorded("hdpmf").view("server")
    rule = view.manifest.rule.model_copy(update={"rule": "sgd"})
    other = replace(view, manifest=view.manifest.model_copy(update={"declared_rule": rule, "update": "sgd"}))
    assert "moves after every rating" in Trajectory().obstacle(other)
