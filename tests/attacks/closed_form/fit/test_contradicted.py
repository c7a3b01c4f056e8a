"""What most clients contradict is answered for nobody."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Estimates, Outcome, Reconstruction
from attacks.closed_form.fit.contradicted import (
    ALL_ALIKE,
    BIASED_ALONE,
    silent_about,
    unless_biased_alone,
    unless_contradicted,
)


def noisy_step(path, attack, learned=lambda stars: stars, bias=0.0):
    """Fifty clients of a plain sgd step, declared as it is, under declared noise."""
    rng = np.random.default_rng(5)
    q, p = rng.normal(0, 0.5, (60, 6)), rng.normal(0, 0.5, (50, 6))
    own = rng.normal(0, bias, 50) if bias else np.zeros(50)
    rated, stars = [rng.permutation(60)[:30] for _ in p], rng.integers(1, 6, (50, 30))
    rule = {"rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all", "reduction": "sum"}
    rule |= {"upload": "gradient", "loss": "squared", "link": "identity", "clip": "none", "start": "kept"}
    constants = {"client_learning_rate": 0.005, "lambda_factors": 0.0, "upload_scale": 1.0}
    noise = [{"name": "gaussian", "scale": 0.02}]
    with fl.Recorder(
        path, rating_levels=range(1, 6), rule=rule, constants=constants, defenses=noise
    ) as recorder:
        for round_ in range(4):
            recorder.broadcast(round_, q)
            for user, items in enumerate(rated):
                error = learned(stars[user]) - q[items] @ p[user] - own[user]
                rows = error[:, None] * p[user] + rng.normal(0, 0.02, (30, 6))
                recorder.upload(round_, user, rows, items)
                p[user] += 0.01 * error @ q[items]
            q = q + rng.normal(0, 0.05, q.shape)
    table = np.zeros((50, 60))
    table[np.arange(50)[:, None], rated] = stars
    found = fl.attack(path, attack)
    user, _, index, value, _ = (np.concatenate(column) for column in zip(*found.rows(), strict=True))
    return found, np.rint(value) == table[user, index]


@pytest.mark.parametrize("attack", ["spectral", "eq24-corrected"])
def test_small_declared_noise_does_not_hide_what_is_declared_rightly(tmp_path, attack):
    found, right = noisy_step(tmp_path / "t", attack)
    assert len(found.abstained) <= 25
    assert right.mean() > 0.97


LOWERED = {"learned": lambda stars: (stars - 1) / 4}


@pytest.mark.parametrize("attack", ["spectral", "eq24-corrected"])
@pytest.mark.parametrize("otherwise", [{"learned": lambda stars: stars / 5}, LOWERED, {"bias": 1.0}])
def test_what_most_clients_contradict_is_answered_for_none(tmp_path, otherwise, attack):
    """Ratings mapped to 0 .. 1, undeclared biases: a few clients fitted the grid by accident."""
    found, right = noisy_step(tmp_path / "t", attack, **otherwise)
    assert right.size == 0
    assert len(found.abstained) == 50


def numbers(misfit, allowed, answered):
    users = np.arange(len(misfit))
    kind, index = np.zeros((1, 3), np.int8), np.arange(3)[None]
    value = np.where(np.array(answered)[:, None], 3.0, np.nan) + np.zeros((len(misfit), 3))
    abstained = {int(user): "off" for user in users[~np.array(answered)]}
    told = {"misfit": np.array(misfit), "allowed": np.array(allowed)}
    return Reconstruction("t", users, (Estimates(users, kind, index, value),), abstained, diagnostics=told)


def test_who_counts_as_judged():
    """Clients with too few ratings, and those whose noise is large, contradict nothing."""
    off = numbers([0.1] * 3 + [0.9] * 7, [0.25] * 10, [True] * 3 + [False] * 7)
    silent = unless_contradicted(off, 0.25)
    assert len(silent.abstained) == 10
    assert np.isnan(silent.blocks[0].value).all()
    assert "of 10 clients who can be judged 3 fit" in silent.abstained[0]
    near = numbers([0.1] * 3 + [0.4] * 7, [0.25] * 3 + [0.01] * 7, [True] * 3 + [False] * 7)
    assert unless_contradicted(near, 0.25) is near
    few = numbers([0.1] * 3 + [0.9] * 7, [0.25] * 3 + [0.01] * 7, [True] * 3 + [False] * 7)
    assert unless_contradicted(few, 0.25, np.ones(10, bool)) is few
    assert unless_contradicted(off, 0.25, np.arange(10) < 5) is off


@pytest.mark.parametrize(("clients", "stars", "answered"), [(6, (2,), 0), (2, (2,), 2), (6, (2, 5), 6)])
def test_rows_that_say_that_everybody_rated_everything_alike_are_not_answered(
    tmp_path, clients, stars, answered
):
    """As the equally long rows of an optimizer did, whose decay met its step; few clients may be so."""
    rng = np.random.default_rng(0)
    with fl.Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5]) as recorder:
        q = rng.normal(0, 0.5, (40, 4))
        recorder.broadcast(0, q)
        for user in range(clients):
            items, p = rng.choice(40, 10, replace=False), rng.normal(0, 0.5, 4)
            r = np.resize(stars, 10)
            recorder.upload(0, user, np.outer(r - q[items] @ p, p), items)
    found = fl.attack(tmp_path / "t", "grid")
    assert clients - len(found.abstained) == answered
    if not answered:
        assert set(found.abstained.values()) == {ALL_ALIKE}


@pytest.mark.parametrize(
    ("biased", "misfit", "silent"),
    [
        ([0], 0.2, {0}),  # the only one
        ([0], 1e-4, set()),  # whose ratings are on the grid
        ([0, 1, 2], 0.2, set()),  # the program keeps biases
        ([0, 1], 0.2, {0, 1}),
    ],
)
def test_a_bias_that_next_to_nobody_has_is_what_makes_ratings_fit(biased, misfit, silent):
    found = numbers([misfit] * 5, [0.25] * 5, [True] * 5)
    told = unless_biased_alone(found, np.isin(found.users, biased))
    assert told.abstained == dict.fromkeys(silent, BIASED_ALONE)
    assert np.isnan(told.blocks[0].value).all(axis=1).tolist() == [user in silent for user in range(5)]


def test_answers_that_are_taken_back_are_no_noise():
    """Noise alone explains clients 1 and 2; who else has no answer was not told from it."""
    users = np.arange(1, 6)
    block = Estimates(users, np.zeros((1, 1), np.int8), np.zeros((1, 1), int), np.full((5, 1), 3.0))
    noise = dict.fromkeys((1, 2), "noise")
    found = Reconstruction("likelihood", users, (block,), noise, {}, {}, outcome=Outcome.NOTHING_FOUND)
    assert silent_about(found, users <= 3, "noise").outcome == Outcome.NOTHING_FOUND
    assert silent_about(found, users > 2, "taken back").outcome == Outcome.ANSWERED
