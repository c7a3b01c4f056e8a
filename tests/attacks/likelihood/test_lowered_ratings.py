"""Programs that learn ratings less the lowest level, under noise that is declared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.likelihood.lowered_ratings import lowered
from attacks.likelihood.manifest_model import law_of
from attacks.likelihood.problem import problem_of, start_parameters
from factorleak import plugins
from victims.data.synthetic import Synthetic, generate
from victims.transcript.reader import open_transcript


def recorded(path, less, update="semi-als", noise=0.3):
    """Uploads of clients who learn ratings less a number, declared as if they learned ratings."""
    ratings = generate(Synthetic(users=30, items=40, ratings_per_user=14.0, seed=3))
    program = replace(ratings, values=ratings.values - less)
    fl.record(
        path, program, victim="fedmvmf", update=update, weighting="observed-only",
        defenses=[f"laplace:b={noise}"], rounds=[3],
    )  # fmt: skip
    return ratings.matrix().toarray()


def read(path, less, **program):
    """Which answers about ratings are right, and what is said of the declared rule."""
    table = recorded(path, less, **program)
    found = fl.attack(path, "likelihood")
    user, kind, index, value, _ = (np.concatenate(part) for part in zip(*found.rows(), strict=True))
    item = kind == plugins.ITEM
    assert item.sum() >= 0.9 * (table > 0).sum()
    return value[item] == table[user[item], index[item]], found.options.get("declared_rule", "")


@pytest.mark.thorough
def test_they_are_read_as_ratings_are(tmp_path):
    """Before: nobody was answered at this noise, and at more of it each rating was one level too low."""
    plain, said = read(tmp_path / "plain", 0.0)
    assert not said
    right, said = read(tmp_path / "lowered", 1.0)
    assert "ratings less 1" in said
    assert right.mean() >= plain.mean() - 0.1  # factors, and so rows, are shorter


@pytest.mark.thorough
def test_they_are_read_where_the_factor_does_not_follow_from_ratings(tmp_path):
    """Gradient steps: the evidence is 27 nats a client ahead; before, all were taken as declared."""
    right, said = read(tmp_path / "lowered", 1.0, update="sgd", noise=0.02)
    assert "ratings less 1" in said
    assert right.mean() >= 0.95


def test_shares_that_were_learned_belong_to_ratings_one_level_up(tmp_path):
    recorded(tmp_path / "t", 0.0)
    view = open_transcript(tmp_path / "t").view("server")
    model, constants = law_of(view.manifest, view.rounds, 0.3)
    problem = problem_of(
        view, model, steps=3, key=0, estimated=True, known_noise=True, floor=1e-3, precision=np.float32,
        shape_cost=1e6,
    )  # fmt: skip
    start = start_parameters(problem, constants)
    start = start._replace(prior=start.prior._replace(level=np.arange(5.0)))
    moved = lowered(problem, start)
    assert np.asarray(moved.prior.level).tolist() == [0.0, 0.0, 1.0, 2.0, 3.0]
    assert float(moved.constants.lowered) == 1.0
    assert float(start.constants.lowered) == 0.0


def test_without_noise_they_are_differences_as_the_closed_form_has_them(tmp_path):
    """Nobody has the highest level: before, each of 72 ratings was answered one level too low."""
    rng, levels = np.random.default_rng(1), [1, 2, 3, 4, 5]
    factors = rng.normal(0, 0.5, (40, 4))
    rule = {"rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all", "reduction": "sum",
            "upload": "gradient", "loss": "squared", "link": "identity", "clip": "none"}  # fmt: skip
    constants = {"client_learning_rate": 0.05, "upload_scale": -2.0}
    with fl.Recorder(tmp_path / "t", rating_levels=levels, rule=rule, constants=constants) as recorder:
        recorder.broadcast(0, factors)
        for user in range(6):
            own, rated = rng.normal(0, 0.5, 4), rng.permutation(40)[:12]
            ratings = rng.integers(2, 6, 12).astype(float)
            error = ratings - 1 - factors[rated] @ own
            recorder.upload(0, user, -2 * error[:, None] * own, rated)
            recorder.truth(user, rated, ratings)
    found = fl.attack(tmp_path / "t", "likelihood")
    assert (found.answered_by, found.scope) == ("grid", Scope.DIFFERENCES)
    scores = fl.score(found, transcript=tmp_path / "t").set_index("metric")
    assert scores.loc["rating_difference_accuracy", "value"] == 1
    assert "rating_accuracy" not in scores.index
